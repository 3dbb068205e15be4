//! Buckets: gradients that ranks exchange at once.
//!
//! A bucket is full when its gradients have [`Ranks::bucket`] bytes. Its exchange starts when the last of them is complete. It is awaited before
//! the exchange of the next bucket starts, so that it runs beside the part of the backward pass that fills the next one. After that come the
//! updates of its parameters and, if each rank updated its own shard of them, an exchange that gathers the parameters.
//!
//! Gradients that add up over micro-batches are exchanged after all of these. Those of which a rank keeps only a shard are exchanged in each
//! micro-batch, and the shards are added up.

use super::{Pair, end_of};
use crate::lower::options::Training;
use crate::number::{Half, Precision};
use crate::program::{Action, Class, Collective, Operation, Phase, Slot, Tensor, TensorId};
use crate::train::Shard;
use crate::train::ranks::{Ranks, Sharding};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

/// The format in which the bytes of a bucket are counted. The program does not depend on the precision, and most training is in 16 bits.
const COUNTED: Precision = Precision::Mixed(Half::Bf16);

/// Returns the bytes of a whole tensor.
fn bytes(tensor: &Tensor) -> u64 {
    tensor.unsharded().unwrap_or(u64::MAX).saturating_mul(tensor.role.bytes(COUNTED))
}

/// A gradient that is exchanged.
#[derive(Clone, Copy, Debug)]
struct Gradient {
    tensor: TensorId,
    /// The tensor that has it after the exchange, which may be the same.
    received: TensorId,
    /// The number of operations before it is complete.
    complete: usize,
    row: u32,
}

/// Gradients that are exchanged at once.
struct Bucket {
    gradients: Vec<Gradient>,
    pair: Pair,
}

impl Bucket {
    fn complete(&self) -> usize {
        self.gradients.iter().map(|gradient| gradient.complete).max().unwrap_or(0)
    }

    fn has(&self, received: Option<TensorId>) -> bool {
        self.gradients.iter().any(|gradient| Some(gradient.received) == received)
    }
}

/// Adds the exchanges of gradients and of updated parameters.
pub(super) fn exchange(
    operations: Vec<Operation>,
    tensors: &mut Vec<Tensor>,
    training: &Training<'_>,
) -> Vec<Operation> {
    let ranks = training.descent.ranks;
    let sums_shards = training.descent.accumulates() && ranks.shards(Shard::Gradients);
    let operations = if sums_shards { each_part(operations, tensors, ranks) } else { operations };
    let operations = if training.defers_updates() {
        let mut before = operations;
        let after = before.split_off(first_update(&before));
        held(before, after, tensors, training)
    } else {
        fused(operations, tensors, ranks)
    };
    gather_updated(operations, tensors, ranks)
}

/// Returns the index of the first operation after the backward pass.
fn first_update(operations: &[Operation]) -> usize {
    operations.iter().position(|operation| operation.phase() == Phase::Update).unwrap_or(operations.len())
}

/// Exchanges gradients whose parameters are updated as soon as they are complete. The updates wait for the exchange.
fn fused(operations: Vec<Operation>, tensors: &mut Vec<Tensor>, ranks: Ranks) -> Vec<Operation> {
    let (mut others, mut updates) = (Vec::with_capacity(operations.len()), Vec::new());
    for operation in operations {
        let is_update = operation.action == Action::Update;
        if is_update { updates.push((others.len(), operation)) } else { others.push(operation) }
    }
    let gradients = updates
        .iter()
        .filter_map(|(complete, update)| Some((update.read(Slot::ParameterGradient)?, *complete, update.row)));
    let gradients: Vec<(TensorId, usize, u32)> = gradients.collect();
    let buckets = bucketed(&gradients, tensors, ranks, Phase::Backward);
    let updates: Vec<Operation> = renamed(updates.into_iter().map(|(_, update)| update).collect(), &buckets);
    let end = end_of(&others);
    interleaved(others, buckets, updates, Slot::ParameterGradient, end)
}

