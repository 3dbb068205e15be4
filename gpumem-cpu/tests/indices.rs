//! What is looked up by indices, of the user's or made of numbers, against PyTorch: output and all gradients, to 1e-6. In one batch and in two
//! parts, as it is and with all that can be run again for the backward pass. `truth/ops/indices.py` made what is expected.

mod harness;

use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Options, Term, lower};
use gpumem_core::program::{Action, Pass, Program};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use gpumem_cpu::Cpu;
use harness::given::{self, STAY};
use harness::graphs::chain;
use harness::{Loaded, Truth, assert_close};

const TOLERANCE: f64 = 1e-6;

/// Builds a network of a case, given its inputs.
type Build = fn(&mut Graph, &[NodeId]) -> NodeId;

struct Case {
    truth: Truth,
    name: &'static str,
    /// Inputs, and the parameter `w` if there is one.
    names: Vec<String>,
    has_parameter: bool,
}

impl Case {
    fn new(name: &'static str) -> Case {
        let truth = Truth::read("ops/indices.safetensors");
        let prefix = format!("{name}.input.");
        let names: Vec<String> = truth.names().filter_map(|it| it.strip_prefix(&prefix).map(String::from)).collect();
        assert!(!names.is_empty(), "no case {name}");
        let has_parameter = names.iter().any(|name| name == "w");
        Case { truth, name, names: names.into_iter().filter(|name| name != "w").collect(), has_parameter }
    }

    fn of(&self, tensor: &str) -> String {
        format!("{}.{tensor}", self.name)
    }

    fn batch(&self) -> u64 {
        self.truth.shape(&self.of("output"))[0]
    }

    fn network(&self, build: Build) -> (Graph, NodeId) {
        let mut graph = Graph::default();
        let inputs = self.names.iter().map(|name| {
            let shape = Shape::new(&self.truth.shape(&self.of(&format!("input.{name}")))[1..]);
            let value = if name.starts_with("idx") { Type::indices(shape) } else { Type::numbers(shape) };
            graph.input(value).unwrap()
        });
        let inputs: Vec<NodeId> = inputs.collect();
        let output = build(&mut graph, &inputs);
        (graph, output)
    }

    /// Words of a tensor that begins with the batch, in one part of several.
    fn part(&self, tensor: &str, [number, of]: [usize; 2]) -> &[u32] {
        let words = self.truth.words(&self.of(tensor));
        let each = words.len() / of;
        &words[number * each..(number + 1) * each]
    }

    fn parts(&self, target: &str, of: usize) -> Vec<Vec<(String, Vec<u32>)>> {
        let part = |number| {
            let names = self.names.iter().enumerate();
            let mut part: Vec<(String, Vec<u32>)> = names
                .map(|(index, name)| (input(index), self.part(&format!("input.{name}"), [number, of]).to_vec()))
                .collect();
            part.push(("target".into(), self.part(target, [number, of]).to_vec()));
            part
        };
        (0..of).map(part).collect()
    }

    fn load(&self, program: &Program) -> Loaded {
        let cpu = Cpu::with_threads(2).unwrap().with_poison(true);
        let mut loaded = Loaded::of(&cpu, program, self.batch(), STAY).unwrap();
        if self.has_parameter {
            let name = parameter(&loaded);
            loaded.set(&name, self.truth.words(&self.of("input.w")));
        }
        loaded
    }

