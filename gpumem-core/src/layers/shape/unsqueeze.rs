use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;

/// `Unsqueeze(dim)`: the value with one more axis, of length 1.
///
/// * `dim` says which axis of the output it is, as PyTorch counts them: the batch is 0, and -1 is the last.
/// * Input of any shape of up to five axes, numbers or tokens, `[C, W]` for `dim = 2`, output `[C, 1, W]`. The same memory under another shape: no
///   operation.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.unsqueeze(dim)`.
#[derive(Clone, Debug)]
pub struct Unsqueeze {
    dim: i64,
}

impl Layer for Unsqueeze {
    const NAME: &'static str = "Unsqueeze";

    fn read(from: &mut Arguments<'_>) -> Unsqueeze {
        Unsqueeze { dim: from.required("dim").offset() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let rank = shape.rank() as i64;
        if shape.rank() == Shape::MAX_RANK {
            return Err(Mistake::new(format!("adds an axis to {shape}, which has as many as a value can have")));
        }
        // A negative `dim` counts the output's axes, which are one more.
        let dim = if self.dim < 0 { self.dim.saturating_add(rank + 2) } else { self.dim };
        if !(1..=rank + 1).contains(&dim) {
            let text = format!(
                "has `dim = {0}`, but what it makes of {shape} has axes 1 to {1}, or -{1} to -1",
                self.dim,
                rank + 1
            );
            return Err(Mistake::of("dim", text));
        }
        let mut dims = shape.dims().to_vec();
        dims.insert(dim as usize - 1, 1);
        Ok(b.view(x[0], Shape::new(&dims)))
    }
}
