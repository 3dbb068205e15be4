//! The context that a thread's calls to the driver work in.

use crate::error::failure;
use cudarc::driver::CudaContext;
use gpumem_core::error::Error;

/// Makes the context this thread's.
///
/// What a destructor failed with is forgotten here. cudarc keeps it, and returns it from the next call that binds the context
/// instead of binding it: memory would stay allocated, or somebody else's step would fail. What has broken the context is
/// returned by every call anyway.
pub(crate) fn bind(context: &CudaContext) -> Result<(), Error> {
    let _ = context.check_err();
    context.bind_to_thread().map_err(failure("binding the context"))
}
