//! Launches of sinusoidal embeddings, sines and cosines of numbers: `kernels/attention/sinusoid.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Angles, Sinusoid};

fn kernel(context: &Context<'_>, op: &Sinusoid, entry: &'static str, count: u64, add: u8) -> Result<Kernel, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("sines and cosines that are not whole pairs"));
    }
    let angles = match op.angles {
        Angles::Numbers => "Given",
        Angles::Indices => "Indices",
        Angles::Steps => "Steps",
        Angles::Parts => "Parts",
        Angles::Following => "Following",
    };
    let frequencies: Vec<String> = op.frequencies(f64::powf).iter().map(|f| format!("{:e}f", f64::from(*f))).collect();
    let kernel = context.kernel("sinusoid.cu", entry).with("COUNT", format!("{count}ull")).with("ANGLES", angles);
    let kernel = kernel.with("FEATURES", op.shape.last()).with("ROWS", op.rows()).with("WIDTH", op.grid[1]);
    let kernel = kernel.with("EACH", op.features()).with("FREQUENCIES", format!("{{{}}}", frequencies.join(",")));
    let [[_, down], [more, across]] = op.parts();
    let kernel = kernel.with_float("MORE", f64::from(more)).with_float("DOWN", f64::from(down));
    let kernel = kernel.with_float("ALONG", f64::from(across)).with("ROWS_FIRST", u8::from(op.rows_first));
    let kernel = kernel.with("COSINES_FIRST", u8::from(op.cosines_first));
    Ok(kernel.with("INTERLEAVED", u8::from(op.interleaved)).with("ADD", add))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Sinusoid) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let count = context.elements(y);
    let input = || context.read(Slot::Input(0)).map(Some);
    let (numbers, indices) = match op.angles {
        Angles::Numbers => (input()?, None),
        Angles::Indices => (None, input()?),
        Angles::Steps | Angles::Parts => (None, None),
        Angles::Following => (None, Some(context.read(Slot::State)?)),
    };
    let kernel = kernel(context, op, "sinusoid_forward", count, 0)?;
    Ok(vec![Launch::elementwise(kernel, count, vec![numbers, indices, Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Sinusoid) -> Result<Vec<Launch>, Error> {
    let (dy, x) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?);
    let dx = context.written(Slot::InputGradient(0))?;
    let rows = context.elements(dx);
    let kernel = kernel(context, op, "sinusoid_backward", context.elements(dy), context.adds(Slot::InputGradient(0)))?;
    let blocks = i32::try_from(rows).map_err(|_| Error::Damaged("more numbers than a grid has blocks"))?;
    let arguments = vec![Some(dy), Some(x), Some(dx)];
    Ok(vec![Launch { kernel, grid: [blocks.unsigned_abs(), 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}
