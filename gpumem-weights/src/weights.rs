//! The public interface: an opened file, and methods of networks.

use crate::error::Error;
#[cfg(feature = "safetensors")]
use crate::load::owned;
use crate::load::{Report, load};
use crate::mapping::Mapping;
use crate::source::{Source, View};
use gpumem_core::network::Network;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Weights in an opened file. Its tensors are known, but no data has been read yet.
#[derive(Debug)]
pub struct Weights {
    source: Source,
    mapping: Mapping,
    strict: bool,
}

macro_rules! forwarded {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $($argument: $type),*) -> Weights {
                self.mapping = self.mapping.$name($($argument),*);
                self
            }
        )*
    };
}

impl Weights {
    /// Opens a file of safetensors, the index of several, or a state dict of `torch.save`. In a folder, opens `model.safetensors` or its
    /// index.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged, or a format whose feature is not enabled.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights, Error> {
        Self::open_with(path.as_ref(), None)
    }

    /// Opens a state dict inside another dict of a file of `torch.save`: `open_at(path, "model_ema")`. Dots separate the keys of deeper
    /// ones.
    ///
    /// # Errors
    /// As for [`Weights::open`], or a file without such a dict.
    #[cfg(feature = "pickle")]
    pub fn open_at(path: impl AsRef<Path>, key: &str) -> Result<Weights, Error> {
        Self::open_with(path.as_ref(), Some(key))
    }

    fn open_with(path: &Path, key: Option<&str>) -> Result<Weights, Error> {
        let inside = ["model.safetensors", "model.safetensors.index.json"].map(|name| path.join(name));
        let path = inside.iter().find(|inside| inside.is_file()).map_or(path, |inside| inside);
        let mut source = Source::new(path);
        let mut first = [0; 10];
        let read = File::open(path).and_then(|file| file.take(first.len() as u64).read(&mut first));
        let first = read.map(|count| &first[..count]).unwrap_or_default();
        // A header of safetensors begins with its length and a brace, and no length of one begins with `PK` or as a pickle.
        let is_index = path.extension().is_some_and(|extension| extension == "json");
        let is_header = first.get(8) == Some(&b'{');
        if !is_index && !is_header && (first.starts_with(b"PK") || first.starts_with(&[0x80, 2])) {
            pickled(&mut source, path, key)?;
        } else if is_index {
            indexed(&mut source, path)?;
        } else {
            plain(&mut source, path)?;
        }
        strip(&mut source.tensors);
        Ok(Weights { source, mapping: Mapping::new(), strict: true })
    }

    /// Sets the mapping, and replaces all earlier rules for names and layouts.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Weights {
        self.mapping = mapping;
        self
    }

    /// Sets whether network and file must have exactly the same tensors. Shapes must match in any case.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Weights {
        self.strict = strict;
        self
    }

    forwarded! {
        /// As [`Mapping::rename`].
        rename(from: &str, to: &str);
        /// As [`Mapping::transpose`].
        transpose(pattern: &str);
        /// As [`Mapping::tied`].
        tied(second: &str, first: &str);
        /// As [`Mapping::join`].
        join(network: &str, file: &[&str]);
        /// As [`Mapping::join_rows`].
        join_rows(network: &str, file: &[(&str, u64)]);
        /// As [`Mapping::split`].
        split(file: &str, network: &[&str]);
        /// As [`Mapping::skip`].
        skip(pattern: &str);
    }

    /// Returns the names and shapes of the file's tensors, by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[u64])> {
        self.source.tensors.iter().map(|(name, view)| (name.as_str(), &view.shape[..]))
    }

    /// Loads the tensors into a network.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with all differences between file and network; a value that a tensor cannot have; a failure of the device. The
    /// network is unchanged, except after a failure of the device.
    pub fn load_into<N: Network, D: Device>(self, net: &mut Net<N, D>) -> Result<Report, Error> {
        load(&self.source, &self.mapping, self.strict, net)
    }
}

#[cfg(feature = "safetensors")]
fn plain(source: &mut Source, path: &Path) -> Result<(), Error> {
    source.tensors = crate::safetensors::tensors(source, path)?;
    Ok(())
}

#[cfg(feature = "safetensors")]
fn indexed(source: &mut Source, path: &Path) -> Result<(), Error> {
    crate::safetensors::add_index(source, path)
}

#[cfg(not(feature = "safetensors"))]
fn plain(_: &mut Source, path: &Path) -> Result<(), Error> {
    Err(without_safetensors(path))
}

#[cfg(not(feature = "safetensors"))]
fn indexed(_: &mut Source, path: &Path) -> Result<(), Error> {
    Err(without_safetensors(path))
}

#[cfg(any(test, not(feature = "safetensors")))]
fn without_safetensors(path: &Path) -> Error {
    Error::file(path, "is no archive of `torch.save`; files of safetensors need the feature `safetensors`")
}

#[cfg(feature = "pickle")]
fn pickled(source: &mut Source, path: &Path, key: Option<&str>) -> Result<(), Error> {
    crate::pickle::add(source, path, key)
}

