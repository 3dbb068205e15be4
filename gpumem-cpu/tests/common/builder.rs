//! Programs that are built operation by operation.

use super::graphs;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Class, Init, Layout, Operand, Operation, Part, Program, Slot, Tensor, TensorId};
use gpumem_core::run::device::Job;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::train::ranks::Sharding;
use gpumem_core::{Precision, Role};

/// A program in the making.
pub struct Builder {
    pub program: Program,
    pub batch: u64,
}

impl Builder {
    pub fn new(training: bool, batch: u64) -> Builder {
        let program = Program {
            training,
            moments: 0,
            holds_gradients: false,
            descent: gpumem_core::train::Descent::PLAIN,
            tensors: Vec::new(),
            operations: Vec::new(),
            paths: vec!["layer".into()],
            results: vec![0],
        };
        Builder { program, batch }
    }

    pub fn tensor(&mut self, class: Class, role: Role, dims: &[u64], batched: bool) -> TensorId {
        self.program.tensors.push(Tensor {
            class,
            role,
            part: Part::Output,
            name: String::new(),
            row: 0,
            shape: Shape::new(dims),
            batched,
            once: 0,
            layout: Layout::DENSE,
            pitch: 0,
            sharding: Sharding::Replicated,
            trained: class == Class::Parameter,
            init: Init::Constant(0.0),
            first: u32::MAX,
            last: 0,
        });
        self.program.tensors.len() as TensorId - 1
    }

    /// Appends an operation; `accumulate` adds what it writes to gradients to what it reads.
    pub fn operation(
        &mut self,
        action: Action,
        reads: &[(Slot, TensorId)],
        writes: &[(Slot, TensorId)],
        accumulate: bool,
    ) {
        let operands = |list: &[(Slot, TensorId)]| -> Vec<Operand> {
            list.iter().map(|&(slot, tensor)| Operand { slot, tensor }).collect()
        };
        let mut reads = operands(reads);
        if accumulate {
            let gradient = |slot| matches!(slot, Slot::InputGradient(_));
            reads.extend(operands(writes).into_iter().filter(|operand| gradient(operand.slot)));
        }
        let index = self.program.operations.len() as u32;
        let operation = Operation { action, row: 3, accumulate, reads, writes: operands(writes) };
        for tensor in operation.tensors() {
            let tensor = &mut self.program.tensors[tensor as usize];
            tensor.first = tensor.first.min(index);
            tensor.last = tensor.last.max(index);
        }
        self.program.operations.push(operation);
    }

    /// Every tensor at a place of its own, and the size of the arena.
    pub fn place(self) -> (Placed, u64) {
        let mut offsets = Vec::new();
        let mut end = 0u64;
        for tensor in &self.program.tensors {
            offsets.push(end);
            end += (tensor.elements(self.batch).unwrap() * 4).next_multiple_of(256);
        }
        (Placed::new(self.program, offsets, self.batch, Precision::F32), end)
    }

    pub fn job(self) -> Job {
        let batch = self.batch;
        let training = self.program.training;
        let (placed, arena) = self.place();
        let infer = if training { empty() } else { placed.clone() };
        Job {
            name: "Test",
            arena,
            reserve: 0,
            batch,
            precision: Precision::F32,
            train: training.then_some(placed),
            evaluation: None,
            served: None,
            others: Vec::new(),
            infer,
            optimizer: Optimizer::Sgd(Sgd::DEFAULT),
            tf32: false,
            deterministic: false,
            settings: 0,
            operations: &graphs::own::OPERATIONS,
        }
    }
}

/// A program that does nothing.
pub fn empty() -> Placed {
    Placed::new(Builder::new(false, 1).program, Vec::new(), 1, Precision::F32)
}
