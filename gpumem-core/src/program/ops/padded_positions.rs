use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec::Vec;

record! {
    /// The position of each token, counted without padding: the index of padding plus the number of tokens up to this one. Padding keeps its
    /// own index.
    ///
    /// * Input: indices `[count]`. The output holds indices, too.
    pub struct PaddedPositions {
        /// Tokens a sample.
        pub count: u64,
        /// The token that is padding.
        pub padding: u64,
    }
}

impl PaddedPositions {
    /// True if every position fits an index.
    pub fn is_sound(&self) -> bool {
        self.count > 0 && self.padding.checked_add(self.count).is_some_and(|last| last <= u64::from(u32::MAX))
    }
}

impl Rule for PaddedPositions {
    fn output(&self) -> Shape {
        Shape::new(&[self.count])
    }

    fn makes_indices(&self) -> bool {
        true
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
