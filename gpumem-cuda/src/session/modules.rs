//! Kernels loaded onto the card.

use crate::calls::Kernel;
use crate::card::Card;
use crate::compile::compile_all;
use crate::compile::progress::Progress;
use crate::context::bind;
use crate::error::failure;
use cudarc::driver::result::{function, module};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use cudarc::driver::{CudaContext, DriverError};
use gpumem_core::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Modules and the kernels in them.
#[derive(Debug)]
pub(super) struct Modules {
    context: Arc<CudaContext>,
    loaded: Vec<CUmodule>,
    functions: BTreeMap<Kernel, CUfunction>,
}

// SAFETY: modules and functions are handles that the driver accepts from any thread whose context is bound.
unsafe impl Send for Modules {}

impl Modules {
    /// Compiles kernels, or reads them from the cache, and loads them. Entry points of one file with equal constants share a module.
    pub(super) fn new(card: &Card, kernels: BTreeSet<Kernel>) -> Result<Modules, Error> {
        let context = card.context.clone();
        let kernels: Vec<Kernel> = kernels.into_iter().collect();
        let progress = Progress::stderr(&card.name()?);
        let compiled = compile_all(&kernels, card.capability, &card.cache, &progress)?;
        bind(&context)?;
        let mut modules = Modules { context, loaded: Vec::new(), functions: BTreeMap::new() };
        let mut units = BTreeMap::new();
        for (kernel, compiled) in kernels.into_iter().zip(compiled) {
            let loading = format!("loading kernel `{}`", kernel.entry);
            let unit = (kernel.file, kernel.constants.clone(), kernel.text.clone());
            let module = match units.get(&unit) {
                Some(module) => *module,
                None => {
                    // SAFETY: the code is a cubin that NVRTC made, and that the cache found complete; the driver copies it.
                    let module =
                        unsafe { module::load_data(compiled.code.as_ptr().cast()) }.map_err(failure(&loading))?;
                    modules.loaded.push(module);
                    units.insert(unit, module);
                    module
                }
            };
            // SAFETY: the module was loaded above; it is unloaded in `drop` only.
            let function = unsafe { module::get_function(module, compiled.entry) }.map_err(failure(&loading))?;
            if kernel.shared_bytes() > 0 {
                allow_shared(function, kernel.shared_bytes()).map_err(failure(&loading))?;
            }
            modules.functions.insert(kernel, function);
        }
        Ok(modules)
    }

    /// Takes over the modules of `other`.
    pub(super) fn join(&mut self, mut other: Modules) {
        self.loaded.append(&mut other.loaded);
        self.functions.append(&mut other.functions);
    }

    /// Returns the number of kernels.
    pub(super) fn count(&self) -> usize {
        self.functions.len()
    }

    pub(super) fn function(&self, kernel: &Kernel) -> Result<CUfunction, Error> {
        self.functions.get(kernel).copied().ok_or(Error::Damaged("a kernel was not loaded"))
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            for module in &self.loaded {
                // SAFETY: loaded in `new`; whatever was launched from it was dropped before.
                let _ = unsafe { module::unload(*module) };
            }
        }
    }
}

/// Lets launches of a function ask for so many bytes of shared memory, which may be more than the 48 KiB that every launch may have.
fn allow_shared(of: CUfunction, bytes: u32) -> Result<(), DriverError> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function belongs to a module that is loaded, and the context is bound.
    unsafe { function::set_function_attribute(of, attribute, bytes) }
}
