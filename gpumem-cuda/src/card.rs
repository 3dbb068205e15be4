//! A card as sessions see it: its context, its abilities, the libraries in use, and the processes that hold its memory.

use crate::compile::cache::Cache;
use crate::context::bind;
use crate::error::failure;
use crate::libraries::nvml::Nvml;
use cudarc::driver::CudaContext;
use gpumem_core::error::{Beside, Error, Holder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// When attention runs on Hopper's warpgroup instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warpgroups {
    /// With autotuning, if it is faster.
    Timed,
    /// Whenever the card can, timed or not.
    Always,
    /// Not at all.
    Never,
}

/// A card and its context.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(crate) context: Arc<CudaContext>,
    /// Compute capability, major and minor.
    pub(crate) capability: (i32, i32),
    /// Number of multiprocessors; 0 if the card does not take cooperative launches, which a grid barrier needs.
    pub(crate) multiprocessors: u32,
    /// True if kernels may have a grid barrier, where the card takes cooperative launches.
    pub(crate) barriers: bool,
    /// True if kernels can write to host memory.
    pub(crate) maps: bool,
    /// Cache of compiled kernels.
    pub(crate) cache: Cache,
    /// True if matrix products are computed by cuBLASLt.
    pub(crate) library: bool,
    /// True if convolutions are computed by cuDNN.
    pub(crate) cudnn: bool,
    /// True if algorithms of these libraries are timed.
    pub(crate) autotune: bool,
    /// When attention runs on warpgroup instructions.
    pub(crate) warpgroups: Warpgroups,
    /// The card's identifier in NVML; `None` if unknown.
    pub(crate) uuid: Option<[u8; 16]>,
    /// The driver's version in its package's spelling; `None` if NVML does not report it.
    pub(crate) driver: Option<String>,
    /// True if the context was made here and no network has been loaded in it. Then the memory of the next network can be measured.
    pub(crate) is_new: Arc<AtomicBool>,
    /// Bytes that the first network took outside its arena: libraries, kernels and graphs. 0 if not measured.
    pub(crate) taken: Arc<AtomicU64>,
}

impl Card {
    /// Returns the multiprocessors whose blocks may wait for each other; 0 if none may.
    pub(crate) fn waiting(&self) -> u32 {
        if self.barriers { self.multiprocessors } else { 0 }
    }

    /// Returns the card's name.
    pub(crate) fn name(&self) -> Result<String, Error> {
        bind(&self.context)?;
        self.context.name().map_err(failure("asking for the card's name"))
    }

    /// Returns the free and the total memory in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Error> {
        bind(&self.context)?;
        let (free, total) = self.context.mem_get_info().map_err(failure("asking for the free memory"))?;
        Ok((free as u64, total as u64))
    }

    /// Returns the error that fewer than `needed` bytes are free, with the processes that hold the rest. `needed` includes `beside`, the bytes that
    /// are needed outside the arena.
    pub(crate) fn shortage(&self, needed: u64, beside: Option<Beside>) -> Error {
        let free = self.memory().ok().map(|(free, _)| free);
        Error::Memory { device: "CUDA", needed, beside, lasting: 0, free, holders: holders(self.uuid) }
    }
}

/// Returns the processes that hold memory of the card; none if NVML does not list them.
pub(crate) fn holders(uuid: Option<[u8; 16]>) -> Vec<Holder> {
    let nvml = Nvml::open();
    let card = nvml.as_ref().and_then(|nvml| nvml.card(uuid?));
    card.map(|card| card.holders()).unwrap_or_default()
}
