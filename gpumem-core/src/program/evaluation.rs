//! The loss without an update: the forward half of a training step, as without training.

use super::op::{Inference, Work};
use super::ops::{Attention, BatchNorm, SpectralNorm};
use super::{Action, Class, Op, Operand, Operation, Pass, Phase, Program, Slot, TensorId};
use crate::train::Descent;
use alloc::vec;
use alloc::vec::Vec;

/// What is left of a training step, and which of its tensors that needs.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The program. Its one result is the loss.
    pub program: Program,
    /// The number in the training step of each of its tensors.
    pub tensors: Vec<TensorId>,
}

/// An effect that an operation has in training alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingOnly {
    /// It normalises by the batch, and moves running statistics.
    Statistics,
    /// It normalises by the batch, and needs those statistics to find its input again.
    Undone,
    /// It sets values to 0 at random.
    Drops,
}

impl Op {
    /// The effect that it has in training alone. `None` if it has none.
    pub fn training_only(&self) -> Option<TrainingOnly> {
        match self {
            Op::BatchNorm(norm) => (!norm.eval).then_some(TrainingOnly::Statistics),
            Op::NormalizedConvolution(_) => Some(TrainingOnly::Statistics),
            Op::InplaceNorm(_) => Some(TrainingOnly::Undone),
            Op::Mask(mask) => (mask.p > 0.0).then_some(TrainingOnly::Drops),
            op => op.draws().then_some(TrainingOnly::Drops),
        }
    }

    /// The operation as `eval` has it in training; `None` where it passes its input on. `InplaceNorm` stays as it is.
    pub fn in_eval(self) -> Option<Op> {
        match self {
            op if op.inference() == Inference::PassesOn => None,
            Op::BatchNorm(norm) => Some(BatchNorm { eval: true, ..norm }.into()),
            Op::SpectralNorm(norm) => Some(SpectralNorm { eval: true, ..norm }.into()),
            Op::Attention(attention) => Some(Attention { dropout: 0.0, ..attention }.into()),
            op => Some(op),
        }
    }

    /// Makes it the operation that it is where nothing is trained: there is one way to normalise.
    pub(crate) fn leave_eval(&mut self) {
        match self {
            Op::BatchNorm(norm) => norm.eval = false,
            Op::SpectralNorm(norm) => norm.eval = false,
            _ => {}
        }
    }

    /// True if training changes its running statistics.
    pub fn moves_statistics(&self) -> bool {
        match self {
            Op::BatchNorm(norm) => !norm.eval,
            Op::SpectralNorm(norm) => !norm.eval,
            _ => true,
        }
    }
}

impl Program {
    /// The forward pass of a training step and its loss, with every operation as it is without training: BatchNorm with its running
    /// statistics, no dropout, and nothing changed that lasts. Its tensors are those of the training step, so that they can lie where
    /// that has them.
    ///
    /// `None` for a program without a loss.
    pub fn evaluation(&self) -> Option<Evaluation> {
        let is_measured = |operation: &Operation| matches!(operation.action, Action::Loss(_));
        let loss = self.operations.iter().find(|operation| is_measured(operation))?.written(Slot::Loss)?;
        let wanted = |operation: &&Operation| matches!(operation.phase(), Phase::Forward | Phase::Loss);
        let mut operations: Vec<Operation> = self.operations.iter().filter(wanted).filter_map(untrained).collect();
        // Each part of a batch has a loss of its own here.
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
            // Those of other steps are read by none of its operations.
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

/// An operation of a training step's forward half as it is without training, if it is there at all.
fn untrained(operation: &Operation) -> Option<Operation> {
    let mut action = match &operation.action {
        Action::Run { op, pass: Pass::Forward } if op.inference() == Inference::PassesOn => {
            // In training its output is a tensor of its own, unless it works in place.
            if operation.read(Slot::Input(0)) == operation.written(Slot::Output) {
                return None;
            }
            Action::Copy
        }
        // What is not kept for a backward pass needs no bits and no other place.
        Action::Run { op: Op::Rectifier(rectifier), pass } => {
            Action::Run { op: rectifier.of.clone().into(), pass: *pass }
        }
        Action::Park(_) | Action::SaveStatistics(_) => return None,
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
    let is_worked_in = matches!(&action, Action::Run { op, .. } if op.works_in_saved());
    let reads = |operand: &&Operand| operand.slot != Slot::State;
    let writes = |operand: &&Operand| match operand.slot {
        Slot::Output | Slot::Loss => true,
        Slot::Workspace => works,
        Slot::Saved(_) => is_loss || is_worked_in,
        Slot::Scratch(_) => true,
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
