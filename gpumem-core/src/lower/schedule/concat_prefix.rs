//! Inputs of normalisations that are the first channels of a concatenation.
//!
//! In a dense block each layer normalises all that came before it, and its normalisation saves that for the backward pass: the first
//! concatenation, the second one that begins with the first, the third one that begins with both. The last of them begins with all the others,
//! channel by channel. It is kept in any case for what comes after the block, so that the others need not be.

use crate::graph::{Graph, NodeId};
use crate::lower::draft::{ConcatPrefix, Draft};
use crate::program::ops::{BatchNorm, Concat};
use crate::program::{Action, Class, Op, Operation, Pass, Slot, TensorId};
use crate::shape::Shape;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A normalisation whose input is the first channels of a concatenation.
struct Found {
    forward: usize,
    backward: usize,
    input: TensorId,
    /// The last concatenation that begins with the input.
    whole: TensorId,
}

/// Lets the gradients of normalisations read their inputs from concatenations that are kept anyway, if that saves memory.
pub(in crate::lower) fn read_prefixes(draft: &mut Draft, graph: &Graph) {
    let found = found(draft, graph);
    let mut saved: BTreeMap<TensorId, Vec<TensorId>> = BTreeMap::new();
    for Found { whole, input, .. } in &found {
        let inputs = saved.entry(*whole).or_default();
        if !inputs.contains(input) {
            inputs.push(*input);
        }
    }
    // The concatenation now lives until the last of these gradients, that of the first layer, has read it.
    let size = |id: &TensorId| draft.tensors[*id as usize].shape.elements().unwrap_or(u64::MAX);
    saved.retain(|whole, inputs| inputs.iter().map(size).fold(0, u64::saturating_add) >= size(whole));
    for Found { forward, backward, whole, .. } in found.into_iter().filter(|found| saved.contains_key(&found.whole)) {
        let shape = draft.tensors[whole as usize].shape;
        let operation = &mut draft.operations[backward];
        let Action::Run { op, .. } = &mut operation.action else { continue };
        let Some(wider) = on_prefix(op, shape) else { continue };
        *op = wider;
        let inputs = operation.reads.iter_mut().filter(|operand| operand.slot == Slot::Input(0));
        inputs.for_each(|operand| operand.tensor = whole);
        draft.prefixes.push(ConcatPrefix { operation: forward as u32, tensor: whole });
    }
}

/// Returns the normalisation whose input is the first channels of a map of this shape; `None` if it cannot be.
pub(in crate::lower) fn on_prefix(op: &Op, whole: Shape) -> Option<Op> {
    let (Op::BatchNorm(norm), Some([channels, height, width])) = (op, whole.as_map()) else { return None };
    let is_it = channels > norm.channels && [height, width] == norm.size;
    is_it.then(|| Op::BatchNorm(BatchNorm { within: channels, ..norm.clone() }))
}

/// The operations of a step that read and write each tensor.
struct Steps<'d> {
    draft: &'d Draft,
    /// The last forward operation that writes each tensor; `None` if no forward operation does.
    written: Vec<Option<usize>>,
    /// The operations after the forward pass that read each tensor.
    readers: Vec<Vec<usize>>,
    /// True if an operation after the forward pass writes the tensor. A loss puts the gradient of what it measures there.
    overwritten: Vec<bool>,
}

fn found(draft: &Draft, graph: &Graph) -> Vec<Found> {
    let is_forward = |operation: &Operation| matches!(operation.action, Action::Run { pass: Pass::Forward, .. });
    let forward = draft.operations.iter().take_while(|operation| is_forward(operation)).count();
    let count = draft.tensors.len();
    let mut steps =
        Steps { draft, written: vec![None; count], readers: vec![Vec::new(); count], overwritten: vec![false; count] };
    for (at, operation) in draft.operations.iter().enumerate() {
        if at < forward {
            operation.writes.iter().for_each(|operand| steps.written[operand.tensor as usize] = Some(at));
        } else {
            operation.reads.iter().for_each(|operand| steps.readers[operand.tensor as usize].push(at));
            operation.writes.iter().for_each(|operand| steps.overwritten[operand.tensor as usize] = true);
        }
    }
    let next = steps.beginnings(forward, graph);
    if next.is_empty() {
        return Vec::new();
    }
    let norms = (0..forward).filter_map(|at| {
        let operation = &draft.operations[at];
        let Action::Run { op: op @ Op::BatchNorm(_), .. } = &operation.action else { return None };
        let (input, saved) = (operation.read(Slot::Input(0))?, operation.written(Slot::Saved(0))?);
        let backward = *steps.readers[saved as usize].first()?;
        let whole = steps.last(&next, input)?;
        let is_read = draft.operations[backward].read(Slot::Input(0)) == Some(input);
        let is_first = steps.written[input as usize].is_some_and(|written| written < at);
        let is_droppable = steps.readers[input as usize].iter().all(|&reader| steps.normalises(reader, input));
        let is_map = on_prefix(op, draft.tensors[whole as usize].shape).is_some();
        (is_read && is_first && is_droppable && is_map).then_some(Found { forward: at, backward, input, whole })
    });
    norms.collect()
}

impl Steps<'_> {
    /// Returns for each tensor the concatenation of maps that begins with it, if there is one. Groups that are recomputed are left alone: their
    /// values live for a short time anyway.
    fn beginnings(&self, forward: usize, graph: &Graph) -> BTreeMap<TensorId, TensorId> {
        let mut next = BTreeMap::new();
        let is_again = |node: NodeId| graph.groups.iter().any(|[first, end]| (*first..*end).contains(&node));
        for (at, operation) in self.draft.operations[..forward].iter().enumerate() {
            let Action::Run { op: Op::Concat(Concat { axis: 0, shape, .. }), .. } = &operation.action else { continue };
            let (Some(from), Some(to)) = (operation.read(Slot::Input(0)), operation.written(Slot::Output)) else {
                continue;
            };
            let [first, whole] = [from, to].map(|id| &self.draft.tensors[id as usize]);
            let is_transient = first.class == Class::Transient && whole.class == Class::Transient;
            let is_alike = first.batched == whole.batched && first.role == whole.role;
            // No later operation of the forward pass writes either tensor.
            let stays = self.written[from as usize] < Some(at) && self.written[to as usize] == Some(at);
            if is_transient && is_alike && stays && shape.as_map().is_some() && !is_again(self.draft.nodes[at]) {
                next.insert(from, to);
            }
        }
        next
    }

    /// Returns the last kept concatenation that begins with a tensor; `None` if there is none.
    fn last(&self, next: &BTreeMap<TensorId, TensorId>, from: TensorId) -> Option<TensorId> {
        let mut at = from;
        let mut found = None;
        while let Some(&whole) = next.get(&at) {
            at = whole;
            if !self.readers[at as usize].is_empty() && !self.overwritten[at as usize] {
                found = Some(at);
            }
        }
        found
    }

    /// True if an operation after the forward pass reads a tensor only as the input of a normalisation.
    fn normalises(&self, at: usize, input: TensorId) -> bool {
        let operation = &self.draft.operations[at];
        let is_norm = matches!(operation.action, Action::Run { op: Op::BatchNorm(_), pass: Pass::Backward });
        let mut reads = operation.reads.iter().filter(|operand| operand.tensor == input);
        is_norm && reads.all(|operand| operand.slot == Slot::Input(0))
    }
}
