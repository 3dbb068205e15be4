use crate::number::Role;
use crate::program::Slot;
use crate::program::encoding::{record, wire_enum};
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Inputs, Reads, Rule, Saved};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The reduction of the elements along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest, and the first of several that are equal. A NaN is larger than any number.
    Max,
}
wire_enum!(Reduction { Sum, Mean, Max });

record! {
    /// Reduction of the elements along an axis to one.
    ///
    /// * Input: x `[outer, length, inner]`. With `counted` also `n`, one index from 0 to `length` for each sample: only the first `n` elements
    ///   along the axis count, and a mean is divided by `n`. If `n` is 0, the result is 0. Elements that do not count are not read.
    /// * A maximum saves its position, which its gradient reads. A sum and a mean save nothing.
    pub struct Reduce {
        /// The reduction.
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
    /// True if the position of each result is saved.
    pub fn has_places(&self) -> bool {
        self.reduction == Reduction::Max
    }
}

impl Rule for Reduce {
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
