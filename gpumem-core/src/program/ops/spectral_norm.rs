use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule, Saved, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A weight over an estimate of its largest singular value, `sigma = u^T W v`.
    ///
    /// The rows of W are what has one place along one axis of the weight, and its columns all else.
    ///
    /// * Input: the weight. Output: the weight over sigma, one for the whole batch.
    /// * Buffers: u, an element a row, and v, an element a column. Training first moves them by one step of the power iteration,
    ///   `u = W v / |W v|` and `v = W^T u / |W^T u|`; with `eval`, and without training, they rest.
    /// * Saves `1 / sigma`, u and v. The gradient reads those and the weight: `(dy - (sum of dy * y) u v^T) / sigma`, with u and v as constants.
    ///
    /// Source: Miyato, Kataoka, Koyama, Yoshida, "Spectral Normalization for Generative Adversarial Networks" (2018).
    pub struct SpectralNorm {
        /// Elements of the axes before the one of the rows, of that one, and of those after it.
        pub sizes: [u64; 3],
        /// The least length that W v and W^T u are divided by.
        pub eps: f64,
        /// True if training leaves u and v as they are.
        pub eval: bool,
        /// Dimensions of the weight.
        pub shape: Shape,
    }
}

/// Parts that the sum over the weight's elements is split into on a card.
const PARTS: u64 = 64;

impl SpectralNorm {
    /// Rows of the weight as a matrix.
    pub fn rows(&self) -> u64 {
        self.sizes[1]
    }

    /// Columns of the weight as a matrix.
    pub fn columns(&self) -> u64 {
        self.sizes[0].saturating_mul(self.sizes[2])
    }

    /// Parts that the sum over all elements is split into.
    pub fn parts(&self) -> u64 {
        PARTS
    }

    /// True if there are rows and columns, and those are all of the weight.
    pub fn is_sound(&self) -> bool {
        let all = self.sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        !self.sizes.contains(&0) && all.is_some() && all == self.shape.elements()
    }

    /// `1 / sigma`, an element a row and an element a column.
    fn statistics(&self) -> Shape {
        Shape::new(&[self.rows().saturating_add(self.columns()).saturating_add(1)])
    }
}

impl Rule for SpectralNorm {
    const NAME: &'static str = "SpectralNorm";

    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads { saved: true, ..Reads::inputs(&[0]) })])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::whole(self.statistics(), Role::Statistic)]
    }

    /// Its buffers may have moved before the backward pass.
    fn always_saves(&self) -> bool {
        true
    }

    /// The buffers move once a pass.
    fn runs_again_from_saved(&self) -> bool {
        true
    }

    /// W v and W^T u on their way to lengths of 1, or the parts of a sum.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let shape = match work {
            Work::Training | Work::Inference => self.statistics(),
            Work::Gradient(_) => Shape::new(&[PARTS]),
        };
        Some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
