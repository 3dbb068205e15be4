//! Numbers that a test begins with, and those that a step adds to the state.

use gpumem_core::Role;
use gpumem_core::program::loss::Compares;
use gpumem_core::program::{Action, Class, Operation, Program, Slot, StateWord};
use gpumem_core::train::optim::Optimizer;

/// Different numbers for each tensor, spread over `[-1, 1)`.
pub fn spread(count: usize, salt: usize) -> Vec<u32> {
    (0..count).map(|index| (((index * 7919 + salt * 104_729) % 2003) as f32 / 1001.5 - 1.0).to_bits()).collect()
}

/// Numbers of an input that says which steps count: lengths of all kinds, an empty one among them, or segments of several lengths.
fn counts_steps(program: &Program, id: usize) -> Option<Box<dyn Fn(usize) -> u32>> {
    let all = program.operations.iter().flat_map(|operation| {
        operation.indices(program).into_iter().filter(|rule| operation.read(rule.slot) == Some(id as u32))
    });
    let rule = all.into_iter().find(|rule| rule.ordered || rule.what == "length")?;
    let each = rule.each as usize;
    if rule.ordered {
        return Some(Box::new(move |index| {
            let (sample, step) = (index / each, index % each);
            (step / (3 + 11 * sample)) as u32 + 5 * sample as u32
        }));
    }
    let most = (rule.limit - 1) as u32;
    Some(Box::new(move |index| [most * 2 / 3, 0, most, 1][index % 4]))
}

/// The numbers that a test begins with.
pub(super) fn beginning(
    program: &Program,
    id: usize,
    batch: u64,
    classes: u32,
    optimizer: Optimizer,
) -> Option<Vec<u32>> {
    let tensor = program.tensor(id as u32);
    let is_of_signs = |operation: &Operation| match &operation.action {
        Action::Loss(criterion) => {
            criterion.compares() == Compares::Signs && operation.read(Slot::Target) == Some(id as u32)
        }
        _ => false,
    };
    let count = tensor.stored(batch).unwrap() as usize;
    Some(match (tensor.class, tensor.role) {
        (Class::Transient | Class::Gradient | Class::Host, _) => return None,
        // Every code, or every pair of them.
        (Class::Parameter, Role::Int8 | Role::Nf4 | Role::Nf4Double) => {
            (0..count).map(|index| (index * 37 + id) as u32 % 256).collect()
        }
        (Class::Input, Role::Index) if let Some(rule) = counts_steps(program, id) => (0..count).map(rule).collect(),
        (Class::Input | Class::Target, Role::Index) => {
            (0..count).map(|index| (index as u32 * 7 + 1) % classes).collect()
        }
        (Class::Input, Role::Byte) => (0..count).map(|index| (index * 37 + id) as u32 % 256).collect(),
        (Class::Target, _) if program.operations.iter().any(is_of_signs) => {
            (0..count).map(|index| [1f32, -1.0, -1.0][index % 3].to_bits()).collect()
        }
        // The divisors of a loss.
        (Class::Target, _) if tensor.name.starts_with("divisor") => vec![37f32.to_bits(); count],
        (Class::Parameter | Class::Input | Class::Target | Class::Cache, _) => spread(count, id + 1),
        (Class::Buffer, _) => vec![0.5f32.to_bits(); count],
        (Class::State, _) => {
            let mut words = vec![0; count];
            words[StateWord::Seed as usize] = 42;
            words[StateWord::LearningRate as usize] = (optimizer.lr() as f32).to_bits();
            words[StateWord::LossScale as usize] = 1f32.to_bits();
            // A forward pass with a cache has fewer words.
            if let Some(schedule) = words.get_mut(StateWord::Schedule as usize..StateWord::Skipped as usize) {
                schedule.copy_from_slice(&program.descent.schedule.words());
            }
            words
        }
        (Class::Moment | Class::Average, _) => vec![0; count],
    })
}

/// Returns what the kernels leave in the state in step number `step`. The CPU backend computes it for each update.
pub fn corrections(optimizer: Optimizer, step: u64) -> [u32; 2] {
    let both = gpumem_cpu::corrections(&optimizer.rule(false), step);
    both.map(|correction| (correction as f32).to_bits())
}
