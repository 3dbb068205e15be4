use crate::number::Role;
use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Linear layer, an affine map of the last axis: `y = x W^T + b`.
    ///
    /// * Inputs: x, W and, with `bias`, b.
    /// * The gradient of x reads W, that of W reads x, that of b nothing.
    pub struct Product {
        /// Rows a sample.
        pub rows: u64,
        /// Elements of each row of x.
        pub in_features: u64,
        /// Elements of each row of y.
        pub out_features: u64,
        /// True if there is a bias b.
        pub bias: bool,
        /// True if W is stored as `[in_features, out_features]` rather than `[out_features, in_features]`.
        pub transposed: bool,
        /// Dimensions of y.
        pub shape: Shape,
    }
}

/// Terms of a sum for which a partial sum pays.
const SPLIT: u64 = 256;

impl Product {
    /// Returns the linear layer of some time steps, and the output's axis of time steps.
    pub(super) fn of_steps(&self, sequence: &Sequence<'_>) -> Result<(Product, usize), String> {
        let axis = sequence.of_first()?;
        if axis + 1 >= self.shape.rank() {
            return Err(Sequence::refusal());
        }
        let (rows, shape) = (sequence.share(self.rows), sequence.cut(self.shape, axis));
        Ok((Product { rows, shape, ..self.clone() }, axis))
    }
}

impl Rule for Product {
    fn output(&self) -> Shape {
        self.shape
    }

    /// Returns the weight first: tensors that only its gradient reads are then free before the gradient of x exists.
    fn gradients(&self) -> Vec<Gradient> {
        let mut parameters = vec![(1, Reads::inputs(&[0]))];
        if self.bias {
            parameters.push((2, Reads::NOTHING));
        }
        vec![Gradient::computed(&parameters), Gradient::computed(&[(0, Reads::inputs(&[1]))])]
    }

    /// Returns memory for sums that are split over a card. It has an f32 for each element of the result and each 256 terms of its
    /// sum.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let Product { rows, in_features, out_features, .. } = *self;
        let elements = match work {
            Work::Training | Work::Inference => product(&[rows, out_features, in_features / SPLIT]),
            Work::Gradient(0) => product(&[rows, in_features, out_features]) / SPLIT,
            Work::Gradient(_) => product(&[rows, in_features, out_features / SPLIT]),
        };
        let shape = Shape::new(&[elements]);
        (elements > 0).then_some(Workspace { role: Role::ProductWorkspace, shape, batched: true })
    }

    fn layouts(&self) -> Layouts {
        Layouts::Rows(&[Slot::Output, Slot::Gradient])
    }

    fn macs(&self) -> u64 {
        product(&[self.rows, self.in_features, self.out_features])
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let (product, axis) = self.of_steps(sequence)?;
        Ok((product.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Product", &[self.in_features, self.out_features], inputs[0], self.shape)]
    }
}
