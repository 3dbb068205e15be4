//! Launches of batch norms over the samples of all ranks, each pass of which is two operations: `kernels/norm/batch_norm.cu`, and
//! `kernels/norm/batch_norm_last.cu` for channels last, with `RANKS`.
//!
//! The first operation computes the statistics of the rank's own samples, or their sums; the second reads those of all ranks.

use super::{Incoming, Plan, Tail, parameters};
use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::small;
use gpumem_core::error::Error;
use gpumem_core::program::ops::BatchNorm;
use gpumem_core::program::{Operation, Slot, TensorId};

/// The error of a fusion that has no kernel for norms over the samples of all ranks.
const FUSED: Error = Error::Damaged("a norm of all ranks is fused with what only a norm of one rank can be");

/// The share of a pass that an operation computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Both operations in one: the statistics are the rank's own.
    Whole,
    /// The statistics or sums of the rank's own samples, which are written to this tensor.
    Sends(TensorId),
    /// Everything that depends on the statistics or sums of all ranks, which are read from this tensor.
    Receives(TensorId),
}

impl Share {
    pub(super) fn of(operation: &Operation) -> Share {
        match (operation.written(Slot::Sent(0)), operation.read(Slot::Received(0))) {
            (Some(sent), _) => Share::Sends(sent),
            (None, Some(received)) => Share::Receives(received),
            (None, None) => Share::Whole,
        }
    }
}

/// Adds to a kernel the rows in which ranks gather their statistics.
///
/// # Errors
/// [`Error::Damaged`] if `rows` is no tensor with a row of `2 * channels` numbers for each rank.
fn with_rows(kernel: Kernel, context: &Context<'_>, op: &BatchNorm, rows: TensorId) -> Result<Kernel, Error> {
    let ranks = context.placed.program.descent.ranks.count;
    let tensor = context.tensor(rows);
    let is_of_ranks = tensor.shape.dims() == [ranks, 2 * op.channels];
    let pitch = tensor.own_shard().filter(|&pitch| is_of_ranks && pitch >= 2 * op.channels);
    let pitch = pitch.ok_or(Error::Damaged("ranks have no rows for the statistics of a norm"))?;
    Ok(kernel.with("RANKS", ranks).with("PITCH", format!("{pitch}ull")))
}

/// Adds to a kernel the number of ranks whose sums it reads or writes.
fn with_ranks(kernel: Kernel, context: &Context<'_>) -> Kernel {
    // Sums are one row, to which all ranks add.
    kernel.with("RANKS", context.placed.program.descent.ranks.count).with("PITCH", 0)
}

/// Returns the launches of the first operation of a forward pass: the mean and the variance of each channel of the rank's samples.
pub(super) fn statistics(context: &Context<'_>, op: &BatchNorm, rows: TensorId) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let plan = Plan::new(context, op, [x; 3], Tail::new(x).rectifier);
    // Ranks have the same kernels, so that the place of a rank's own row is no constant.
    let start = small(context.own_start(rows)? / size_of::<f32>() as u64)?;
    let to_row = |launch: Launch| {
        let kernel = with_rows(launch.kernel, context, op, rows)?;
        Ok::<_, Error>(Launch { kernel, numbers: vec![start], ..launch })
    };
    let Some(partial) = plan.partial() else {
        let launch = plan.channels("batch_norm_rank_statistics", [0; 3], vec![Some(x), Some(rows)])?;
        return Ok(vec![to_row(launch)?]);
    };
    let parts = plan.channels("batch_norm_statistics", [0; 3], vec![Some(x), Some(partial)])?;
    let join = plan.joining("batch_norm_rank_join", [0; 3], vec![Some(partial), Some(rows)])?;
    Ok(vec![parts, to_row(join)?])
}

/// Returns the launch of the second operation of a forward pass: the output from the statistics of all ranks, which also move the running ones.
pub(super) fn output(context: &Context<'_>, op: &BatchNorm, rows: TensorId, tail: Tail) -> Result<Vec<Launch>, Error> {
    if tail.dropped.is_some() {
        return Err(FUSED);
    }
    let x = context.read(Slot::Input(0))?;
    let [weight, bias] = parameters(context, op)?;
    let plan = Plan::new(context, op, [x, tail.output, x], tail.rectifier).adding(tail.residual);
    let saved = context.written(Slot::Saved(0))?;
    let running = [Slot::Buffer(0), Slot::Buffer(1)].map(|slot| context.operation.written(slot));
    let read = [Some(x), Some(rows), weight, bias, tail.residual];
    let written = [Some(saved), running[0], running[1], Some(tail.output)];
    let launch = plan.channels("batch_norm_apply_ranks", [0; 3], [&read[..], &written].concat())?;
    Ok(vec![Launch { kernel: with_rows(launch.kernel, context, op, rows)?, ..launch }])
}

/// Returns the launches of the first operation of a backward pass: the rank's own sums, and the gradients of weight and bias.
pub(super) fn sums(
    context: &Context<'_>,
    op: &BatchNorm,
    Incoming { dy, rectifier, masked, drop, again }: Incoming,
    (x, sums): (TensorId, TensorId),
) -> Result<Vec<Launch>, Error> {
    if drop.is_some() || again.is_some() {
        return Err(FUSED);
    }
    let saved = context.read(Slot::Saved(0))?;
    let slots = [Slot::InputGradient(1), Slot::InputGradient(2)];
    let [dweight, dbias] = slots.map(|slot| context.operation.written(slot));
    let add = [0, context.adds(slots[0]), context.adds(slots[1])];
    let [weight, bias] = parameters(context, op)?;
    let plan = Plan::new(context, op, [x, dy, x], rectifier).masking(masked.is_some());
    let [y, through] = masked.map_or([None; 2], |masked| masked.map(Some));
    let read = [Some(dy), Some(x), weight, bias, Some(saved), y, through];
    let of_ranks = |launch: Launch| Launch { kernel: with_ranks(launch.kernel, context), ..launch };
    let written = [dweight, dbias, Some(sums)];
    let Some(partial) = plan.partial() else {
        let launch = plan.channels("batch_norm_rank_sums", add, [&read[..], &written].concat())?;
        return Ok(vec![of_ranks(launch)]);
    };
    let parts = plan.channels("batch_norm_sums", add, [&read[..], &[Some(partial)]].concat())?;
    let read = [Some(saved), Some(partial)];
    let join = plan.joining("batch_norm_rank_join_sums", add, [&read[..], &written].concat())?;
    Ok(vec![parts, of_ranks(join)])
}

/// Returns the launch of the second operation of a backward pass: the gradient of the input, from the sums of all ranks.
pub(super) fn input_gradient(
    context: &Context<'_>,
    op: &BatchNorm,
    Incoming { dy, rectifier, masked, drop, again }: Incoming,
    (x, sums): (TensorId, TensorId),
) -> Result<Vec<Launch>, Error> {
    if drop.is_some() || again.is_some() || masked.is_some() {
        return Err(FUSED);
    }
    let (saved, dx) = (context.read(Slot::Saved(0))?, context.written(Slot::InputGradient(0))?);
    let [weight, bias] = parameters(context, op)?;
    let plan = Plan::new(context, op, [x, dy, dx], rectifier);
    let arguments = vec![Some(dy), Some(x), weight, bias, Some(saved), Some(sums), Some(dx)];
    let add = [context.adds(Slot::InputGradient(0)), 0, 0];
    let launch = plan.channels("batch_norm_input_ranks", add, arguments)?;
    Ok(vec![Launch { kernel: with_ranks(launch.kernel, context), ..launch }])
}
