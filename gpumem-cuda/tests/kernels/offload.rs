//! Updates of pieces of parameters, whose states and master copies pass through staging buffers, and activations that leave the arena and
//! come back.

use crate::host::harness::graphs::{chain, join, numbers, plan};
use crate::host::{CAPABILITY, Products, Simulated, compare_in, prepare, prepare_programs, spread};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::program::{Action, Class, Leg, Program, StateWord, TensorId};
use gpumem_core::train::optim::{AdamW, Group, Lion, Optimizer, RmsProp, Sgd};
use gpumem_core::train::{Clip, Descent, Offload, Schedule};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::program_calls::OperationCalls;

const BATCH: u64 = 3;

fn training<'t>(optimizer: Optimizer, precision: Precision, descent: Descent) -> Training<'t> {
    Training {
        loss: &[Term::MSE],
        moments: optimizer.moments(),
        update: Update::Fused,
        skips_overflow: precision.scales_loss(),
        input_gradient: false,
        descent: descent.at(precision),
    }
}

fn offloaded(descent: Descent) -> Descent {
    Descent { offload: Offload::OptimizerState, ..descent }
}

fn network(dims: &[u64], layers: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = chain(&mut graph, input, layers);
    (graph, output)
}

fn maps() -> (Graph, NodeId) {
    network(&[2, 4, 4], "Conv2d(3, 3, bias = false) | BatchNorm2d | Tanh | Flatten | Linear(9) | Tanh | Linear(5)")
}

/// Optimizers with none, one, two and three states, and groups.
fn optimizers() -> [Optimizer; 4] {
    let groups = &[Group { paths: "*bias", lr_factor: Some(0.5), weight_decay: Some(0.0), ..Group::DEFAULT }];
    [
        Optimizer::AdamW(AdamW { lr: 1e-2, groups, ..AdamW::DEFAULT }),
        Optimizer::Lion(Lion { lr: 1e-2, ..Lion::DEFAULT }),
        Optimizer::RmsProp(RmsProp { lr: 1e-3, momentum: 0.9, centered: true, ..RmsProp::DEFAULT }),
        Optimizer::Sgd(Sgd { lr: 1e-2, ..Sgd::DEFAULT }),
    ]
}

/// Everything that changes a gradient or a rate.
fn descents() -> [Descent; 3] {
    let schedule = Schedule::Step { warmup: 2, every: 3, factor: 0.5 };
    [
        Descent::PLAIN,
        Descent { clip: Some(Clip::GlobalNorm(0.1)), schedule, ..Descent::PLAIN },
        Descent { clip: Some(Clip::Value(0.2)), micro_batches: 2, ..Descent::PLAIN },
    ]
}

#[test]
fn updates_are_those_of_the_cpu() {
    let (graph, output) = maps();
    let format = (Precision::F32, CAPABILITY);
    for (optimizer, descent) in optimizers().into_iter().flat_map(|it| descents().map(|descent| (it, descent))) {
        let training = training(optimizer, Precision::F32, offloaded(descent));
        let case = ("update", &graph, output, training, BATCH, optimizer);
        prepare(&[format], case);
        compare_in(format, 0..2, case, 3, 5, 1e-4);
    }
}

/// The bits of everything that lasts after three steps, with copies that are over at once.
fn trained(
    network: &(Graph, NodeId),
    training: Training<'_>,
    precision: Precision,
    (batch, optimizer): (u64, Optimizer),
) -> Vec<(String, Vec<u32>)> {
    trained_in(0, &lowered(network, training), precision, (batch, optimizer))
}

fn lowered((graph, output): &(Graph, NodeId), training: Training<'_>) -> Program {
    lower(graph, &[*output], &Options { training: Some(training) }).unwrap()
}

