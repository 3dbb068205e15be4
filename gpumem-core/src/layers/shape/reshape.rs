use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::{Shape, product};
use alloc::format;
use alloc::vec::Vec;

/// `Reshape(size)`, a number or several as `Reshape((8, 4, 6))` or `Reshape(8, 4, 6)`: the same elements under another shape.
///
/// * Sizes are those of a sample, without the batch. One of them may be -1: it is what the others leave.
/// * Input of any shape, numbers or tokens; output of these dimensions. The same memory under another shape: no operation.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.reshape(x.shape[0], *size)`.
#[derive(Clone, Debug)]
pub struct Reshape {
    size: Vec<i64>,
}

impl Layer for Reshape {
    const NAME: &'static str = "Reshape";

    fn read(from: &mut Arguments<'_>) -> Reshape {
        Reshape { size: from.several("size").sizes() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let dims = sizes(&self.size, shape)?;
        Ok(b.view(x[0], dims))
    }
}

/// Returns the written shape, with as many elements as `from`.
fn sizes(written: &[i64], from: Shape) -> Result<Shape, Mistake> {
    let mistake = |text| Err(Mistake::of("size", text));
    if written.len() > Shape::MAX_RANK {
        return mistake(format!("has {} axes, more than the {} that a value can have", written.len(), Shape::MAX_RANK));
    }
    if written.iter().any(|&size| size < -1 || size == 0) || written.iter().filter(|&&size| size == -1).count() > 1 {
        return mistake("needs sizes of at least 1, and at most one of -1, which is what the others leave".into());
    }
    let elements = product(from.dims());
    let known: Vec<u64> = written.iter().filter_map(|&size| u64::try_from(size).ok()).collect();
    let known = product(&known);
    let left = elements / known;
    let fits = if written.contains(&-1) { elements.is_multiple_of(known) } else { elements == known };
    if !fits {
        let what = if written.contains(&-1) { "a multiple of " } else { "" };
        return mistake(format!("makes {what}{known} elements of {from}, which has {elements}"));
    }
    let dims: Vec<u64> = written.iter().map(|&size| u64::try_from(size).unwrap_or(left)).collect();
    Ok(Shape::new(&dims))
}
