//! Launches of input normalisation, channels less a mean over a deviation: `kernels/norm/standardize.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::{Context, other_layout};
use crate::operations::grid::is_last;
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::ops::Standardize;
use gpumem_core::program::{Slot, TensorId};

/// The most channels of a pixel that a thread works on together, with their means and deviations in registers.
const FEW: u64 = 4;

/// Pixels that a thread works on together.
const PIXELS: u64 = 4;

/// Returns numbers in the syntax of the kernels' constants. They are finite: the language requires that, and a damaged program is refused.
fn in_braces(numbers: impl Iterator<Item = f32>) -> Result<String, Error> {
    let exact = |number: f32| number.is_finite().then(|| format!("{number:e}f"));
    let all: Option<Vec<String>> = numbers.map(exact).collect();
    let all = all.ok_or(Error::Damaged("channels are standardised by what is no number"))?;
    Ok(format!("{{{}}}", all.join(",")))
}

fn kernel(context: &Context<'_>, op: &Standardize, entry: &'static str, count: u64) -> Result<Kernel, Error> {
    let lines = op.lines().ok_or(Error::Damaged("there are other numbers to standardise by than channels"))?;
    let kernel = context.kernel("standardize.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("CHANNELS", op.shape.dims().first().copied().unwrap_or(1)).with("INNER", op.inner());
    let kernel = kernel.with("SCALES", in_braces(lines.iter().map(|line| line[0]))?);
    let kernel = kernel.with("SHIFTS", in_braces(lines.iter().map(|line| line[1]))?);
    Ok(kernel.with("BYTES", u8::from(op.bytes)))
}

/// Adds the layouts of x and y to a kernel. Also returns the number of elements that a thread works on.
fn lie(
    context: &Context<'_>,
    op: &Standardize,
    kernel: Kernel,
    (x, y, is_forward): (TensorId, TensorId, bool),
) -> Result<(Kernel, u64), Error> {
    let inner = op.inner();
    if [x, y].iter().all(|&id| context.tensor(id).layout.is_dense()) {
        let wide = 16 / Role::Activation.bytes(context.setting.precision);
        let piece = [wide, 4].into_iter().find(|&piece| inner.is_multiple_of(piece)).unwrap_or(1);
        return Ok((kernel.with("PIXELS", 0), piece));
    }
    let [channels, height, width] = op.shape.as_map().ok_or_else(other_layout)?;
    let is_side_by_side = is_last(context, &[("Y_STRIDES", y, op.shape)]);
    let fits = channels <= FEW && inner.is_multiple_of(PIXELS) && context.tensor(x).layout.is_dense();
    if is_forward && is_side_by_side && fits {
        return Ok((kernel.with("PIXELS", PIXELS), PIXELS * channels));
    }
    let maps = [("X_STRIDES", x, op.shape), ("Y_STRIDES", y, op.shape)];
    let kernel = kernel.with("PIXELS", 0).with("HEIGHT", height).with("WIDTH", width);
    Ok((context.with_strides(kernel, &maps)?, 1))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Standardize) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.count(y);
    let kernel = kernel(context, op, "standardize", count)?.with("ADD", 0);
    let (kernel, piece) = lie(context, op, kernel, (x, y, true))?;
    Ok(vec![Launch::elementwise(kernel, count / piece, vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Standardize) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.count(dx);
    let kernel = kernel(context, op, "standardize_backward", count)?;
    let kernel = kernel.with("ADD", context.adds(Slot::InputGradient(0)));
    let (kernel, piece) = lie(context, op, kernel, (dx, dy, false))?;
    Ok(vec![Launch::elementwise(kernel, count / piece, vec![Some(dy), Some(dx)])])
}
