//! Every line of the budget against a recount from the program, and every tensor's place, on random networks.

#![cfg(feature = "lower")]

mod common;

use common::plan;
use common::random::{KINDS, network};
use gpumem_core::Role;
use gpumem_core::graph::{Graph, Lora, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::{HOST, place};
use gpumem_core::number::Coding;
use gpumem_core::program::{Class, Measure, Program, Tensor};
use gpumem_core::train::optim::{Adafactor, AdamW8bit, Muon, Optimizer, whole_states};
use gpumem_core::train::ranks::Sharding;
use gpumem_core::train::{Descent, Offload, Ranks, Shard};
use gpumem_core::{Precision, Update};
use proptest::prelude::*;

/// Bytes of an element, from the table in `docs/reference/memory-model.md`; of codes of 4 bits, those of a pair, and of bits, those of eight.
fn element(role: Role, precision: Precision) -> u64 {
    let column = match precision {
        Precision::F32 => 0,
        Precision::Bf16 | Precision::F16 => 1,
        Precision::Mixed(_) => 2,
        other => panic!("the table has no column for {other:?}"),
    };
    let row = match role {
        Role::Activation | Role::Weight => [4, 2, 2],
        Role::Norm | Role::Moment => [4, 2, 4],
        Role::Statistic | Role::Index | Role::State => [4, 4, 4],
        Role::ProductWorkspace | Role::ConvolutionWorkspace => [4, 4, 4],
        Role::WideMoment | Role::Scale => [4, 4, 4],
        Role::Byte | Role::Code | Role::Int8 | Role::Nf4 | Role::Nf4Double | Role::Bit => [1, 1, 1],
        Role::Master => [0, 0, 4],
    };
    row[column]
}

fn bytes(tensor: &Tensor, batch: u64, precision: Precision) -> u64 {
    let each = tensor.shape.dims().iter().product::<u64>();
    let each = match tensor.role {
        Role::Nf4 | Role::Nf4Double => each.div_ceil(2),
        Role::Bit => each.div_ceil(8),
        _ => each,
    };
    (kept(each, tensor.sharding) * if tensor.batched { batch } else { 1 } + tensor.once)
        * element(tensor.role, precision)
}

/// The elements that a rank has of a tensor with so many.
fn kept(elements: u64, sharding: Sharding) -> u64 {
    let shard = |ranks: u64| elements.div_ceil(ranks).div_ceil(64) * 64;
    match sharding {
        Sharding::Replicated => elements,
        Sharding::Gathered(ranks) => ranks * shard(ranks),
        Sharding::Sharded(ranks) => shard(ranks),
    }
}

/// The sharding of a parameter, its gradient, and its optimizer states.
fn shardings(tensor: &Tensor, Ranks { count, shard, least_sharded, .. }: Ranks) -> [Sharding; 3] {
    let elements: u64 = tensor.shape.dims().iter().product();
    let is_whole = count == 1 || elements < least_sharded || !matches!(tensor.role, Role::Weight | Role::Norm);
    let [own, padded, whole] = [Sharding::Sharded(count), Sharding::Gathered(count), Sharding::Replicated];
    match shard {
        _ if is_whole => [whole; 3],
        Shard::None => [whole; 3],
        Shard::Optimizer => [if tensor.trained { padded } else { whole }, padded, own],
        Shard::Gradients => [if tensor.trained { padded } else { whole }, own, own],
        _ => [own; 3],
    }
}

fn recount(program: &Program, compiled: &Compiled, batch: u64, precision: Precision, training: Option<Training>) {
    let (budget, ranks) = (&compiled.budget, program.descent.ranks);
    for tensor in program.of_class(Class::Parameter).map(|id| program.tensor(id)) {
        assert_eq!(tensor.sharding, shardings(tensor, ranks)[0], "{}", tensor.name);
    }
    // Exact and padded bytes of the tensors of some classes.
    let sum = |classes: &[Class]| {
        let tensors = program.tensors.iter().filter(|tensor| classes.contains(&tensor.class));
        let sizes = tensors.map(|tensor| bytes(tensor, batch, precision));
        sizes.fold((0, 0), |(exact, padded), size| (exact + size, padded + size.next_multiple_of(256)))
    };
    let weights = sum(&[Class::Parameter]);
    // A forward pass reads the weights as they are.
    let mixed = matches!(precision, Precision::Mixed(_)) && training.is_some();
    let masters = program.tensors.iter().filter(|t| mixed && t.trained && t.role == Role::Weight);
    let master = masters.fold((0, 0), |(exact, padded), tensor| {
        let size = kept(tensor.shape.dims().iter().product(), shardings(tensor, ranks)[2]) * 4;
        (exact + size, padded + size.next_multiple_of(256))
    });
    let [gradients, optimizer] = [Class::Gradient, Class::Moment].map(|class| sum(&[class]));
    // What is in host memory is not in the arena.
    let states = (master.0 + optimizer.0, master.1 + optimizer.1);
    let offloads = training.is_some_and(|training| training.descent.offloads());
    let parked = sum(&[Class::Host]);
    let [master, optimizer, states] = if offloads { [(0, 0), (0, 0), states] } else { [master, optimizer, (0, 0)] };
    assert_eq!((budget.fetched, budget.host), (states.0 + parked.0, states.1 + parked.1));
    let buffers = sum(&[Class::Buffer, Class::State]);
    let halves = if training.is_some() { 2 } else { 1 };
    let (exact, padded) = sum(&[Class::Input, Class::Target]);
    let batch_io = (exact * halves, padded * halves);
    let held = training.is_some_and(|training| training.update == Update::Separate);
    let trained = program.tensors.iter().filter(|tensor| tensor.trained && held);
    let gradient = |tensor: &Tensor| Tensor { sharding: shardings(tensor, ranks)[1], ..tensor.clone() };
    assert_eq!(gradients.0, trained.map(|tensor| bytes(&gradient(tensor), batch, precision)).sum::<u64>());
    assert_eq!(
        [
            budget[Line::Weights],
            budget[Line::Master],
            budget[Line::Gradients],
            budget[Line::Optimizer],
            budget[Line::Buffers],
            budget[Line::BatchIo]
        ],
        [weights.0, master.0, gradients.0, optimizer.0, buffers.0, batch_io.0]
    );
    let lasting = weights.1 + master.1 + gradients.1 + optimizer.1 + buffers.1 + batch_io.1;
    assert_eq!(budget[Line::Arena], lasting + budget[Line::Activations]);
    // A tensor lives from the first to the last operation that names it; a result to the end.
    let live = |at: usize| -> u64 {
        let alive = |(id, tensor): &(usize, &Tensor)| {
            let touches = |range: &[gpumem_core::program::Operation]| {
                range.iter().any(|operation| operation.tensors().any(|other| other as usize == *id))
            };
            let after = touches(&program.operations[at..]) || program.results.contains(&(*id as u32));
            tensor.class == Class::Transient && touches(&program.operations[..=at]) && after
        };
        let tensors = program.tensors.iter().enumerate().filter(alive);
        tensors.map(|(_, tensor)| bytes(tensor, batch, precision).next_multiple_of(256)).sum()
    };
    let peak = (0..program.operations.len()).map(live).max().unwrap();
    assert_eq!(budget.lower_bound, lasting + peak);
    assert!(budget[Line::Activations] >= peak);
}

/// No two tensors that live at once share a byte, and all lie inside the arena.
fn check_places(program: &Program, compiled: &Compiled, batch: u64, precision: Precision) {
    let placed = place(compiled).unwrap();
    let spans: Vec<(&Tensor, u64, u64)> = program
        .tensors
        .iter()
        .zip(&placed.offsets)
        .map(|(tensor, &offset)| (tensor, offset, offset + bytes(tensor, batch, precision)))
        .collect();
    // A place in host memory begins where no arena reaches.
    let ends = |start| if start < HOST { compiled.budget[Line::Arena] } else { HOST + compiled.budget.host };
    for (index, &(tensor, start, end)) in spans.iter().enumerate() {
        assert!(start % 256 == 0 && end <= ends(start), "{}", tensor.name);
        let is_state = tensor.class == Class::Moment && compiled.tables.offloads;
        assert_eq!(start >= HOST, is_state || tensor.class == Class::Host, "{}", tensor.name);
        for &(other, other_start, other_end) in &spans[index + 1..] {
            let transient = tensor.class == Class::Transient && other.class == Class::Transient;
            let together = tensor.first <= other.last && other.first <= tensor.last;
            let apart = end <= other_start || other_end <= start || start == end || other_start == other_end;
            assert!(apart || transient && !together, "{} and {}", tensor.name, other.name);
        }
    }
}

/// Outputs of layers that are numbers and differ between samples, for further outputs and terms of the loss.
fn measured(graph: &Graph, tapped: &[prop::sample::Index]) -> Vec<NodeId> {
    let is_measurable = |id: &NodeId| {
        let value = graph.value(*id);
        let is_last = graph.nodes.get(id + 1).is_none_or(|next| next.row != graph.nodes[*id].row);
        is_last && value.batched && value.is_numbers()
    };
    let all: Vec<NodeId> = (0..graph.nodes.len()).filter(is_measurable).collect();
    tapped.iter().map(|index| all[index.index(all.len())]).collect()
}

/// Optimizers with none, one and two states of the parameter's size, with states of its rows and columns, with codes, and with one fewer
/// for matrices.
const MOMENTS: [u64; 6] = [
    0,
    1,
    2,
    Optimizer::Adafactor(Adafactor::DEFAULT).moments(),
    Optimizer::AdamW8bit(AdamW8bit::DEFAULT).moments(),
    Optimizer::Muon(Muon::DEFAULT).moments(),
];

/// A way to offload that these states allow.
fn offload(offload: Offload, moments: u64) -> Offload {
    match offload {
        Offload::OptimizerState if whole_states(moments).1 => Offload::None,
        Offload::All if whole_states(moments).1 => Offload::Activations,
        other => other,
    }
}

/// Ranks that share a step with these states. Small tensors are sharded, too.
fn ranks(count: u64, shard: Shard, moments: u64) -> Ranks {
    let shard = if whole_states(moments).1 { Shard::None } else { shard };
    Ranks { count, shard, bucket: 4096, least_sharded: 100, ..Ranks::ALONE }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn budgets_are_recounted(
        choices in prop::collection::vec((0..KINDS, 0usize..20, 0usize..20), 1..24),
        batch in 1u64..40,
        precision in prop::sample::select(&Precision::ALL[..]),
        training in prop::option::of((prop::sample::select(&MOMENTS[..]), any::<bool>(), any::<bool>())),
        offloads in prop::sample::select(&Offload::ALL[..]),
        (count, shard) in (1u64..5, prop::sample::select(&Shard::ALL[..])),
        frozen in prop::collection::vec(0usize..60, 0..20),
        tapped in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        adapted in prop::option::of((prop::sample::select(&[None, Some(Coding::Int8), Some(Coding::Nf4), Some(Coding::Nf4Double)][..]), 0usize..60)),
    ) {
        let (mut graph, mut output) = network(&choices, true);
        // A product among the last layers is always trained.
        let rows = graph.rows.len() - 5;
        frozen.iter().filter(|&&row| row < rows).for_each(|&row| graph.freeze(row));
        let mut measured = measured(&graph, &tapped);
        if let Some((base, first)) = adapted {
            let rows = first.min(rows)..rows;
            let places = graph.adapt(&[Lora { rank: 3, alpha: 4.0, targets: Vec::new(), base, rows }]);
            measured.iter_mut().chain([&mut output]).for_each(|node| *node = places[*node]);
        }
        let mut terms = vec![Term::CROSS_ENTROPY];
        terms.extend(measured.iter().map(|&node| Term { weight: 0.5, from: Some(node), ..Term::of(Measure::Mean) }));
        let mut outputs = vec![output];
        outputs.extend(measured.iter().filter(|_| choices.len() % 2 == 0));
        let training = training.map(|(moments, held, skips_overflow)| Training {
            loss: &terms,
            skips_overflow,
            moments,
            update: if held { Update::Separate } else { Update::Fused },
            input_gradient: false,
            descent: Descent {
                offload: offload(offloads, moments),
                ranks: ranks(count, shard, moments),
                ..Descent::PLAIN
            },
        });
        let program = lower(&graph, &outputs, &Options { training }).unwrap();
        let compiled = plan(&program, batch * program.descent.ranks.count, precision);
        recount(&program, &compiled, batch, precision, training);
        check_places(&program, &compiled, batch, precision);
    }
}
