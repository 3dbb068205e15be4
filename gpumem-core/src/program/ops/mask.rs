use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Inference, Layouts, Op, Reads, Rule, Sequence};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Elements set to 0 with probability `p` in training, the others scaled by `1 / (1 - p)`. Without training it is gone.
    ///
    /// * Input: x.
    /// * The gradient draws again from the seed, the step and the layer which elements were dropped.
    pub struct Mask {
        /// Dimensions of x and y.
        pub shape: Shape,
        /// Probability of a zero.
        pub p: f64,
        /// Neighbours, in the order of the shape, of which all become 0 or none: 1 where each is drawn by itself. It divides the
        /// elements of a sample.
        pub shared: u64,
        /// Masks before it in its layer, which draws for each anew.
        pub site: u64,
    }
}

impl Mask {
    /// The stream that it draws from in a layer of this row: another one for each of the first 256 masks of a layer. There are fewer
    /// than 2^16 rows.
    pub fn stream(&self, row: u32) -> u32 {
        row ^ ((self.site & 0xff) as u32) << 16
    }

    /// Whether whole samples are dropped.
    pub fn drops_samples(&self) -> bool {
        self.shared > 1 && self.shared == product(self.shape.dims())
    }
}

impl Rule for Mask {
    const NAME: &'static str = "Mask";

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

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
