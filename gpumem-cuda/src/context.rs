//! The context in which a thread calls the driver, and its limits.

use crate::error::failure;
use cudarc::driver::CudaContext;
use cudarc::driver::result::ctx::set_limit;
use cudarc::driver::sys::CUlimit;
use gpumem_core::error::Error;

/// Binds the context to this thread.
///
/// Discards an error that a destructor left behind. cudarc keeps such an error, and returns it from the next call that binds the context instead of
/// binding it: memory would stay allocated, or another session's step would fail. If the context itself is broken, every call returns the error
/// anyway.
pub(crate) fn bind(context: &CudaContext) -> Result<(), Error> {
    let _ = context.check_err();
    context.bind_to_thread().map_err(failure("binding the context"))
}

/// Limits, each with its sizes in bytes in the order in which they are tried. The driver may round up to the size that it needs.
const LIMITS: [(CUlimit, [usize; 2]); 3] = [
    (CUlimit::CU_LIMIT_STACK_SIZE, [0, 256]),
    (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, [0, 4096]),
    (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, [0, 4096]),
];

/// Frees memory that a new context reserves for features that gpumem's kernels do not use. The context must be bound.
///
/// A context reserves local memory for every thread that the card can hold at once: the limit of a thread's stack, 1 KiB by default, and the
/// driver's own frame. Gpumem's kernels keep everything in registers, which is checked in their machine code. A library's kernel may use a larger
/// frame safely: the driver allocates it when the kernel is launched, as it does beyond 1 KiB too. Those kernels are launched while a network is
/// loaded, to try them. Nothing here prints or allocates on the card, so the buffer of `printf` and the heap of `malloc` are of no use.
///
/// If the driver refuses, its own limits stay, which are larger and do no harm.
pub(crate) fn lower_limits() {
    for (limit, bytes) in LIMITS {
        let _ = bytes.into_iter().any(|bytes| set_limit(limit, bytes).is_ok());
    }
}
