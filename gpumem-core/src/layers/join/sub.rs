use super::binary;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::BinaryFunction;

/// `Sub(x, y)`: the difference of two branches, element by element.
///
/// * Both branches get the layer's input. Their outputs have one shape, or are broadcast as numpy does: aligned at their last
///   axes, an axis that one of them lacks or that has length 1 is repeated.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x - y`.
#[derive(Clone, Debug)]
pub struct Sub;

impl Layer for Sub {
    const NAME: &'static str = "Sub";
    const KEEPS_SHAPE: bool = true;
    const INPUTS: (usize, usize) = (2, 2);

    fn read(_: &mut Arguments<'_>) -> Sub {
        Sub
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        binary(b, BinaryFunction::Subtract, x)
    }
}
