//! Launches of batch normalisation with an invertible rectifier: `kernels/norm/batch_norm.cu` and `kernels/norm/batch_norm_last.cu` with `SLOPE`. The
//! backward pass recovers the normalised values from the output.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::norm::batch_norm::{Incoming, backward_through, forward_through};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::InplaceNorm;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &InplaceNorm) -> Result<Vec<Launch>, Error> {
    forward_through(context, &op.norm(), Rectifier::undone(op.slope))
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &InplaceNorm) -> Result<Vec<Launch>, Error> {
    let (dy, rectifier) = (context.read(Slot::Gradient)?, Rectifier::undone(op.slope));
    backward_through(context, &op.norm(), Incoming { dy, rectifier, masked: None, drop: None, again: None })
}
