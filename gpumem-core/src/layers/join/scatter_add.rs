use super::along::{indexed, of_first};
use super::check_numbers;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `ScatterAdd(x, index, src)` or `ScatterAdd(x, index, src, dim = 1)`: x, with the elements of src added to it where indices along an axis say.
///
/// * Options: `dim = 1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last.
/// * All branches get the layer's input. x is of any shape, the indices are tokens of the same dimensions but along `dim`, and src has those of
///   the indices; of a longer src the first elements are added. Output of the shape of x. An index of the user's from the length of x on is an
///   error before anything runs.
/// * Parameters: none.
/// * Backward keeps the indices. Several elements are added to one place in the order of their indices, so that sums are the same in every run.
///
/// PyTorch: `x.scatter_add(dim, index, src)`.
#[derive(Clone, Debug)]
pub struct ScatterAdd {
    dim: i64,
}

impl Layer for ScatterAdd {
    const NAME: &'static str = "ScatterAdd";
    const INPUTS: (usize, usize) = (3, 3);

    fn read(from: &mut Arguments<'_>) -> ScatterAdd {
        ScatterAdd { dim: from.option("dim").axis_or_1() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let axis = indexed(b, x, self.dim)?;
        check_numbers(&[x[0], x[0], x[2]])?;
        let [value, index, source] = [x[0].shape, x[1].shape, x[2].shape];
        let count = index.dims()[axis];
        if value.with(axis, count) != index {
            let text = format!(
                "adds to elements of {value} along axis {}, but its second branch produces {index}; use {}",
                axis + 1,
                value.with(axis, count)
            );
            return Err(Mistake::of_input(1, text));
        }
        let is_shorter = source.dims().iter().zip(index.dims()).any(|(source, index)| source < index);
        if source.rank() != index.rank() || is_shorter {
            let text = format!(
                "adds an element for each index of {index}, but its third branch produces {source}; use as many or more"
            );
            return Err(Mistake::of_input(2, text));
        }
        let source = of_first(b, x[2], index, None)?;
        let [x, source, index] = b.apart(&[x[0], source, x[1]], 2)?[..] else {
            return Err(Mistake::new("adds to one value"));
        };
        b.op(ops::ScatterAdd { input: value, axis: axis as u64, count }, &[x, index, source])
    }
}
