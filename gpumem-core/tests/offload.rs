//! Optimizer state and activations in host memory: which operations bring them into the arena, and in which order.
#![cfg(feature = "lower")]

mod common;

use common::{chain, join, layer, numbers, plan, training};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{
    Blueprint, Options, Sizes, Steps, Term, Training, lower, lower_for, tables, with_normalized_convolutions,
};
use gpumem_core::memory::budget::{Line, budget_at, lower_bound_at};
use gpumem_core::memory::layout::channels_last::channels_last;
use gpumem_core::memory::layout::channels_last_weights::Turned;
use gpumem_core::memory::place::{place, share};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Class, Leg, Op, Operation, Part, Phase, Piece, Program, Slot, Tensor, TensorId};
use gpumem_core::report::roofline::traffic;
use gpumem_core::train::optim::Optimizer;
use gpumem_core::train::{ConvNorm, Descent, Offload};
use gpumem_core::{Checkpoint, Half, Precision, Role, Update};
use std::collections::BTreeSet;

fn network(input: &[u64], text: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(input)).unwrap();
    let output = chain(&mut graph, input, text);
    (graph, output)
}

/// A weight of five pieces and two small parameters: each piece is fetched, updated and stored in this order, in buffers that they take in turn.
#[test]
fn offloaded_states_pass_in_pieces() {
    const WEIGHT: u64 = 4 * Piece::MOST + 2;
    let (graph, output) = network(&[2], &format!("Linear({}) | Linear(1, bias = false)", WEIGHT / 2));
    let with = |update| {
        let mut training = training(2).training.unwrap();
        training.descent.offload = Offload::OptimizerState;
        training.update = update;
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        assert_eq!(Program::decode(&program.encode()).as_ref(), Some(&program));
        program
    };
    for program in [with(Update::Fused), with(Update::Separate)] {
        let all = || program.operations.iter();
        assert!(all().all(|operation| operation.action != Action::Update), "{program}");
        let of = |kind: fn(&Action) -> Option<Piece>| -> Vec<(String, Piece, Vec<TensorId>)> {
            let found = all().filter_map(|operation| Some((kind(&operation.action)?, operation)));
            let staged = |operation: &Operation| {
                let ids = operation.tensors().filter(|&id| program.tensor(id).part == Part::Staging);
                BTreeSet::from_iter(ids).into_iter().collect()
            };
            let name = |operation: &Operation| program.tensor(operation.read(Slot::Parameter).unwrap()).name.clone();
            found.map(|(piece, operation)| (name(operation), piece, staged(operation))).collect()
        };
        let fetched = of(|action| if let Action::Fetch(piece) = action { Some(*piece) } else { None });
        let updated = of(|action| if let Action::UpdatePiece(piece) = action { Some(*piece) } else { None });
        let stored = of(|action| if let Action::Store(piece) = action { Some(*piece) } else { None });
        assert!(fetched == updated && updated == stored, "{program}");
        // Every element of every parameter once, in order.
        for id in program.of_class(Class::Parameter) {
            let parameter = program.tensor(id);
            let pieces = updated.iter().filter(|(name, ..)| *name == parameter.name);
            let end = pieces.fold(0, |end, (_, piece, _)| {
                assert!(piece.first == end && piece.count > 0 && piece.count <= Piece::MOST);
                piece.end().unwrap()
            });
            assert_eq!(Some(end), parameter.shape.elements());
        }
        for (index, (_, piece, staged)) in updated.iter().enumerate() {
            // Two states and a master copy, in the buffer of the piece before so many others.
            assert_eq!(staged.len(), 3);
            assert!(staged.iter().all(|&id| program.tensor(id).shape.dims()[0] >= piece.count));
            let same = |other: usize| updated[other].2 == *staged;
            assert!(index < Piece::BUFFERS || same(index - Piece::BUFFERS));
            assert!((1..Piece::BUFFERS.min(index + 1)).all(|before| !same(index - before)));
        }
        // Fetched ahead, but not before the piece that had the buffer is stored.
        let at = |action: &Action, name: &str| {
            all().position(|it| {
                it.action == *action && it.read(Slot::Parameter).is_some_and(|id| program.tensor(id).name == name)
            })
        };
        for (index, (name, piece, _)) in updated.iter().enumerate() {
            let [fetch, update, store] = [Action::Fetch(*piece), Action::UpdatePiece(*piece), Action::Store(*piece)]
                .map(|action| at(&action, name).unwrap());
            assert!(fetch < update && store == update + 1);
            if let Some(before) = index.checked_sub(Piece::BUFFERS) {
                let (name, piece, _) = &updated[before];
                assert_eq!(fetch, at(&Action::Store(*piece), name).unwrap() + 1);
            }
        }
        // Buffers lie still until all copies are over, which is the last thing but one.
        let end = program.operations.len() - 2;
        assert_eq!(program.operations[end].action, Action::Settle);
        let staging: Vec<&Tensor> = program.tensors.iter().filter(|tensor| tensor.part == Part::Staging).collect();
        assert_eq!(staging.len(), 3 * Piece::BUFFERS);
        assert!(staging.iter().all(|tensor| tensor.last as usize == end));
        for operation in all().filter(|operation| !matches!(operation.action, Action::Fetch(_) | Action::Store(_))) {
            assert!(operation.tensors().all(|id| program.tensor(id).class != Class::Moment), "{program}");
        }
    }
    // Nobody reads a gradient once its parameter is updated.
    let program = with(Update::Fused);
    for tensor in program.tensors.iter().filter(|tensor| tensor.part == Part::ParameterGradient) {
        assert!(program.operations[tensor.last as usize].action.is_update(), "{}", tensor.name);
    }
}

