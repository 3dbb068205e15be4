//! Launches of moving averages of parameters: `kernels/optimizer/average.cu`.

use crate::calls::{Argument, Kernel, Launch};
use crate::operations::context::{Context, LaunchContext};
use crate::operations::optimizer::{
    FEW, NONE, Work, distance_of_piece, following, many, most, own_distances, spread, with_shards,
};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Piece, Slot, TensorId};
use gpumem_core::train::Ema;
use gpumem_core::{Format, Precision};

/// Pointers of a launch, and its words for each parameter, not counting those of master copies.
const POINTERS: usize = 4;
const FIELDS: usize = 3;

const FILE: &str = "average.cu";

/// Returns the launch for one parameter.
pub(in crate::operations) fn launches(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    launch(context, std::slice::from_ref(context.operation)).map(|launch| vec![launch])
}

/// Fuses the averages from operation `first` on, as many as a launch takes. Returns their number and the launch; `None` if there is only one.
///
/// # Errors
/// As for [`launches`].
pub(crate) fn all(
    placed: &Placed,
    first: usize,
    setting: LaunchContext,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let rest = placed.program.operations.get(first..).unwrap_or_default();
    let context = |operation| Context { placed, operation, setting };
    let Some(operation) = rest.first().filter(|operation| operation.action == Action::Average) else { return Ok(None) };
    let count =
        following(rest, &Action::Average).min(most(POINTERS, FIELDS + usize::from(is_mixed(&context(operation)))));
    if count < 2 {
        return Ok(None);
    }
    Ok(Some((count, vec![launch(&context(operation), &rest[..count])?])))
}

fn is_mixed(context: &Context<'_>) -> bool {
    matches!(context.setting.precision, Precision::Mixed(_))
}

/// Returns the settings of the program's moving averages.
fn ema(context: &Context<'_>) -> Result<Ema, Error> {
    context.placed.program.descent.ema.ok_or(Error::Damaged("a program without moving averages computes some"))
}

/// Adds the constants of the averages to a kernel.
fn averaging(kernel: Kernel, context: &Context<'_>) -> Result<Kernel, Error> {
    let ema = ema(context)?;
    let kernel =
        with_shards(kernel, context).with_float("DECAY", ema.decay).with("EVERY", format!("{}ull", ema.every.max(1)));
    let kernel = kernel.with("MIXED", u8::from(is_mixed(context)));
    Ok(if ema.warmup { kernel.with("WARMUP", 1) } else { kernel })
}

/// Adds the constants to the kernel that ends a step, which counts averages.
pub(in crate::operations) fn counting(kernel: Kernel, context: &Context<'_>) -> Kernel {
    match context.placed.program.descent.ema {
        Some(ema) => kernel.with("EVERY", format!("{}ull", ema.every.max(1))),
        None => kernel,
    }
}

/// Returns a parameter and its average.
fn pair(operation: &Operation) -> Result<[TensorId; 2], Error> {
    let pair = operation.read(Slot::Parameter).zip(operation.written(Slot::Average));
    pair.map(|(parameter, average)| [parameter, average]).ok_or(Error::Damaged("an average lacks a tensor"))
}

/// True if the parameter's own elements are f32.
fn is_whole(context: &Context<'_>, parameter: TensorId) -> bool {
    context.tensor(parameter).role.format(context.setting.precision) == Format::F32
}

/// Returns one launch for many parameters. The kernel gets the tensor of each kind with the lowest address, and the distances of the others from
/// it.
fn launch(context: &Context<'_>, all: &[Operation]) -> Result<Launch, Error> {
    let placed = context.placed;
    let pairs = all.iter().map(pair).collect::<Result<Vec<[TensorId; 2]>, Error>>()?;
    let is_alike = |&[parameter, average]: &[TensorId; 2]| context.own(parameter) == context.own(average);
    if !pairs.iter().all(is_alike) {
        return Err(Error::Damaged("an average has another length than its parameter"));
    }
    let ids: Vec<TensorId> = pairs.iter().map(|pair| pair[0]).collect();
    let of = |index: usize| pairs.iter().map(|pair| Some(pair[index])).collect::<Vec<Option<Argument>>>();
    let tensors = placed.program.tensors.len() as Argument;
    let master = |&id: &TensorId| placed.masters[id as usize].filter(|_| is_mixed(context)).map(|_| tensors + id);
    let masters: Vec<Option<Argument>> = ids.iter().map(master).collect();
    let (weights, of_weights) = own_distances(context, &of(0), 0)?;
    let (averages, of_averages) = own_distances(context, &of(1), 0)?;
    let (copies, of_copies) = own_distances(context, &masters, NONE)?;
    let mut fields = vec![of_weights, of_averages];
    fields.extend(is_mixed(context).then_some(of_copies));
    let whole: Vec<bool> = ids.iter().map(|&id| is_whole(context, id)).collect();
    let arguments = vec![weights, copies, averages, Some(context.read(Slot::State)?)];
    let mut launch = many(context, [FILE, "average", "average_many"], &ids, (&fields, &whole), arguments)?;
    launch.kernel = averaging(launch.kernel, context)?;
    Ok(launch)
}

/// Returns the launch for a piece of a parameter whose master copy is at the start of a staging buffer.
///
/// # Errors
/// As for [`launches`], and an error for a piece that does not begin at a multiple of 256 bytes.
pub(in crate::operations) fn piece(context: &Context<'_>, piece: Piece) -> Result<Vec<Launch>, Error> {
    let [parameter, average] = pair(context.operation)?;
    let outside = Error::Damaged("a piece of an average is none of its elements");
    let most_elements = context.own(parameter).min(context.own(average));
    piece.end().filter(|&end| end <= most_elements).ok_or(outside)?;
    let master = context.operation.read(Slot::Master);
    let master = master.filter(|_| is_mixed(context) && context.placed.masters[parameter as usize].is_some());
    let after = |id: TensorId| distance_of_piece(context, id, piece.first);
    let mut fields = vec![vec![after(parameter)?], vec![after(average)?]];
    fields.extend(is_mixed(context).then(|| vec![if master.is_some() { 0 } else { NONE }]));
    let arguments = vec![Some(parameter), master, Some(average), Some(context.read(Slot::State)?)];
    let most = most(arguments.len(), fields.len() + 1);
    let kernel = context.kernel(FILE, "average").with("FIELDS", fields.len() + 1).with("MOST", most);
    let whole = [is_whole(context, parameter)];
    let mut launch = spread(kernel, FEW, &[Work::of_elements(piece.count)], (&fields, &whole), arguments)?;
    launch.kernel = averaging(launch.kernel, context)?;
    Ok(vec![launch])
}
