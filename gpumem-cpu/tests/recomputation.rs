//! Recomputation changes no bit: random networks whose forward operations run more than once, where they may.
//!
//! Memory that holds no living tensor is filled with NaN after every operation, so that what is read after its last reader shows.

mod harness;

use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Sizes, Term, Training, levels, lower, lower_in_order};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Pass, Program};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Update};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::filled::{fill, trained};
use harness::graphs::random::{BATCH, Choice, KINDS, network};
use harness::graphs::{chain, join, numbers};
use proptest::prelude::*;

fn choices(most: usize) -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec((0..KINDS, 0usize..20, 0usize..20), 1..most)
}

/// A training step, with the gradients of the inputs if that is asked for.
fn options(update: Update, input_gradient: bool) -> Options<'static> {
    let loss = &[Term::CROSS_ENTROPY];
    Options {
        training: Some(Training {
            loss,
            moments: 1,
            update,
            skips_overflow: false,
            input_gradient,
            descent: gpumem_core::train::Descent::PLAIN,
        }),
    }
}

fn plain(graph: &Graph, output: NodeId) -> Program {
    lower(graph, &[output], &options(Update::Fused, false)).unwrap()
}

/// Operations that run again.
fn again(program: &Program) -> usize {
    let is_again = |action: &Action| matches!(action, Action::Run { pass: Pass::Again, .. });
    program.operations.iter().filter(|operation| is_again(&operation.action)).count()
}

/// The order of a step with forward operations put into it: each with the place before which it runs.
fn with(order: &[u32], forward: usize, put: (usize, usize)) -> Vec<u32> {
    let (operation, place) = ((put.0 % forward) as u32, put.1 % order.len());
    let mut order = order.to_vec();
    order.insert(place, operation);
    order
}

/// Without this, what is compared below might be the plain step with itself.
#[test]
fn something_runs_again() {
    let (mut graph, output) = network(&[(0, 0, 0), (3, 1, 0), (12, 0, 0)], true);
    let workspaces = Workspaces { product: 1 << 20, convolution: 1 << 20 };
    let setting = Sizes::new(BATCH, Precision::F32, workspaces);
    let found = levels(&graph, &[output], &options(Update::Fused, false), &setting).unwrap();
    assert!(found.len() > 1 && found[1..].iter().all(|level| level.operations_again > 0), "{found:?}");
    assert_eq!(again(&plain(&graph, output)), 0);
    graph.groups = vec![[2, graph.nodes.len() - 2]];
    assert!(again(&plain(&graph, output)) > 0);
}

/// The gradient of the input lies where a map was. That map is computed again, and its place is another one.
#[test]
fn the_gradient_of_the_input_is_found_where_it_lies() {
    let found = |again: bool| {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[3, 4])).unwrap();
        let table = chain(&mut graph, input, "PositionEmbedding(3)");
        let map = chain(&mut graph, input, "Affine(0.5) | Tanh");
        let output = join(&mut graph, &[map, table], "Add");
        graph.groups = if again { vec![[input + 1, graph.nodes.len()]] } else { Vec::new() };
        let training = Training { loss: &[Term::MSE], ..options(Update::Separate, true).training.unwrap() };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let cpu = Cpu::with_threads(1).unwrap().with_poison(true);
        let sgd = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT });
        let mut loaded = Loaded::of(&cpu, &program, BATCH, sgd).unwrap();
        fill(&mut loaded);
        loaded.step().unwrap();
        loaded.get("input.gradient").unwrap()
    };
    assert_eq!(found(true), found(false));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn groups_change_no_bit(choices in choices(24), groups in prop::collection::vec((0usize..200, 1usize..40), 1..4)) {
        let (mut graph, output) = network(&choices, true);
        let expected = trained(&plain(&graph, output), 1);
        let nodes = graph.nodes.len();
        graph.groups = groups.iter().map(|(first, count)| [first % nodes, (first % nodes + count).min(nodes)]).collect();
        prop_assert_eq!(&expected, &trained(&plain(&graph, output), 2));
    }

    /// Whatever runs again, wherever that may be.
    #[test]
    fn orders_change_no_bit(choices in choices(24), puts in prop::collection::vec((0usize..500, 0usize..1000), 1..24)) {
        let (graph, output) = network(&choices, true);
        let base = plain(&graph, output);
        let forward = base.operations.iter().take_while(|operation| operation.forward().is_some()).count();
        let mut order: Vec<u32> = (0..base.operations.len() as u32).collect();
        let lowered = |order: &[u32]| lower_in_order(&graph, &[output], &options(Update::Fused, false), order);
        for put in puts {
            let next = with(&order, forward, put);
            // Where an input is not there yet, or a gradient has its place, an operation cannot run.
            if lowered(&next).is_ok() {
                order = next;
            }
        }
        let program = lowered(&order).unwrap();
        prop_assert_eq!(again(&program), order.len() - base.operations.len());
        prop_assert_eq!(trained(&base, 1), trained(&program, 2));
    }

    /// What is found for a demand on memory.
    #[test]
    fn levels_change_no_bit(choices in choices(24), only_cheap: bool) {
        let (graph, output) = network(&choices, true);
        let options = options(Update::Fused, false);
        let workspaces = Workspaces { product: 1 << 20, convolution: 1 << 20 };
        let setting = Sizes { only_cheap, ..Sizes::new(BATCH, Precision::F32, workspaces) };
        let found = levels(&graph, &[output], &options, &setting).unwrap();
        let expected = trained(&plain(&graph, output), 1);
        prop_assert!(found.windows(2).all(|pair| pair[1].peak < pair[0].peak));
        for level in &found {
            let program = lower_in_order(&graph, &[output], &options, &level.order).unwrap();
            prop_assert_eq!(again(&program), level.operations_again as usize);
            prop_assert_eq!(&expected, &trained(&program, 2));
        }
    }

    /// The order that a step has anyway gives the step that there is anyway.
    #[test]
    fn the_plain_order_is_the_plain_step(choices in choices(24), separate: bool, input_gradient: bool) {
        let (graph, output) = network(&choices, true);
        let options = options(if separate { Update::Separate } else { Update::Fused }, input_gradient);
        let base = lower(&graph, &[output], &options).unwrap();
        let order: Vec<u32> = (0..base.operations.len() as u32).collect();
        let same = lower_in_order(&graph, &[output], &options, &order).unwrap();
        prop_assert!(same == base, "{same}\n{base}");
    }

    /// What is no order of a step is refused, and nothing else happens.
    #[test]
    fn other_orders_are_refused(choices in choices(12), at in 0usize..1000, kind in 0..4) {
        let (graph, output) = network(&choices, true);
        let base = plain(&graph, output);
        let mut order: Vec<u32> = (0..base.operations.len() as u32).collect();
        let forward = base.operations.iter().take_while(|operation| operation.forward().is_some()).count();
        let (place, following) = (at % order.len(), forward + at % (order.len() - forward));
        match kind {
            0 => { order.remove(place); }
            // An update, or a gradient, a second time.
            1 => order.push(order[following]),
            2 => order.push(order.len() as u32),
            _ => order.swap(place, (place + 1) % base.operations.len()),
        }
        prop_assert!(lower_in_order(&graph, &[output], &options(Update::Fused, false), &order).is_err());
    }
}
