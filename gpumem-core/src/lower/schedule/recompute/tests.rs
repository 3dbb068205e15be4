//! Orders and the steps that they make, and levels compared with every other decision.

use super::apply::apply;
use super::emit::{Emission, StepEffects, Treatment};
use super::levels::spread;
use super::measure::{StepBytes, macs};
use super::{RecomputeLevel, by_hand, searched};
use crate::graph::{Graph, NodeId, Type};
use crate::layers::arguments::Argument;
use crate::layers::{Entry, Written};
use crate::lower::draft::Draft;
use crate::lower::rewrite::rewrite;
use crate::lower::schedule::backward_order::in_default_order;
use crate::lower::sizes::Sizes;
use crate::lower::{Options, Term, Training, lower, lower_in_order, search};
use crate::memory::tables::Workspaces;
use crate::number::random::Stream;
use crate::number::{Half, Precision};
use crate::program::{Class, TensorId};
use crate::shape::Shape;
use crate::train::{Descent, Update};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const TRAINING: Training<'static> = Training {
    loss: &[Term::MSE],
    moments: 1,
    update: Update::Fused,
    skips_overflow: false,
    input_gradient: false,
    descent: Descent::PLAIN,
};

const OPTIONS: Options<'static> = Options { training: Some(TRAINING) };

fn setting(batch: u64) -> Sizes {
    Sizes::new(batch, Precision::F32, Workspaces { product: 1 << 20, convolution: 1 << 20 })
}

/// A graph under construction.
struct Net {
    graph: Graph,
    value: NodeId,
}

impl Net {
    fn new(input: &[u64]) -> Net {
        let mut graph = Graph::default();
        let value = graph.input(Type::numbers(Shape::new(input))).unwrap();
        Net { graph, value }
    }

    fn add(&mut self, name: &str, numbers: &[u64], others: &[NodeId]) -> NodeId {
        let third = if name == "Conv2d" { "padding" } else { "stride" };
        let written = numbers.iter().enumerate().map(|(at, &number)| match at {
            0 | 1 => Written::positional(Argument::Integer(number)),
            _ => Written::named(third, Argument::Integer(number)),
        });
        let written: Vec<Written> = written.collect();
        let inputs = [&[self.value], others].concat();
        let built = self.graph.layer(&Entry::find(name).unwrap(), &written, &inputs, String::new(), None);
        assert!(built.mistakes.is_empty(), "{name}: {:?}", built.mistakes);
        self.value = built.value.unwrap();
        self.value
    }

    fn chain(&mut self, layers: &[(&str, &[u64])]) {
        for (name, numbers) in layers {
            self.add(name, numbers, &[]);
        }
    }

    fn draft(&self) -> (Draft, Graph) {
        let outputs = [self.value];
        let rewritten = rewrite(&self.graph, &outputs, Some(TRAINING)).unwrap();
        (in_default_order(&rewritten, TRAINING).unwrap(), rewritten.graph)
    }
}

/// Returns a network of maps with unusual parts. These are statistics that are read again, an output next to positions, and a sum of branches.
fn maps() -> Net {
    let mut net = Net::new(&[3, 16, 16]);
    net.chain(&[("Conv2d", &[8, 3, 1]), ("BatchNorm2d", &[]), ("Relu", &[])]);
    for _ in 0..2 {
        let before = net.value;
        net.chain(&[("Conv2d", &[8, 3, 1]), ("BatchNorm2d", &[]), ("Relu", &[]), ("Dropout", &[])]);
        net.chain(&[("Conv2d", &[8, 3, 1]), ("BatchNorm2d", &[])]);
        net.add("Add", &[], &[before]);
        net.chain(&[("Relu", &[])]);
    }
    net.chain(&[("MaxPool2d", &[2]), ("Conv2d", &[16, 3]), ("Sigmoid", &[]), ("Flatten", &[]), ("Linear", &[10])]);
    net
}

