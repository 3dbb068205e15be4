//! The card: its context, its free memory, and networks loaded onto it.

use crate::cache::Cache;
use crate::preflight;
use crate::session::Session;
use cudarc::driver::{CudaContext, DriverError, result};
use gpumem_core::Precision;
use gpumem_core::device::{Device, Job};
use gpumem_core::error::Error;
use std::sync::Arc;

/// A CUDA device: `Cuda::new(0)?`.
#[derive(Clone, Debug)]
pub struct Cuda {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) capability: (i32, i32),
    pub(crate) cache: Cache,
    /// Whether matrix products go to cuBLASLt.
    pub(crate) library: bool,
}

/// A failure of the driver as an error.
pub(crate) fn failure(what: &str) -> impl Fn(DriverError) -> Error + '_ {
    move |error| Error::Device { device: "CUDA", what: format!("{what}: {error}") }
}

impl Cuda {
    /// Opens the card with this number, as `nvidia-smi` counts them.
    ///
    /// # Errors
    /// [`Error::Library`] if the driver or NVRTC is missing or too old, [`Error::Device`] if there is no such card.
    pub fn new(ordinal: usize) -> Result<Cuda, Error> {
        preflight::check()?;
        let count = result::device::get_count().map_err(failure("counting the cards"))?;
        if ordinal >= usize::try_from(count).unwrap_or(0) {
            let what = format!("there is no card number {ordinal}; the machine has {count}, counted from 0");
            return Err(Error::Device { device: "CUDA", what });
        }
        let context = CudaContext::new(ordinal).map_err(failure("opening the card"))?;
        let capability = context.compute_capability().map_err(failure("asking for the compute capability"))?;
        // SAFETY: this type never uses the slices whose use events would order: all work is on one stream. Events would make
        // the capture of a graph fail.
        unsafe { context.disable_event_tracking() };
        Ok(Cuda { context, capability, cache: Cache::open(), library: true })
    }

    /// The same card with matrix products by cuBLASLt, as from the start, or by the project's own kernel, to compare them.
    pub fn with_library(self, library: bool) -> Cuda {
        Cuda { library, ..self }
    }

    /// The card's name.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn name(&self) -> Result<String, Error> {
        self.context.name().map_err(failure("asking for the card's name"))
    }

    /// Free and total memory of the card in bytes.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        let (free, total) = self.context.mem_get_info().map_err(failure("asking for the free memory"))?;
        Ok((free as u64, total as u64))
    }
}

impl Device for Cuda {
    type Runner = Session;

    fn load(&self, job: Job) -> Result<Session, Error> {
        if job.precision != Precision::F32 {
            let what = format!("{} is not available yet; use precision: F32", job.precision.name());
            return Err(Error::Unsupported { device: "CUDA", what });
        }
        let (free, _) = self.memory()?;
        if free < job.arena {
            return Err(Error::Memory { device: "CUDA", needed: job.arena, free: Some(free) });
        }
        Session::new(self, job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_card_never_panics() {
        match Cuda::new(0) {
            Ok(card) => assert!(card.memory().unwrap().1 > 0),
            Err(Error::Library { .. } | Error::Device { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Cuda::new(1_000).is_err());
    }
}