/// Exchanges gradients that live until the end of the step. `after` begins with the first operation that needs all of them.
fn held(
    mut before: Vec<Operation>,
    after: Vec<Operation>,
    tensors: &mut Vec<Tensor>,
    training: &Training<'_>,
) -> Vec<Operation> {
    let ranks = training.descent.ranks;
    let mut last: BTreeMap<TensorId, usize> = BTreeMap::new();
    for (at, operation) in before.iter().enumerate() {
        operation.tensors().for_each(|id| _ = last.insert(id, at + 1));
    }
    let accumulates = training.descent.accumulates();
    let mut gradients: Vec<(TensorId, usize, u32)> = Vec::new();
    for update in after.iter().filter(|operation| operation.action == Action::Update) {
        let Some(id) = update.read(Slot::ParameterGradient) else { continue };
        let is_summed = accumulates && matches!(tensors[id as usize].sharding, Sharding::Sharded(_));
        if !is_summed {
            let complete = last.get(&id).copied().unwrap_or(0);
            gradients.push((id, if accumulates { before.len() } else { complete }, update.row));
        }
    }
    if !accumulates {
        gradients.sort_by_key(|&(_, complete, _)| complete);
        let buckets = bucketed(&gradients, tensors, ranks, Phase::Backward);
        let after = renamed(after, &buckets);
        let end = before.len();
        before = interleaved(before, buckets, Vec::new(), Slot::ParameterGradient, end);
        before.extend(after);
        return before;
    }
    let buckets = bucketed(&gradients, tensors, ranks, Phase::Update);
    before.extend(buckets.iter().map(|bucket| bucket.pair.begin.clone()));
    let mut waiting: Vec<Bucket> = buckets;
    for operation in after {
        let needed = |bucket: &mut Bucket| operation.tensors().any(|id| bucket.has(Some(id)));
        before.extend(waiting.extract_if(.., needed).map(|bucket| bucket.pair.end));
        before.push(operation);
    }
    before
}

/// Exchanges the gradients of each micro-batch of which a rank keeps a shard, before that is added to the sum over micro-batches.
fn each_part(operations: Vec<Operation>, tensors: &mut Vec<Tensor>, ranks: Ranks) -> Vec<Operation> {
    let (mut others, mut collects) = (Vec::with_capacity(operations.len()), Vec::new());
    for operation in operations {
        let sum = operation.written(Slot::ParameterGradient).map(|id| tensors[id as usize].sharding);
        let is_shard = operation.action == Action::Collect && matches!(sum, Some(Sharding::Sharded(_)));
        if is_shard { collects.push((others.len(), operation)) } else { others.push(operation) }
    }
    let gradients =
        collects.iter().filter_map(|(complete, collect)| Some((collect.read(Slot::Gradient)?, *complete, collect.row)));
    let gradients: Vec<(TensorId, usize, u32)> = gradients.collect();
    let buckets = bucketed(&gradients, tensors, ranks, Phase::Backward);
    let collects = renamed(collects.into_iter().map(|(_, collect)| collect).collect(), &buckets);
    let end = first_update(&others);
    interleaved(others, buckets, collects, Slot::Gradient, end)
}

/// Returns the buckets of gradients, which come in the order in which they are complete. Of a gradient that is not replicated, a rank receives
/// its shard: in place if only the optimizer is sharded.
fn bucketed(
    gradients: &[(TensorId, usize, u32)],
    tensors: &mut Vec<Tensor>,
    ranks: Ranks,
    phase: Phase,
) -> Vec<Bucket> {
    let mut groups: Vec<Vec<Gradient>> = Vec::new();
    let mut filled = 0;
    for &(id, complete, row) in gradients {
        let size = bytes(&tensors[id as usize]);
        let received = received(id, tensors, ranks);
        let gradient = Gradient { tensor: id, received, complete, row };
        match groups.last_mut() {
            Some(group) if size <= ranks.bucket.saturating_sub(filled) && group.len() < Ranks::MOST_TENSORS => {
                group.push(gradient);
                filled += size;
            }
            _ => {
                groups.push(Vec::from([gradient]));
                filled = size;
            }
        }
    }
    let bucket = |gradients: Vec<Gradient>| {
        let pairs: Vec<(TensorId, TensorId)> = gradients.iter().map(|it| (it.tensor, it.received)).collect();
        let row = gradients.first().map_or(0, |gradient| gradient.row);
        Bucket { pair: Pair::new(Collective::Sum, phase, row, &pairs), gradients }
    };
    groups.into_iter().map(bucket).collect()
}

