//! Launches that add and copy gradients: `kernels/movement/movement.cu`.

pub(in crate::operations) mod arg_max;
pub(in crate::operations) mod as_strided;
pub(in crate::operations) mod concat;
pub(in crate::operations) mod exchange;
pub(in crate::operations) mod expand;
pub(in crate::operations) mod gather;
pub(in crate::operations) mod interpolate;
pub(in crate::operations) mod offload;
pub(in crate::operations) mod pad;
pub(in crate::operations) mod permute;
pub(in crate::operations) mod resize;
pub(in crate::operations) mod scatter_add;
pub(in crate::operations) mod slice;
pub(in crate::operations) mod take;
pub(in crate::operations) mod take_along;
pub(in crate::operations) mod top_k;

use super::context::Context;
use super::grid::{pack, pieces};
use crate::calls::Launch;
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::program::{Slot, TensorId};

fn elementwise(context: &Context<'_>, entry: &'static str) -> Result<Vec<Launch>, Error> {
    between(context, entry, context.read(Slot::Input(0))?, context.written(Slot::Output)?)
}

fn between(context: &Context<'_>, entry: &'static str, x: TensorId, y: TensorId) -> Result<Vec<Launch>, Error> {
    Ok(vec![launch(context, entry, x, y)])
}

fn launch(context: &Context<'_>, entry: &'static str, x: TensorId, y: TensorId) -> Launch {
    let count = context.unpadded(y);
    let kernel =
        context.kernel("movement.cu", entry).with("COUNT", format!("{count}ull")).with("BATCH", 1).with("ADD", 0);
    Launch::elementwise(kernel, pieces(context, count), vec![Some(x), Some(y)])
}

pub(super) fn accumulate(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    elementwise(context, "accumulate")
}

/// Returns the launch that adds a gradient at the start of scratch memory to another gradient.
pub(super) fn add(context: &Context<'_>, from: TensorId, to: TensorId) -> Launch {
    launch(context, "accumulate", from, to)
}

/// Returns the launch that adds a micro-batch's gradient of a parameter to the sum over micro-batches. The gradient has the format of weights, the
/// sum f32.
pub(super) fn collect(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let (part, sum) = (context.read(Slot::Gradient)?, context.written(Slot::ParameterGradient)?);
    let formats = [part, sum].map(|id| context.tensor(id).role.format(context.setting.precision));
    if formats != [context.setting.precision.narrow(), Format::F32] {
        return Err(Error::Damaged("the sum of a gradient over the parts of a batch has another format"));
    }
    between(context, "collect", part, sum)
}

pub(super) fn copy(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    elementwise(context, "copy")
}

pub(super) fn sum_batch(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.elements(dx);
    let kernel = context.kernel("movement.cu", "sum_batch").with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("BATCH", context.samples(dy)).with("ADD", context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count / pack(context, count), vec![Some(dy), Some(dx)])])
}
