//! Losses in chunks: loss, gradients and parameters are those of a step in which all logits are there at once.
//!
//! Memory that holds no living tensor is filled with NaN after every operation, so that a chunk's logits must be computed, measured and used
//! up before the next one's take their place.

mod harness;

use gpumem_core::graph::{Graph, Lora, NodeId};
use gpumem_core::lower::{Options, Sizes, Term, Training, levels, lower, lower_for, lower_in_order};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::number::Coding;
use gpumem_core::program::loss::{Chunks, LossOptions, Reduction};
use gpumem_core::program::{Action, Class, Criterion, Program, StateWord};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent, Offload};
use gpumem_core::{Precision, Role, Update};
use gpumem_cpu::Cpu;
use harness::filled::{spread, words};
use harness::graphs::{again, chain, join, numbers, tokens};
use harness::{Loaded, assert_class_close};
use proptest::prelude::*;
use std::borrow::Cow;

/// What rounding in another order comes to, beside the largest element of a tensor.
const TOLERANCE: f64 = 1e-6;

/// The same of gradients: what passes a normalisation or a softmax is a difference of larger numbers. In 22 of 200 runs one of 192 networks differs
/// by more than 1e-6, in seven by more than 3e-6, in none by 1e-5. A chunk that is missing, or is there twice, is a tenth or more.
const OF_GRADIENTS: f64 = 2e-5;

/// What makes logits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Head {
    Linear,
    Bare,
    Turned,
    Tied,
    TiedWithBias,
    /// Adapters behind a weight that is not trained, of numbers or of codes.
    Adapted(Option<Coding>),
    /// A function of each logit.
    Capped,
}

const HEADS: [Head; 10] = [
    Head::Linear,
    Head::Bare,
    Head::Turned,
    Head::Tied,
    Head::TiedWithBias,
    Head::Adapted(None),
    Head::Adapted(Some(Coding::Int8)),
    Head::Adapted(Some(Coding::Nf4)),
    Head::Adapted(Some(Coding::Nf4Double)),
    Head::Capped,
];

/// A language model of so many steps and classes, its logits, and a value in front of its head.
fn network(head: Head, [steps, classes, width]: [u64; 3], body: &str) -> (Graph, NodeId, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(tokens(steps)).unwrap();
    let embedded = chain(&mut graph, input, &format!("Embedding({classes}, {width})"));
    let middle = chain(&mut graph, embedded, body);
    let first = graph.rows.len();
    let linear = |graph: &mut Graph, options: &str| chain(graph, middle, &format!("Linear({classes}{options})"));
    let output = match head {
        Head::Linear | Head::Adapted(_) => linear(&mut graph, ""),
        Head::Bare => linear(&mut graph, ", bias = false"),
        Head::Turned => linear(&mut graph, ", transposed = true"),
        Head::Tied => again(&mut graph, middle, "Tied", 0),
        Head::TiedWithBias => again(&mut graph, middle, "Tied(bias = true)", 0),
        Head::Capped => {
            let logits = linear(&mut graph, "");
            chain(&mut graph, logits, "Tanh")
        }
    };
    let Head::Adapted(base) = head else { return (graph, output, middle) };
    let rows = first..graph.rows.len();
    let places = graph.adapt(&[Lora { rank: 2, alpha: 3.0, targets: Vec::new(), base, rows }]);
    (graph, places[output], places[middle])
}

/// How a step is trained, but for its chunks.
#[derive(Clone, Debug)]
struct Way {
    options: LossOptions,
    update: Update,
    descent: Descent,
    skips_overflow: bool,
    batch: u64,
    /// Whether another loss measures what is in front of the head, and whether it comes first.
    other: Other,
}

/// A loss of what is in front of the head.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    None,
    Behind,
    InFront,
}

impl Way {
    const PLAIN: Way = Way {
        options: LossOptions::DEFAULT,
        update: Update::Fused,
        descent: Descent::PLAIN,
        skips_overflow: false,
        batch: 6,
        other: Other::None,
    };

