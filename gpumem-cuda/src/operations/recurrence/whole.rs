//! Calls of recurrent layers that include their input weights: cuDNN, or products and the kernels of [`recurrence`](crate::operations::recurrence).
//!
//! Both use the memory that is planned for cuDNN. Gpumem's kernels keep the gates where cuDNN's reserve would be, each direction in one half of it,
//! and their scratch at the start of the workspace.

use crate::calls::product::{Element, Factor, Scratch};
use crate::calls::recurrence::{Each, Pass};
use crate::calls::{self, Argument, Call, second_half};
use crate::operations::context::{Context, LaunchContext};
use crate::operations::matmul::linear::{column_sums_of, product_of};
use crate::operations::{movement, recurrence};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::ops::WholeRecurrence;
use gpumem_core::program::{Action, Op, Operand, Operation, Slot, TensorId};

/// The most elements of a tensor for the library, whose sizes are signed 32-bit integers.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// True if a program has such a layer.
pub(crate) fn any(placed: &Placed) -> bool {
    let is_one = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::WholeRecurrence(_), .. });
    placed.program.operations.iter().any(is_one)
}

/// Returns the library's call; `None` if the library is not to compute the layer.
///
/// The library computes both forward pass and gradients, or neither, because it defines the format of the saved values. So no condition here, or
/// where a plan is made, may depend on the pass.
fn library(context: &Context<'_>, op: &WholeRecurrence, pass: Pass) -> Result<Option<Call>, Error> {
    recurrence::sound(&op.recurrence())?;
    let LaunchContext { precision, cudnn, deterministic, tf32, .. } = context.setting;
    let (x, element) = (context.read(Slot::Input(0))?, Element::of(precision));
    let (reserve, y) = match pass {
        Pass::Forward => (context.written(Slot::Saved(0))?, context.written(Slot::Output)?),
        Pass::Backward { .. } => (context.read(Slot::Saved(0))?, context.read(Slot::Output)?),
    };
    let has_format = element != Element::Bf16 || context.setting.capability >= (8, 0);
    let largest = [reserve, x, y].into_iter().map(|id| context.count(id)).fold(op.weights(), u64::max);
    if !(cudnn && has_format && !deterministic && largest <= MOST_ELEMENTS) {
        return Ok(None);
    }
    let workspace = context.written(Slot::Workspace)?;
    let scratch = |tensor: TensorId| Scratch { tensor, bytes: context.placed.bytes[tensor as usize] };
    let weights = each(op, |input| context.read(Slot::Input(input)).map(Some))?;
    let call = calls::Recurrence {
        pass,
        cell: op.cell,
        batch: context.samples(x),
        steps: op.steps,
        in_features: op.in_features,
        hidden: op.hidden,
        outputs: op.outputs,
        directions: op.directions,
        x,
        y,
        weights,
        reserve: scratch(reserve),
        workspace: scratch(workspace),
        element,
        tf32: tf32 && precision == Precision::F32,
    };
    Ok(Some(call.into()))
}

/// Returns a value for each weight, by the index of its input.
fn each<T>(op: &WholeRecurrence, of: impl Fn(u8) -> Result<Option<T>, Error>) -> Result<Each<T>, Error> {
    let mut all = [const { [const { None }; 5] }; 2];
    let inner = op.recurrence();
    for (direction, weights) in (0..op.directions.min(2) as u8).zip(&mut all) {
        let map = op.map(direction);
        weights[0] = of(map)?;
        weights[1] = of(map + 1)?;
        if op.bias {
            weights[2] = of(op.map_bias(direction))?;
            weights[3] = of(map + 2)?;
        }
        if inner.is_projected() {
            weights[4] = of(map + inner.projection())?;
        }
    }
    Ok(all)
}

/// Returns the tensors in which gpumem's kernels keep the gates of each direction.
fn gates(context: &Context<'_>, op: &WholeRecurrence, reserve: TensorId) -> Vec<Argument> {
    let both = [reserve, second_half(context.placed, reserve)];
    both.into_iter().take(op.directions.min(2) as usize).collect()
}

/// Returns the operation of gpumem's recurrence kernels, after the input products. It has the layer's tensors, with the gates of each direction in
/// place of the input.
fn after(
    context: &Context<'_>,
    op: &WholeRecurrence,
    mut reads: Vec<(Slot, TensorId)>,
    mut writes: Vec<(Slot, TensorId)>,
) -> Operation {
    let (operation, inner) = (context.operation, op.recurrence());
    for direction in 0..op.directions.min(2) as u8 {
        for index in 1..inner.inputs() {
            let (from, to) = (op.map(direction) + index, inner.first_input(direction) + index);
            reads.extend(operation.read(Slot::Input(from)).map(|tensor| (Slot::Input(to), tensor)));
            let slots = [Slot::InputGradient(from), Slot::InputGradient(to)];
            reads.extend(operation.read(slots[0]).map(|tensor| (slots[1], tensor)));
            writes.extend(operation.written(slots[0]).map(|tensor| (slots[1], tensor)));
        }
    }
    let operands = |all: Vec<(Slot, TensorId)>| -> Vec<Operand> {
        all.into_iter().map(|(slot, tensor)| Operand { slot, tensor }).collect()
    };
    Operation { reads: operands(reads), writes: operands(writes), ..operation.clone() }
}

