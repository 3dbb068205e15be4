//! Loads a state from a folder into a network. Everything is checked before the first tensor is set.

use crate::Progress;
use crate::error::{Differences, Error};
use crate::folder::{self, read_at_most};
use crate::format::{LONGEST_NUMBERS, NUMBERS, Numbers, TENSORS, checksum, dtype, shape};
use gpumem_core::network::Learns;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::{Kind, Net};
use gpumem_core::run::state::{StateNumbers, StateTensor};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A state that a network was resumed from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resumed {
    /// Training steps that the network has made; of several, of the first.
    pub steps: u64,
    /// The position in the training that was saved with the state.
    pub progress: Progress,
    /// The folder of the state.
    pub path: PathBuf,
    /// Tensors of the network that the state lacks, which are unchanged. Empty except after [`SavedState::resume_matching`].
    pub left: Vec<String>,
    /// Tensors of the state that were not used. Empty except after [`SavedState::resume_matching`].
    pub unused: Vec<String>,
}

/// A saved state whose checksums are right.
#[derive(Debug)]
pub struct SavedState {
    path: PathBuf,
    numbers: Numbers,
    map: Mmap,
}

impl SavedState {
    /// Opens the newest state in `folder`, or the state that `folder` is, and checks all of its bytes.
    ///
    /// # Errors
    /// [`Error::File`] if there is no state, or it is damaged: the message lists the other states.
    pub fn open(folder: impl AsRef<Path>) -> Result<SavedState, Error> {
        let folder = folder.as_ref();
        if folder::is_state(folder) {
            return Self::read(folder);
        }
        let Some(name) = folder::newest(folder)? else {
            return Err(Error::file(folder, "has no state of a training; save one there with `save_state`"));
        };
        Self::read(&folder::path(folder, name)).map_err(|error| with_others(error, folder, name))
    }

    /// Opens the state that a mark such as `best` names, and checks it as [`SavedState::open`] does.
    ///
    /// # Errors
    /// As for [`SavedState::open`], or a mark that does not exist.
    pub fn open_marked(folder: impl AsRef<Path>, mark: &str) -> Result<SavedState, Error> {
        let folder = folder.as_ref();
        let name = if folder::is_mark(mark) { folder::marked(folder, mark)? } else { None };
        match name {
            Some(name) => Self::read(&folder::path(folder, name)),
            None => {
                Err(Error::file(folder, format!("has no state with the mark `{mark}`; `latest` is the newest one")))
            }
        }
    }

    fn read(path: &Path) -> Result<SavedState, Error> {
        let file = path.join(NUMBERS);
        let text = read_at_most(&file, LONGEST_NUMBERS).map_err(|error| Error::system(&file, "read", &error))?;
        let numbers = Numbers::parse(&file, &text)?;
        let file = path.join(TENSORS);
        let open = File::open(&file).map_err(|error| Error::system(&file, "read", &error))?;
        // SAFETY: a map is bytes that others may change only by writing into the file. States are renamed to their place when they are
        // whole, and never written to after that; the documentation asks users not to.
        let map = unsafe { Mmap::map(&open) }.map_err(|error| Error::system(&file, "read", &error))?;
        let state = SavedState { path: path.to_path_buf(), numbers, map };
        state.check(&file)?;
        Ok(state)
    }

    /// Compares the checksums.
    fn check(&self, file: &Path) -> Result<(), Error> {
        let damaged = |what: String| {
            Error::file(file, format!("{what}; the file was cut off or changed after it was saved: take another state"))
        };
        let length = self.map.first_chunk().map(|length| u64::from_le_bytes(*length));
        let end = length.and_then(|length| length.checked_add(8)).and_then(|end| usize::try_from(end).ok());
        let Some(header) = end.and_then(|end| self.map.get(..end)) else {
            return Err(damaged(format!("has {} bytes, less than its header", self.map.len())));
        };
        if checksum(header) != self.numbers.header {
            return Err(damaged("has a header of another checksum".to_string()));
        }
        let tensors = self.tensors(file)?;
        for (name, sum) in &self.numbers.tensors {
            match tensors.get(name.as_str()) {
                Some(view) if checksum(view.data()) == *sum => {}
                Some(_) => return Err(damaged(format!("has bytes of another checksum in `{name}`"))),
                None => return Err(damaged(format!("lacks `{name}`"))),
            }
        }
        match tensors.keys().find(|name| !self.numbers.tensors.contains_key(name.as_str())) {
            Some(name) => Err(damaged(format!("has `{name}`, which `{NUMBERS}` does not name"))),
            None => Ok(()),
        }
    }

