//! The launch that fills a tensor with a constant of the network: `kernels/elementwise/constant.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Constant;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Constant) -> Result<Vec<Launch>, Error> {
    let values = op.values().ok_or(Error::Damaged("a constant has other numbers than elements"))?;
    let numbers: Vec<String> = values.iter().map(|value| format!("{value:e}f")).collect();
    let y = context.written(Slot::Output)?;
    let count = context.count(y);
    let kernel = context.kernel("constant.cu", "constant").with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("NUMBERS", format!("{{{}}}", numbers.join(",")));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(y)])])
}
