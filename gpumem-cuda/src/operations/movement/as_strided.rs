//! Launches of indices at strides: `kernels/movement/as_strided.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::AsStrided;
use gpumem_core::shape::Shape;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &AsStrided) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let samples = context.samples(y);
    let all = |shape: Shape| shape.elements().and_then(|elements| elements.checked_mul(samples));
    if !op.is_sound() || all(op.input) != Some(context.elements(x)) || all(op.output) != Some(context.elements(y)) {
        return Err(Error::Damaged("indices at strides that reach beyond those of a sample"));
    }
    // The samples are one more axis.
    let list = |first: u64, numbers: &[u64]| {
        let numbers: Vec<String> = [&[first], numbers].concat().iter().map(|number| format!("{number}ull")).collect();
        format!("{{{}}}", numbers.join(","))
    };
    let whole = context.elements(x) / samples.max(1);
    let kernel = context.kernel("as_strided.cu", "as_strided").with("AXES", op.output.rank() + 1);
    let kernel = kernel.with("COUNT", format!("{}ull", context.count(y))).with("START", format!("{}ull", op.start));
    let kernel = kernel.with("LENGTHS", list(samples, op.output.dims())).with("STRIDES", list(whole, &op.strides));
    Ok(vec![Launch::elementwise(kernel, context.count(y), vec![Some(x), Some(y)])])
}
