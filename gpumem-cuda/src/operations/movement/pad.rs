//! Launches of padding and cropping: `kernels/movement/pad.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::planes;
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{Beyond, Pad};
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::shape::Shape;

/// Returns the launch of an entry point that writes `count` elements.
fn launch(
    context: &Context<'_>,
    entry: &'static str,
    op: &Pad,
    (count, add): (u64, u8),
    [x, y]: [TensorId; 2],
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    let (output, before) = (op.sides(), op.before());
    // Twice an index must fit in 31 bits.
    if [op.input, output].as_flattened().iter().any(|&side| side > 1 << 30) {
        let what = "padding along an axis of more than 2^30 elements".into();
        return Err(Error::Unsupported { device: "CUDA", what });
    }
    if !op.is_sound() || before.iter().any(|before| before.unsigned_abs() > 1 << 30) {
        return Err(Error::Damaged("a padding is wider than its mode allows"));
    }
    let kernel = context.kernel("pad.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("HEIGHT", op.input[0]).with("WIDTH", op.input[1]);
    let kernel = kernel.with("OUT_HEIGHT", output[0]).with("OUT_WIDTH", output[1]);
    let kernel = kernel.with(
        "BEYOND",
        match op.beyond {
            Beyond::Constant => "Constant",
            Beyond::Reflect => "Reflect",
            Beyond::Replicate => "Replicate",
            Beyond::Circular => "Circular",
        },
    );
    if !op.value.is_finite() {
        return Err(Error::Damaged("a map is padded with what is no number"));
    }
    let kernel = kernel.with_float("VALUE", op.value);
    let kernel = kernel.with("BEFORE_H", format!("({})", before[0])).with("BEFORE_W", format!("({})", before[1]));
    let kernel = kernel.with("ADD", add);
    let input = Shape::new(&[op.channels, op.input[0], op.input[1]]);
    let maps = [("X_STRIDES", x, input), ("Y_STRIDES", y, op.output())];
    let (kernel, pack) = planes(context, kernel, op.channels, &maps)?;
    Ok(vec![Launch::elementwise(kernel, count / pack, arguments)])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Pad) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    launch(context, "pad_forward", op, (context.count(y), 0), [x, y], vec![Some(x), Some(y)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Pad) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let (count, add) = (context.count(dx), context.adds(Slot::InputGradient(0)));
    launch(context, "pad_backward", op, (count, add), [dx, dy], vec![Some(dy), Some(dx)])
}
