//! Some steps of a sequence at a time, as operations see them.

use crate::shape::{Shape, product};
use alloc::string::String;

/// A sequence whose steps are computed some at a time, as an operation sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Dimensions of the operation's inputs for the whole sequence.
    pub inputs: &'a [Shape],
    /// The axis of each input along which steps follow each other; `None` of what is the same for all steps.
    pub axes: &'a [Option<usize>],
    /// Steps of the whole sequence.
    pub whole: u64,
    /// Steps that are computed at a time.
    pub chunk: u64,
    /// Most steps that are kept.
    pub cache: u64,
}

impl Sequence<'_> {
    /// What is said of an operation that has no form of some steps at a time.
    pub fn refusal() -> String {
        "does not go step by step: with `cache` in `INFER`, a layer treats each step alone, or is causal attention, a causal `Conv1d`, a \
         `SelectiveScan`, or recurrent"
            .into()
    }

    /// The axis of steps, where the first input has it and all others are the same for all steps.
    pub fn of_first(&self) -> Result<usize, String> {
        match self.axes {
            [Some(axis), others @ ..] if others.iter().all(Option::is_none) => Ok(*axis),
            _ => Err(Sequence::refusal()),
        }
    }

    /// The axis of steps, where all inputs have the same one.
    pub fn of_all(&self) -> Result<usize, String> {
        match self.axes {
            [Some(axis), others @ ..] if others.iter().all(|other| *other == Some(*axis)) => Ok(*axis),
            _ => Err(Sequence::refusal()),
        }
    }

    /// The axis of steps of an operation along another axis, and the positions before and after that other one for some steps. `whole`
    /// are the positions before it, its length, and the positions after it.
    pub fn around(&self, shape: Shape, whole: [u64; 3]) -> Result<(usize, [u64; 2]), String> {
        let (axis, [outer, length, inner]) = (self.of_first()?, whole);
        // The other axis lies before or behind that of the steps.
        let before = product(&shape.dims()[..axis]);
        if outer >= before.saturating_mul(self.whole) {
            Ok((axis, [self.share(outer), inner]))
        } else if outer.saturating_mul(length) <= before {
            Ok((axis, [outer, self.share(inner)]))
        } else {
            Err(Sequence::refusal())
        }
    }

    /// A shape with as many steps along an axis as are computed at a time.
    pub fn cut(&self, shape: Shape, axis: usize) -> Shape {
        shape.with(axis, self.chunk)
    }

    /// A number that is a multiple of the sequence's steps, with those that are computed at a time.
    pub fn share(&self, number: u64) -> u64 {
        (number / self.whole.max(1)).saturating_mul(self.chunk)
    }
}
