use super::binary;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::BinaryFunction;

/// `Maximum(x, y)`: the larger one of two branches, element by element.
///
/// * Both branches get the layer's input. Their outputs have one shape, or are broadcast as numpy does: aligned at their last
///   axes, an axis that one of them lacks or that has length 1 is repeated.
/// * The output is NaN if one of both is. The gradient goes to the larger one; if both are equal, each gets half of it.
/// * Parameters: none.
/// * Backward keeps both branches' outputs.
///
/// PyTorch: `torch.maximum(x, y)`.
#[derive(Clone, Debug)]
pub struct Maximum;

impl Layer for Maximum {
    const NAME: &'static str = "Maximum";
    const KEEPS_SHAPE: bool = true;
    const INPUTS: (usize, usize) = (2, 2);

    fn read(_: &mut Arguments<'_>) -> Maximum {
        Maximum
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        binary(b, BinaryFunction::Maximum, x)
    }
}