    /// A step in so many parts, with what can be run again run again if `again`.
    fn check_step(&self, build: Build, parts: usize, again: bool) {
        let (mut graph, output) = self.network(build);
        if again {
            graph.groups = vec![[self.names.len(), graph.nodes.len()]];
        }
        let what = format!("{} in {parts} parts, again: {again}", self.name);
        let descent = Descent { micro_batches: parts as u64, ..Descent::PLAIN };
        let program = |loss: &[Term]| {
            let training = given::training(loss, STAY, descent);
            lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
        };
        let mut loaded = self.load(&program(&[Term::DOT]));
        loaded.step_of(&self.parts("grad_output", parts)).unwrap();
        let mut check = |tensor: &str, name: &str, part: [usize; 2]| {
            let expected: Vec<f32> = self.part(tensor, part).iter().map(|&word| f32::from_bits(word)).collect();
            let found = loaded.get(&format!("{name}.gradient")).unwrap_or_else(|| panic!("{what}: {name}"));
            assert_close(&format!("{what}: {name}"), &found, &expected, TOLERANCE);
        };
        for (index, name) in self.names.iter().enumerate().filter(|(_, name)| !name.starts_with("idx")) {
            // The gradient of an input is that of the last part.
            check(&format!("grad_input.{name}"), &input(index), [parts - 1, parts]);
        }
        if self.has_parameter {
            let name = graph.parameters[0].name.clone();
            check("grad_input.w", &name, [0, 1]);
        }
        // The output is the target: their squared difference is the loss.
        let mut loaded = self.load(&program(&[Term::MSE]));
        let loss = loaded.step_of(&self.parts("output", parts)).unwrap();
        assert!(loss <= 1e-12, "{what}: mean squared difference {loss:e}");
    }
}

fn input(index: usize) -> String {
    if index == 0 { "input".to_string() } else { format!("input{index}") }
}

fn parameter(loaded: &Loaded) -> String {
    let tensors = &loaded.train.program.tensors;
    tensors.iter().find(|tensor| tensor.name.ends_with(".weight")).expect("a parameter").name.clone()
}

fn check(name: &'static str, build: Build) {
    let case = Case::new(name);
    for (parts, again) in [(1, false), (1, true), (2, false), (2, true)] {
        case.check_step(build, parts, again);
    }
}

/// Parts of the user's tokens, their axes in another order, and repeated.
#[test]
fn tokens_that_are_moved() {
    check("tokens_slice", |g, x| chain(g, x[0], "Slice(1) | Embedding(7, 3)"));
    check("tokens_select", |g, x| chain(g, x[0], "Reshape([2; 3]) | Select(1, dim = -1) | Embedding(7, 3)"));
    check("tokens_transpose", |g, x| chain(g, x[0], "Reshape([2; 3]) | Transpose(1, 2) | Embedding(7, 3)"));
    check("tokens_expand", |g, x| chain(g, x[0], "Expand([2; 3]) | Embedding(7, 3)"));
}

/// Without this, a step that runs things again might be the plain one.
#[test]
fn something_runs_again() {
    let (mut graph, output) =
        Case::new("tokens_slice").network(|g, x| chain(g, x[0], "Slice(1) | Embedding(7, 3) | Tanh"));
    graph.groups = vec![[1, graph.nodes.len()]];
    let training = given::training(&[Term::DOT], STAY, Descent::PLAIN);
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let is_again = |action: &Action| matches!(action, Action::Run { pass: Pass::Again, .. });
    assert!(program.operations.iter().any(|operation| is_again(&operation.action)));
}

/// Two parts of a batch, of which the second is at fault, and a token that nothing reads.
#[test]
fn parts_of_tokens_are_checked_before_a_step() {
    let case = Case::new("tokens_slice");
    let (graph, output) = case.network(|g, x| chain(g, x[0], "Slice(1) | Embedding(7, 3)"));
    for parts in [1, 2] {
        let descent = Descent { micro_batches: parts, ..Descent::PLAIN };
        let training = given::training(&[Term::DOT], STAY, descent);
        let mut loaded = case.load(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap());
        let mut all = case.parts("grad_output", parts as usize);
        let last = all.len() - 1;
        let words = all[last].iter_mut().find(|(name, _)| name == "input").map(|(_, words)| words).unwrap();
        let first_of_last_sample = words.len() - 5;
        words[first_of_last_sample] = 1_000_000;
        loaded.step_of(&all).unwrap();
        let words = all[last].iter_mut().find(|(name, _)| name == "input").map(|(_, words)| words).unwrap();
        words[first_of_last_sample + 1] = 7;
        let position = first_of_last_sample as u64 + 1;
        let error = loaded.step_of(&all).unwrap_err();
        assert_eq!(error, Error::Index { what: "token", position, value: 7, limit: 7 });
    }
}
