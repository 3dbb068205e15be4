//! Launches that keep the first time steps of each sequence: `kernels/attention/sequence_mask.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::ops::SequenceMask;
use gpumem_core::program::{Slot, TensorId};

fn launch(context: &Context<'_>, op: &SequenceMask, x: TensorId, y: TensorId, add: u8) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() || (op.reverse && x == y) {
        return Err(Error::Damaged("a mask of sequences that no kernel has"));
    }
    let lengths = context.read(Slot::Input(1))?;
    let samples = context.samples(y);
    if context.elements(lengths) != samples || samples * op.steps * op.width != context.elements(y) {
        return Err(Error::Damaged("a mask of sequences of another size"));
    }
    let kernel = context.kernel("sequence_mask.cu", "sequence_mask").with("SAMPLES", format!("{samples}ull"));
    let kernel = kernel.with("STEPS", format!("{}ull", op.steps)).with("WIDTH", format!("{}ull", op.width));
    let kernel = kernel.with("REVERSE", u8::from(op.reverse)).with("ADD", add);
    Ok(vec![Launch::elementwise(kernel, context.count(y), vec![Some(x), Some(lengths), Some(y)])])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &SequenceMask) -> Result<Vec<Launch>, Error> {
    launch(context, op, context.read(Slot::Input(0))?, context.written(Slot::Output)?, 0)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &SequenceMask) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    launch(context, op, dy, dx, context.adds(Slot::InputGradient(0)))
}
