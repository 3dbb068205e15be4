//! Running statistics of a step that may be skipped.
//!
//! They move in the forward pass, and whether a gradient is finite is known after the backward pass. So a step begins with a copy of them,
//! and puts it back, before its first update, if it is skipped. What moves them needs to know nothing of that, and neither do passes over
//! the draft: the copy lives through the whole step, at one place beside everything else.

use crate::number::Role;
use crate::program::{Action, Class, NO_ROW, Operand, Operation, Part, Slot, Tensor, TensorId};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// Elements that the copy of a running statistic begins at a multiple of: 256 bytes of f32.
const ALIGNMENT: u64 = 64;

/// Adds the operations that save the running statistics which `operations` move, and those that put them back.
pub(super) fn guard_statistics(mut operations: Vec<Operation>, tensors: &mut Vec<Tensor>) -> Vec<Operation> {
    let mut moved: Vec<TensorId> = Vec::new();
    for operand in operations.iter().flat_map(|operation| &operation.writes) {
        if tensors[operand.tensor as usize].class == Class::Buffer && !moved.contains(&operand.tensor) {
            moved.push(operand.tensor);
        }
    }
    let tells = |operation: &Operation| matches!(operation.action, Action::Check | Action::Norm);
    let Some(known) = operations.iter().rposition(tells).filter(|_| !moved.is_empty()) else { return operations };
    let state = operations[known].written(Slot::State).map(|tensor| Operand { slot: Slot::State, tensor });
    let (mut firsts, mut elements) = (Vec::new(), 0u64);
    for &id in &moved {
        firsts.push(elements);
        let own = tensors[id as usize].shape.elements().unwrap_or(u64::MAX);
        elements = elements.saturating_add(own).div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
    }
    let saved = tensors.len() as TensorId;
    let copy = Tensor::transient(Part::Saved, Role::Statistic, NO_ROW.into(), Shape::new(&[elements]));
    tensors.push(Tensor { name: "statistics of before the step".into(), ..copy });
    let saved = Operand { slot: Slot::Saved(0), tensor: saved };
    let all = |of: &dyn Fn(u64, Operand, u32) -> Operation| {
        let pairs = moved.iter().zip(&firsts);
        let made = pairs.map(|(&tensor, &first)| {
            of(first, Operand { slot: Slot::Buffer(0), tensor }, tensors[tensor as usize].row)
        });
        made.collect::<Vec<Operation>>()
    };
    let save = all(&|first, buffer, row| {
        let reads = [buffer].into_iter().chain(state).collect();
        Operation { action: Action::SaveStatistics(first), row, accumulate: false, reads, writes: vec![saved] }
    });
    let restore = all(&|first, buffer, row| {
        let reads = [saved].into_iter().chain(state).collect();
        Operation { action: Action::RestoreStatistics(first), row, accumulate: false, reads, writes: vec![buffer] }
    });
    operations.splice(known + 1..known + 1, restore);
    operations.splice(0..0, save);
    operations
}

/// Lets the copy live until `end`, the last operation: where a batch is split, what comes before the updates runs again for each part, and
/// nothing that updates need may lie where the copy is.
pub(super) fn keep_statistics(operations: &[Operation], tensors: &mut [Tensor], end: u32) {
    let saves = |operation: &&Operation| matches!(operation.action, Action::SaveStatistics(_));
    if let Some(saved) = operations.iter().find(saves).and_then(|operation| operation.written(Slot::Saved(0))) {
        tensors[saved as usize].last = end;
    }
}