/// What treats elements together cannot be done in pieces.
#[test]
fn states_of_rows_are_not_offloaded() {
    let (graph, output) = network(&[20], "Linear(30)");
    for optimizer in Optimizer::DEFAULTS {
        let mut training = training(optimizer.moments()).training.unwrap();
        training.descent.offload = Offload::OptimizerState;
        let lowered = lower(&graph, &[output], &Options { training: Some(training) });
        let is_one = matches!(optimizer, Optimizer::Adafactor(_) | Optimizer::AdamW8bit(_) | Optimizer::Muon(_));
        match lowered {
            Ok(_) => assert!(!is_one, "{optimizer:?}"),
            Err(error) => {
                assert!(
                    is_one
                        && error.message.contains("choose one that does, as `AdamW` or `Lion`, or leave `offload` out"),
                    "{error:?}"
                )
            }
        }
    }
}

/// A parameter that no host has room for is cut into so many pieces that they can be counted.
#[test]
fn pieces_of_what_is_too_large_are_larger() {
    let (graph, output) = network(&[1 << 20], &format!("Linear({})", 1u64 << 26));
    let mut training = training(1).training.unwrap();
    training.descent.offload = Offload::OptimizerState;
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    assert!(program.operations.len() < 60_000);
}

/// Pieces move in the card's memory what their whole parameter does, and what passes through a buffer once more each way.
#[test]
fn what_pieces_move_adds_up() {
    let (graph, output) = network(&[3], &format!("LayerNorm | Linear({}) | Linear(1, bias = false)", Piece::MOST / 2));
    let moved = |offload, precision| {
        let mut training = training(2).training.unwrap();
        training.descent.offload = offload;
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let placed = place(&plan(&program, 1, precision)).unwrap();
        let of = |is: fn(&Action) -> bool| -> [u64; 2] {
            let all = placed.program.operations.iter().filter(|operation| is(&operation.action));
            all.fold([0, 0], |[reads, writes], operation| {
                let [read, written] = traffic(&placed, operation).map(|tensors| {
                    let numbers = tensors.iter().filter(|(id, _)| placed.program.tensor(*id).class != Class::State);
                    numbers.map(|(_, bytes)| bytes).sum::<u64>()
                });
                [reads + read, writes + written]
            })
        };
        let copies = [of(|it| matches!(it, Action::Fetch(_))), of(|it| matches!(it, Action::Store(_)))];
        (of(Action::is_update), copies, compiled_bytes(&program, precision))
    };
    for precision in [Precision::F32, Precision::Bf16] {
        let (here, [_, _], fetched) = moved(Offload::None, precision);
        assert_eq!(fetched, 0);
        let (there, [fetch, store], fetched) = moved(Offload::OptimizerState, precision);
        assert_eq!(here, there);
        assert_eq!((fetch, store), ([0, fetched], [fetched, 0]));
    }
    // The master copy is read beside the weight that it is rounded to.
    let (_, [fetch, store], fetched) = moved(Offload::OptimizerState, Precision::Mixed(Half::Bf16));
    assert_eq!((fetch, store), ([0, fetched], [fetched, 0]));
}