/// Returns the tensor in which a rank receives its shard of the sum of a gradient, or all of it.
fn received(id: TensorId, tensors: &mut Vec<Tensor>, ranks: Ranks) -> TensorId {
    let gradient = &mut tensors[id as usize];
    let kept = ranks.of_gradient(gradient.role, gradient.unsharded().unwrap_or(u64::MAX));
    let Sharding::Sharded(count) = kept else {
        gradient.sharding = kept;
        return id;
    };
    // The shard lives as long as the gradient would. The whole gradient ends with the exchange.
    let shard = Tensor { sharding: kept, ..gradient.clone() };
    gradient.name = format!("{} of a rank", gradient.name);
    (gradient.sharding, gradient.class) = (Sharding::Gathered(count), Class::Transient);
    tensors.push(shard);
    tensors.len() as TensorId - 1
}

/// Lets operations that read gradients read those that were received.
fn renamed(mut operations: Vec<Operation>, buckets: &[Bucket]) -> Vec<Operation> {
    let received: BTreeMap<TensorId, TensorId> =
        buckets.iter().flat_map(|bucket| &bucket.gradients).map(|it| (it.tensor, it.received)).collect();
    for operand in operations.iter_mut().flat_map(|operation| operation.reads.iter_mut().chain(&mut operation.writes)) {
        if let Some(&other) = received.get(&operand.tensor) {
            operand.tensor = other;
        }
    }
    operations
}

/// Puts exchanges among the operations. Each ends before the next one starts, and the last one before operation `end`. The operations of `after`
/// that read a received gradient as `slot` come when its exchange has ended.
fn interleaved(
    operations: Vec<Operation>,
    buckets: Vec<Bucket>,
    mut after: Vec<Operation>,
    slot: Slot,
    end: usize,
) -> Vec<Operation> {
    let mut all = Vec::with_capacity(operations.len() + 2 * buckets.len() + after.len());
    let mut running: Option<Bucket> = None;
    let mut finish = |all: &mut Vec<Operation>, running: &mut Option<Bucket>| {
        let Some(bucket) = running.take() else { return };
        all.push(bucket.pair.end.clone());
        all.extend(after.extract_if(.., |operation| bucket.has(operation.read(slot))));
    };
    let mut waiting = buckets.into_iter().peekable();
    for (at, operation) in operations.into_iter().enumerate() {
        while let Some(bucket) = waiting.next_if(|bucket| bucket.complete() <= at) {
            finish(&mut all, &mut running);
            all.push(bucket.pair.begin.clone());
            running = Some(bucket);
        }
        if at == end {
            finish(&mut all, &mut running);
        }
        all.push(operation);
    }
    for bucket in waiting {
        finish(&mut all, &mut running);
        all.push(bucket.pair.begin.clone());
        running = Some(bucket);
    }
    finish(&mut all, &mut running);
    all
}

/// Gathers parameters of which each rank updated its own shard. The exchanges are awaited at the end of the step.
fn gather_updated(operations: Vec<Operation>, tensors: &[Tensor], ranks: Ranks) -> Vec<Operation> {
    let gathered = |operation: &Operation| {
        let parameter = operation.written(Slot::Parameter).filter(|_| operation.action == Action::Update)?;
        matches!(tensors[parameter as usize].sharding, Sharding::Gathered(_)).then_some(parameter)
    };
    let mut all = Vec::with_capacity(operations.len());
    let (mut updated, mut ends) = (Vec::new(), Vec::new());
    let mut known = BTreeSet::new();
    let mut filled = 0;
    let mut operations = operations.into_iter().peekable();
    while let Some(operation) = operations.next() {
        if operation.action == Action::Advance {
            all.append(&mut ends);
        }
        let parameter = gathered(&operation).filter(|&id| known.insert(id));
        let row = operation.row;
        all.push(operation);
        if let Some(parameter) = parameter {
            updated.push((parameter, parameter));
            filled = bytes(&tensors[parameter as usize]).saturating_add(filled);
        }
        let is_last = !operations.peek().is_some_and(|next| next.action == Action::Update);
        let is_full = filled >= ranks.bucket || updated.len() == Ranks::MOST_TENSORS;
        if !updated.is_empty() && (is_last || is_full) {
            let pair = Pair::new(Collective::Gather, Phase::Update, row, &updated);
            all.push(pair.begin);
            ends.push(pair.end);
            (filled, updated) = (0, Vec::new());
        }
    }
    all.append(&mut ends);
    all
}