/// Returns a network of a sequence: attention, row norms, sums, and a recurrence that saves over its input.
fn sequence() -> Net {
    let mut net = Net::new(&[8, 16]);
    net.chain(&[("Linear", &[16])]);
    for _ in 0..2 {
        let before = net.value;
        net.chain(&[("LayerNorm", &[]), ("CausalSelfAttention", &[2]), ("Dropout", &[])]);
        net.add("Add", &[], &[before]);
        let before = net.value;
        net.chain(&[("LayerNorm", &[]), ("Linear", &[64]), ("Gelu", &[]), ("Linear", &[16])]);
        net.add("Add", &[], &[before]);
    }
    net.chain(&[("Lstm", &[16]), ("Tanh", &[]), ("Gru", &[16]), ("Linear", &[4])]);
    net
}

/// Returns a network whose maps skip across it.
fn across() -> Net {
    let mut net = Net::new(&[4, 16, 16]);
    net.chain(&[("Conv2d", &[8, 3, 1]), ("BatchNorm2d", &[]), ("Relu", &[])]);
    let handed = net.value;
    net.chain(&[("MaxPool2d", &[2])]);
    for _ in 0..5 {
        net.chain(&[("Conv2d", &[16, 3, 1]), ("BatchNorm2d", &[]), ("Relu", &[])]);
    }
    net.chain(&[("ConvTranspose2d", &[8, 2, 2])]);
    net.add("Concat", &[], &[handed]);
    net.chain(&[("Conv2d", &[8, 3, 1]), ("Relu", &[]), ("Conv2d", &[2, 1])]);
    net
}

/// Returns a random chain of layers of different widths.
fn chain(seed: u64) -> Net {
    let mut stream = Stream::new(seed, 7);
    let mut draw = |below: u64| (stream.uniform() * below as f64) as u64;
    let mut net = Net::new(&[4, 8, 8]);
    for _ in 0..3 {
        let width = 4 + 4 * draw(6);
        net.add("Conv2d", &[width, 3, 1], &[]);
        match draw(4) {
            0 => net.chain(&[("BatchNorm2d", &[]), ("Relu", &[])]),
            1 => net.chain(&[("Gelu", &[])]),
            2 => net.chain(&[("Tanh", &[]), ("AvgPool2d", &[2])]),
            _ => net.chain(&[("BatchNorm2d", &[]), ("Silu", &[])]),
        }
    }
    net.chain(&[("Flatten", &[]), ("Linear", &[4])]);
    net
}

/// Returns the peak of a step in bytes, from the first and the last operation that touches each tensor.
fn peak(draft: &Draft, sizes: impl Fn(TensorId) -> u64) -> u64 {
    let end = draft.operations.len() - 1;
    let mut lives = vec![None; draft.tensors.len()];
    for (at, operation) in draft.operations.iter().enumerate() {
        operation.tensors().for_each(|id| lives[id as usize].get_or_insert([at, at])[1] = at);
    }
    let last = draft.results.iter().chain(&draft.input_gradients);
    last.for_each(|&id| lives[id as usize].get_or_insert([end, end])[1] = end);
    let is_transient = |id: &TensorId| draft.tensors[*id as usize].class == Class::Transient;
    let ids: Vec<TensorId> = (0..draft.tensors.len() as TensorId).filter(is_transient).collect();
    let at = |at: usize| -> u64 {
        let alive =
            ids.iter().filter(|&&id| lives[id as usize].is_some_and(|[first, last]| (first..=last).contains(&at)));
        alive.map(|&id| sizes(id)).sum()
    };
    (0..=end).map(at).max().unwrap()
}

#[test]
fn an_order_needs_what_its_step_needs() {
    let nets = [maps(), sequence(), across()].into_iter().chain((0..4).map(chain));
    for (number, net) in nets.enumerate() {
        let (draft, _) = net.draft();
        let step = StepEffects::of(&draft).unwrap();
        let precisions = [Precision::F32, Precision::Mixed(Half::Bf16)];
        let mut stream = Stream::new(number as u64, 3);
        let mut emission = Emission::new(&step);
        for round in 0..60 {
            let setting = Sizes { precision: precisions[round % 2], ..setting(3) };
            let sizes = StepBytes::of(&draft, &step, &setting).unwrap();
            let all = [Treatment::Keep, Treatment::Once, Treatment::Each, Treatment::Late];
            // Choices from all kept to none kept.
            let mut draw = || {
                let which = (stream.uniform() * round as f64 / 8.0) as usize;
                all[which % all.len()]
            };
            let choices: Vec<Treatment> = step.values.values.iter().map(|_| draw()).collect();
            emission.whole(&choices);
            let applied = apply(&draft, &step.values, &emission.order).unwrap();
            let bytes = |id: TensorId| {
                let tensor = &applied.tensors[id as usize];
                let bytes = tensor.elements(setting.batch).unwrap() * tensor.role.bytes(setting.precision);
                setting.workspaces.cap(tensor.role, bytes).next_multiple_of(256)
            };
            assert_eq!(sizes.peak(&emission), peak(&applied, bytes), "network {number}, round {round}");
        }
    }
}

