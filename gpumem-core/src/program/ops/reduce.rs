use crate::number::Role;
use crate::program::Slot;
use crate::program::encoding::{record, wire_enum};
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Inputs, Reads, Rule, Saved};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// What becomes of the elements along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest, the first of several. A NaN is larger than any number.
    Max,
}
wire_enum!(Reduction { Sum, Mean, Max });

record! {
    /// The elements along an axis as one.
    ///
    /// * Input: x `[outer, length, inner]`; with `counted` also `n`, one index from 0 to `length` for each sample: only the first `n` elements
    ///   along the axis count, a mean is divided by `n`, and where `n` is 0 the result is 0. What follows them is not read.
    /// * Saves for a maximum where it is; the gradient reads that, and nothing for a sum or a mean.
    pub struct Reduce {
        /// What becomes of them.
        pub reduction: Reduction,
        /// Positions before the axis.
        pub outer: u64,
        /// Length of the axis.
        pub length: u64,
        /// Positions after the axis.
        pub inner: u64,
        /// True if a second input says how many elements count.
        pub counted: bool,
    }
}

impl Reduce {
    /// Whether the place of each result is saved.
    pub fn has_places(&self) -> bool {
        self.reduction == Reduction::Max
    }
}

impl Rule for Reduce {
    const NAME: &'static str = "Reduce";

    fn output(&self) -> Shape {
        Shape::new(&[self.outer, self.inner])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs = if self.counted && !self.has_places() { Inputs::of(&[1]) } else { Inputs::NONE };
        let reads = Reads { inputs, saved: self.has_places(), ..Reads::NOTHING };
        vec![Gradient::computed(&[(0, reads)])]
    }

    fn saved(&self) -> Vec<Saved> {
        let places = Saved::each(self.output(), Role::Index);
        if self.has_places() { vec![places] } else { Vec::new() }
    }

    fn indices(&self) -> Vec<Indices> {
        let limit = self.length.saturating_add(1);
        if self.counted { vec![Indices::below(limit, "length", Slot::Input(1), 1)] } else { Vec::new() }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Reduce", &[self.length], inputs[0], self.output())]
    }
}