    fn terms(&self, middle: NodeId, chunks: u64) -> Vec<Term> {
        let options = LossOptions { chunks: Chunks::Count(chunks), ..self.options.clone() };
        let term = Term { options, weight: 0.7, ..Term::CROSS_ENTROPY };
        let of_middle = || Term { from: Some(middle), weight: 0.3, ..Term::of(gpumem_core::program::Measure::Mean) };
        match self.other {
            Other::None => vec![term],
            Other::Behind => vec![term, of_middle()],
            Other::InFront => vec![of_middle(), term],
        }
    }

    fn training<'t>(&self, loss: &'t [Term]) -> Options<'t> {
        let Way { update, descent, skips_overflow, .. } = *self;
        Options {
            training: Some(Training { loss, moments: 1, update, skips_overflow, input_gradient: false, descent }),
        }
    }
}

/// A step loaded with numbers and targets that count, beside others that do not where some are ignored.
fn load(program: &Program, way: &Way, classes: u64) -> Loaded {
    let cpu = Cpu::with_threads(2).unwrap().with_poison(true);
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.1, momentum: 0.9, ..Sgd::DEFAULT });
    let mut loaded = Loaded::of(&cpu, program, way.batch, optimizer).unwrap();
    for (id, tensor) in program.tensors.iter().enumerate() {
        let salt = tensor.name.bytes().fold(1, |salt, byte| (salt * 31 + usize::from(byte)) % 65_521);
        let count = tensor.shape.elements().unwrap() as usize;
        match (tensor.class, tensor.role) {
            (Class::Parameter, role) if role.coding().is_some() => loaded.set_coded(id, &spread(count, salt)),
            (Class::Parameter, Role::Scale) => {}
            (Class::Parameter, Role::Norm) => {
                loaded.set(&tensor.name, &words(&spread(count, salt).iter().map(|x| x + 1.0).collect::<Vec<f32>>()));
            }
            (Class::Parameter, _) => loaded.set(&tensor.name, &words(&spread(count, salt))),
            _ => {}
        }
    }
    let mut state: Vec<u32> = loaded.get("state").unwrap().into_iter().map(f32::to_bits).collect();
    state[StateWord::Seed as usize] = 7;
    loaded.set("state", &state);
    assert!(classes > 1);
    loaded
}

/// Inputs and targets of each part of a batch; the divisor is that of all of them.
fn parts(program: &Program, way: &Way, classes: u64) -> Vec<Vec<(String, Vec<u32>)>> {
    let count = way.descent.micro_batches;
    let samples = way.batch / count;
    let label = |at: usize| match way.options.ignored {
        Some(ignored) if at % 3 == 1 => ignored,
        _ => (at * 7 + at / 5) as u32 % classes as u32,
    };
    let given = || program.tensors.iter().filter(|it| matches!(it.class, Class::Input | Class::Target));
    let mut all: Vec<Vec<(String, Vec<u32>)>> = (0..count as usize)
        .map(|part| {
            let of = |tensor: &gpumem_core::program::Tensor| {
                let length = tensor.elements(samples).unwrap() as usize;
                let first = part * length;
                let values: Vec<u32> = match (tensor.class, tensor.role) {
                    (Class::Input, _) => {
                        (first..first + length).map(|at| (at * 5 + at / 3) as u32 % classes as u32).collect()
                    }
                    (_, Role::Index) => (first..first + length).map(label).collect(),
                    _ => words(&spread(first + length, 3)[first..].iter().map(|x| x + 0.5).collect::<Vec<f32>>()),
                };
                (tensor.name.clone(), values)
            };
            given().map(of).collect()
        })
        .collect();
    // As the host counts it.
    let criterion = program.operations.iter().find_map(|it| match &it.action {
        Action::Loss(criterion) if criterion.counts() => Some(criterion.clone()),
        _ => None,
    });
    if let Some(criterion) = criterion {
        let labels = all.iter().flatten().filter(|(name, _)| name == "target").flat_map(|(_, labels)| labels);
        let divisor = labels.map(|&label| Criterion::weight_of(&criterion, label)).sum::<f64>() as f32;
        let divisors = all.iter_mut().flatten().filter(|(name, _)| name.starts_with("divisor"));
        divisors.for_each(|(_, values)| values.fill(divisor.to_bits()));
    }
    all
}

