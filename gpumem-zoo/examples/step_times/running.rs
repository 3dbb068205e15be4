//! Steps on one thread of the CPU, and how long they take.

use super::Failure;
use super::networks::Case;
use super::ways::Step;
use gpumem::{Cpu, Line, Precision};
use gpumem_core::Role;
use gpumem_core::memory::place::{Placed, place};
use gpumem_core::operation::Operations;
use gpumem_core::program::{Action, Class, Slot, StateWord};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::Optimizer;
use std::time::Instant;

/// A step that is loaded.
pub struct Running {
    runner: <Cpu as Device>::Runner,
    placed: Placed,
    /// Samples of a part of the batch, which are all where it is not split.
    samples: u64,
    parts: u64,
    classes: u32,
}

impl Running {
    /// Loads a step, with parameters as before the first one.
    pub fn new(step: &Step, case: &Case) -> Result<Running, Failure> {
        let (placed, samples) = (place(&step.compiled)?, step.compiled.samples());
        let runner = Cpu::with_threads(1)?.load(Job {
            name: case.name,
            arena: step.compiled.budget[Line::Arena],
            reserve: 0,
            batch: samples,
            precision: Precision::F32,
            train: Some(placed.clone()),
            evaluation: None,
            // No forward pass runs; the step stands in for it.
            others: Vec::new(),
            infer: placed.clone(),
            served: None,
            optimizer: step.optimizer,
            tf32: false,
            deterministic: false,
            settings: 0,
            operations: &Operations::NONE,
        })?;
        let mut running =
            Running { runner, placed, samples, parts: step.compiled.batch / samples, classes: case.classes };
        running.initialise(step.optimizer)?;
        Ok(running)
    }

    /// Fills what lasts as a network's first step finds it.
    fn initialise(&mut self, optimizer: Optimizer) -> Result<(), Failure> {
        let program = &self.placed.program;
        let mut moments = vec![None; program.tensors.len()];
        for operation in program.operations.iter().filter(|operation| operation.action == Action::Update) {
            for operand in &operation.writes {
                if let Slot::Moment(number) = operand.slot {
                    moments[operand.tensor as usize] = Some(usize::from(number));
                }
            }
        }
        for (id, tensor) in program.tensors.iter().enumerate() {
            let count = tensor.elements(1).unwrap_or(0) as usize;
            let values: Vec<f32> = match tensor.class {
                Class::Parameter | Class::Buffer => program.initial(id as u32, 1),
                Class::Moment => vec![optimizer.initial(moments[id].ok_or("a state without an update")?) as f32; count],
                Class::State => {
                    let mut words = [0.0; StateWord::COUNT];
                    words[StateWord::LearningRate as usize] = optimizer.lr() as f32;
                    words[StateWord::LossScale as usize] = 1.0;
                    words.to_vec()
                }
                _ => continue,
            };
            let bytes: Vec<u8> = match tensor.role {
                Role::Code => values.iter().map(|&value| value as u8).collect(),
                _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            };
            self.runner.write(self.placed.offsets[id], &bytes)?;
        }
        Ok(())
    }

    /// Hands in inputs and targets, the same in each step.
    fn feed(&mut self) -> Result<(), Failure> {
        for (id, tensor) in self.placed.program.tensors.iter().enumerate() {
            if !matches!(tensor.class, Class::Input | Class::Target) {
                continue;
            }
            let spread = |index: u64| (index * 7919 + 104_729) % 1009;
            let word = |index: u64| match tensor.role {
                Role::Index => (spread(index) as u32 * 48) % self.classes,
                _ => (spread(index) as f32 / 504.5 - 1.0).to_bits(),
            };
            let count = tensor.elements(self.samples).ok_or("an input is too large")?;
            let bytes: Vec<u8> = (0..count).flat_map(|index| word(index).to_le_bytes()).collect();
            self.runner.feed(self.placed.offsets[id], &bytes)?;
        }
        Ok(())
    }

    /// One step on a whole batch.
    pub fn step(&mut self) -> Result<(), Failure> {
        for part in 0..self.parts {
            self.feed()?;
            if part + 1 < self.parts {
                self.runner.accumulate(part)?;
            }
        }
        self.runner.train()?;
        let loss = self.runner.loss(self.placed.offsets[self.placed.program.results[0] as usize])?;
        // What overflows has other numbers than a training, and other times.
        if loss.is_finite() { Ok(()) } else { Err(format!("a loss of {loss}").into()) }
    }

    /// Seconds of one step.
    pub fn seconds(&mut self, clock: &Clock) -> Result<f64, Failure> {
        let start = clock.seconds();
        self.step()?;
        Ok(clock.seconds() - start)
    }
}

/// The time that the threads of this process had on a CPU, or that on the wall where the system does not tell.
pub struct Clock {
    start: Instant,
    is_of_cpu: bool,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { start: Instant::now(), is_of_cpu: on_cpu().is_some() }
    }

    /// Seconds since some moment.
    fn seconds(&self) -> f64 {
        match on_cpu().filter(|_| self.is_of_cpu) {
            Some(nanoseconds) => nanoseconds as f64 / 1e9,
            None => self.start.elapsed().as_secs_f64(),
        }
    }

    /// What it measures.
    pub fn what(&self) -> &'static str {
        if self.is_of_cpu { "CPU time" } else { "time on the wall" }
    }
}

/// Nanoseconds that Linux says the threads of this process ran.
fn on_cpu() -> Option<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        sum += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}
