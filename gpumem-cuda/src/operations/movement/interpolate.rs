//! Launches of interpolation between the elements of maps: `kernels/movement/interpolate.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::planes;
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{Interpolate, Interpolation};
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::shape::Shape;

/// The longest axis. The kernel has 31-bit integers for places along it and beyond its end.
const LONGEST: u64 = 1 << 30;

/// Adds the places of the output's rows and columns in the input to a kernel.
///
/// # Errors
/// [`Error::Unsupported`] for an axis that is too long, [`Error::Damaged`] for places outside every map.
fn with_places(mut kernel: Kernel, op: &Interpolate) -> Result<Kernel, Error> {
    if [op.input, op.output].as_flattened().iter().any(|&side| side > LONGEST) {
        let what = "interpolation along an axis of more than 2^30 elements".into();
        return Err(Error::Unsupported { device: "CUDA", what });
    }
    for (axis, names) in [["START_H", "STEP_H"], ["START_W", "STEP_W"]].into_iter().enumerate() {
        let (start, step) = (op.start[axis], op.step[axis]);
        let last = start.abs() + op.output[axis] as f64 * step;
        // NaN is not within the limits either.
        let is_within = step >= 0.0 && last <= (2 * LONGEST - 1) as f64;
        if !is_within || (op.interpolation == Interpolation::Nearest && step == 0.0) {
            return Err(Error::Damaged("an interpolation reads what no map has"));
        }
        // Nearest elements are found from the row numbers, or from the middles of the rows.
        let start = match op.interpolation {
            Interpolation::Nearest if start > 0.0 => 0.5,
            _ => start,
        };
        for (name, number) in names.into_iter().zip([start, step]) {
            kernel = match op.interpolation {
                Interpolation::Nearest => kernel.with_float(name, f64::from(number as f32)),
                Interpolation::Linear | Interpolation::Cubic => {
                    kernel.with(name, format!("{}ll", (number * 4294967296.0).round() as i64))
                }
            };
        }
    }
    Ok(kernel)
}

/// Returns the launch of an entry point that writes `count` elements.
fn launch(
    context: &Context<'_>,
    entry: &'static str,
    op: &Interpolate,
    (count, add): (u64, u8),
    [x, y]: [TensorId; 2],
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    let kernel = context.kernel("interpolate.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("HEIGHT", op.input[0]).with("WIDTH", op.input[1]);
    let kernel = kernel.with("OUT_HEIGHT", op.output[0]).with("OUT_WIDTH", op.output[1]);
    let kernel = kernel.with(
        "BETWEEN",
        match op.interpolation {
            Interpolation::Nearest => "Nearest",
            Interpolation::Linear => "Linear",
            Interpolation::Cubic => "Cubic",
        },
    );
    let kernel = with_places(kernel, op)?.with("ADD", add);
    let input = Shape::new(&[op.channels, op.input[0], op.input[1]]);
    let maps = [("X_STRIDES", x, input), ("Y_STRIDES", y, op.output())];
    let (kernel, pack) = planes(context, kernel, op.channels, &maps)?;
    Ok(vec![Launch::elementwise(kernel, count / pack, arguments)])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Interpolate) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    launch(context, "interpolate_forward", op, (context.count(y), 0), [x, y], vec![Some(x), Some(y)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Interpolate) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let (count, add) = (context.count(dx), context.adds(Slot::InputGradient(0)));
    launch(context, "interpolate_backward", op, (count, add), [dx, dy], vec![Some(dy), Some(dx)])
}
