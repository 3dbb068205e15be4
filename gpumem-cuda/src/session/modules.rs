//! Kernels on the card.

use crate::compile::compile;
use crate::device::{Cuda, failure};
use crate::launch::Kernel;
use cudarc::driver::CudaContext;
use cudarc::driver::result::module;
use cudarc::driver::sys::{CUfunction, CUmodule};
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kernels on the card.
#[derive(Debug)]
pub(super) struct Modules {
    context: Arc<CudaContext>,
    loaded: BTreeMap<Kernel, (CUmodule, CUfunction)>,
}

// SAFETY: modules and functions are handles that the driver takes from any thread whose context is bound.
unsafe impl Send for Modules {}

impl Modules {
    pub(super) fn new(context: &Arc<CudaContext>) -> Modules {
        Modules { context: context.clone(), loaded: BTreeMap::new() }
    }

    /// The number of kernels.
    pub(super) fn count(&self) -> usize {
        self.loaded.len()
    }

    pub(super) fn function(&mut self, card: &Cuda, kernel: &Kernel) -> Result<CUfunction, Error> {
        if let Some((_, function)) = self.loaded.get(kernel) {
            return Ok(*function);
        }
        let compiled = compile(kernel, card.capability, &card.cache)?;
        let loading = format!("loading kernel `{}`", kernel.entry);
        // SAFETY: the code is a cubin that NVRTC made, whole as the cache checked; the driver copies it.
        let module = unsafe { module::load_data(compiled.code.as_ptr().cast()) }.map_err(failure(&loading))?;
        // SAFETY: the module was loaded above; it is unloaded in `drop` only.
        let function = unsafe { module::get_function(module, compiled.entry) }.map_err(failure(&loading))?;
        self.loaded.insert(kernel.clone(), (module, function));
        Ok(function)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            for (module, _) in self.loaded.values() {
                // SAFETY: loaded in `function`; what was launched from it was dropped before.
                let _ = unsafe { module::unload(*module) };
            }
        }
    }
}
