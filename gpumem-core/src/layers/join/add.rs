use super::{binary, check_numbers, unequal_shapes};
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::layers::{Layer, MOST_BRANCHES};
use crate::program::ops::{BinaryFunction, Sum};

/// `Add(x, y, ..)`: the sum of branches. A residual is `Add([], [..])`.
///
/// * Every branch gets the layer's input. Their outputs have one shape, or are broadcast as numpy does: aligned at their last
///   axes, an axis that one of them lacks or that has length 1 is repeated.
/// * Parameters: none.
/// * Backward keeps nothing: each branch gets the whole gradient.
///
/// PyTorch: `x + y`.
#[derive(Clone, Debug)]
pub struct Add;

impl Layer for Add {
    const NAME: &'static str = "Add";
    const KEEPS_SHAPE: bool = true;
    const INPUTS: (usize, usize) = (2, MOST_BRANCHES);

    fn read(_: &mut Arguments<'_>) -> Add {
        Add
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        check_numbers(x)?;
        if let Some((branch, mistake)) = unequal_shapes(x) {
            b.report(mistake);
            return Ok(b.either(x[0], x[branch]));
        }
        let first = x[0].shape;
        if x.iter().all(|value| value.shape == first) {
            return b.op(Sum { branches: x.len() as u64, shape: first }, x);
        }
        x[1..].iter().try_fold(x[0], |sum, &value| binary(b, BinaryFunction::Add, &[sum, value]))
    }
}
