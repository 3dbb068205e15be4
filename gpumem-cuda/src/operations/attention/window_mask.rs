//! Launches of the mask that hides pairs of positions of a window: `kernels/attention/window_mask.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{HIDDEN, WindowMask};

pub(in crate::operations) fn forward(context: &Context<'_>, op: &WindowMask) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("windows that are no whole parts of their map"));
    }
    let count = op.output().elements().unwrap_or(0);
    let kernel = context.kernel("window_mask.cu", "window_mask").with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("HEIGHT", op.size[0]).with("WIDTH", op.size[1]);
    let kernel = kernel.with("ROWS", op.window[0]).with("COLUMNS", op.window[1]);
    let kernel = kernel.with("DOWN", op.shift[0]).with("ACROSS", op.shift[1]).with_float("HIDDEN", f64::from(HIDDEN));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(context.written(Slot::Output)?)])])
}
