use super::along::{indexed, of_first};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;

/// `Gather(x, index)` or `Gather(x, index, dim = 1)`: the elements of x along an axis that indices name, one for each index. For whole rows,
/// `Take(x, index)` has one index a row.
///
/// * Options: `dim = 1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last.
/// * Both branches get the layer's input. x is of any shape, and the indices are tokens with as many axes, as `TopK(k, indices)` and `ArgMax`
///   give them; output of the dimensions of the indices. Along `dim` there are any number of them, along other axes no more than x has: of a
///   longer x the first are looked at. An index of the user's from the length of x on is an error before anything runs.
/// * Parameters: none.
/// * Backward keeps the indices. An element that several of them name has the sum of their gradients, which is the same in every run.
///
/// PyTorch: `x.gather(dim, index)`, and `x.take_along_dim(index, dim)` of an `Expand`ed index.
#[derive(Clone, Debug)]
pub struct Gather {
    dim: i64,
}

impl Layer for Gather {
    const NAME: &'static str = "Gather";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(from: &mut Arguments<'_>) -> Gather {
        Gather { dim: from.option("dim").axis_or_1() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let axis = indexed(b, x, self.dim)?;
        let [index, x] = [x[1], of_first(b, x[0], x[1].shape, Some(axis))?];
        let op = ops::TakeAlong { input: x.shape, axis: axis as u64, count: index.shape.dims()[axis] };
        let x = b.repeated(&[x, index], 1)?;
        b.op(op, &x)
    }
}