fn compiled_bytes(program: &Program, precision: Precision) -> u64 {
    plan(program, 1, precision).budget.fetched
}

/// Maps of one size, so that the first ones can leave while the others are made.
fn deep() -> (Graph, NodeId) {
    let block = "Conv2d(8, 3, padding = 1) | BatchNorm2d | Tanh | ";
    network(&[3, 8, 8], &format!("{}Flatten | Linear(5)", block.repeat(25)))
}

fn lowered((graph, output): &(Graph, NodeId), change: impl FnOnce(&mut Training<'_>)) -> Program {
    let mut training = training(2).training.unwrap();
    change(&mut training);
    let program = lower(graph, &[*output], &Options { training: Some(training) }).unwrap();
    assert_eq!(Program::decode(&program.encode()).as_ref(), Some(&program));
    program
}

/// Each activation leaves after its last operation of the forward pass, and is back before the backward pass reads it. It has no place in the
/// arena in between, and each wait is behind its copy.
#[test]
fn parked_activations_have_two_lives() {
    let network = deep();
    let plain = lowered(&network, |_| {});
    for (update, micro_batches) in [(Update::Fused, 1), (Update::Separate, 1), (Update::Separate, 4)] {
        let program = lowered(&network, |training| {
            training.descent.offload = Offload::Activations;
            (training.update, training.descent.micro_batches) = (update, micro_batches);
        });
        let loss = program.operations.iter().position(|it| it.phase() == Phase::Loss).unwrap();
        let hosts: Vec<TensorId> = program.of_class(Class::Host).collect();
        assert!(hosts.len() > 1, "{program}");
        for &host in &hosts {
            let at = |leg| {
                let is_it = |it: &Operation| it.action == Action::Park(leg) && it.tensors().any(|id| id == host);
                program.operations.iter().position(is_it).unwrap()
            };
            let [leave, left, back, returned] = [Leg::Leave, Leg::Left, Leg::Return, Leg::Returned].map(at);
            assert!(leave < left && left < loss && loss < back && back < returned, "{program}");
            let of = |at: usize, slot| {
                let operation = &program.operations[at];
                program.tensor(operation.read(slot).or(operation.written(slot)).unwrap())
            };
            let (one, other) = (of(left, Slot::Input(0)), of(back, Slot::Output));
            assert_eq!((one.last as usize, other.first as usize), (left, back));
            assert!((one.first as usize) < leave && (other.last as usize) > returned);
            for tensor in [one, other] {
                assert_eq!((tensor.class, tensor.role), (Class::Transient, Role::Activation));
                assert_eq!((tensor.shape, tensor.batched), (program.tensor(host).shape, true));
            }
            // While a copy is under way nobody touches what it is of or what it is to.
            let touches = |operation: &Operation, id| operation.tensors().any(|other| other == id);
            let (one, other) =
                (program.operations[left].read(Slot::Input(0)), program.operations[back].written(Slot::Output));
            assert!(program.operations[leave + 1..left].iter().all(|it| !touches(it, one.unwrap())));
            assert!(program.operations[back + 1..returned].iter().all(|it| !touches(it, other.unwrap())));
        }
        // Nothing else has changed: the same operations in the same order, but for updates, which come where there is room for gradients.
        let others = |program: &Program| -> Vec<Action> {
            let is_other = |action: &&Action| matches!(action, Action::Run { .. } | Action::Loss(_));
            program.operations.iter().map(|it| &it.action).filter(is_other).cloned().collect()
        };
        if micro_batches == 1 {
            assert_eq!(others(&program), others(&plain));
        }
        let evaluated = program.evaluation().unwrap().program;
        assert!(evaluated.operations.iter().all(|it| !matches!(it.action, Action::Park(_))));
        // One after the other in host memory, each part of a batch in the same places.
        let each = 8 * 8 * 8 * 4;
        for (batch, precision, bytes) in [(4, Precision::F32, each), (64, Precision::Bf16, each / 2)] {
            let budget = budget_at(&tables(&program).as_tables(), batch, precision).unwrap();
            let count = hosts.len() as u64;
            assert_eq!(budget.host, count * (batch / micro_batches * bytes).next_multiple_of(256));
            assert_eq!(budget.fetched, count * batch * bytes);
        }
    }
    assert_eq!(plain.of_class(Class::Host).count(), 0);
}

/// The largest sum of live bytes falls, whatever is computed again, and by no less than what lies in host memory at the turn.
#[test]
fn parked_activations_lower_the_bound() {
    let (graph, output) = deep();
    let steps = |offload, checkpoint| Blueprint {
        graph: graph.clone(),
        outputs: vec![output],
        training: Some(Steps {
            loss: vec![Term::CROSS_ENTROPY],
            moments: 2,
            update: Update::Fused,
            checkpoint,
            descent: Descent { offload, ..Descent::PLAIN },
            conv_norm: ConvNorm::Fused,
            ordered_at: None,
        }),
        cached: None,
        parts: Default::default(),
    };
    let setting = Sizes::new(8, Precision::F32, Workspaces { product: 0, convolution: 0 });
    for checkpoint in [Checkpoint::Norms, Checkpoint::None, Checkpoint::Cheap, Checkpoint::Auto] {
        let [here, there] = [Offload::None, Offload::Activations].map(|offload| {
            let programs = steps(offload, checkpoint).trainings(&setting).unwrap();
            let bounds = programs.iter().map(|program| {
                let tables = tables(program);
                lower_bound_at(&tables.as_tables().with_workspaces(setting.workspaces), 8, Precision::F32).unwrap()
            });
            bounds.collect::<Vec<u64>>()
        });
        // Each level is counted with what leaves, and needs less than the one before it.
        assert!(here.iter().all(|here| there.iter().any(|there| there <= here)), "{here:?} {there:?}");
        assert!(there.windows(2).all(|pair| pair[1] < pair[0]), "{there:?}");
        assert!(there[0] < here[0], "{checkpoint:?}: {here:?} {there:?}");
    }
    let program = steps(Offload::Activations, Checkpoint::None).training(Precision::F32).unwrap().unwrap();
    let plain = steps(Offload::None, Checkpoint::None).training(Precision::F32).unwrap().unwrap();
    let bound = |program: &Program| lower_bound_at(&tables(program).as_tables(), 8, Precision::F32).unwrap();
    let host = budget_at(&tables(&program).as_tables(), 8, Precision::F32).unwrap().host;
    assert!(bound(&plain) - bound(&program) <= host);
}

/// An output of a normalisation that is made again and the gradient beside it may be one pass, so that no leg stands between them.
#[test]
fn nothing_stands_between_an_output_and_the_gradient_beside_it() {
    let block = "Conv2d(8, 3, padding = 1) | BatchNorm2d | Relu | ";
    let layers = network(&[3, 8, 8], &format!("{}Flatten | Linear(5)", block.repeat(25)));
    for (graph, output) in [layers, bottlenecks(16)] {
        let mut training = training(2).training.unwrap();
        training.descent.offload = Offload::Activations;
        let setting = Sizes::new(8, Precision::F32, Workspaces { product: 0, convolution: 0 });
        let program = lower_for(&graph, &[output], &Options { training: Some(training) }, &setting).unwrap();
        let is_leg = |operation: &&Operation| matches!(operation.action, Action::Park(_));
        let is_again = |operation: &&Operation| operation.phase() == Phase::Again;
        assert!(program.operations.iter().filter(is_leg).count() > 8, "{program}");
        assert!(program.operations.iter().filter(is_again).count() > 8, "{program}");
        for pair in program.operations.windows(2) {
            let is_one = matches!(pair[1].backward(), Some(Op::NormalizedConvolution(_))) || is_again(&&pair[0]);
            assert!(!is_one || !pair.iter().any(|it| is_leg(&it)), "{program}");
        }
    }
}

/// Residual blocks whose last convolutions are one with their normalisations.
fn bottlenecks(count: usize) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 8, 8])).unwrap();
    let mut x = chain(&mut graph, input, "Conv2d(32, 1, bias = false) | BatchNorm2d | Relu");
    for _ in 0..count {
        let made = chain(
            &mut graph,
            x,
            "Conv2d(8, 3, padding = 1) | BatchNorm2d | Relu | Conv2d(32, 1, bias = false) | BatchNorm2d",
        );
        let sum = join(&mut graph, &[made, x], "Add");
        x = layer(&mut graph, sum, "Relu");
    }
    let output = chain(&mut graph, x, "Flatten | Linear(5)");
    (with_normalized_convolutions(&graph, &[output]), output)
}

