use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A weight divided by an estimate of its largest singular value, `sigma = u^T W v`.
    ///
    /// A row of W has one index along one axis of the weight. The columns are all other axes.
    ///
    /// * Input: the weight. Output: the weight divided by sigma, one for the whole batch.
    /// * Buffers: u, an element a row, and v, an element a column. Training first updates them by one step of the power iteration,
    ///   `u = W v / |W v|` and `v = W^T u / |W^T u|`. With `eval`, and in inference, they do not change.
    /// * Saves `1 / sigma`, u and v. The gradient reads those and the weight: `(dy - (sum of dy * y) u v^T) / sigma`, with u and v as constants.
    ///
    /// Source: Miyato, Kataoka, Koyama, Yoshida, "Spectral Normalization for Generative Adversarial Networks" (2018).
    pub struct SpectralNorm {
        /// Elements of the axes before the axis of rows, of that axis, and of the axes after it.
        pub sizes: [u64; 3],
        /// The least length by which W v and W^T u are divided.
        pub eps: f64,
        /// True if training leaves u and v unchanged.
        pub eval: bool,
        /// Dimensions of the weight.
        pub shape: Shape,
    }
}

/// Parts into which a card splits the sum over the weight's elements.
const PARTS: u64 = 64;

impl SpectralNorm {
    /// Returns the rows of the weight as a matrix.
    pub fn rows(&self) -> u64 {
        self.sizes[1]
    }

    /// Returns the columns of the weight as a matrix.
    pub fn columns(&self) -> u64 {
        self.sizes[0].saturating_mul(self.sizes[2])
    }

    /// Returns the number of parts into which the sum over all elements is split.
    pub fn parts(&self) -> u64 {
        PARTS
    }

    /// True if there are rows and columns and they cover the weight.
    pub fn is_sound(&self) -> bool {
        let all = self.sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        !self.sizes.contains(&0) && all.is_some() && all == self.shape.elements()
    }

    /// Returns the shape of the saved tensor: `1 / sigma`, an element a row and an element a column.
    fn statistics(&self) -> Shape {
        Shape::new(&[self.rows().saturating_add(self.columns()).saturating_add(1)])
    }
}

impl Rule for SpectralNorm {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads { saved: true, ..Reads::inputs(&[0]) })])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::whole(self.statistics(), Role::Statistic)]
    }

    /// True: the buffers may have changed before the backward pass.
    fn always_saves(&self) -> bool {
        true
    }

    /// True: the buffers change once a pass.
    fn runs_again_from_saved(&self) -> bool {
        true
    }

    /// Returns memory for W v and W^T u before they are scaled to length 1, or for the parts of a sum.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let shape = match work {
            Work::Training | Work::Inference => self.statistics(),
            Work::Gradient(_) => Shape::new(&[PARTS]),
        };
        Some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    fn with_eval(&self, eval: bool) -> Option<Op> {
        Some(SpectralNorm { eval, ..self.clone() }.into())
    }

    fn moves_statistics(&self) -> bool {
        !self.eval
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