/// Returns the least cost for each limit of bytes in `rooms`, by trying every decision. `None` if nothing fits.
fn optima(draft: &Draft, step: &StepEffects, sizes: &StepBytes, rooms: &[u64]) -> Vec<Option<u64>> {
    let taken: Vec<u32> = step.values.owns.iter().map(|own| own.takes).collect();
    let is_free = |&value: &u32| !step.values.values[value as usize].is_pinned && !taken.contains(&value);
    let free: Vec<u32> = (0..step.values.values.len() as u32).filter(is_free).collect();
    assert!((6..=10).contains(&free.len()), "{} values of {}", free.len(), draft.operations.len());
    let mut best = vec![None; rooms.len()];
    let mut emission = Emission::new(step);
    let mut choices = vec![Treatment::Keep; step.values.values.len()];
    for number in 0..3usize.pow(free.len() as u32) {
        for (digit, &value) in (0..).zip(&free) {
            let all = [Treatment::Keep, Treatment::Once, Treatment::Each];
            choices[value as usize] = all[number / 3usize.pow(digit) % 3];
        }
        emission.whole(&choices);
        let (peak, cost) = (sizes.peak(&emission), sizes.cost(&emission.order));
        for (room, best) in rooms.iter().zip(&mut best) {
            if peak <= *room && best.is_none_or(|best| cost < best) {
                *best = Some(cost);
            }
        }
    }
    best
}

#[test]
fn levels_are_near_the_best_of_all_decisions() {
    let setting = Sizes { levels: 300, ..setting(32) };
    let mut compared = 0;
    for seed in 0..8 {
        let (draft, graph) = chain(seed).draft();
        let step = StepEffects::of(&draft).unwrap();
        let sizes = StepBytes::of(&draft, &step, &setting).unwrap();
        let levels = searched(&draft, &graph, &setting, false).unwrap().levels;
        let rooms = [90, 80, 70, 60, 50, 40].map(|share| levels[0].peak / 100 * share);
        for (room, best) in rooms.into_iter().zip(optima(&draft, &step, &sizes, &rooms)) {
            let Some(best) = best else { continue };
            let found = levels.iter().filter(|level| level.peak <= room).map(|level| level.cost).min();
            let found = found.unwrap_or_else(|| panic!("network {seed}: nothing within {room} bytes"));
            assert!(found * 10 <= best * 11, "network {seed}, {room} bytes: {found} and not {best}");
            compared += 1;
        }
    }
    assert!(compared >= 20, "only {compared} of all rooms can be reached");
}

#[test]
fn every_level_is_what_it_says() {
    for net in [maps(), sequence(), across()] {
        let (draft, graph) = net.draft();
        let step = StepEffects::of(&draft).unwrap();
        for only_cheap in [false, true] {
            let setting = Sizes { only_cheap, ..setting(16) };
            let levels = searched(&draft, &graph, &setting, false).unwrap().levels;
            let plain: Vec<u32> = (0..draft.operations.len() as u32).collect();
            assert_eq!((&levels[0].order, levels[0].cost, levels[0].operations_again), (&plain, 0, 0));
            assert!((2..=Sizes::LEVELS + 1).contains(&levels.len()), "{} levels", levels.len());
            let is_better = |pair: &[RecomputeLevel]| pair[0].peak > pair[1].peak && pair[0].cost < pair[1].cost;
            assert!(levels.windows(2).all(is_better));
            for level in &levels {
                let again: Vec<u32> = level.order[step.values.forward..].to_vec();
                let again: Vec<u32> = again.into_iter().filter(|&at| (at as usize) < step.values.forward).collect();
                let macs: u64 = again.iter().map(|&at| macs(&draft.operations[at as usize])).sum();
                assert_eq!((level.operations_again as usize, level.macs_again), (again.len(), macs));
                assert!(!only_cheap || macs == 0);
                assert!(apply(&draft, &step.values, &level.order).is_some());
            }
        }
    }
}

