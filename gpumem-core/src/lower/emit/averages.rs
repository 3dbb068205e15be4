//! Moving averages of parameters.
//!
//! They are updated after all parameters, many in one launch. If master copies are in host memory, the average of each piece is updated while the
//! piece's copy is in the arena.

use crate::lower::differentiate::builder::average_name;
use crate::program::{Action, Class, Operand, Operation, Slot, Tensor, TensorId};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Adds the operations that average the parameters which `operations` update.
pub(in crate::lower) fn average(operations: Vec<Operation>, tensors: &[Tensor]) -> Vec<Operation> {
    let all = (0..).zip(tensors).filter(|(_, tensor)| tensor.class == Class::Average);
    let all: BTreeMap<&str, TensorId> = all.map(|(id, tensor)| (tensor.name.as_str(), id)).collect();
    let of = |update: &Operation, action: Action| {
        let parameter = update.written(Slot::Parameter)?;
        let tensor = *all.get(average_name(&tensors[parameter as usize].name).as_str())?;
        let average = Operand { slot: Slot::Average, tensor };
        let is_read = |operand: &&Operand| matches!(operand.slot, Slot::Parameter | Slot::Master | Slot::State);
        let reads = update.reads.iter().filter(is_read).copied().chain([average]).collect();
        Some(Operation { action, row: update.row, accumulate: false, reads, writes: vec![average] })
    };
    let mut averaged = Vec::with_capacity(operations.len() + all.len());
    let mut whole = Vec::new();
    for operation in operations {
        let piece = match operation.action {
            Action::UpdatePiece(piece) => of(&operation, Action::AveragePiece(piece)),
            Action::Update => {
                whole.extend(of(&operation, Action::Average));
                None
            }
            Action::Advance => {
                averaged.append(&mut whole);
                None
            }
            _ => None,
        };
        averaged.push(operation);
        averaged.extend(piece);
    }
    averaged
}
