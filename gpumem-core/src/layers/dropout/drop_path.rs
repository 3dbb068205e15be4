use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Mask;
use crate::shape::product;

/// `DropPath(p = 0.1)`, also called stochastic depth: sets whole samples to 0 with probability `p` in training and scales the others by
/// `1 / (1 - p)`. At the end of a branch it leaves out the branch: `Add([.., DropPath(0.1)], [])`.
///
/// * Options: `p = 0.1`.
/// * Input and output of any one shape. In inference, and inside `eval(..)`, it does nothing and costs nothing.
/// * Parameters: none.
/// * Backward keeps nothing: the dropped samples are drawn again from the seed, the step and the layer.
///
/// PyTorch: `torchvision.ops.StochasticDepth(p, "row")`.
#[derive(Clone, Debug)]
pub struct DropPath {
    p: f64,
}

impl Layer for DropPath {
    const NAME: &'static str = "DropPath";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> DropPath {
        DropPath { p: from.trailing("p").probability(0.1) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        b.op(Mask { shape, p: self.p, shared: product(shape.dims()), site: 0 }, x)
    }
}
