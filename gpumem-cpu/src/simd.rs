//! Loops compiled for several instruction sets, of which one is chosen when the program runs.
//!
//! Wider instructions compute the same numbers: every lane rounds as one number alone does, nothing is contracted into a fused
//! multiplication and addition, and the order of sums is written in the source.

use pulp::Arch;
/// A loop. Closures are loops too, but a long one may not be inlined into the code for an instruction set, and then does not
/// profit from it; `call` of a type of its own can be marked as always inlined.
pub(crate) use pulp::NullaryFnOnce as Loop;
use std::sync::OnceLock;

/// Runs a loop with the widest instructions that the machine has.
#[inline(always)]
pub(crate) fn wide<L: Loop>(it: L) -> L::Output {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    ARCH.get_or_init(Arch::new).dispatch(it)
}