#[test]
fn what_somebody_wrote_is_the_first_level() {
    let mut net = sequence();
    net.graph.groups = vec![[2, 6], [7, 12]];
    let (draft, graph) = net.draft();
    let step = StepEffects::of(&draft).unwrap();
    let written = by_hand::choices(&draft, &step.values, &graph);
    assert!(written.iter().any(|choice| *choice != Treatment::Keep));
    let levels = searched(&draft, &graph, &setting(16), false).unwrap().levels;
    assert_eq!(levels[0].order, super::emit::order(&step, &written));
    assert!(levels[0].cost > 0 && levels.len() > 1);
    // A value that it drops is dropped in all other levels, too.
    for (value, choice) in written.iter().enumerate().filter(|(_, choice)| **choice != Treatment::Keep) {
        let of = &step.values.values[value];
        let is_read = !of.readers.is_empty();
        let again = |level: &RecomputeLevel| level.order[step.values.forward..].contains(&of.producer);
        assert!(!is_read || levels.iter().all(again), "{choice:?} of value {value}");
    }
}

#[test]
fn what_cannot_be_searched_is_left_as_it_is() {
    let net = maps();
    let (draft, graph) = net.draft();
    // Larger than any plan.
    let levels = searched(&draft, &graph, &setting(1 << 60), false).unwrap().levels;
    assert_eq!((levels.len(), levels[0].operations_again), (1, 0));
    // One layer: there is nothing between it and the loss.
    let mut net = Net::new(&[4]);
    net.chain(&[("Linear", &[4])]);
    let (draft, graph) = net.draft();
    assert_eq!(searched(&draft, &graph, &setting(4), false).unwrap().levels.len(), 1);
    let error = search(&net.graph, &[net.value], &Options::default(), &setting(4)).unwrap_err();
    assert_eq!(error.message, "nothing is computed again in a network that is not trained; add `const TRAIN`");
}

#[test]
fn the_plain_order_is_the_plain_step() {
    for net in [maps(), sequence(), across()] {
        let plain = lower(&net.graph, &[net.value], &OPTIONS).unwrap();
        let order: Vec<u32> = (0..net.draft().0.operations.len() as u32).collect();
        let ordered = lower_in_order(&net.graph, &[net.value], &OPTIONS, &order).unwrap();
        assert_eq!(ordered, plain);
    }
}

#[test]
fn levels_are_those_that_cost_least_on_average() {
    let mut stream = Stream::new(11, 5);
    for _ in 0..50 {
        let mut draw = || 1 + (stream.uniform() * 40.0) as u64;
        // Falling peaks and rising costs.
        let (mut peak, mut cost) = (1000, 0);
        let frontier: Vec<[u64; 2]> = (0..9)
            .map(|_| {
                (peak, cost) = (peak - draw(), cost + draw());
                [peak, cost]
            })
            .collect();
        let sum = |chosen: &[(u64, u64)]| -> u64 {
            let above = core::iter::once(1000).chain(chosen.iter().map(|(peak, _)| *peak));
            chosen.iter().zip(above).map(|((peak, cost), above)| (above - peak) * cost).sum()
        };
        let pairs: Vec<(u64, u64)> = frontier.iter().map(|&[peak, cost]| (peak, cost)).collect();
        for most in 1..=9u32 {
            let of = |set: u32| -> Vec<(u64, u64)> {
                (0..9).filter(|bit| set >> bit & 1 == 1).map(|bit| pairs[bit]).collect()
            };
            // The leanest candidate is always among them.
            let sets = (256u32..512).filter(|set| set.count_ones() <= most);
            let best = sets.map(|set| sum(&of(set))).min().unwrap();
            let found = spread(&frontier, most as usize, 1000);
            let found: Vec<(u64, u64)> = found.into_iter().map(|at| pairs[at]).collect();
            assert!(found.len() <= most as usize);
            assert_eq!((sum(&found), found.last()), (best, pairs.last()));
        }
    }
}
