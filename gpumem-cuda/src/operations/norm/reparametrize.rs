//! Launches of reparametrised weights, such as weight norm: `kernels/norm/reparametrize.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::{Rows, norm_real};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Reparametrize;

/// Returns the kernel, and the division of parts among warps or blocks. A filter is contiguous in either layout.
fn kernel(context: &Context<'_>, op: &Reparametrize, entry: &'static str) -> Result<(Kernel, Rows), Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("a weight's parts are not all of it"));
    }
    let [outer, parts, inner] = op.sizes;
    let rows = Rows::new(context, parts, op.length())?;
    let kernel = context.kernel("reparametrize.cu", entry).with("OUTER", format!("{outer}ull"));
    let kernel = kernel.with("PARTS", format!("{parts}ull")).with("INNER", format!("{inner}ull"));
    let kernel = kernel.with("CENTER", u8::from(op.center)).with_float("EPS", op.eps).with_float("FACTOR", op.factor);
    let kernel = kernel.with("SCALE", u8::from(op.scale)).with("WARP", rows.warp);
    Ok((kernel.with("NORM_REAL", norm_real(context)), rows))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Reparametrize) -> Result<Vec<Launch>, Error> {
    let (kernel, Rows { grid, block, .. }) = kernel(context, op, "reparametrize")?;
    let g = if op.scale { Some(context.read(Slot::Input(1))?) } else { None };
    let (v, weight) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let arguments = vec![Some(v), g, Some(weight), context.operation.written(Slot::Saved(0))];
    let kernel = kernel.with("ADD", 0).with("ADD_G", 0);
    Ok(vec![Launch { kernel, grid, block, arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Reparametrize) -> Result<Vec<Launch>, Error> {
    let (kernel, Rows { grid, block, .. }) = kernel(context, op, "reparametrize_backward")?;
    let g = if op.scale { Some(context.read(Slot::Input(1))?) } else { None };
    let (dw, v, saved) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Saved(0))?);
    let [dv, dg] = [0, 1].map(|input| context.operation.written(Slot::InputGradient(input)));
    let arguments = vec![Some(dw), Some(v), g, Some(saved), dv, dg];
    let kernel = kernel.with("ADD", context.adds(Slot::InputGradient(0)));
    let kernel = kernel.with("ADD_G", context.adds(Slot::InputGradient(1)));
    Ok(vec![Launch { kernel, grid, block, arguments, numbers: Vec::new() }])
}
