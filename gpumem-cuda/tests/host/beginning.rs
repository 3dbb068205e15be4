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
        // What the terms of a loss are divided by.
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

/// What the kernels leave in the state in step number `step`: the CPU backend does without.
pub fn corrections(optimizer: Optimizer, step: u64) -> [u32; 2] {
    let t = step as f64 + 1.0;
    let of = |beta: f64| 1.0 - beta.powf(t);
    let both = match optimizer.rule(false) {
        Optimizer::Adam(adam) => [of(adam.betas.0), of(adam.betas.1)],
        Optimizer::AdamW(adam) => [of(adam.betas.0), of(adam.betas.1)],
        Optimizer::AdamW8bit(adam) => [of(adam.betas.0), of(adam.betas.1)],
        Optimizer::Adamax(adam) => [of(adam.betas.0), of(adam.betas.1)],
        Optimizer::Adafactor(adafactor) => [t.powf(adafactor.beta2_decay), 1.0 / t.sqrt()],
        Optimizer::Adagrad(adagrad) => [1.0 + (t - 1.0) * adagrad.lr_decay, 0.0],
        Optimizer::NAdam(nadam) => {
            let mu = |t: u64| nadam.betas.0 * (1.0 - 0.5 * 0.96f64.powf(t as f64 * nadam.momentum_decay));
            let product: f64 = (1..=step + 1).map(mu).product();
            [product, of(nadam.betas.1)]
        }
        Optimizer::RAdam(radam) => {
            let (beta, correction) = (radam.betas.1, of(radam.betas.1));
            let most = 2.0 / (1.0 - beta) - 1.0;
            let length = most - 2.0 * t * beta.powf(t) / correction;
            let share = (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length);
            [of(radam.betas.0), if length > 5.0 { share.sqrt() * correction.sqrt() } else { 0.0 }]
        }
        _ => [0.0; 2],
    };
    both.map(|correction| (correction as f32).to_bits())
}
