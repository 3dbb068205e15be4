//! Loops compiled for several instruction sets. One of them is selected at run time.
//!
//! Wider instructions compute the same numbers. Each lane rounds like a scalar, nothing is contracted into a fused multiply-add, and the
//! source fixes the order of sums. Matrix products and convolutions are the exception: they fuse multiplications and additions where the machine can.

/// A loop. Closures are loops too, but a long closure may not be inlined into the code for an instruction set, and then gains nothing. The `call`
/// of a separate type can be marked as always inlined.
pub(crate) use pulp::NullaryFnOnce as Loop;
use pulp::{Arch, WithSimd};
use std::sync::OnceLock;

/// Returns the widest instructions of the machine, which are found once.
#[inline(always)]
fn arch() -> &'static Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    ARCH.get_or_init(Arch::new)
}

/// Runs a loop with the widest instructions of the machine.
#[inline(always)]
pub(crate) fn wide<L: Loop>(it: L) -> L::Output {
    arch().dispatch(it)
}

/// Runs code that handles vectors itself with the widest ones of the machine. Its sums may depend on their width, as those of matrix products do.
#[inline(always)]
pub(crate) fn dispatch<W: WithSimd>(it: W) -> W::Output {
    arch().dispatch(it)
}
