use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;
use alloc::vec::Vec;

/// `Squeeze(dim)`: the value without an axis of length 1.
///
/// * The axis is as PyTorch counts them: the batch is 0, and -1 is the last.
/// * Input of any shape of two axes or more, numbers or tokens, `[C, 1, W]` for `dim = 2`, output `[C, W]`. The same memory under another shape: no
///   operation.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.squeeze(dim)`, which ignores an axis of another length; here that is a mistake.
#[derive(Clone, Debug)]
pub struct Squeeze {
    dim: i64,
}

impl Layer for Squeeze {
    const NAME: &'static str = "Squeeze";

    fn read(from: &mut Arguments<'_>) -> Squeeze {
        Squeeze { dim: from.required("dim").offset() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let axis = x[0].axis_of("dim", self.dim)?;
        let length = shape.dims()[axis];
        if length != 1 || shape.rank() < 2 {
            let text = format!("leaves out an axis of {shape} that has {length} elements; use `Select` or `Reshape`");
            return Err(Mistake::of("dim", text));
        }
        let dims: Vec<u64> = [&shape.dims()[..axis], &shape.dims()[axis + 1..]].concat();
        Ok(b.view(x[0], Shape::new(&dims)))
    }
}
