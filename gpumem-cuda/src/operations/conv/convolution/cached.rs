//! Launches of a causal convolution of a sequence's current time steps, with the earlier ones in a cache: `kernels/conv/cached_convolution.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::small;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CachedConvolution;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &CachedConvolution) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("a convolution of a sequence has sizes that do not fit each other"));
    }
    let CachedConvolution { in_channels, out_channels, kernel_size, dilation, groups, bias, steps } = *op;
    for size in [in_channels, out_channels, kernel_size, dilation, steps, op.reach()] {
        small(size)?;
    }
    let (x, weight) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let bias = if bias { Some(context.read(Slot::Input(2))?) } else { None };
    let (state, kept, y) =
        (context.read(Slot::State)?, context.written(Slot::Cache(0))?, context.written(Slot::Output)?);
    let samples = context.samples(y);
    let kernel = |entry: &'static str| -> Kernel {
        let kernel = context.kernel("cached_convolution.cu", entry).with("IN", format!("{in_channels}u"));
        let kernel = kernel.with("OUT", format!("{out_channels}u")).with("WIDTH", format!("{kernel_size}u"));
        let kernel = kernel.with("DILATION", format!("{dilation}u")).with("GROUPS", format!("{groups}u"));
        let kernel = kernel.with("STEPS", format!("{steps}u")).with("BIAS", u8::from(bias.is_some()));
        kernel.with("SAMPLES", format!("{samples}ull"))
    };
    let of = |rows: u64, columns: u64| samples.saturating_mul(rows).saturating_mul(columns);
    Ok(vec![
        Launch::elementwise(
            kernel("cached_convolution"),
            of(out_channels, steps),
            vec![Some(x), Some(weight), bias, Some(kept), Some(state), Some(y)],
        ),
        Launch::elementwise(
            kernel("cached_convolution_keep"),
            of(in_channels, op.reach()),
            vec![Some(x), Some(state), Some(kept)],
        ),
    ])
}
