//! Saves states, at once or in a thread during training.

use crate::Progress;
use crate::error::Error;
use crate::folder::{self, LONGEST_NAME};
use crate::format::Numbers;
use crate::lock::Lock;
use crate::open::{Resumed, SavedState};
use crate::write::WriteRequest;
use gpumem_core::network::Learns;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_core::run::state::Snapshot;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Saves the training state of a network, and resumes from it.
pub trait NetState: sealed::Sealed {
    /// Saves the training state as a new folder in `folder`, which `latest` names from then on, and returns its path.
    ///
    /// It returns when the state is on the disk. If several ranks share the training, all of them call it, the first one writes, and the others
    /// return `folder`. [`Saver`] writes during training, and removes old states.
    ///
    /// PyTorch: `torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)`.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be written to or is in use by another process, [`Error::Copy`] if the device fails. Earlier
    /// states stay intact.
    fn save_state(&mut self, folder: impl AsRef<Path>) -> Result<PathBuf, Error>;

    /// Takes over the newest state in `folder`, or the state that `folder` is. The next step is the one that followed it.
    ///
    /// # Errors
    /// [`Error::File`] if there is no state, or it is damaged; [`Error::Differs`] if it is of another network. The network is unchanged
    /// then. [`Error::Copy`] if the device fails.
    fn resume(&mut self, folder: impl AsRef<Path>) -> Result<Resumed, Error>;

    /// Takes over the newest state in `folder`, as [`NetState::resume`] does. `None` if the folder does not exist or has no state, as in
    /// the first run of a program.
    ///
    /// # Errors
    /// As for [`NetState::resume`].
    fn resume_if_any(&mut self, folder: impl AsRef<Path>) -> Result<Option<Resumed>, Error>;
}

/// Returns true if a folder has a state, or is one. Returns false if it does not exist.
///
/// # Errors
/// [`Error::File`] if it cannot be read.
pub fn has_state(folder: impl AsRef<Path>) -> Result<bool, Error> {
    let folder = folder.as_ref();
    match fs::metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::system(folder, "read", &error)),
        Ok(_) => Ok(folder::find(folder)?.is_some()),
    }
}

mod sealed {
    pub trait Sealed {}
    impl<N: gpumem_core::network::Learns, D: gpumem_core::run::device::Device> Sealed for gpumem_core::run::net::Net<N, D> {}
}

impl<N: Learns, D: Device> NetState for Net<N, D> {
    fn save_state(&mut self, folder: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let mut saver = Saver::on_rank(folder, self.rank())?;
        saver.save(self, &Progress::default())?;
        let saved = saver.wait()?;
        // When a rank goes on, the state is there for it.
        self.any_rank(false).map_err(|error| Error::copy(&saver.folder, error))?;
        Ok(saved.unwrap_or_else(|| saver.folder.clone()))
    }

    fn resume(&mut self, folder: impl AsRef<Path>) -> Result<Resumed, Error> {
        SavedState::open(folder)?.resume(self)
    }

    fn resume_if_any(&mut self, folder: impl AsRef<Path>) -> Result<Option<Resumed>, Error> {
        let folder = folder.as_ref();
        if has_state(folder)? { self.resume(folder).map(Some) } else { Ok(None) }
    }
}

/// A saver of states, which writes to a folder in a thread during training.
///
/// It keeps one copy of the state in host memory: the bytes of the network's parameters, statistics and optimizer state. If a state is
/// still being written, saving the next one waits.
///
/// ```no_run
/// # use gpumem::prelude::*;
/// # use gpumem_state::{Progress, Saver};
/// # network! {
/// #     pub struct Small;
/// #     const TRAIN: Train = Train { batch: 4, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy };
/// #     fn forward(features: Features<8>) -> Logits<3> { [Linear(3)] }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut net = Small::on(&gpumem::default_device()?)?;
/// # let (features, labels) = (Tensor::zeros(), Tensor::zeros());
/// let mut saver = Saver::open("run")?.keep(3);
/// for epoch in 0..90 {
///     let loss = net.train_step(&features, &labels)?;
///     saver.save(&mut net, &Progress { epoch: epoch + 1, ..Progress::default() })?;
/// }
/// saver.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Saver {
    folder: PathBuf,
    keep: Option<usize>,
    /// The thread that writes. It returns the snapshot for reuse of its memory. `None` if no state is being written.
    writing: Option<JoinHandle<(Snapshot, Result<PathBuf, Error>)>>,
    /// Memory for the next snapshot.
    spare: Option<Snapshot>,
    /// The last state that was written.
    saved: Option<PathBuf>,
    /// `None` on a rank that writes nothing.
    lock: Option<Lock>,
}

