//! The tensors inside a step: the live bytes at each operation, and the tensors at the peak with what holds them.

use crate::plan::PlannedProgram;
use gpumem_core::memory::budget::Budget;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Class, Phase, Program, Tensor};

/// The live bytes of a step.
pub struct Live {
    /// Live bytes at each operation.
    pub bytes: Vec<u64>,
    /// The phase of each operation.
    pub phases: Vec<Phase>,
    /// The operation of the peak.
    pub peak_name: String,
    /// The tensors that are alive then, the largest first.
    pub at_peak: Vec<Alive>,
}

/// A tensor that is alive at the peak.
pub struct Alive {
    pub name: String,
    pub shape: String,
    /// Its bytes in the arena: packed bits and rows with their padding.
    pub bytes: u64,
    /// The index of the last operation that needs it.
    pub last: u32,
    /// The index and the name of that operation: `490 bn1 BatchNorm backward`.
    pub held_by: String,
}

impl Live {
    /// Counts the tensors of a step with this budget.
    pub fn new(step: &PlannedProgram, budget: &Budget) -> Live {
        let plan = &step.plan;
        let workspaces = plan.sizes(&plan.cards).workspaces;
        let stored = Placed::new(plan.program.clone(), Vec::new(), plan.samples(), plan.precision).bytes;
        let is_alive =
            |tensor: &Tensor| tensor.class == Class::Transient && (tensor.first..=tensor.last).contains(&budget.peak);
        let alive = plan.program.tensors.iter().zip(stored).filter(|(tensor, _)| is_alive(tensor));
        let mut at_peak: Vec<Alive> = alive
            .map(|(tensor, stored)| Alive {
                name: plan.program.tensor_name(tensor),
                shape: tensor.shape.to_string(),
                bytes: workspaces.cap(tensor.role, stored),
                last: tensor.last,
                held_by: format!("{} {}", tensor.last, operation(&plan.program, tensor.last)),
            })
            .collect();
        at_peak.sort_by_key(|alive| std::cmp::Reverse(alive.bytes));
        Live {
            bytes: plan.live(&plan.cards),
            phases: plan.program.operations.iter().map(|operation| operation.phase()).collect(),
            peak_name: operation(&plan.program, budget.peak),
            at_peak,
        }
    }
}

/// Returns the name of an operation; an empty text if there is none.
fn operation(program: &Program, index: u32) -> String {
    program.operations.get(index as usize).map(|operation| program.operation_name(operation)).unwrap_or_default()
}
