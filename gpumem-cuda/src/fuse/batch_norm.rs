//! Fusion of batch normalisation with the operations after it: a sum with another map, an elementwise function, dropout.

use super::sum::added;
use super::{Fused, RectifierGradient, are_apart_without, calls, ends, followed, forward_at, overlap};
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::norm::batch_norm::{
    Drop, Dropped, Incoming, Tail, backward_through, follower, forward_with, may_drop, statistics_first, sums_first,
};
use crate::operations::{Context, LaunchContext, is_dense};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::fusion::{Group, GroupKind};
use gpumem_core::program::ops::{BatchNorm, Mask};
use gpumem_core::program::{Op, Operand, Operation, Slot, TensorId};

/// Fuses batch normalisation with a sum with one other map, an elementwise function, and dropout, as far as they follow it.
pub(super) fn forward(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::BatchNorm(op), output)) = forward_at(placed, first) else { return Ok(None) };
    let (mut count, mut tail) = (1, Tail::new(output));
    if let Some((residual, output)) = added(placed, first + count, tail.output) {
        (count, tail) = (count + 1, Tail { residual: Some(residual), output, ..tail });
    }
    if let Some((rectifier, output)) = followed(placed, first + count, tail.output, Rectifier::after_norm) {
        (count, tail) = (count + 1, Tail { rectifier, output, ..tail });
    }
    let context = Context { placed, operation, setting };
    if let Some(dropped) = dropped(placed, first + count, tail.output)
        && may_drop(&context, op, tail.output)?
        && is_dense(placed, &placed.program.operations[first + count])
        && are_apart_without(placed, first, count + 1, operation.written(Slot::Workspace))
    {
        (count, tail) = (count + 1, Tail { dropped: Some(dropped), ..tail });
    }
    // A single launch has no statistics to hand to another one, so its scratch is unused.
    let unused = if statistics_first(&context, op, tail.output)? { None } else { operation.written(Slot::Workspace) };
    if count == 1 || !are_apart_without(placed, first, count, unused) {
        return Ok(None);
    }
    let launches = forward_with(&context, op, tail)?;
    Ok(Some((count, calls(launches))))
}

/// Returns the dropout of `value`, if operation `at` is one; else `None`.
fn dropped(placed: &Placed, at: usize, value: TensorId) -> Option<Dropped> {
    let (operation, Op::Mask(mask @ Mask { p, shared: 1, .. }), output) = forward_at(placed, at)? else { return None };
    let drop = Drop { p: *p, row: mask.stream(operation.row), state: operation.read(Slot::State)? };
    let keeps_input = !ends(placed, at, value);
    (operation.read(Slot::Input(0)) == Some(value)).then_some(Dropped { drop, output, keeps_input })
}

/// Fuses the backward pass of a rectifier or another elementwise function with that of the batch normalisation before it.
///
/// The slope is recomputed from the input, which the normalisation's backward pass reads anyway.
pub(super) fn backward(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    let Some(rectified) = Rectified::of(placed, group) else { return Ok(None) };
    backward_from(placed, rectified, setting, None)
}

/// Fuses as [`backward`] does, if the gradient passes through dropout before it reaches the rectifier.
pub(super) fn backward_of_dropout(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let operation = &placed.program.operations[first];
    let Some(Op::Mask(mask @ Mask { p, shared: 1, .. })) = operation.backward() else { return Ok(None) };
    let operands =
        (operation.read(Slot::State), operation.read(Slot::Gradient), operation.written(Slot::InputGradient(0)));
    let (Some(state), Some(dy), Some(between)) = operands else { return Ok(None) };
    if operation.accumulate {
        return Ok(None);
    }
    let drop = Drop { p: *p, row: mask.stream(operation.row), state };
    let Some(rectified) = Rectified::at(placed, first + 1)? else { return Ok(None) };
    let fused = backward_from(placed, rectified, setting, Some((drop, dy, between)))?;
    Ok(fused.map(|(count, calls)| (count + 1, calls)))
}