    /// Returns the tensors by name.
    fn tensors(&self, file: &Path) -> Result<BTreeMap<String, TensorView<'_>>, Error> {
        let damaged = |error| {
            let what = format!(
                "cannot be read ({error}); the file was cut off or changed after it was saved: take another state"
            );
            Error::file(file, what)
        };
        let (length, metadata) = SafeTensors::read_metadata(&self.map).map_err(damaged)?;
        let mut views = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let bytes = self.map.get(8 + length + start..8 + length + end);
            let bytes = bytes.ok_or_else(|| damaged(safetensors::SafeTensorError::MetadataIncompleteBuffer))?;
            let view = TensorView::new(info.dtype, info.shape.clone(), bytes).map_err(damaged)?;
            views.insert(name, view);
        }
        Ok(views)
    }

    /// Returns the folder of the state.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the network that was saved.
    pub fn network(&self) -> &str {
        &self.numbers.network
    }

    /// Returns the numbers that are no tensors; of a network with several steps, those of the first.
    pub fn numbers(&self) -> StateNumbers {
        self.numbers.state_numbers()
    }

    /// Returns the position in the training.
    pub fn progress(&self) -> &Progress {
        &self.numbers.progress
    }

    /// Sets the whole state of a network.
    ///
    /// # Errors
    /// [`Error::Differs`] if it is the state of another network, or of this one with another batch, precision or optimizer: nothing is set
    /// then. [`Error::Copy`] if the device fails.
    pub fn resume<N: Learns, D: Device>(&self, net: &mut Net<N, D>) -> Result<Resumed, Error> {
        let file = self.path.join(TENSORS);
        let views = self.tensors(&file)?;
        let own = net.state_tensors();
        let mut differences = Differences { path: self.path.clone(), network: N::NAME, ..Differences::default() };
        self.numbers.compare::<N>(&mut differences);
        for tensor in &own {
            match views.get(tensor.name.as_str()) {
                None => differences.missing.push(tensor.name.clone()),
                Some(view) => differences.shapes.extend(differs(tensor, view)),
            }
        }
        let known: BTreeSet<&str> = own.iter().map(|tensor| tensor.name.as_str()).collect();
        differences.unexpected.extend(views.keys().filter(|name| !known.contains(name.as_str())).cloned());
        if !differences.is_empty() {
            return Err(Error::Differs(Box::new(differences)));
        }
        self.set(net, &own, &views, &self.numbers.all())?;
        Ok(self.resumed(self.numbers.steps, Vec::new(), Vec::new()))
    }

    /// Sets the tensors of a network whose names, shapes and formats match the state: for a network that has changed.
    ///
    /// If the network has the saved optimizer, steps, learning rate, seed and loss scale are set too. With another optimizer they are reset
    /// to those before the first step.
    ///
    /// # Errors
    /// [`Error::File`] if nothing matches, [`Error::Copy`] if the device fails or a tensor cannot have a value.
    pub fn resume_matching<N: Learns, D: Device>(&self, net: &mut Net<N, D>) -> Result<Resumed, Error> {
        let file = self.path.join(TENSORS);
        let views = self.tensors(&file)?;
        let is_same = self.numbers.is_of_optimizer::<N>();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for tensor in net.state_tensors() {
            let is_of_other = tensor.kind == Kind::OptimizerState && !is_same;
            match views.get(tensor.name.as_str()) {
                Some(view) if !is_of_other && differs(&tensor, view).is_none() => taken.push(tensor),
                _ => left.push(tensor.name),
            }
        }
        if taken.is_empty() {
            let what = format!("has no tensor of network `{}`; resume a network that has some of its layers", N::NAME);
            return Err(Error::file(&self.path, what));
        }
        let numbers = match is_same {
            true => self.numbers.all(),
            false => net.state_numbers_of_steps().map_err(|error| Error::copy(&self.path, error))?,
        };
        self.set(net, &taken, &views, &numbers)?;
        let set: BTreeSet<&str> = taken.iter().map(|tensor| tensor.name.as_str()).collect();
        let unused = views.keys().filter(|name| !set.contains(name.as_str())).cloned().collect();
        Ok(self.resumed(numbers.first().map_or(0, |numbers| numbers.steps), left, unused))
    }

    /// Sets tensors of the network that are among `views`, after all of them were checked.
    fn set<N: Learns, D: Device>(
        &self,
        net: &mut Net<N, D>,
        tensors: &[StateTensor],
        views: &BTreeMap<String, TensorView<'_>>,
        numbers: &[StateNumbers],
    ) -> Result<(), Error> {
        let failed = |error| Error::copy(&self.path, error);
        let pairs = || tensors.iter().filter_map(|tensor| Some((tensor, views.get(tensor.name.as_str())?)));
        for (tensor, view) in pairs() {
            net.check_state(tensor, view.data()).map_err(failed)?;
        }
        net.check_state_numbers_of_steps(numbers).map_err(failed)?;
        for (tensor, view) in pairs() {
            net.write_state(tensor, view.data()).map_err(failed)?;
        }
        net.set_state_numbers_of_steps(numbers).map_err(failed)
    }

    fn resumed(&self, steps: u64, left: Vec<String>, unused: Vec<String>) -> Resumed {
        Resumed { steps, progress: self.numbers.progress.clone(), path: self.path.clone(), left, unused }
    }
}

/// Returns in words how a tensor of the file differs from that of the network. `None` if it does not.
fn differs(tensor: &StateTensor, view: &TensorView<'_>) -> Option<String> {
    let (own, found) = ((dtype(tensor.format), shape(tensor)), (view.dtype(), view.shape().to_vec()));
    (own != found).then(|| {
        format!("`{}` ({:?} {:?} in the file, {:?} {:?} in the network)", tensor.name, found.0, found.1, own.0, own.1)
    })
}

/// Adds the other states to the error of a damaged state.
fn with_others(error: Error, folder: &Path, damaged: folder::Name) -> Error {
    let others = folder::states(folder).unwrap_or_default();
    let last = others.into_iter().rfind(|name| *name != damaged);
    match (error, last) {
        (Error::File { path, what }, Some(name)) => {
            Error::File { path, what: format!("{what}, as {}", folder::path(folder, name).display()) }
        }
        (error, _) => error,
    }
}
