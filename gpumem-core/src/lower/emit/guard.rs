//! Running statistics of a step that may be skipped.
//!
//! They change in the forward pass, but only after the backward pass is it known if all gradients are finite. So a step begins with a copy of
//! them and, if it is skipped, puts the copy back before its first update. Neither the operations that change the statistics nor passes over the
//! draft need to know: the copy lives through the whole step, in memory of its own.

use crate::number::Role;
use crate::program::{Action, Class, Collective, NO_ROW, Operand, Operation, Part, Slot, Tensor, TensorId};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The alignment of the copy of each running statistic, in f32 elements: 256 bytes.
const ALIGNMENT: u64 = 64;

/// Adds the operations that save the running statistics which `operations` change, and those that restore them.
pub(in crate::lower) fn guard_statistics(mut operations: Vec<Operation>, tensors: &mut Vec<Tensor>) -> Vec<Operation> {
    let mut moved: Vec<TensorId> = Vec::new();
    for operand in operations.iter().flat_map(|operation| &operation.writes) {
        if tensors[operand.tensor as usize].class == Class::Buffer && !moved.contains(&operand.tensor) {
            moved.push(operand.tensor);
        }
    }
    let tells = |operation: &Operation| match operation.action {
        Action::Check | Action::Norm => true,
        Action::EndExchange(exchange) => exchange.collective == Collective::Overflow,
        _ => false,
    };
    let Some(known) = operations.iter().rposition(tells).filter(|_| !moved.is_empty()) else { return operations };
    let state = operations.iter().filter(|operation| tells(operation)).find_map(|it| it.written(Slot::State));
    let state = state.map(|tensor| Operand { slot: Slot::State, tensor });
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

/// Extends the live range of the copy to `end`, the last operation index. With micro-batches, all operations before the updates run again for
/// each of them, so that no tensor of the updates may lie in the copy's memory.
pub(in crate::lower) fn keep_statistics(operations: &[Operation], tensors: &mut [Tensor], end: u32) {
    let saves = |operation: &&Operation| matches!(operation.action, Action::SaveStatistics(_));
    if let Some(saved) = operations.iter().find(saves).and_then(|operation| operation.written(Slot::Saved(0))) {
        tensors[saved as usize].last = end;
    }
}