#[cfg(not(feature = "pickle"))]
fn pickled(_: &mut Source, path: &Path, _: Option<&str>) -> Result<(), Error> {
    Err(without_pickle(path))
}

#[cfg(any(test, not(feature = "pickle")))]
fn without_pickle(path: &Path) -> Error {
    Error::file(
        path,
        "was written by `torch.save`; enable the feature `pickle`, or save it with `safetensors.torch.save_file`",
    )
}

/// Removes the prefixes that `torch.compile` and `DataParallel` add to names.
fn strip(tensors: &mut BTreeMap<String, View>) {
    let compiled = |name: &str| name.replace("_orig_mod.", "");
    let is_parallel = !tensors.is_empty() && tensors.keys().all(|name| compiled(name).starts_with("module."));
    let stripped = |name: &str| {
        let name = compiled(name);
        if is_parallel { name["module.".len()..].to_string() } else { name }
    };
    let renamed: BTreeMap<String, View> = tensors.iter().map(|(name, view)| (stripped(name), view.clone())).collect();
    // If two names would become equal, no name is changed.
    if renamed.len() == tensors.len() {
        *tensors = renamed;
    }
}

/// Methods of networks that read and write files.
pub trait NetWeights {
    /// Loads every parameter and running statistic from a file: see [`Weights`] for files of other names and layouts.
    ///
    /// # Errors
    /// As for [`Weights::open`] and [`Weights::load_into`].
    fn load_weights(&mut self, path: impl AsRef<Path>) -> Result<Report, Error>;

    /// Saves parameters and running statistics into a file of safetensors, in f32. The complete file replaces an older one.
    ///
    /// # Errors
    /// A file that cannot be written, or a failure of the device. An older file is unchanged then.
    #[cfg(feature = "safetensors")]
    fn save_weights(&mut self, path: impl AsRef<Path>) -> Result<(), Error>;

    /// Saves parameters and running statistics with the names, layouts and type of a mapping. A path that ends in `.safetensors.index.json`
    /// is an index of several files in its folder.
    ///
    /// # Errors
    /// As for [`NetWeights::save_weights`], or a mapping that is not of this network.
    #[cfg(feature = "safetensors")]
    fn save_weights_as(&mut self, path: impl AsRef<Path>, mapping: &Mapping) -> Result<(), Error>;

    /// Saves the moving averages of parameters under the names of the parameters. Frozen parameters and running statistics are saved
    /// unchanged, and so are all parameters before the first average.
    ///
    /// # Errors
    /// As for [`NetWeights::save_weights`], or a network without `ema` in `TRAIN`.
    #[cfg(feature = "safetensors")]
    fn save_averages(&mut self, path: impl AsRef<Path>) -> Result<(), Error>;

    /// Saves the moving averages as [`NetWeights::save_averages`] does, with the names, layouts and type of a mapping.
    ///
    /// # Errors
    /// As for [`NetWeights::save_averages`] and [`NetWeights::save_weights_as`].
    #[cfg(feature = "safetensors")]
    fn save_averages_as(&mut self, path: impl AsRef<Path>, mapping: &Mapping) -> Result<(), Error>;
}

impl<N: Network, D: Device> NetWeights for Net<N, D> {
    fn load_weights(&mut self, path: impl AsRef<Path>) -> Result<Report, Error> {
        Weights::open(path)?.load_into(self)
    }

    #[cfg(feature = "safetensors")]
    fn save_weights(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.save_weights_as(path, &Mapping::new())
    }

    #[cfg(feature = "safetensors")]
    fn save_weights_as(&mut self, path: impl AsRef<Path>, mapping: &Mapping) -> Result<(), Error> {
        let (own, wrong) = owned(self);
        crate::save::save(self, (own, wrong), mapping, path.as_ref())
    }

    #[cfg(feature = "safetensors")]
    fn save_averages(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.save_averages_as(path, &Mapping::new())
    }

    #[cfg(feature = "safetensors")]
    fn save_averages_as(&mut self, path: impl AsRef<Path>, mapping: &Mapping) -> Result<(), Error> {
        let path = path.as_ref();
        if !self.has_averages() {
            let what = format!("`{}` keeps no moving averages to save; write `ema: 0.999` in `TRAIN`", N::NAME);
            return Err(Error::file(path, what));
        }
        let (mut own, wrong) = owned(self);
        for tensor in &mut own {
            tensor.path = self.average_of(&tensor.path).map_err(|error| Error::net(path, error))?;
        }
        crate::save::save(self, (own, wrong), mapping, path)
    }
}

#[cfg(test)]
mod tests {
    use super::{without_pickle, without_safetensors};
    use std::path::Path;

    #[test]
    fn formats_that_are_not_enabled() {
        assert_eq!(
            without_safetensors(Path::new("w")).to_string(),
            "w: is no archive of `torch.save`; files of safetensors need the feature `safetensors`"
        );
        assert_eq!(
            without_pickle(Path::new("w.pt")).to_string(),
            "w.pt: was written by `torch.save`; enable the feature `pickle`, or save it with `safetensors.torch.save_file`"
        );
    }
}
