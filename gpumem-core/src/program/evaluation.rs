//! The evaluation of a loss: the forward half of a training step without updates, with every operation in `eval` mode.

use super::op::{Inference, Work};
use super::{Action, Class, Op, Operand, Operation, Pass, Phase, Program, Slot, TensorId};
use crate::train::Descent;
use alloc::vec;
use alloc::vec::Vec;

/// The evaluation derived from a training step, with the numbers of its tensors there.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The program. Its one result is the loss.
    pub program: Program,
    /// The number that each of its tensors has in the training step.
    pub tensors: Vec<TensorId>,
}

impl Op {
    /// Returns the operation in `eval` mode, for use in training. `None` if it then passes its input on. `InplaceNorm` is unchanged.
    pub fn in_eval(self) -> Option<Op> {
        (self.inference() != Inference::PassesOn).then(|| self.with_eval(true).unwrap_or(self))
    }

    /// Clears the `eval` flag, as inference programs have it: inference has only one way to normalise.
    pub(crate) fn leave_eval(&mut self) {
        if let Some(op) = self.with_eval(false) {
            *self = op;
        }
    }
}

impl Program {
    /// Returns the forward pass of a training step and its loss, with every operation as in inference. BatchNorm uses its running
    /// statistics, dropout does nothing, and no persistent tensor changes. Its tensors are among those of the training step, so they can use
    /// that step's places in the arena.
    ///
    /// Returns `None` for a program without a loss.
    pub fn evaluation(&self) -> Option<Evaluation> {
        let is_measured = |operation: &Operation| matches!(operation.action, Action::Loss(_));
        let loss = self.operations.iter().find(|operation| is_measured(operation))?.written(Slot::Loss)?;
        let is_transient = |id: TensorId| self.tensor(id).class == Class::Transient;
        // Ranks exchange statistics of the batch, which an evaluation does not read.
        let is_of_batch =
            |operation: &Operation| operation.action.is_exchange() && operation.tensors().all(is_transient);
        let wanted = |operation: &&Operation| {
            matches!(operation.phase(), Phase::Forward | Phase::Loss) && !is_of_batch(operation)
        };
        let mut operations: Vec<Operation> = self.operations.iter().filter(wanted).filter_map(untrained).collect();
        // Each micro-batch has a loss of its own here, so no earlier term is read.
        if let Some(first) = operations.iter_mut().find(|operation| is_measured(operation)) {
            first.reads.retain(|operand| operand.slot != Slot::Loss);
        }
        let (mut first, mut last) = (vec![None; self.tensors.len()], vec![0; self.tensors.len()]);
        for (index, operation) in operations.iter().enumerate() {
            for id in operation.tensors() {
                first[id as usize].get_or_insert(index as u32);
                last[id as usize] = index as u32;
            }
        }
        let state = self.state();
        let stays = |id: &TensorId| match self.tensor(*id).class {
            Class::Transient => first[*id as usize].is_some(),
            // Its operations read no state of another training step.
            Class::State => Some(*id) == state,
            _ => true,
        };
        let kept: Vec<TensorId> = (0..self.tensors.len() as TensorId).filter(stays).collect();
        let mut numbers: Vec<TensorId> = vec![0; self.tensors.len()];
        kept.iter().enumerate().for_each(|(number, &id)| numbers[id as usize] = number as TensorId);
        for operation in &mut operations {
            for operand in operation.reads.iter_mut().chain(&mut operation.writes) {
                operand.tensor = numbers[operand.tensor as usize];
            }
        }
        let mut tensors: Vec<_> = kept.iter().map(|&id| self.tensor(id).clone()).collect();
        for (tensor, &id) in tensors.iter_mut().zip(&kept) {
            (tensor.first, tensor.last) = (first[id as usize].unwrap_or(0), last[id as usize]);
        }
        let program = Program {
            training: false,
            moments: 0,
            holds_gradients: false,
            descent: Descent::PLAIN,
            tensors,
            operations,
            paths: self.paths.clone(),
            results: vec![numbers[loss as usize]],
        };
        Some(Evaluation { program, tensors: kept })
    }
}

/// Returns a forward operation of a training step as it is in inference. `None` if it has nothing to do there.
fn untrained(operation: &Operation) -> Option<Operation> {
    let mut action = match &operation.action {
        Action::Run { op, pass: Pass::Forward } if op.inference() == Inference::PassesOn => {
            // In training its output is a separate tensor, unless it works in place.
            if operation.read(Slot::Input(0)) == operation.written(Slot::Output) {
                return None;
            }
            Action::Copy
        }
        // Without a backward pass nothing is saved, so the activation mask is not needed.
        Action::Run { op: Op::Rectifier(rectifier), pass } => {
            Action::Run { op: rectifier.of.clone().into(), pass: *pass }
        }
        Action::Park(_) | Action::SaveStatistics(_) => return None,
        // It computes statistics of the batch for other ranks, and nothing else.
        Action::Run { .. } if operation.written(Slot::Sent(0)).is_some() => return None,
        action => action.clone(),
    };
    if let Action::Run { op, .. } = &mut action {
        op.leave_eval();
    }
    let works = match &action {
        Action::Run { op, .. } => op.workspace(Work::Inference).is_some(),
        Action::Loss(_) => true,
        _ => false,
    };
    let is_loss = matches!(action, Action::Loss(_));
    let is_run = matches!(action, Action::Run { .. });
    let is_worked_in = matches!(&action, Action::Run { op, .. } if op.works_in_saved());
    let reads = |operand: &&Operand| match operand.slot {
        Slot::State => false,
        Slot::Received(_) => !is_run,
        _ => true,
    };
    let writes = |operand: &&Operand| match operand.slot {
        Slot::Output | Slot::Loss => true,
        Slot::Workspace => works,
        Slot::Saved(_) => is_loss || is_worked_in,
        Slot::Scratch(_) | Slot::Received(_) => true,
        _ => false,
    };
    Some(Operation {
        action,
        row: operation.row,
        accumulate: false,
        reads: operation.reads.iter().filter(reads).copied().collect(),
        writes: operation.writes.iter().filter(writes).copied().collect(),
    })
}