/// Fuses recomputing a normalisation's output, from its saved tensors, with the backward pass of normalisation and following function.
///
/// The kernel for the gradient of the input has each element of the output in a register anyway.
pub(super) fn renormalised(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    let Some((again, _, output)) = forward_at(placed, group.first) else { return Ok(None) };
    let (after, output) = match followed(placed, group.first + 1, output, Rectifier::after_norm) {
        Some(followed) => followed,
        None if group.count > 2 => return Ok(None),
        None => (Rectifier::NONE, output),
    };
    let operation = &placed.program.operations[group.last()];
    let (Some(Op::BatchNorm(op)), Some(dy)) = (operation.backward(), operation.read(Slot::Gradient)) else {
        return Ok(None);
    };
    let context = Context { placed, operation, setting };
    let same = |slot: Slot| again.read(slot).is_some() && again.read(slot) == operation.read(slot);
    let is_its_own = same(Slot::Saved(0)) && same(Slot::Input(0)) && follower(op)? == after;
    let is_made = operation.written(Slot::InputGradient(0)).is_some();
    let lies_alike = context.tensor(output).layout == context.tensor(dy).layout;
    let is_apart = operation.tensors().all(|tensor| tensor != output && !overlap(placed, tensor, output));
    if !(is_its_own && is_made && lies_alike && is_apart) {
        return Ok(None);
    }
    let incoming = Incoming { dy, rectifier: after, masked: None, drop: None, again: Some(output) };
    Ok(Some((group.count, calls(backward_through(&context, op, incoming)?))))
}

/// Fuses the two backward passes. `dropout` has the gradient of the dropout's output, which it starts from, and the gradient between dropout and
/// rectifier.
fn backward_from(
    placed: &Placed,
    Rectified { first, count, rectifier, dy: given, between, operation, op }: Rectified<'_>,
    setting: LaunchContext,
    dropout: Option<(Drop, TensorId, TensorId)>,
) -> Fused {
    let dy = dropout.map_or(given, |(_, dy, _)| dy);
    // The gradients between the operations are never written, so nothing else may read them.
    let is_gone = |id: TensorId| {
        let last = placed.program.tensor(id).last as usize;
        operation.written(Slot::InputGradient(0)) == Some(id) || last < first + count
    };
    let is_handed_on = dropout.is_none_or(|(.., dropped)| dropped == given && is_gone(dropped));
    let context = Context { placed, operation, setting };
    let may_drop = dropout.is_none() || may_drop(&context, op, dy)?;
    let sums_first = sums_first(&context, op, dy)?;
    let is_clear = |written: &Operand| !overlap(placed, written.tensor, dy) || is_unused(written, sums_first);
    let is_apart = operation.writes.iter().all(is_clear);
    if !(is_handed_on && may_drop && between.is_none_or(is_gone) && is_apart) {
        return Ok(None);
    }
    let incoming = Incoming { dy, rectifier, masked: None, drop: dropout.map(|(drop, ..)| drop), again: None };
    let launches = backward_through(&context, op, incoming)?;
    Ok(Some((count, calls(launches))))
}

/// The backward passes of a rectifier and of the normalisation before it.
struct Rectified<'a> {
    /// The first operation, and their number: two, or one that does both.
    first: usize,
    count: usize,
    rectifier: Rectifier,
    /// The gradient of the rectifier's output, and the gradient between the two, which is `None` for a single operation.
    dy: TensorId,
    between: Option<TensorId>,
    operation: &'a Operation,
    op: &'a BatchNorm,
}