/// Together with optimizer state: the same legs at the same places of both passes as alone, and the same pieces.
#[test]
fn both_lie_in_host_memory() {
    let network = deep();
    for (update, micro_batches) in [(Update::Fused, 1), (Update::Separate, 1), (Update::Separate, 4)] {
        let [states, activations, all] = [Offload::OptimizerState, Offload::Activations, Offload::All].map(|offload| {
            lowered(&network, |training| {
                (training.descent.offload, training.descent.micro_batches) = (offload, micro_batches);
                training.update = update;
            })
        });
        let of = |program: &Program, is: fn(&Action) -> bool| -> Vec<Action> {
            program.operations.iter().map(|it| &it.action).filter(|action| is(action)).cloned().collect()
        };
        let passes = |action: &Action| matches!(action, Action::Run { .. } | Action::Loss(_) | Action::Park(_));
        let pieces = |action: &Action| action.has_states() || *action == Action::Settle;
        assert_eq!(of(&all, passes), of(&activations, passes));
        assert_eq!(of(&all, pieces), of(&states, pieces));
        assert!(of(&all, |action| matches!(action, Action::Park(_))).len() > 8 && of(&all, pieces).len() > 8);
        for (batch, precision) in [(4, Precision::F32), (64, Precision::Mixed(Half::Bf16))] {
            let [states, activations, all] = [&states, &activations, &all]
                .map(|program| budget_at(&tables(program).as_tables(), batch, precision).unwrap());
            assert_eq!(all.host, states.host + activations.host);
            assert_eq!(all.fetched, states.fetched + activations.fetched);
            assert!(all.lower_bound <= states.lower_bound, "{all:?} {states:?}");
        }
    }
}

