//! Recurrent layers with the map of what arrives: cuDNN, or a product and the kernels of [`recurrence`](super::recurrence) in the memory that
//! is planned for it. The gates then lie where its reserve would be, and the scratch memory of the kernels at the start of the workspace.

use super::context::{Context, Setting};
use super::product::{column_sums_of, product_of};
use super::{movement, recurrence};
use crate::calls::product::{Element, Factor, Scratch};
use crate::calls::recurrence::Pass;
use crate::calls::{self, Call};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::ops::WholeRecurrence;
use gpumem_core::program::{Action, Op, Operand, Operation, Slot, TensorId};

/// Elements that the library can count: its sizes are of 32 bits, with a sign.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// Inputs of the operation that the kernels behind the map read, and their numbers there.
const INNER: [(u8, u8); 2] = [(2, 1), (3, 2)];

/// Whether there is any in a program.
pub(crate) fn any(placed: &Placed) -> bool {
    let is_one = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::WholeRecurrence(_), .. });
    placed.program.operations.iter().any(is_one)
}

/// What is asked of the library; `None` if it is not to be asked. Forward pass and gradient go to it both or neither: what it keeps is its
/// own. So nothing here may depend on the pass, nor what makes of it a plan.
fn library(context: &Context<'_>, op: &WholeRecurrence, pass: Pass) -> Result<Option<Call>, Error> {
    let Setting { precision, cudnn, deterministic, tf32, .. } = context.setting;
    let (x, element) = (context.read(Slot::Input(0))?, Element::of(precision));
    let (reserve, y) = match pass {
        Pass::Forward => (context.written(Slot::Saved(0))?, context.written(Slot::Output)?),
        Pass::Backward { .. } => (context.read(Slot::Saved(0))?, context.read(Slot::Output)?),
    };
    let has_format = element != Element::Bf16 || context.setting.capability >= (8, 0);
    let largest = context.count(reserve).max(context.count(x)).max(op.weights());
    if !(cudnn && has_format && !deterministic && largest <= MOST_ELEMENTS) {
        return Ok(None);
    }
    let workspace = context.written(Slot::Workspace)?;
    let scratch = |tensor: TensorId| Scratch { tensor, bytes: context.placed.bytes[tensor as usize] };
    let input = |index: u8| context.read(Slot::Input(index)).map(Some);
    let [bias, map_bias] = if op.bias { [input(3)?, input(WholeRecurrence::MAP_BIAS)?] } else { [None; 2] };
    let call = calls::Recurrence {
        pass,
        cell: op.cell,
        batch: context.samples(x),
        steps: op.steps,
        in_features: op.in_features,
        hidden: op.hidden,
        x,
        y,
        weights: [input(1)?, input(2)?, map_bias, bias],
        reserve: scratch(reserve),
        workspace: scratch(workspace),
        element,
        tf32: tf32 && precision == Precision::F32,
    };
    Ok(Some(call.into()))
}

/// The operation of the kernels behind the map, on the same tensors: the gates are in the reserve.
fn behind(context: &Context<'_>, reads: &[(Slot, TensorId)], writes: &[(Slot, TensorId)]) -> Operation {
    let operation = context.operation;
    let operands = |all: &[(Slot, TensorId)]| -> Vec<Operand> {
        all.iter().map(|&(slot, tensor)| Operand { slot, tensor }).collect()
    };
    let moved = |of: fn(u8) -> Slot, find: &dyn Fn(Slot) -> Option<TensorId>| -> Vec<Operand> {
        let inner = INNER.into_iter().filter_map(|(from, to)| Some(Operand { slot: of(to), tensor: find(of(from))? }));
        inner.collect()
    };
    let (read, written) = (|slot| operation.read(slot), |slot| operation.written(slot));
    let mut all = operands(reads);
    all.extend(moved(Slot::Input, &read));
    all.extend(moved(Slot::InputGradient, &read));
    let mut targets = operands(writes);
    targets.extend(moved(Slot::InputGradient, &written));
    Operation { reads: all, writes: targets, ..operation.clone() }
}

