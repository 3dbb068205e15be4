use super::slice::part;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;
use alloc::vec::Vec;

/// `Select(index, dim = 1)`: takes one index of an axis, and removes the axis: the first token, the last step.
///
/// * Options: `dim = 1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last. A negative index counts from the end.
/// * Input of two axes or more, numbers or tokens; output of the others.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.select(dim, index)`, `x[:, index]`.
#[derive(Clone, Debug)]
pub struct Select {
    index: i64,
    dim: i64,
}

impl Layer for Select {
    const NAME: &'static str = "Select";

    fn read(from: &mut Arguments<'_>) -> Select {
        Select { index: from.required("index").offset(), dim: from.option("dim").axis_or_1() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let axis = x[0].axis(self.dim)?;
        if shape.rank() < 2 {
            return Err(Mistake::new(format!(
                "works on two axes or more, but the previous layer produces {shape}; use `Slice`"
            )));
        }
        let length = shape.dims()[axis];
        let index = if self.index < 0 { self.index.saturating_add(length as i64) } else { self.index };
        let Some(index) = u64::try_from(index).ok().filter(|&index| index < length) else {
            return Err(Mistake::of(
                "index",
                format!("has index {}, but the axis has {length}: 0 to {}, or -{length} to -1", self.index, length - 1),
            ));
        };
        let one = part(b, x[0], axis, [index, index + 1])?;
        let rest = shape.dims().iter().enumerate().filter(|(other, _)| *other != axis);
        let rest: Vec<u64> = rest.map(|(_, &length)| length).collect();
        Ok(b.view(one, Shape::new(&rest)))
    }
}
