//! Convolutions of one pixel that are one with the normalisations behind them: what a step computes is that of the network as it is written,
//! but for rounding.
//!
//! Memory that holds no living tensor is filled with NaN after every operation, so that what is read after its last reader shows.

mod harness;

use gpumem_core::graph::{Graph, NodeId, Source};
use gpumem_core::lower::{
    Options, Sizes, Term, Training, levels, lower, lower_for, lower_in_order, with_normalized_convolutions,
};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Op, Operation, Pass, Program};
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Update};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::filled::{fill, trained};
use harness::graphs::random::BATCH;
use harness::graphs::{chain, join, layer, numbers, plan_within};

/// Scratch memory would be most of what such small networks need.
const NO_SCRATCH: Workspaces = Workspaces { product: 0, convolution: 0 };

fn options(update: Update) -> Options<'static> {
    let (loss, descent) = (&[Term::MSE], Descent::PLAIN);
    Options {
        training: Some(Training { loss, moments: 1, update, skips_overflow: false, input_gradient: false, descent }),
    }
}

/// The layers that are one in a program, for the first time or again.
fn joined(program: &Program, wanted: Pass) -> usize {
    let is_it =
        |action: &Action| matches!(action, Action::Run { op: Op::NormalizedConvolution(_), pass } if *pass == wanted);
    program.operations.iter().filter(|operation| is_it(&operation.action)).count()
}

/// The largest difference of what a step leaves, beside the largest number of each tensor.
fn difference(one: &Program, other: &Program) -> f64 {
    let [one, other] = [trained(one, 1), trained(other, 2)];
    let values = |words: &[u32]| words.iter().map(|&word| f64::from(f32::from_bits(word))).collect::<Vec<f64>>();
    let pairs = [(&one.0, &other.0)].into_iter().chain(one.1.iter().zip(&other.1));
    let differences = pairs.map(|(one, other)| {
        let (one, other) = (values(one), values(other));
        assert_eq!(one.len(), other.len());
        let largest = one.iter().fold(1e-6, |most: f64, value| most.max(value.abs()));
        let apart = one.iter().zip(&other).fold(0.0, |most: f64, (one, other)| most.max((one - other).abs()));
        apart / largest
    });
    differences.fold(0.0, f64::max)
}

fn both(build: impl Fn(&mut Graph) -> NodeId, update: Update) -> [Program; 2] {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let other = with_normalized_convolutions(&graph, &[output]);
    [graph, other].map(|graph| lower(&graph, &[output], &options(update)).unwrap())
}

/// Bottlenecks as those of a ResNet-50, with and without a convolution beside.
fn bottlenecks(graph: &mut Graph) -> NodeId {
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let mut x = chain(graph, input, "Conv2d(8, 3, padding = 1, bias = false) | BatchNorm2d | Relu");
    for is_wider in [true, false, false] {
        let inner = "Conv2d(6, 1, bias = false) | BatchNorm2d | Relu | Conv2d(6, 3, padding = 1, bias = false) | \
                     BatchNorm2d | Relu | Conv2d(16, 1, bias = false) | BatchNorm2d";
        let made = chain(graph, x, inner);
        let beside = if is_wider { chain(graph, x, "Conv2d(16, 1, bias = false) | BatchNorm2d") } else { x };
        let sum = join(graph, &[made, beside], "Add");
        x = layer(graph, sum, "Relu");
    }
    chain(graph, x, "GlobalAvgPool | Linear(3)")
}

#[test]
fn bottlenecks_are_what_they_were_and_need_less() {
    for update in [Update::Fused, Update::Separate] {
        let [plain, other] = both(bottlenecks, update);
        assert_eq!([joined(&plain, Pass::Forward), joined(&other, Pass::Forward)], [0, 4], "{other}");
        let apart = difference(&plain, &other);
        assert!(apart < 2e-5, "{apart}");
        let [most, less] =
            [&plain, &other].map(|program| plan_within(program, BATCH, Precision::F32, NO_SCRATCH).budget[Line::Arena]);
        assert!(less * 10 < most * 9, "{less} {most}");
    }
}

/// The loss without training, by running statistics.
#[test]
fn an_evaluation_is_what_it_was() {
    let sgd = Optimizer::Sgd(Sgd { lr: 1e-4, ..Sgd::DEFAULT });
    let evaluated = both(bottlenecks, Update::Fused).map(|program| {
        let mut loaded = Loaded::of(&Cpu::with_threads(1).unwrap().with_poison(true), &program, BATCH, sgd).unwrap();
        fill(&mut loaded);
        (0..3).for_each(|_| assert!(loaded.step().unwrap().is_finite()));
        loaded.evaluate().unwrap()
    });
    let [plain, other] = evaluated;
    assert!((plain - other).abs() < 1e-5 * plain.abs(), "{plain} {other}");
}

