//! Layers with indices, from the user or computed, against PyTorch: output and all gradients, to 1e-6. In one batch and in two
//! parts, plain and with full recomputation. `truth/ops/indices.py` wrote the expected values.

mod harness;

use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Options, Term, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::program::{Action, Class, Op, Pass, Program, Slot};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use gpumem_cpu::Cpu;
use harness::given::{self, STAY};
use harness::graphs::{chain, join};
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
        let mut flows_nowhere = Vec::new();
        for (index, name) in self.names.iter().enumerate().filter(|(_, name)| !name.starts_with("idx")) {
            let tensor = format!("grad_input.{name}");
            if self.truth.names().any(|name| name == self.of(&tensor)) {
                // The gradient of an input is that of the last part.
                check(&tensor, &input(index), [parts - 1, parts]);
            } else {
                flows_nowhere.push(format!("{}.gradient", input(index)));
            }
        }
        if self.has_parameter {
            let name = graph.parameters[0].name.clone();
            check("grad_input.w", &name, [0, 1]);
        }
        for name in flows_nowhere {
            assert_eq!(loaded.get(&name), None, "{what}");
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
    tensors.iter().find(|tensor| tensor.class == Class::Parameter).expect("a parameter").name.clone()
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

/// Places of the largest elements, by which rows of tables are looked up.
#[test]
fn largest_elements() {
    check("argmax", |g, x| {
        let rows = chain(g, x[0], "ArgMax(1) | Embedding(5, 2)");
        let mean = chain(g, x[0], "Mean(1) | Unsqueeze(-1)");
        join(g, &[rows, mean], "Mul")
    });
    check("argmax_last", |g, x| chain(g, x[0], "ArgMax(-1) | Embedding(6, 2)"));
}

#[test]
fn largest_and_smallest_elements_in_order() {
    check("top_k", |g, x| chain(g, x[0], "TopK(3)"));
    check("top_k_maps", |g, x| chain(g, x[0], "TopK(2, 1, largest = false)"));
    check("top_k_sort", |g, x| chain(g, x[0], "TopK(9)"));
    check("top_k_indices", |g, x| {
        let places = chain(g, x[0], "TopK(2, 1, indices = true)");
        join(g, &[x[1], places], "Gather")
    });
    check("top_k_rows", |g, x| {
        let places = chain(g, x[0], "TopK(3, indices = true)");
        join(g, &[x[1], places], "Take")
    });
    check("top_k_table", |g, x| {
        let best = chain(g, x[0], "Parameter([5; 3]) | TopK(2, 1)");
        join(g, &[x[0], best], "Add")
    });
    check("router", |g, x| {
        let places = chain(g, x[0], "TopK(2, indices = true)");
        let weights = chain(g, x[0], "TopK(2) | Softmax(-1)");
        let chosen = join(g, &[x[1], places], "Gather(dim = -1)");
        let weighted = join(g, &[chosen, weights], "Mul");
        chain(g, weighted, "Sum(-1)")
    });
}

#[test]
fn elements_by_indices() {
    // Inputs are in the order of their names, so that indices come first.
    check("gather_first", |g, x| join(g, &[x[1], x[0]], "Gather"));
    check("gather_middle", |g, x| join(g, &[x[1], x[0]], "Gather(dim = 2)"));
    check("gather_last", |g, x| join(g, &[x[1], x[0]], "Gather(dim = -1)"));
    check("gather_part", |g, x| join(g, &[x[1], x[0]], "Gather(dim = 2)"));
    check("gather_vector", |g, x| join(g, &[x[1], x[0]], "Gather"));
    check("gather_table", |g, x| {
        let table = chain(g, x[0], "Parameter([5; 3])");
        join(g, &[table, x[0]], "Gather")
    });
}

#[test]
fn elements_that_are_added_by_indices() {
    check("scatter_first", |g, x| join(g, &[x[1], x[0], x[2]], "ScatterAdd"));
    check("scatter_middle", |g, x| join(g, &[x[1], x[0], x[2]], "ScatterAdd(dim = 2)"));
    check("scatter_part", |g, x| join(g, &[x[1], x[0], x[2]], "ScatterAdd"));
    check("scatter_messages", |g, x| {
        let zeros = chain(g, x[1], "Constant(0, shape = [5; 3])");
        let index = chain(g, x[0], "Unsqueeze(-1) | Expand([8; 3])");
        let messages = chain(g, x[1], "Tanh");
        join(g, &[zeros, index, messages], "ScatterAdd")
    });
    check("scatter_itself", |g, x| join(g, &[x[1], x[0], x[1]], "ScatterAdd(dim = -1)"));
    check("scatter_table", |g, x| {
        let table = chain(g, x[1], "Parameter([5; 3])");
        join(g, &[table, x[0], x[1]], "ScatterAdd")
    });
    check("scatter_places", |g, x| {
        let places = chain(g, x[0], "TopK(2, 1, indices = true)");
        let values = chain(g, x[0], "TopK(2, 1)");
        join(g, &[x[1], places, values], "ScatterAdd")
    });
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

/// Indices of the user's, of which one is as long as the axis, before anything runs.
#[test]
fn indices_beyond_an_axis_are_refused() {
    let case = Case::new("gather_first");
    let (graph, output) = case.network(|g, x| join(g, &[x[1], x[0]], "Gather"));
    let training = given::training(&[Term::DOT], STAY, Descent::PLAIN);
    let mut loaded = case.load(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap());
    let mut parts = case.parts("grad_output", 1);
    loaded.step_of(&parts).unwrap();
    parts[0][0].1[22] = 5;
    let error = loaded.step_of(&parts).unwrap_err();
    assert_eq!(error, Error::Index { what: "index", position: 22, value: 5, limit: 5 });
}

/// A vocabulary's largest eight keep their places and nothing else: 4 bytes each, where x has 4000 and y 32.
#[test]
fn the_largest_elements_keep_their_places() {
    let mut graph = Graph::default();
    let input = graph.input(Type::numbers(Shape::new(&[1000]))).unwrap();
    let output = chain(&mut graph, input, "Linear(1000) | TopK(8) | Linear(2)");
    let training = given::training(&[Term::MSE], STAY, Descent::PLAIN);
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let last = |name: &str| {
        let reads = |op: &Op| op.name() == name;
        let at = program.operations.iter().position(|it| matches!(&it.action, Action::Run { op, .. } if reads(op)));
        let written = program.operations[at.unwrap()].written(Slot::Output).unwrap();
        let tensor = program.tensor(written);
        let backward = program.operations.iter().position(|it| matches!(it.action, Action::Loss(_))).unwrap();
        (tensor.shape.to_string(), tensor.role, tensor.last as usize > backward)
    };
    assert_eq!(last("TopK"), ("[8]".into(), Role::Index, true));
    assert_eq!(last("Product"), ("[1000]".into(), Role::Activation, false));
}

/// The most is alive when the gradient of what `TopK` reads is made: that and its gradient, 1000 numbers a sample each, the places and the
/// gradient of the eight, and the loss.
#[test]
fn bytes_of_the_largest_elements_by_hand() {
    let mut graph = Graph::default();
    let input = graph.input(Type::numbers(Shape::new(&[1000]))).unwrap();
    let output = chain(&mut graph, input, "Tanh | TopK(8)");
    let training = given::training(&[Term::MSE], STAY, Descent::PLAIN);
    let loaded = Loaded::new(&graph, output, training, 64, STAY);
    let (whole, few) = (4 * 64 * 1000, 4 * 64 * 8);
    assert_eq!(loaded.budget[Line::Activations], whole + whole + few + few + 256);
}

/// Of equal elements the first, -0 as 0, and a NaN before all: `torch.topk` of these finds the same values.
#[test]
fn places_of_equal_elements_and_of_nan() {
    let x = [1.0, f32::NAN, 1.0, -0.0, f32::INFINITY, 0.0, f32::NAN, f32::NEG_INFINITY];
    let places = |text: &str, k: usize| {
        let mut graph = Graph::default();
        let input = graph.input(Type::numbers(Shape::new(&[8]))).unwrap();
        let numbers = chain(&mut graph, input, "Constant([0; 1; 2; 3; 4; 5; 6; 7])");
        let index = chain(&mut graph, input, text);
        let output = join(&mut graph, &[numbers, index], "Gather");
        let program = lower(&graph, &[output], &Options { training: None }).unwrap();
        let mut loaded = Loaded::of(&Cpu::with_threads(2).unwrap(), &program, 1, STAY).unwrap();
        loaded.set("input", &x.map(f32::to_bits));
        let found = loaded.infer().unwrap();
        assert_eq!(found.len(), k);
        found
    };
    assert_eq!(places("TopK(8, indices = true)", 8), [1.0, 6.0, 4.0, 0.0, 2.0, 3.0, 5.0, 7.0]);
    assert_eq!(places("TopK(8, largest = false, indices = true)", 8), [7.0, 3.0, 5.0, 0.0, 2.0, 4.0, 1.0, 6.0]);
    assert_eq!(places("ArgMax", 1), [1.0]);
}
