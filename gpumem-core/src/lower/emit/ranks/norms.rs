//! Norms and checks of gradients of which each rank has a shard.
//!
//! Every rank squares its own shards. An exchange gathers the sums, so that all ranks compute the norm from equal numbers in one order. Of gradients
//! that are replicated, each rank has the sums already.

use super::Pair;
use crate::number::Role;
use crate::program::{Action, Collective, NO_ROW, Operand, Operation, Part, Phase, Slot, Tensor, TensorId};
use crate::shape::Shape;
use crate::train::Clip;
use crate::train::ranks::{Ranks, Sharding};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Adds the exchanges that a norm and the checks of gradients need.
pub(super) fn exchange(operations: &mut Vec<Operation>, tensors: &mut Vec<Tensor>, ranks: Ranks) {
    gather_sums(operations, tensors, ranks);
    share_overflow(operations, tensors);
}

/// True if a rank has only a shard of the gradient that an operation reads.
fn has_shard(operation: &Operation, tensors: &[Tensor]) -> bool {
    let gradient = operation.read(Slot::ParameterGradient).map(|id| tensors[id as usize].sharding);
    gradient.is_some_and(|sharding| sharding != Sharding::Replicated)
}

/// Puts the sums of shards into a tensor of their own, which is gathered before the norm.
fn gather_sums(operations: &mut Vec<Operation>, tensors: &mut Vec<Tensor>, ranks: Ranks) {
    let sums = tensors.len() as TensorId;
    let (mut own, mut others, mut replicated) = (0, 0, None);
    for operation in operations.iter_mut() {
        let Action::Squares(first) = &mut operation.action else { continue };
        let gradient = operation.reads.iter().find(|operand| operand.slot == Slot::ParameterGradient);
        let Some(gradient) = gradient.map(|operand| &tensors[operand.tensor as usize]) else { continue };
        let pieces = gradient.own_shard().unwrap_or(u64::MAX).div_ceil(Clip::PIECE);
        let is_replicated = gradient.sharding == Sharding::Replicated;
        let next = if is_replicated { &mut others } else { &mut own };
        *first = *next;
        *next += pieces;
        for operand in operation.writes.iter_mut().filter(|operand| operand.slot == Slot::Workspace) {
            replicated = Some(operand.tensor);
            if !is_replicated {
                operand.tensor = sums;
            }
        }
    }
    let Some(replicated) = replicated.filter(|_| own > 0) else { return };
    // Each rank has so many sums of its own, at the beginning of its shard.
    let all = Shape::new(&[ranks.count, own]);
    let gathered = Tensor::transient(Part::Workspace, Role::Statistic, NO_ROW.into(), all);
    let sharding = Sharding::Gathered(ranks.count);
    tensors.push(Tensor { name: "squares of shards".to_string(), sharding, ..gathered });
    tensors[replicated as usize].shape = Shape::new(&[others]);
    let Some(norm) = operations.iter().position(|operation| operation.action == Action::Norm) else { return };
    operations[norm].reads.retain(|operand| others > 0 || operand.tensor != replicated);
    operations[norm].reads.push(Operand { slot: Slot::Input(0), tensor: sums });
    let pair = Pair::new(Collective::Gather, Phase::Update, NO_ROW.into(), &[(sums, sums)]);
    operations.splice(norm..norm, [pair.begin, pair.end]);
}

/// Lets all ranks know if a gradient of one of them is not finite, unless the norm tells.
fn share_overflow(operations: &mut Vec<Operation>, tensors: &[Tensor]) {
    let is_check = |operation: &Operation| operation.action == Action::Check && has_shard(operation, tensors);
    let Some(last) = operations.iter().rposition(is_check) else { return };
    let Some(state) = operations[last].written(Slot::State) else { return };
    let last = operations.iter().rposition(|operation| operation.action == Action::Check).unwrap_or(last);
    let pair = Pair::new(Collective::Overflow, Phase::Update, NO_ROW.into(), &[(state, state)]);
    operations.splice(last + 1..last + 1, [pair.begin, pair.end]);
}
