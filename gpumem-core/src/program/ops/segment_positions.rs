use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The position of each time step in its segment, from 0 on.
    ///
    /// * Input: indices `[count]`, one for each time step, which do not decrease along a sequence. Equal numbers are a segment. The output holds
    ///   indices, too.
    pub struct SegmentPositions {
        /// Time steps of a sample.
        pub count: u64,
    }
}

impl SegmentPositions {
    /// True if every position fits an index.
    pub fn is_sound(&self) -> bool {
        self.count > 0 && self.count < u64::from(u32::MAX)
    }
}

impl Rule for SegmentPositions {
    fn output(&self) -> Shape {
        Shape::new(&[self.count])
    }

    fn makes_indices(&self) -> bool {
        true
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn indices(&self) -> Vec<Indices> {
        vec![Indices::ordered("segment", Slot::Input(0), self.count)]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