/// Returns the number of rows, the gates of a row, and the features of an input row.
///
/// # Errors
/// [`Error::Damaged`] if the memory is too small for the gates.
fn sizes(context: &Context<'_>, op: &WholeRecurrence, x: TensorId, reserve: TensorId) -> Result<[u64; 3], Error> {
    let [rows, width] = [context.samples(x).saturating_mul(op.steps), op.recurrence().width()];
    let bytes = rows.saturating_mul(width).saturating_mul(Element::of(context.setting.precision).bytes());
    // The second half is no larger than the first.
    let last = gates(context, op, reserve).pop().unwrap_or(reserve);
    let (_, room) = calls::place(context.placed, last)?;
    if room < bytes {
        return Err(Error::Damaged("a recurrence has no room for its gates"));
    }
    Ok([rows, width, op.in_features])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &WholeRecurrence) -> Result<Vec<Call>, Error> {
    if let Some(call) = library(context, op, Pass::Forward)? {
        return Ok(vec![call]);
    }
    let (x, reserve) = (context.read(Slot::Input(0))?, context.written(Slot::Saved(0))?);
    let sizes = sizes(context, op, x, reserve)?;
    let (mut calls, mut reads) = (Vec::new(), Vec::new());
    let mut writes =
        vec![(Slot::Output, context.written(Slot::Output)?), (Slot::Workspace, context.written(Slot::Workspace)?)];
    for (direction, gates) in (0..).zip(gates(context, op, reserve)) {
        let weight = Factor::plain(context.read(Slot::Input(op.map(direction)))?).t();
        let bias = if op.bias { Some(context.read(Slot::Input(op.map_bias(direction)))?) } else { None };
        calls.push(product_of(context, sizes, [Factor::plain(x), weight], bias, (gates, false))?);
        reads.push((Slot::Input(op.recurrence().first_input(direction)), gates));
        if !op.cell.is_plain() {
            writes.push((Slot::Saved(direction), gates));
        }
    }
    let operation = after(context, op, reads, writes);
    let launches = recurrence::forward(&Context { operation: &operation, ..*context }, &op.recurrence())?;
    calls.extend(launches.into_iter().map(Call::from));
    Ok(calls)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &WholeRecurrence) -> Result<Vec<Call>, Error> {
    let (x, dy) = (context.read(Slot::Input(0))?, context.read(Slot::Gradient)?);
    let workspace = context.written(Slot::Workspace)?;
    let wanted = |input: u8| {
        let slot = Slot::InputGradient(input);
        context.operation.written(slot).map(|tensor| (tensor, context.adds(slot) == 1))
    };
    let (dx, sums) = (wanted(0), each(op, |input| Ok(wanted(input)))?);
    let written = dx.filter(|(_, adds)| !adds).map(|(dx, _)| dx);
    if let Some(call) = library(context, op, Pass::Backward { dy, dx: written, sums })? {
        let added = dx.filter(|(_, adds)| *adds).map(|(dx, _)| movement::add(context, workspace, dx));
        return Ok([call].into_iter().chain(added.map(Call::from)).collect());
    }
    let reserve = context.read(Slot::Saved(0))?;
    let ([rows, width, inputs], gates) = (sizes(context, op, x, reserve)?, gates(context, op, reserve));
    let mut reads = vec![(Slot::Gradient, dy), (Slot::Output, context.read(Slot::Output)?)];
    let mut writes = vec![(Slot::Workspace, workspace)];
    for (direction, &gates) in (0..).zip(&gates) {
        if !op.cell.is_plain() {
            reads.push((Slot::Saved(direction), gates));
        }
        writes.push((Slot::InputGradient(op.recurrence().first_input(direction)), gates));
    }
    let operation = after(context, op, reads, writes);
    let launches = recurrence::backward(&Context { operation: &operation, ..*context }, &op.recurrence())?;
    let mut calls: Vec<Call> = launches.into_iter().map(Call::from).collect();
    // The backward direction comes first, as it does in a layer without input weights and with separate products.
    let mut dx = dx;
    for (direction, &gates) in (0u8..2).zip(&gates).rev() {
        let dp = Factor::plain(gates);
        if let Some((target, adds)) = dx {
            let weight = Factor::plain(context.read(Slot::Input(op.map(direction)))?);
            calls.push(product_of(context, [rows, inputs, width], [dp, weight], None, (target, adds))?);
            dx = Some((target, true));
        }
        let [map_weight, _, map_bias, ..] = sums[usize::from(direction)];
        if let Some(dw) = map_weight {
            calls.push(product_of(context, [width, inputs, rows], [dp.t(), Factor::plain(x)], None, dw)?);
        }
        if let Some(db) = map_bias {
            calls.push(column_sums_of(context, [rows, width], gates, db)?.into());
        }
    }
    Ok(calls)
}