impl<'a> Rectified<'a> {
    /// Returns the backward passes that begin at operation `first`; `None` if there are none.
    fn at(placed: &'a Placed, first: usize) -> Result<Option<Rectified<'a>>, Error> {
        let operations = &placed.program.operations;
        if let Some(operation) = operations.get(first)
            && let (Some(Op::BatchNorm(op)), Some(dy)) = (operation.backward(), operation.read(Slot::Gradient))
        {
            let both = Rectified { first, count: 1, rectifier: follower(op)?, dy, between: None, operation, op };
            return Ok(op.activation.is_some().then_some(both));
        }
        let group = Group::at(operations, first).filter(|group| group.kind == GroupKind::BatchNormGradient);
        Ok(group.and_then(|group| Rectified::of(placed, group)))
    }

    /// Returns the two backward passes of a group; `None` for another activation than a rectifier, and for a rectifier after a sum.
    fn of(placed: &'a Placed, group: Group) -> Option<Rectified<'a>> {
        let Group { first, count, .. } = group;
        let RectifierGradient { rectifier, dy, between, .. } = RectifierGradient::at(placed, first)?;
        let operation = &placed.program.operations[group.last()];
        let Op::BatchNorm(op) = operation.backward()? else { return None };
        let is_alone = op.activation.is_none() && follows(placed, first);
        is_alone.then_some(Rectified { first, count, rectifier, dy, between: Some(between), operation, op })
    }
}

/// Fuses the backward pass of a rectifier after a sum with that of the batch normalisation of one branch.
///
/// The gradient after the rectifier is written while it is summed, because the other branches need that gradient too.
pub(super) fn backward_of_sum(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    let operation = &placed.program.operations[group.last()];
    let (Some(Op::BatchNorm(op)), Some(RectifierGradient { rectifier, dy, output, between })) =
        (operation.backward(), RectifierGradient::at(placed, group.first))
    else {
        return Ok(None);
    };
    if op.activation.is_some() {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    // The sums read the tensors that the rectifier's own pass reads. If they are a launch of their own, that launch writes its sums only. Otherwise
    // a block goes on to write the gradient of its channel, which may take the place of elements that only this block has read.
    let sums_first = sums_first(&context, op, dy)?;
    let place = |id: TensorId| (placed.offsets[id as usize], placed.bytes[id as usize]);
    let is_apart = |written: &Operand| {
        let is_dx = written.slot == Slot::InputGradient(0);
        let is_late = (sums_first && written.slot != Slot::Workspace) || is_unused(written, sums_first);
        let is_clear =
            |id: TensorId| !overlap(placed, written.tensor, id) || (is_dx && place(written.tensor) == place(id));
        is_late || [dy, output, between].into_iter().all(is_clear)
    };
    if !operation.writes.iter().all(is_apart) {
        return Ok(None);
    }
    let incoming = Incoming { dy, rectifier, masked: Some([output, between]), drop: None, again: None };
    Ok(Some((group.count, calls(backward_through(&context, op, incoming)?))))
}

/// True if `written` is scratch for sums that the backward pass does not write.
fn is_unused(written: &Operand, sums_first: bool) -> bool {
    !sums_first && written.slot == Slot::Workspace
}

/// True if the rectifier of backward operation `first` directly followed the batch normalisation whose backward pass is next.
///
/// Finds the normalisation's forward pass by its saved statistics. The first operation that touches its output must be that rectifier.
fn follows(placed: &Placed, first: usize) -> bool {
    let operations = &placed.program.operations;
    let saved = operations[first + 1].read(Slot::Saved(0));
    // Its forward pass, or a recomputation from the tensors that it saved.
    let made = |at: usize| match forward_at(placed, at) {
        Some((operation, Op::BatchNorm(_), value)) => {
            let own = operation.written(Slot::Saved(0)).or(operation.read(Slot::Saved(0)));
            (saved.is_some() && own == saved).then_some((at, value))
        }
        _ => None,
    };
    (0..first).filter_map(made).any(|(at, value)| {
        let touches = |later: &usize| operations[*later].tensors().any(|tensor| tensor == value);
        let next = (at + 1..first).find(touches).and_then(|next| forward_at(placed, next));
        let Some((operation, op @ Op::Pointwise(follower), output)) = next else { return false };
        Rectifier::of(follower.function).is_some()
            && operation.read(Slot::Input(0)) == Some(value)
            && operations[first].backward() == Some(op)
            && operations[first].read(Slot::Output) == Some(output)
    })
}
