//! Launches of batch normalisation with an invertible rectifier: `kernels/batch_norm.cu` and `kernels/batch_norm_last.cu` with `SLOPE`. The
//! backward pass recovers the normalised values from the output.

use super::batch_norm::{Incoming, Tail, backward_through, forward_with};
use super::context::Context;
use super::pointwise::Rectifier;
use crate::calls::Launch;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::InplaceNorm;

pub(super) fn forward(context: &Context<'_>, op: &InplaceNorm) -> Result<Vec<Launch>, Error> {
    let tail = Tail::new(context.written(Slot::Output)?);
    forward_with(context, &op.norm(), Tail { rectifier: Rectifier::undone(op.slope), ..tail })
}

pub(super) fn backward(context: &Context<'_>, op: &InplaceNorm) -> Result<Vec<Launch>, Error> {
    let (dy, rectifier) = (context.read(Slot::Gradient)?, Rectifier::undone(op.slope));
    backward_through(context, &op.norm(), Incoming { dy, rectifier, masked: None, drop: None, again: None })
}