/// What a short network makes cannot leave before it is needed again.
#[test]
fn what_has_no_time_stays() {
    for text in ["Conv2d(8, 3) | Tanh | Flatten | Linear(5)", "Flatten | Linear(5)"] {
        let network = network(&[3, 8, 8], text);
        let [here, there] = [Offload::None, Offload::Activations].map(|offload| {
            let program = lowered(&network, |training| training.descent.offload = offload);
            (program.tensors, program.operations)
        });
        assert!(here == there);
    }
}

/// The host reads and writes states and master copies of weights that lie channels last, each as a whole.
#[test]
fn states_of_turned_weights_are_read_and_written() {
    let network = deep();
    let pass = lower(&network.0, &[network.1], &Options::default()).unwrap();
    for offload in [Offload::None, Offload::OptimizerState, Offload::All] {
        let program = lowered(&network, |training| training.descent.offload = offload);
        let precision = Precision::Mixed(Half::Bf16);
        let (step, pass) = (plan(&program, 2, precision), plan(&pass, 2, precision));
        let (mut placed, mut pass) = (place(&step).unwrap(), place(&pass).unwrap());
        share(&placed, &mut pass, step.budget[Line::Arena], 0).unwrap();
        channels_last(&mut [&mut placed, &mut pass]);
        let turned = Turned::new([&placed, &pass], precision).unwrap();
        let mut found = 0;
        for (id, tensor) in placed.program.tensors.iter().enumerate() {
            if !matches!(tensor.class, Class::Parameter | Class::Moment | Class::Buffer | Class::State) {
                continue;
            }
            let elements = tensor.elements(1).unwrap() as usize;
            let bytes = elements * tensor.role.bytes(precision) as usize;
            for (offset, bytes) in [(Some(placed.offsets[id]), bytes), (placed.masters[id], 4 * elements)] {
                let Some(offset) = offset else { continue };
                let given: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
                let stored = turned.stored(offset, &given);
                assert!(stored.is_ok(), "{offload:?}: {} at {offset:x}, {bytes}: {}", tensor.name, stored.is_err());
                let mut seen = stored.unwrap().into_owned();
                found += usize::from(seen != given);
                turned.seen(offset, &mut seen).unwrap();
                assert!(seen == given, "{}", tensor.name);
            }
        }
        // A weight, its master copy and two states of 25 convolutions, but for the first and the last, which see what the host or a linear layer
        // has in the order of its shape.
        assert_eq!(found, 23 * 4, "{offload:?}");
    }
}