/// What they read is made again in front of their gradients, to the bit.
#[test]
fn their_inputs_are_made_again() {
    let mut graph = Graph::default();
    let output = bottlenecks(&mut graph);
    let graph = with_normalized_convolutions(&graph, &[output]);
    let options = options(Update::Fused);
    let setting = Sizes::new(BATCH, Precision::F32, NO_SCRATCH);
    let plain = lower(&graph, &[output], &options).unwrap();
    let found = lower_for(&graph, &[output], &options, &setting).unwrap();
    let is_again = |it: &&Operation| matches!(it.action, Action::Run { op: Op::BatchNorm(_), pass: Pass::Again });
    // In front of three convolutions of three by three, of three that are one with what follows, and of two that read the same.
    assert_eq!(found.operations.iter().filter(is_again).count(), 7, "{found}");
    assert_eq!(trained(&plain, 1), trained(&found, 2), "{found}");
}

/// What is computed again by hand, bottleneck by bottleneck, changes no bit: they are one there, too.
#[test]
fn groups_have_the_same_bits() {
    let mut graph = Graph::default();
    let output = bottlenecks(&mut graph);
    let source = |node: NodeId| &graph.nodes[node].source;
    let is_sum = |node: &NodeId| matches!(source(*node), Source::Op { op: Op::Sum(_), .. });
    let sums: Vec<NodeId> = (0..graph.nodes.len()).filter(is_sum).collect();
    let first_input = |node: NodeId| graph.nodes[node].inputs()[0];
    // From behind the rectifier of one bottleneck to that of the next, as a whole or parted between its last convolution and the normalisation.
    let whole: Vec<[NodeId; 2]> = sums.windows(2).map(|pair| [pair[0] + 2, pair[1] + 1]).collect();
    let parted = sums.windows(2).flat_map(|pair| {
        let convolution = first_input(first_input(pair[1]));
        assert!(matches!(source(convolution), Source::Op { op: Op::Convolution(_), .. }));
        [[pair[0] + 2, convolution + 1], [convolution + 1, pair[1] + 1]]
    });
    for groups in [whole, parted.collect()] {
        let mut grouped = graph.clone();
        grouped.groups = groups;
        let [plain, again] = [&graph, &grouped].map(|graph| {
            let graph = with_normalized_convolutions(graph, &[output]);
            lower(&graph, &[output], &options(Update::Fused)).unwrap()
        });
        assert_eq!([joined(&plain, Pass::Forward), joined(&again, Pass::Forward)], [4, 4], "{again}");
        let is_again = |it: &&Operation| matches!(it.action, Action::Run { pass: Pass::Again, .. });
        assert!(again.operations.iter().filter(is_again).count() >= 8, "{again}");
        assert_eq!(trained(&plain, 1), trained(&again, 2), "{again}");
    }
}

/// A network of a chain of layers, and another chain to which it is added.
fn added<'t>(first: &'t str, text: &'t str) -> impl Fn(&mut Graph) -> NodeId + 't {
    move |graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        let x = chain(graph, input, first);
        let made = chain(graph, x, text);
        let channels = graph.value(made).shape.dims()[0];
        let stride = if graph.value(made).shape.dims()[1] < 6 { 2 } else { 1 };
        let beside = layer(graph, input, &format!("Conv2d({channels}, 1, stride = {stride})"));
        let sum = join(graph, &[made, beside], "Add");
        chain(graph, sum, "Relu | GlobalAvgPool | Linear(3)")
    }
}

/// Where what comes in may be far from 0, and where they are no map of a pixel or keep as little as they are.
#[test]
fn others_stay_as_they_are() {
    const NORMALISED: &str = "Conv2d(4, 1) | BatchNorm2d | Relu";
    const LAYERS: &str = "Conv2d(16, 1, bias = false) | BatchNorm2d";
    let [plain, other] = both(added(NORMALISED, LAYERS), Update::Fused);
    assert_eq!([joined(&plain, Pass::Forward), joined(&other, Pass::Forward)], [0, 1], "{other}");
    for (first, text) in [
        ("Relu", LAYERS),
        ("Conv2d(4, 1) | BatchNorm2d | Exp", LAYERS),
        (NORMALISED, "Conv2d(16, 1, bias = false) | BatchNorm2d | Relu"),
        (NORMALISED, "Conv2d(16, 1) | BatchNorm2d"),
        (NORMALISED, "Conv2d(7, 1, bias = false) | BatchNorm2d"),
        (NORMALISED, "Conv2d(16, 1, stride = 2, bias = false) | BatchNorm2d"),
    ] {
        let [plain, other] = both(added(first, text), Update::Fused);
        assert_eq!(plain, other, "{first} | {text}");
    }
}

/// Levels of recomputation run them again, from what was saved, to the bit.
#[test]
fn they_run_again() {
    let mut graph = Graph::default();
    let output = bottlenecks(&mut graph);
    let graph = with_normalized_convolutions(&graph, &[output]);
    let options = options(Update::Fused);
    let plain = lower(&graph, &[output], &options).unwrap();
    let setting = Sizes::new(BATCH, Precision::F32, NO_SCRATCH);
    let all = levels(&graph, &[output], &options, &setting).unwrap();
    let mut most = 0;
    for level in &all {
        let program = lower_in_order(&graph, &[output], &options, &level.order).unwrap();
        most = most.max(joined(&program, Pass::Again));
        assert_eq!(trained(&plain, 1), trained(&program, 2), "{program}");
    }
    assert!(most > 0, "{} levels", all.len());
}
