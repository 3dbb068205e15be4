use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Inference, Layouts, Op, Reads, Rule, Sequence, TrainingOnly};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Dropout: elements set to 0 with probability `p` in training, the others scaled by `1 / (1 - p)`. Inference leaves it out.
    ///
    /// * Input: x.
    /// * The gradient draws the dropped elements again, from the seed, the step and the layer.
    pub struct Mask {
        /// Dimensions of x and y.
        pub shape: Shape,
        /// Probability of a zero.
        pub p: f64,
        /// Adjacent elements, in the order of the shape, that are dropped together: 1 if each is drawn by itself. It divides the
        /// elements of a sample.
        pub shared: u64,
        /// Number of earlier masks in its layer, each of which draws anew.
        pub site: u64,
    }
}

impl Mask {
    /// Returns the random stream of this mask in the layer of a row. The first 256 masks of a layer have different streams. There are fewer
    /// than 2^16 rows.
    pub fn stream(&self, row: u32) -> u32 {
        row ^ ((self.site & 0xff) as u32) << 16
    }

    /// True if whole samples are dropped.
    pub fn drops_samples(&self) -> bool {
        self.shared > 1 && self.shared == product(self.shape.dims())
    }
}

impl Rule for Mask {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::in_place(&[(0, Reads::STATE)])]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn draws(&self) -> bool {
        true
    }

    fn inference(&self) -> Inference {
        Inference::PassesOn
    }

    fn layouts(&self) -> Layouts {
        Layouts::Alike
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        let op = Mask { shape: sequence.cut(self.shape, axis), ..self.clone() };
        Ok((op.into(), axis))
    }

    fn training_only(&self) -> Option<TrainingOnly> {
        (self.p > 0.0).then_some(TrainingOnly::Drops)
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
