use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{AsStrided, Binary, BinaryFunction, Constant};
use crate::shape::Shape;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// `Expand(sizes)`, a number or several as `Expand((8, 4, 6))` or `Expand(8, 4, 6)`: axes of length 1 are repeated, and new ones are put
/// before the others.
///
/// * Sizes are those of a sample, without the batch, aligned at the last axis. -1 leaves an axis as it is.
/// * Input of any shape whose axes have these sizes or 1, numbers or tokens; output of these dimensions.
/// * Parameters: none.
/// * Backward keeps nothing; its gradient is the sum over what is repeated. The elements are copied, and of numbers as many zeros as the
///   longest repetition has are in memory while they are.
///
/// PyTorch: `x.expand(x.shape[0], *sizes)`, where new axes follow the batch.
#[derive(Clone, Debug)]
pub struct Expand {
    sizes: Vec<i64>,
}

impl Layer for Expand {
    const NAME: &'static str = "Expand";

    fn read(from: &mut Arguments<'_>) -> Expand {
        Expand { sizes: from.several("sizes").sizes() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let mistake = |text| Err(Mistake::of("sizes", text));
        let rank = self.sizes.len();
        if rank > Shape::MAX_RANK {
            return mistake(format!("has {rank} axes, more than the {} that a value can have", Shape::MAX_RANK));
        }
        let Some(new) = rank.checked_sub(shape.rank()) else {
            return mistake(format!("has {rank} sizes, but {shape} has {} axes; write as many or more", shape.rank()));
        };
        let (mut output, mut zeros) = (Vec::new(), Vec::new());
        for (axis, &size) in self.sizes.iter().enumerate() {
            let length = axis.checked_sub(new).map_or(1, |axis| shape.dims()[axis]);
            let size = match u64::try_from(size) {
                Ok(size) if size > 0 => size,
                _ if size == -1 && axis >= new => length,
                _ => return mistake(format!("has {size}; a size is at least 1, or -1 for an axis that is there")),
            };
            if length != 1 && length != size {
                return mistake(format!(
                    "repeats an axis of length {length} of {shape} to {size}; only axes of length 1 are"
                ));
            }
            output.push(size);
            // An axis that is not repeated needs one zero only.
            zeros.push(if length == size { 1 } else { size });
        }
        if output == shape.dims() {
            return Ok(x[0]);
        }
        if x[0].elements == Elements::Indices {
            return b.op(AsStrided::expanded(shape, Shape::new(&output)), &[x[0]]);
        }
        let right = Shape::new(&zeros);
        let zeros = b.op(Constant { shape: right, numbers: vec![0.0] }, &[])?;
        // `x - 0` is x for every number, and -0 stays -0.
        b.op(Binary { function: BinaryFunction::Subtract, left: shape, right }, &[x[0], zeros])
    }
}
