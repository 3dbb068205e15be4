//! A card as sessions see it: its context, what it can do, what goes to libraries, and who holds its memory.

use crate::compile::cache::Cache;
use crate::context::bind;
use crate::error::failure;
use crate::libraries::nvml::Nvml;
use cudarc::driver::CudaContext;
use gpumem_core::error::{Beside, Error, Holder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A card with its context.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(crate) context: Arc<CudaContext>,
    /// Compute capability, major and minor.
    pub(crate) capability: (i32, i32),
    /// Its multiprocessors, if it takes launches whose blocks wait for each other, else 0.
    pub(crate) multiprocessors: u32,
    /// Whether kernels can write to memory of the host.
    pub(crate) maps: bool,
    /// Kernels that were compiled before.
    pub(crate) cache: Cache,
    /// Whether matrix products go to cuBLASLt.
    pub(crate) library: bool,
    /// Whether convolutions go to cuDNN.
    pub(crate) cudnn: bool,
    /// Whether algorithms of these libraries are timed.
    pub(crate) autotune: bool,
    /// How NVML knows the card.
    pub(crate) uuid: Option<[u8; 16]>,
    /// The driver's version as its package has it, if NVML tells.
    pub(crate) driver: Option<String>,
    /// Whether the context was made here and no network has been loaded in it: what the next one takes can be told.
    pub(crate) is_new: Arc<AtomicBool>,
    /// Bytes that the first network took beside its arena, where that was told: libraries, kernels and graphs.
    pub(crate) taken: Arc<AtomicU64>,
}

impl Card {
    /// Its name.
    pub(crate) fn name(&self) -> Result<String, Error> {
        bind(&self.context)?;
        self.context.name().map_err(failure("asking for the card's name"))
    }

    /// Free and total memory in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Error> {
        bind(&self.context)?;
        let (free, total) = self.context.mem_get_info().map_err(failure("asking for the free memory"))?;
        Ok((free as u64, total as u64))
    }

    /// The card has less free than `needed` bytes, which count this beside the arena: with who holds the rest.
    pub(crate) fn shortage(&self, needed: u64, beside: Option<Beside>) -> Error {
        let free = self.memory().ok().map(|(free, _)| free);
        Error::Memory { device: "CUDA", needed, beside, lasting: 0, free, holders: holders(self.uuid) }
    }
}

/// Who holds memory of the card, if NVML tells.
pub(crate) fn holders(uuid: Option<[u8; 16]>) -> Vec<Holder> {
    let nvml = Nvml::open();
    let card = nvml.as_ref().and_then(|nvml| nvml.card(uuid?));
    card.map(|card| card.holders()).unwrap_or_default()
}
