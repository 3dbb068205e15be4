use super::slice::part;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::functions::Function;
use crate::program::ops::{Binary, BinaryFunction, Pointwise};
use alloc::format;
use alloc::vec::Vec;

/// `Glu` or `Glu(dim = -1)`: gated linear unit: the first half of an axis times the sigmoid of the second.
///
/// * Options: `dim = -1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last.
/// * Input of any shape with an even length along the axis; output of half that length.
/// * Parameters: none.
/// * Backward keeps the first half and the sigmoid.
///
/// PyTorch: `torch.nn.GLU(dim)`.
#[derive(Clone, Debug)]
pub struct Glu {
    dim: i64,
}

impl Layer for Glu {
    const NAME: &'static str = "Glu";

    fn read(from: &mut Arguments<'_>) -> Glu {
        Glu { dim: from.trailing("dim").axis().unwrap_or(-1) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        let axis = x[0].axis(self.dim)?;
        let length = shape.dims()[axis];
        if length % 2 != 0 {
            return Err(Mistake::of("dim", format!("halves an axis, but that has {length} elements; make it even")));
        }
        let first = part(b, x[0], axis, [0, length / 2])?;
        let second = part(b, x[0], axis, [length / 2, length])?;
        let half = first.shape;
        let gate = b.op(Pointwise { function: Function::Sigmoid, arguments: Vec::new(), shape: half }, &[second])?;
        b.op(Binary { function: BinaryFunction::Multiply, left: half, right: half }, &[first, gate])
    }
}
