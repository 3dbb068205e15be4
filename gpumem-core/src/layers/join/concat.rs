use crate::graph::Elements;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::layers::{Layer, MOST_BRANCHES};
use crate::program::ops;
use alloc::format;
use alloc::vec::Vec;

/// `Concat(x, y, ..)` or `Concat(x, y, .., dim = 1)`: joins branches along an axis; without `dim` along the channels of feature maps and
/// the last axis of vectors and sequences.
///
/// * Option: `dim`, the axis as PyTorch counts them: the batch is 0, and -1 is the last.
/// * Every branch gets the layer's input; their outputs agree in all other dimensions. A branch that all samples share, as a
///   [`Parameter`](crate::layers::Parameter), is joined to each sample.
/// * Parameters: none.
/// * Backward keeps nothing: each branch gets its part of the gradient.
///
/// PyTorch: `torch.cat((x, y), dim)`, where a shared `x` is `x.expand(batch, ..)`; without `dim`, 1 for feature maps and vectors, -1 for
/// sequences.
#[derive(Clone, Debug)]
pub struct Concat {
    dim: Option<i64>,
}

impl Layer for Concat {
    const NAME: &'static str = "Concat";
    const INPUTS: (usize, usize) = (2, MOST_BRANCHES);

    fn read(from: &mut Arguments<'_>) -> Concat {
        Concat { dim: from.option("dim").axis() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        super::check_bytes(x)?;
        if x.iter().any(|value| value.elements != Elements::Numbers) {
            return Err(Mistake::new("joins numbers; embed tokens first"));
        }
        let first = x[0].shape;
        let axis = match self.dim {
            Some(dim) => x[0].axis(dim)?,
            // Sequences grow in width; maps and vectors in their first dimension.
            None => usize::from(first.rank() == 2),
        };
        let mut shape = first;
        let agrees =
            |value: &Value| value.shape.rank() == first.rank() && value.shape.with(axis, 1) == first.with(axis, 1);
        if let Some(other) = x.iter().position(|value| !agrees(value)) {
            let which = match axis {
                0 => "first",
                _ if axis + 1 == first.rank() => "last",
                1 => "second",
                _ => "third",
            };
            let mistake = Mistake::of_input(
                other,
                format!(
                    "joins branches that agree in all but the {which} dimension, but branch 0 produces {first} and branch \
                     {other} produces {}",
                    x[other].shape
                ),
            );
            if x.iter().any(|value| value.shape.rank() != first.rank()) {
                return Err(mistake);
            }
            b.report(mistake);
            shape = b.either(first, x[other].shape);
        }
        let lengths: Vec<u64> = x.iter().map(|value| value.shape.dims()[axis]).collect();
        let length = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
        let op = ops::Concat { axis: axis as u64, lengths, shape: shape.with(axis, length) };
        let x = b.repeated(x, x.len())?;
        b.op(op, &x)
    }
}