impl Saver {
    /// Opens a folder to save to, and makes it if it does not exist. It is locked until the saver is dropped.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be written to, or another process saves to it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Saver, Error> {
        let folder = folder.as_ref().to_path_buf();
        fs::create_dir_all(&folder).map_err(|error| Error::system(&folder, "made", &error))?;
        let lock = Lock::take(&folder)?;
        folder::clean(&folder)?;
        Ok(Saver { folder, keep: None, writing: None, spare: None, saved: None, lock: Some(lock) })
    }

    /// Opens a folder as [`Saver::open`] does on the first rank of a training, [`Net::rank`] 0. The saver of another rank takes part in saving, as all
    /// of them must, and writes nothing.
    ///
    /// # Errors
    /// As for [`Saver::open`].
    pub fn on_rank(folder: impl AsRef<Path>, rank: usize) -> Result<Saver, Error> {
        match rank {
            0 => Saver::open(folder),
            _ => {
                let folder = folder.as_ref().to_path_buf();
                Ok(Saver { folder, keep: None, writing: None, spare: None, saved: None, lock: None })
            }
        }
    }

    /// Keeps the last `states` states, at least 1, and those with a mark. Without it, all states are kept.
    #[must_use]
    pub fn keep(mut self, states: usize) -> Saver {
        self.keep = Some(states.max(1));
        self
    }

    /// Copies the state of a network, and begins to write it. Waits for an earlier state to be written.
    ///
    /// # Errors
    /// The error of the earlier state, if it could not be written; [`Error::Copy`] if the device fails.
    pub fn save<N: Learns, D: Device>(&mut self, net: &mut Net<N, D>, progress: &Progress) -> Result<(), Error> {
        self.begin(net, progress, Vec::new())
    }

    /// Saves a state as [`Saver::save`] does, and sets `mark`, such as `best`, to it. A state with a mark is not removed.
    ///
    /// # Errors
    /// As for [`Saver::save`], and [`Error::File`] for a mark that is no simple name.
    pub fn save_marked<N: Learns, D: Device>(
        &mut self,
        net: &mut Net<N, D>,
        progress: &Progress,
        mark: &str,
    ) -> Result<(), Error> {
        if !folder::is_mark(mark) {
            return Err(Error::file(
                &self.folder,
                format!(
                    "cannot have the mark `{mark}`; use 1 to {LONGEST_NAME} letters, digits, `_` and `-`, not beginning with `step-`"
                ),
            ));
        }
        self.begin(net, progress, vec![mark.to_string()])
    }

    fn begin<N: Learns, D: Device>(
        &mut self,
        net: &mut Net<N, D>,
        progress: &Progress,
        marks: Vec<String>,
    ) -> Result<(), Error> {
        self.wait()?;
        if self.lock.is_none() {
            return net.join_snapshot().map_err(|error| Error::copy(&self.folder, error));
        }
        let copied = match self.spare.take() {
            Some(mut spare) => net.snapshot_into(&mut spare).map(|()| spare),
            None => net.snapshot(),
        };
        let snapshot = copied.map_err(|error| Error::copy(&self.folder, error))?;
        let numbers = Numbers::of::<N>(snapshot.numbers_of_steps(), progress.clone());
        let order = WriteRequest { folder: self.folder.clone(), keep: self.keep, marks, numbers };
        let write = move || {
            let written = order.write(&snapshot);
            (snapshot, written)
        };
        let thread = std::thread::Builder::new().name("gpumem-save".to_string()).spawn(write);
        self.writing = Some(thread.map_err(|error| Error::system(&self.folder, "written to by a thread", &error))?);
        Ok(())
    }

    /// Waits until everything is written, and returns the folder of the last state. `None` if none was saved.
    ///
    /// Dropping a saver waits too, but loses the error.
    ///
    /// # Errors
    /// [`Error::File`] if the state could not be written. Earlier states stay intact.
    pub fn wait(&mut self) -> Result<Option<PathBuf>, Error> {
        if let Some(writing) = self.writing.take() {
            let Ok((snapshot, written)) = writing.join() else {
                return Err(Error::file(&self.folder, "was not written, for its thread has panicked; save again"));
            };
            self.spare = Some(snapshot);
            self.saved = Some(written?);
        }
        Ok(self.saved.clone())
    }

    /// Returns the folder that states are saved to.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // The lock is released after the thread has ended.
        let _ = self.wait();
    }
}