/// Rows, gates of a row, and numbers of a row that arrives.
///
/// # Errors
/// [`Error::Damaged`] if there is no room for so many gates.
fn sizes(context: &Context<'_>, op: &WholeRecurrence, x: TensorId, gates: TensorId) -> Result<[u64; 3], Error> {
    let [rows, width] = [context.samples(x).saturating_mul(op.steps), op.recurrence().width()];
    if context.count(gates) < rows.saturating_mul(width) {
        return Err(Error::Damaged("a recurrence has no room for its gates"));
    }
    Ok([rows, width, op.in_features])
}

pub(super) fn forward(context: &Context<'_>, op: &WholeRecurrence) -> Result<Vec<Call>, Error> {
    if let Some(call) = library(context, op, Pass::Forward)? {
        return Ok(vec![call]);
    }
    let (x, y, gates) =
        (context.read(Slot::Input(0))?, context.written(Slot::Output)?, context.written(Slot::Saved(0))?);
    let (sizes, weight) = (sizes(context, op, x, gates)?, Factor::plain(context.read(Slot::Input(1))?).t());
    let bias = if op.bias { Some(context.read(Slot::Input(WholeRecurrence::MAP_BIAS))?) } else { None };
    let mut calls = vec![product_of(context, sizes, [Factor::plain(x), weight], bias, (gates, false))?];
    let mut writes = vec![(Slot::Output, y), (Slot::Workspace, context.written(Slot::Workspace)?)];
    if !op.cell.is_plain() {
        writes.push((Slot::Saved(0), gates));
    }
    let operation = behind(context, &[(Slot::Input(0), gates)], &writes);
    let launches = recurrence::forward(&Context { operation: &operation, ..*context }, &op.recurrence())?;
    calls.extend(launches.into_iter().map(Call::from));
    Ok(calls)
}

pub(super) fn backward(context: &Context<'_>, op: &WholeRecurrence) -> Result<Vec<Call>, Error> {
    let (x, dy) = (context.read(Slot::Input(0))?, context.read(Slot::Gradient)?);
    let workspace = context.written(Slot::Workspace)?;
    let wanted = |input: u8| {
        let slot = Slot::InputGradient(input);
        context.operation.written(slot).map(|tensor| (tensor, context.adds(slot) == 1))
    };
    let dx = wanted(0);
    let sums = [1, 2, WholeRecurrence::MAP_BIAS, 3].map(wanted);
    let written = dx.filter(|(_, adds)| !adds).map(|(dx, _)| dx);
    if let Some(call) = library(context, op, Pass::Backward { dy, dx: written, sums })? {
        let added = dx.filter(|(_, adds)| *adds).map(|(dx, _)| movement::add(context, workspace, dx));
        return Ok([call].into_iter().chain(added.map(Call::from)).collect());
    }
    let (gates, y) = (context.read(Slot::Saved(0))?, context.read(Slot::Output)?);
    let mut reads = vec![(Slot::Gradient, dy), (Slot::Output, y)];
    if !op.cell.is_plain() {
        reads.push((Slot::Saved(0), gates));
    }
    let writes = [(Slot::InputGradient(0), gates), (Slot::Workspace, workspace)];
    let operation = behind(context, &reads, &writes);
    let launches = recurrence::backward(&Context { operation: &operation, ..*context }, &op.recurrence())?;
    let mut calls: Vec<Call> = launches.into_iter().map(Call::from).collect();
    let ([rows, width, inputs], dp) = (sizes(context, op, x, gates)?, Factor::plain(gates));
    if let Some(dx) = dx {
        let weight = Factor::plain(context.read(Slot::Input(1))?);
        calls.push(product_of(context, [rows, inputs, width], [dp, weight], None, dx)?);
    }
    let [map_weight, _, map_bias, _] = sums;
    if let Some(dw) = map_weight {
        calls.push(product_of(context, [width, inputs, rows], [dp.t(), Factor::plain(x)], None, dw)?);
    }
    if let Some(db) = map_bias {
        calls.push(column_sums_of(context, [rows, width], gates, db)?.into());
    }
    Ok(calls)
}