/// Three steps and an evaluation of both programs, compared after each.
fn compare(whole: &Program, chunked: &Program, way: &Way, classes: u64) {
    let [mut one, mut other] = [whole, chunked].map(|program| load(program, way, classes));
    let given = parts(whole, way, classes);
    assert_eq!(given, parts(chunked, way, classes));
    let is_near = |found: f32, expected: f32| {
        (f64::from(found) - f64::from(expected)).abs() <= TOLERANCE * f64::from(expected.abs()).max(1.0)
    };
    for _ in 0..3 {
        let (expected, found) = (one.step_of(&given).unwrap(), other.step_of(&given).unwrap());
        assert!(expected.is_finite() && is_near(found, expected), "{found} {expected}");
        for class in [Class::Gradient, Class::Moment, Class::Parameter] {
            // What is clipped by itself is no larger than the clip, whatever its rounding was before.
            if class != Class::Moment || !matches!(way.descent.clip, Some(Clip::Value(_))) {
                let tolerance = if class == Class::Parameter { TOLERANCE } else { OF_GRADIENTS };
                assert_class_close(class, &mut other, &mut one, tolerance);
            }
        }
        // Each step is compared by itself.
        for (name, words) in one.carried() {
            other.set(&name, &words);
        }
        if way.descent.micro_batches == 1 {
            let (expected, found) = (one.evaluate().unwrap(), other.evaluate().unwrap());
            assert!(expected.is_finite() && is_near(found, expected), "{found} {expected}");
        }
    }
}

/// The step with all logits at once, and in chunks.
fn both(network: &(Graph, NodeId, NodeId), way: &Way, chunks: u64) -> [Program; 2] {
    let (graph, output, middle) = network;
    [1, chunks].map(|chunks| lower(graph, &[*output], &way.training(&way.terms(*middle, chunks))).unwrap())
}

/// The step in chunks whose logits are computed twice.
fn twice(network: &(Graph, NodeId, NodeId), way: &Way, chunks: u64) -> Program {
    let (graph, output, middle) = network;
    lower(graph, &[*output], &way.training(&twice_of(way.terms(*middle, chunks)))).unwrap()
}

fn twice_of(mut terms: Vec<Term>) -> Vec<Term> {
    let chunked = terms.iter_mut().map(|term| &mut term.options.chunks).filter(|chunks| **chunks != Chunks::WHOLE);
    chunked.for_each(|chunks| *chunks = Chunks::Twice(chunks.at_first()));
    terms
}

/// Counts the losses of a program that are computed for their gradients alone.
fn measured_again(program: &Program) -> usize {
    program.operations.iter().filter(|it| matches!(&it.action, Action::Loss(criterion) if criterion.again)).count()
}

/// How many elements the largest logits of a program have.
fn logits(program: &Program) -> u64 {
    let losses = program.operations.iter().filter(|it| matches!(&it.action, Action::Loss(it) if it.is_of_rows()));
    let read = losses.filter_map(|it| it.read(gpumem_core::program::Slot::Input(0)));
    read.map(|id| program.tensor(id).shape.elements().unwrap()).max().unwrap()
}

fn options(which: usize, classes: u64) -> LossOptions {
    let weights = (0..classes).map(|class| 0.5 + (class % 3) as f64).collect::<Vec<f64>>();
    let of = LossOptions::DEFAULT;
    match which {
        0 => of,
        1 => LossOptions { number: Some(0.1), ..of },
        2 => LossOptions { ignored: Some(-100i32 as u32), ..of },
        3 => LossOptions { weights: Cow::Owned(weights), ..of },
        4 => LossOptions { weights: Cow::Owned(weights), number: Some(0.2), ignored: Some(1), ..of },
        5 => LossOptions { reduction: Reduction::Sum, ignored: Some(0), ..of },
        _ => LossOptions { probabilities: true, number: Some(0.1), ..of },
    }
}