/// The blocks of GPT-2 XL.
fn gpt2_xl() -> (Graph, NodeId) {
    let (mut graph, mut x) = network(&[1024, 1600], "Linear(1600)");
    for _ in 0..48 {
        let mixed = chain(&mut graph, x, "LayerNorm | CausalSelfAttention(25)");
        x = join(&mut graph, &[x, mixed], "Add");
        let made = chain(&mut graph, x, "LayerNorm | Linear(6400) | Gelu | Linear(1600)");
        x = join(&mut graph, &[x, made], "Add");
    }
    (graph, x)
}

/// Returns the added time of the first of `levels` that needs at most `limit` bytes. All are `[peak, time]`.
fn time_within(levels: &[[u64; 2]], limit: u64) -> Option<u64> {
    levels.iter().find(|[peak, _]| *peak <= limit).map(|[_, time]| *time)
}

/// Levels that are searched with activations in host memory take less time than those of a step without, counted with what leaves.
#[test]
fn recomputation_and_host_memory_are_weighed_together() {
    let (graph, output) = gpt2_xl();
    let of = |offload| Blueprint {
        graph: graph.clone(),
        outputs: vec![output],
        training: Some(Steps {
            loss: vec![Term::MSE],
            moments: 2,
            update: Update::Fused,
            checkpoint: Checkpoint::Auto,
            descent: Descent { offload, ..Descent::PLAIN },
            conv_norm: ConvNorm::Separate,
            ordered_at: None,
        }),
        ..Blueprint::default()
    };
    let sizes = Sizes::new(8, Precision::Bf16, Workspaces { product: 0, convolution: 0 });
    let parked = of(Offload::Activations);
    let lowered = |order: &[u32]| parked.training_in_order(Precision::Bf16, order).unwrap().unwrap();
    let levels = |searched: &Blueprint| -> Vec<[u64; 3]> {
        let found = searched.levels(&sizes).unwrap().unwrap().levels;
        found.iter().map(|level| [live(&lowered(&level.order), 8), level.cost, level.peak]).collect()
    };
    let [apart, both] = [of(Offload::None), parked.clone()].map(|searched| levels(&searched));
    // The search counts what leaves almost as it is counted afterwards.
    for [peak, _, estimate] in &both {
        assert!(peak.abs_diff(*estimate) * 20 <= *peak, "{both:?}");
    }
    let [apart, both] =
        [apart, both].map(|all| all.into_iter().map(|[peak, time, _]| [peak, time]).collect::<Vec<_>>());
    let first = apart[0][0];
    let limits = (1..100).map(|share| first * share / 100);
    let (mut sums, mut count) = ([0, 0], 0);
    for limit in limits {
        if let [Some(apart), Some(both)] = [&apart, &both].map(|levels| time_within(levels, limit)) {
            (sums[0], sums[1], count) = (sums[0] + apart, sums[1] + both, count + 1);
        } else {
            assert!(time_within(&apart, limit).is_none(), "{apart:?}\n{both:?}");
        }
    }
    assert!(count > 80 && sums[1] * 100 <= sums[0] * 92, "{count}, {sums:?}\n{apart:?}\n{both:?}");
}

/// The most live bytes in a step in 16 bits, without scratch.
fn live(program: &Program, batch: u64) -> u64 {
    let mut changes = vec![0i64; program.operations.len() + 1];
    for tensor in program.transients().map(|id| program.tensor(id)).filter(|tensor| !tensor.role.is_workspace()) {
        let bytes = tensor.stored(batch).unwrap() * tensor.role.bytes(Precision::Bf16);
        let bytes = bytes.next_multiple_of(256) as i64;
        changes[tensor.first as usize] += bytes;
        changes[tensor.last as usize + 1] -= bytes;
    }
    let mut live = 0;
    let all = changes.into_iter().map(|change| {
        live += change;
        live
    });
    all.max().unwrap() as u64
}
