//! Networks that are given numbers and are asked for what these become, on whatever backend a test binary has.

use super::Loaded;
use gpumem_core::Update;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::Program;
use gpumem_core::run::device::Runner;
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cpu::Cpu;

/// An optimizer that changes nothing.
pub const STAY: Optimizer = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });

/// A program on a backend, with tensors reached by name.
pub trait Given {
    /// Gives a tensor these words.
    fn set_words(&mut self, name: &str, words: &[u32]);
    /// Runs part number `part` of a batch that is split, not the last.
    fn part(&mut self, part: u64);
    /// Runs a step, or its last part, or a forward pass.
    fn run(&mut self);
    /// Returns a tensor that outlives the step.
    fn find(&mut self, name: &str) -> Option<Vec<f32>>;
    /// Returns the loss, or the first output of a forward pass.
    fn result(&mut self) -> Vec<f32>;

    /// Gives a tensor these numbers.
    fn set(&mut self, name: &str, values: &[f32]) {
        let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        self.set_words(name, &words);
    }

    /// Returns a tensor that outlives the step, which has to be there.
    fn get(&mut self, name: &str) -> Vec<f32> {
        self.find(name).unwrap_or_else(|| panic!("nothing is called {name}"))
    }
}

/// Loads a program, whose batch or part of a batch is `batch`, on everything that can run it, each with a name.
pub type Everyone = fn(program: &Program, batch: u64, optimizer: Optimizer) -> Vec<(String, Box<dyn Given>)>;

/// The CPU backend, on one thread and on three.
pub fn on_cpu(program: &Program, batch: u64, optimizer: Optimizer) -> Vec<(String, Box<dyn Given>)> {
    let all = [1, 3].map(|threads| -> (String, Box<dyn Given>) {
        let cpu = Cpu::with_threads(threads).unwrap().with_poison(true);
        let loaded = Loaded::of(&cpu, program, batch * program.descent.micro_batches, optimizer).unwrap();
        (format!("{threads} threads"), Box::new(loaded))
    });
    all.into()
}

impl Given for Loaded {
    fn set_words(&mut self, name: &str, words: &[u32]) {
        Loaded::set(self, name, words);
    }

    fn part(&mut self, part: u64) {
        self.runner_mut().accumulate(part).unwrap();
    }

    fn run(&mut self) {
        if self.train.program.training { self.train() } else { self.runner_mut().infer() }.unwrap();
    }

    fn find(&mut self, name: &str) -> Option<Vec<f32>> {
        Loaded::get(self, name)
    }

    fn result(&mut self) -> Vec<f32> {
        let result = self.train.program.results[0] as usize;
        self.read(result)
    }
}

/// A training step that holds all gradients, those of the inputs included.
pub fn training(loss: &[Term], optimizer: Optimizer, descent: Descent) -> Training<'_> {
    let (moments, update) = (optimizer.moments(), Update::Separate);
    Training { loss, moments, update, skips_overflow: false, input_gradient: true, descent }
}

/// The step of a network with a loss, in which nothing is updated.
pub fn step(graph: &Graph, output: NodeId, loss: &[Term]) -> Program {
    let training = training(loss, STAY, Descent::PLAIN);
    lower(graph, &[output], &Options { training: Some(training) }).unwrap()
}

/// The forward pass of a network.
pub fn forward(graph: &Graph, output: NodeId) -> Program {
    lower(graph, &[output], &Options { training: None }).unwrap()
}

/// Compares numbers with those that are right, each within a share of itself, and within `absolute`, of which a NaN and an infinity are none.
pub fn assert_right(what: &str, found: &[f32], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}");
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= relative * expected.abs() + absolute, "{what}: number {at} is {found:e}, not {expected:e}");
    }
}
