//! The context that a thread's calls to the driver work in, and its limits.

use crate::error::failure;
use cudarc::driver::CudaContext;
use cudarc::driver::result::ctx::set_limit;
use cudarc::driver::sys::CUlimit;
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

/// Limits, and the bytes that they are to have: the first of them that the driver takes. It may round up to what it needs.
const LIMITS: [(CUlimit, [usize; 2]); 3] = [
    (CUlimit::CU_LIMIT_STACK_SIZE, [0, 256]),
    (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, [0, 4096]),
    (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, [0, 4096]),
];

/// Gives back what a new context holds for things that no kernel of ours does: it must be bound.
///
/// A context sets local memory aside for every thread that the card can hold at once: the limit of a thread's stack, 1 KiB
/// unless somebody says otherwise, and the driver's own frame. Kernels of ours keep everything in registers, which is checked
/// in their machine code. A kernel of a library that wants a larger frame is not in danger: the driver makes room for it when
/// the kernel is launched, as it does beyond 1 KiB too. Those are launched while a network is loaded, to try them. Nothing here
/// prints or allocates on the card, so the buffer of `printf` and the heap of `malloc` are of no use.
///
/// A driver that refuses keeps its own limits, which are larger and do no harm.
pub(crate) fn lower_limits() {
    for (limit, bytes) in LIMITS {
        let _ = bytes.into_iter().any(|bytes| set_limit(limit, bytes).is_ok());
    }
}
