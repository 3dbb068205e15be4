//! Elements that each layer saves for the backward pass.

use super::{Action, Class, Op, Operation, Pass, Phase, Program, Slot, TensorId};
use crate::number::Role;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

impl Program {
    /// Returns the elements that each layer saves: see [`LayerInfo::kept`](crate::network::LayerInfo::kept). A tensor counts if the forward pass
    /// writes it, and the backward pass, a recomputation or a chunk of the loss reads it. It counts for the first layer that reads it then. The
    /// output of an activation whose gradient is part of the norm's before it counts for the activation, if that is the earlier layer.
    pub fn kept_of_layers(&self) -> Vec<[u64; 6]> {
        let mut kept = vec![[0u64; 6]; self.paths.len()];
        let mut keeper: Vec<Option<u32>> = vec![None; self.tensors.len()];
        let forward = self.operations.iter().take_while(|operation| operation.phase() == Phase::Forward).count();
        for operation in &self.operations[forward..] {
            let is_later =
                operation.phase() == Phase::Again || matches!(operation.action, Action::Run { pass: Pass::Chunk, .. });
            if operation.backward().is_none() && !is_later {
                continue;
            }
            for operand in &operation.reads {
                let is_kept = matches!(operand.slot, Slot::Input(_) | Slot::Output | Slot::Saved(_));
                let tensor = self.tensor(operand.tensor);
                if is_kept && tensor.class == Class::Transient && (tensor.first as usize) < forward {
                    let keeper = &mut keeper[operand.tensor as usize];
                    *keeper = Some(keeper.map_or(operation.row, |row| row.min(operation.row)));
                }
            }
        }
        for (tensor, row) in self.activated(forward) {
            let keeper = &mut keeper[tensor as usize];
            *keeper = keeper.map(|other| other.min(row));
        }
        for (tensor, row) in self.tensors.iter().zip(keeper) {
            let Some(line) = row.and_then(|row| kept.get_mut(row as usize)) else { continue };
            let kind = match tensor.role {
                Role::Activation => 0,
                Role::Byte | Role::Bit => 4,
                _ => 2,
            };
            line[kind + usize::from(tensor.batched)] += tensor.stored_of_each().unwrap_or(0);
        }
        kept
    }

    /// Returns the outputs of activations whose gradients are computed with those of norms, and the activations' rows.
    fn activated(&self, forward: usize) -> Vec<(TensorId, u32)> {
        let (forward, rest) = self.operations.split_at(forward);
        let merged = rest.iter().filter(|operation| match operation.backward() {
            Some(Op::BatchNorm(norm)) => norm.activation.is_some(),
            _ => false,
        });
        let saves = |(at, operation): (usize, &Operation)| operation.written(Slot::Saved(0)).map(|saved| (saved, at));
        let saved: BTreeMap<TensorId, usize> = forward.iter().enumerate().filter_map(saves).collect();
        let activation = |norm: &Operation| {
            let at = *saved.get(&norm.read(Slot::Saved(0))?)?;
            let normalised = forward[at].written(Slot::Output);
            let after = &forward[at + 1..];
            let activation = after.iter().find(|operation| operation.read(Slot::Input(0)) == normalised)?;
            Some((activation.written(Slot::Output)?, activation.row))
        };
        merged.filter_map(activation).collect()
    }
}