/// The same in an order of threads: in all but the first, copies are over as late as they may be.
fn trained_in(
    order: i32,
    program: &Program,
    precision: Precision,
    (batch, optimizer): (u64, Optimizer),
) -> Vec<(String, Vec<u32>)> {
    let parts = program.descent.micro_batches;
    let compiled = plan(program, batch * parts, precision);
    let format = (precision, CAPABILITY);
    let placed = place(&compiled).unwrap();
    let mut simulated = Simulated::new(placed, batch, compiled.budget[Line::Arena], optimizer, format, order);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(batch).unwrap() as usize;
        let salt = tensor.name.bytes().map(usize::from).sum();
        match tensor.class {
            Class::Parameter | Class::Input | Class::Target => simulated.write(id, &spread(count, salt)),
            Class::Moment => simulated.write(id, &vec![0.25f32.to_bits(); count]),
            Class::Buffer => simulated.write(id, &vec![1f32.to_bits(); count]),
            Class::State => {
                let mut words = vec![0; count];
                words[StateWord::LearningRate as usize] = (optimizer.lr() as f32).to_bits();
                words[StateWord::LossScale as usize] = 256f32.to_bits();
                words[StateWord::Schedule as usize..][..8].copy_from_slice(&program.descent.schedule.words());
                simulated.write(id, &words);
            }
            _ => {}
        }
    }
    for _ in 0..3 {
        (0..parts - 1).for_each(|part| simulated.accumulate(part));
        simulated.step();
    }
    let lasts = |class| matches!(class, Class::Parameter | Class::Buffer | Class::Moment | Class::State);
    let lasting = program.tensors.iter().enumerate().filter(|(_, tensor)| lasts(tensor.class));
    lasting.map(|(id, tensor)| (tensor.name.clone(), simulated.read(id))).collect()
}

/// Layers of one size, so that what the first ones made leaves while the others run: some after each other, some side by side and joined.
fn deep(seed: u64) -> (Graph, NodeId) {
    const LAYERS: [&str; 8] = [
        "Conv2d(8, 3, padding = 1)",
        "BatchNorm2d",
        "Tanh",
        "Relu",
        "Dropout(0.3)",
        "Conv2d(8, 1) | Silu",
        "Conv2d(8, 3, padding = 1) | BatchNorm2d | Relu",
        "Sigmoid",
    ];
    let mut state = seed + 1;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 5])).unwrap();
    let mut values = vec![chain(&mut graph, input, "Conv2d(8, 3, padding = 1) | Tanh")];
    for _ in 0..36 {
        let last = values[values.len() - 1];
        let kind = draw(LAYERS.len() + 3);
        let next = match LAYERS.get(kind) {
            Some(text) => chain(&mut graph, last, text),
            // A value beside one of those before it, or its gate.
            None => {
                let other = values[values.len() - 1 - draw(values.len().min(9))];
                let (text, joined) =
                    if kind == LAYERS.len() { ("Tanh", "Add") } else { ("Conv2d(8, 1) | Sigmoid", "Mul") };
                let other = chain(&mut graph, other, text);
                join(&mut graph, &[last, other], joined)
            }
        };
        values.push(next);
    }
    let output = chain(&mut graph, values[values.len() - 1], "Flatten | Linear(4)");
    (graph, output)
}

/// Random networks in which activations leave and come back, alone and beside optimizer state, with copies that are over at once and as late
/// as they may be: to the bit what they are without.
#[test]
fn activations_come_back() {
    let adam = Optimizer::AdamW(AdamW { lr: 1e-3, ..AdamW::DEFAULT });
    let mut found = 0;
    for (seed, precision, micro_batches) in
        [(0, Precision::F32, 1), (1, Precision::Bf16, 1), (2, Precision::Mixed(Half::F16), 2), (3, Precision::F32, 2)]
    {
        let network = deep(seed);
        let of = |offload| {
            lowered(&network, training(adam, precision, Descent { offload, micro_batches, ..Descent::PLAIN }))
        };
        let programs = [Offload::None, Offload::Activations, Offload::All].map(of);
        prepare_programs(&[(precision, CAPABILITY)], &programs, BATCH, adam);
        let [expected, others @ ..] = &programs;
        let expected = trained_in(0, expected, precision, (BATCH, adam));
        for (program, order) in others.iter().flat_map(|program| [0, 1, 2].map(|order| (program, order))) {
            found += program.of_class(Class::Host).count();
            let trained = trained_in(order, program, precision, (BATCH, adam));
            assert!(trained == expected, "network {seed}, {precision:?}, {:?}, order {order}", program.descent.offload);
        }
    }
    assert!(found > 50, "{found}");
}

