use super::slice::part;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Concat;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// `Roll(shifts, dims)`: moves elements along axes; those that leave at one end enter at the other, as for shifted windows of a Swin
/// Transformer.
///
/// * Both are one number or as many as `(-3, -3)`. Axes are as PyTorch counts them: the batch is 0, and -1 is the last.
/// * Input of any shape, output of the same.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.roll(x, shifts, dims)`.
#[derive(Clone, Debug)]
pub struct Roll {
    shifts: Vec<i64>,
    dims: Vec<i64>,
}

impl Layer for Roll {
    const NAME: &'static str = "Roll";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Roll {
        Roll { shifts: from.required("shifts").offsets(), dims: from.required("dims").axes() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        x[0].numbers()?;
        if self.shifts.len() != self.dims.len() {
            let text = format!("has {} shifts for {} axes; write one for each", self.shifts.len(), self.dims.len());
            return Err(Mistake::of("shifts", text));
        }
        self.shifts.iter().zip(&self.dims).try_fold(x[0], |value, (&shift, &dim)| {
            let axis = value.axis_of("dims", dim)?;
            let length = value.shape.dims()[axis];
            // The position of the input's first element in the output.
            let first = i128::from(shift).rem_euclid(i128::from(length.max(1))) as u64;
            if first == 0 {
                return Ok(value);
            }
            let end = part(b, value, axis, [length - first, length])?;
            let start = part(b, value, axis, [0, length - first])?;
            b.op(Concat { axis: axis as u64, lengths: vec![first, length - first], shape: value.shape }, &[end, start])
        })
    }
}
