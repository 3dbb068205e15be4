//! Padded logits: rows that tensor cores can read.

use crate::program::{Action, Class, Layout, Program, Slot, TensorId};
use alloc::vec::Vec;

/// The multiple to which a row of classes is padded in 16 bits, in elements: 128 bytes. Matrix products read and write rows that begin at a
/// multiple of 16 bytes several elements at a time, and all others one by one.
const CLASSES: u64 = 64;

/// Gives logits and their gradients a pitch in 16 bits, if every operation that touches them supports one. Results, which a caller reads, have
/// none.
pub(in crate::lower) fn pad_classes(program: &mut Program) {
    let is_loss = |action: &Action| matches!(action, Action::Loss(criterion) if criterion.is_of_rows());
    let losses = program.operations.iter().filter(|operation| is_loss(&operation.action));
    let logits = losses.flat_map(|it| [it.read(Slot::Input(0)), it.written(Slot::InputGradient(0))]);
    let logits: Vec<TensorId> = logits.flatten().collect();
    for id in logits {
        let tensor = &mut program.tensors[id as usize];
        let Some(pitch) = tensor.shape.last().checked_next_multiple_of(CLASSES) else { continue };
        let is_inside = tensor.class == Class::Transient && tensor.batched && tensor.shape.as_map().is_none();
        if !is_inside || pitch == tensor.shape.last() || program.results.contains(&id) {
            continue;
        }
        tensor.layout.pitch = pitch;
        let mut users = program.operations.iter().filter(|operation| operation.tensors().any(|other| other == id));
        let all_take = users.all(|operation| program.takes_layouts(operation));
        let tensor = &mut program.tensors[id as usize];
        tensor.layout = Layout::DENSE;
        tensor.pitch = if all_take { pitch } else { 0 };
    }
}