/// Operations that run with others, in another place than their own, stay on their side of a wait.
#[test]
fn waits_stay_before_what_reads() {
    let adam = Optimizer::AdamW(AdamW::DEFAULT);
    let (mut waits, mut moved) = (0, 0);
    for (seed, precision) in (0..24).flat_map(|seed| [Precision::F32, Precision::Bf16].map(|it| (seed, it))) {
        let descent = Descent { offload: Offload::Activations, ..Descent::PLAIN };
        let program = lowered(&deep(seed), training(adam, precision, descent));
        let placed = place(&plan(&program, BATCH, precision)).unwrap();
        for products in [Products::Own, Products::Library] {
            let steps = products.steps(&placed, BATCH, (precision, CAPABILITY), adam);
            moved += steps.iter().filter(|step| !step.moved.is_empty()).count();
            let operations = &placed.program.operations;
            // The numbers of steps that touch a tensor, and of the one with this leg of it.
            let touching = |id: TensorId| {
                let touches = |step: &OperationCalls| {
                    step.operations().iter().any(|&at| operations[at].tensors().any(|it| it == id))
                };
                (0..steps.len()).filter(|&at| touches(&steps[at])).collect::<Vec<_>>()
            };
            let leg_at = |leg, host: TensorId| {
                let is_it = |at: usize| {
                    operations[at].action == Action::Park(leg) && operations[at].tensors().any(|id| id == host)
                };
                steps.iter().position(|step| is_it(step.first)).unwrap()
            };
            for host in placed.program.of_class(Class::Host) {
                let [leave, left, back, returned] =
                    [Leg::Leave, Leg::Left, Leg::Return, Leg::Returned].map(|leg| leg_at(leg, host));
                let of = |step: usize, is_host: bool| {
                    operations[steps[step].first].tensors().find(|&id| (id == host) == is_host).unwrap()
                };
                let (before, after) = (touching(of(leave, false)), touching(of(back, false)));
                assert!(
                    before.iter().all(|&at| at <= left) && after[..2] == [back, returned],
                    "network {seed}: {before:?} {after:?}"
                );
                waits += 1;
            }
        }
    }
    assert!(waits > 100 && moved > 0, "{waits} {moved}");
}

/// With and without master copies, to the bit.
#[test]
fn updates_are_those_of_whole_parameters() {
    let network = maps();
    for precision in [Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16), Precision::Bf16, Precision::F32] {
        for (optimizer, descent) in optimizers().into_iter().flat_map(|it| descents().map(|descent| (it, descent))) {
            let of =
                |descent| trained(&network, training(optimizer, precision, descent), precision, (BATCH, optimizer));
            assert_eq!(of(offloaded(descent)), of(descent), "{precision:?}, {optimizer:?}, {descent:?}");
        }
    }
}

/// The second piece of a weight begins where the first one ends.
#[test]
fn pieces_of_one_weight() {
    let adam = Optimizer::AdamW(AdamW { lr: 1e-2, ..AdamW::DEFAULT });
    let network = network(&[1030], "Linear(1021)");
    for precision in [Precision::F32, Precision::Mixed(Half::Bf16)] {
        let of = |descent| trained(&network, training(adam, precision, descent), precision, (1, adam));
        assert!(of(offloaded(Descent::PLAIN)) == of(Descent::PLAIN), "{precision:?}");
    }
}