const BODIES: [&str; 3] = ["LayerNorm", "Linear(4) | Gelu | Dropout(0.3)", "CausalSelfAttention(2) | LayerNorm"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn chunks_change_nothing_but_rounding(
        (head, body, which) in (0..HEADS.len(), 0..BODIES.len(), 0..7usize),
        (steps, classes, chunks) in (2..10u64, 2..12u64, 2..10u64),
        (is_separate, clip, parts, skips_overflow, other) in (any::<bool>(), 0..3usize, 0..3usize, any::<bool>(), 0..3usize),
        (offload, is_twice) in (0..4usize, any::<bool>()),
    ) {
        let network = network(HEADS[head], [steps, classes, 4], BODIES[body]);
        let clip = [None, Some(Clip::GlobalNorm(0.01)), Some(Clip::Value(0.001))][clip];
        let offload = [Offload::None, Offload::OptimizerState, Offload::Activations, Offload::All][offload];
        let descent = Descent { clip, micro_batches: [1, 2, 3][parts], offload, ..Descent::PLAIN };
        let other = [Other::None, Other::Behind, Other::InFront][other];
        let update = if is_separate { Update::Separate } else { Update::Fused };
        let way = Way { options: options(which, classes), update, descent, skips_overflow, other, ..Way::PLAIN };
        let chunks = chunks.min(steps);
        let [whole, mut chunked] = both(&network, &way, chunks);
        if is_twice {
            chunked = twice(&network, &way, chunks);
        }
        prop_assert_eq!(logits(&whole), steps * classes);
        prop_assert_eq!(logits(&chunked), steps.div_ceil(chunks) * classes);
        compare(&whole, &chunked, &way, classes);
    }
}

/// Logits that are computed twice change no bit of a loss, a parameter or a state.
#[test]
fn logits_twice_change_no_bit() {
    for (which, head) in (0..7).flat_map(|which| [(which, Head::Tied), (which, Head::TiedWithBias)]) {
        for (body, chunks, skips_overflow) in [(0, 2, false), (1, 5, true), (2, 9, false)] {
            let network = network(head, [9, 11, 4], BODIES[body]);
            let other = [Other::None, Other::Behind, Other::InFront][body];
            let way = Way { options: options(which, 11), skips_overflow, other, ..Way::PLAIN };
            let [_, once] = both(&network, &way, chunks);
            let twice = twice(&network, &way, chunks);
            assert_eq!([&once, &twice].map(measured_again), [0, chunks as usize]);
            let [mut one, mut other] = [&once, &twice].map(|program| load(program, &way, 11));
            let given = parts(&once, &way, 11);
            for _ in 0..3 {
                let [expected, found] = [&mut one, &mut other].map(|loaded| loaded.step_of(&given).unwrap().to_bits());
                assert_eq!(expected, found, "{head:?} {which} {body}");
                assert!(one.carried() == other.carried(), "{head:?} {which} {body}");
            }
        }
    }
}

/// Orders of the backward pass that need less, and forward operations that run again.
#[test]
fn orders_and_recomputation() {
    let workspaces = Workspaces { product: 1 << 20, convolution: 1 << 20 };
    let body = "Linear(8) | Gelu | LayerNorm | Linear(64) | Gelu | Linear(4) | Tanh | LayerNorm";
    let mut leaner = 0;
    for head in [Head::Linear, Head::Tied, Head::Adapted(Some(Coding::Nf4))] {
        for batch in [1, 6] {
            let (way, setting) = (Way { batch, ..Way::PLAIN }, Sizes::new(batch, Precision::F32, workspaces));
            let (graph, output, middle) = network(head, [8, 40, 4], body);
            let terms = [1, 3].map(|chunks| way.terms(middle, chunks));
            let [whole, chunked] =
                terms.each_ref().map(|terms| lower(&graph, &[output], &way.training(terms)).unwrap());
            compare(&whole, &lower_for(&graph, &[output], &way.training(&terms[1]), &setting).unwrap(), &way, 40);
            for level in levels(&graph, &[output], &way.training(&terms[1]), &setting).unwrap() {
                leaner += usize::from(level.operations_again > 0);
                let again = lower_in_order(&graph, &[output], &way.training(&terms[1]), &level.order).unwrap();
                compare(&chunked, &again, &way, 40);
            }
            let twice = twice_of(terms[1].clone());
            compare(&whole, &lower_for(&graph, &[output], &way.training(&twice), &setting).unwrap(), &way, 40);
            for level in levels(&graph, &[output], &way.training(&twice), &setting).unwrap() {
                let again = lower_in_order(&graph, &[output], &way.training(&twice), &level.order).unwrap();
                assert_eq!(measured_again(&again), if head == Head::Tied { 3 } else { 0 });
                compare(&chunked, &again, &way, 40);
            }
        }
    }
    assert!(leaner > 0);
}

