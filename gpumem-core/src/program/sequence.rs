//! Decoding: the time steps of a sequence that one call computes, as operations see them.

use crate::shape::{Shape, product};
use alloc::string::String;

/// A sequence that is decoded some time steps per call, as an operation sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Dimensions of the operation's inputs for the whole sequence.
    pub inputs: &'a [Shape],
    /// The axis of time steps of each input; `None` for an input that all time steps share.
    pub axes: &'a [Option<usize>],
    /// Time steps of the whole sequence.
    pub whole: u64,
    /// Time steps of one call.
    pub chunk: u64,
    /// Most time steps that a cache holds.
    pub cache: u64,
}

impl Sequence<'_> {
    /// Returns the message for an operation that cannot decode some time steps at a time.
    pub fn refusal() -> String {
        "does not go step by step: with `cache` in `INFER`, a layer treats each step alone, or is causal attention, a causal `Conv1d`, a \
         `SelectiveScan`, or recurrent"
            .into()
    }

    /// Returns the axis of time steps if the first input has it and all time steps share the others.
    pub fn of_first(&self) -> Result<usize, String> {
        match self.axes {
            [Some(axis), others @ ..] if others.iter().all(Option::is_none) => Ok(*axis),
            _ => Err(Sequence::refusal()),
        }
    }

    /// Returns the axis of time steps if all inputs have the same one.
    pub fn of_all(&self) -> Result<usize, String> {
        match self.axes {
            [Some(axis), others @ ..] if others.iter().all(|other| *other == Some(*axis)) => Ok(*axis),
            _ => Err(Sequence::refusal()),
        }
    }

    /// Returns the axis of time steps of an operation along another axis. Also returns the positions before and after that other axis in
    /// one call. `whole` has the positions before it, its length, and the positions after it.
    pub fn around(&self, shape: Shape, whole: [u64; 3]) -> Result<(usize, [u64; 2]), String> {
        let (axis, [outer, length, inner]) = (self.of_first()?, whole);
        // The other axis is before or after that of the time steps.
        let before = product(&shape.dims()[..axis]);
        if outer >= before.saturating_mul(self.whole) {
            Ok((axis, [self.share(outer), inner]))
        } else if outer.saturating_mul(length) <= before {
            Ok((axis, [outer, self.share(inner)]))
        } else {
            Err(Sequence::refusal())
        }
    }

    /// Returns `shape` with the time steps of one call along `axis`.
    pub fn cut(&self, shape: Shape, axis: usize) -> Shape {
        shape.with(axis, self.chunk)
    }

    /// Returns `number`, a multiple of the sequence's time steps, scaled to the time steps of one call.
    pub fn share(&self, number: u64) -> u64 {
        (number / self.whole.max(1)).saturating_mul(self.chunk)
    }
}
