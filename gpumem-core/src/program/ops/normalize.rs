use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule, Saved, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Rows brought to mean 0 and variance 1, each by its own statistics, then scaled and shifted.
    ///
    /// * Inputs: x, with `scale` a factor and with `shift` a summand for each element of a row.
    /// * Saves two statistics a row: mean and `1 / sqrt(variance + eps)`.
    /// * The gradients read x, what was saved and the factors.
    pub struct Normalize {
        /// Rows a sample.
        pub rows: u64,
        /// Elements of a row.
        pub length: u64,
        /// Added to the variance.
        pub eps: f64,
        /// Whether there are factors.
        pub scale: bool,
        /// Whether there are summands. There are factors then too.
        pub shift: bool,
        /// Dimensions of x and y.
        pub shape: Shape,
    }
}

/// Parts of the rows that the gradients of factors and summands are split into.
const PARTS: u64 = 64;

impl Rule for Normalize {
    const NAME: &'static str = "Normalize";

    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs: &[u8] = if self.scale { &[0, 1] } else { &[0] };
        let reads = Reads { inputs, saved: true, ..Reads::NOTHING };
        let parameters = [self.scale.then_some(1), self.shift.then_some(2)];
        let of: Vec<(u8, Reads)> = parameters.into_iter().flatten().chain([0]).map(|input| (input, reads)).collect();
        vec![Gradient::in_place(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved { shape: Shape::new(&[2, self.rows]), batched: true, role: Role::Statistic }]
    }

    /// The gradients of factors and summands, each over so many parts of the rows.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let shape = Shape::new(&[2, PARTS, self.length]);
        let wanted = self.scale && matches!(work, Work::Gradient(_));
        wanted.then_some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    /// Its own gradient reads x, so this is for inference.
    fn in_place(&self) -> bool {
        true
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Rows", &[self.length], inputs[0], self.shape)]
    }
}