/// What is computed again because it is written so.
#[test]
fn groups_in_front_of_chunks() {
    let (mut graph, output, middle) = network(Head::Linear, [6, 9, 4], "Linear(8) | Gelu | LayerNorm");
    let way = Way::PLAIN;
    let [whole, _] = both(&(graph.clone(), output, middle), &way, 1);
    for group in [[2, graph.nodes.len()], [4, middle + 1], [middle, graph.nodes.len()]] {
        graph.groups = vec![group];
        let chunked = lower(&graph, &[output], &way.training(&way.terms(middle, 4))).unwrap();
        compare(&whole, &chunked, &way, 9);
    }
}

/// Steps of more axes than one, and activations that are the network's own input.
#[test]
fn other_shapes() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 2, 2, 4])).unwrap();
    let wide = chain(&mut graph, input, "Linear(4, 6)");
    let output = chain(&mut graph, wide, "Tanh | Linear(6, 5)");
    for (graph, output, middle, chunks) in [(graph, output, wide, 5), {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[7, 4])).unwrap();
        let output = join(&mut graph, &[input], "Linear(5)");
        (graph, output, input, 3)
    }] {
        let [whole, chunked] = [1, chunks]
            .map(|chunks| lower(&graph, &[output], &Way::PLAIN.training(&Way::PLAIN.terms(middle, chunks))).unwrap());
        let [mut one, mut other] = [&whole, &chunked].map(|program| load(program, &Way::PLAIN, 5));
        let count = one.train.program.tensors.iter().find(|it| it.name == "input").unwrap().elements(6).unwrap();
        let target = one.train.program.tensors.iter().find(|it| it.name == "target").unwrap().elements(6).unwrap();
        for loaded in [&mut one, &mut other] {
            loaded.set("input", &words(&spread(count as usize, 5)));
            loaded.set("target", &(0..target as u32).map(|at| at * 3 % 5).collect::<Vec<u32>>());
        }
        for _ in 0..3 {
            let (expected, found) = (one.step().unwrap(), other.step().unwrap());
            assert!((expected - found).abs() < 1e-5, "{found} {expected}");
        }
    }
}

/// A loss in front of the chunks measures what they are computed of: that is still there when their turn comes.
#[test]
fn another_loss_comes_first() {
    for head in [Head::Linear, Head::Tied, Head::Adapted(None)] {
        for body in ["LayerNorm", "Linear(4)", "Linear(4) | Tanh"] {
            let network = network(head, [6, 9, 4], body);
            let way = Way { other: Other::InFront, ..Way::PLAIN };
            let [whole, chunked] = both(&network, &way, 3);
            compare(&whole, &chunked, &way, 9);
        }
    }
}

/// A label that is no class is found, in whatever chunk it is.
#[test]
fn labels_of_all_chunks_are_looked_at() {
    let network = network(Head::Linear, [6, 5, 4], "LayerNorm");
    let [_, chunked] = both(&network, &Way::PLAIN, 3);
    let mut loaded = load(&chunked, &Way::PLAIN, 5);
    for (name, words) in parts(&chunked, &Way::PLAIN, 5).remove(0) {
        loaded.set(&name, &words);
    }
    assert!(loaded.step().is_ok());
    for at in [0, 3, 35] {
        let mut labels = vec![1; 36];
        labels[at] = 5;
        loaded.set("target", &labels);
        assert!(loaded.step().is_err(), "{at}");
        assert!(loaded.evaluate().is_err(), "{at}");
    }
}
