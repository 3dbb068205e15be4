//! Updates of pieces of parameters, whose states and master copies pass through staging buffers.

use crate::host::harness::graphs::{chain, numbers, plan};
use crate::host::{CAPABILITY, Simulated, compare_in, prepare, spread};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::program::{Class, StateWord};
use gpumem_core::train::optim::{AdamW, Group, Lion, Optimizer, RmsProp, Sgd};
use gpumem_core::train::{Clip, Descent, Offload, Schedule};
use gpumem_core::{Half, Precision, Update};

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
    let groups = &[Group { paths: "*bias", lr_factor: Some(0.5), weight_decay: Some(0.0) }];
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

/// The bits of everything that lasts after three steps.
fn trained(
    (graph, output): &(Graph, NodeId),
    training: Training<'_>,
    precision: Precision,
    (batch, optimizer): (u64, Optimizer),
) -> Vec<(String, Vec<u32>)> {
    let program = lower(graph, &[*output], &Options { training: Some(training) }).unwrap();
    let parts = program.descent.micro_batches;
    let compiled = plan(&program, batch * parts, precision);
    let format = (precision, CAPABILITY);
    let placed = place(&compiled).unwrap();
    let mut simulated = Simulated::new(placed, batch, compiled.budget[Line::Arena], optimizer, format, 0);
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
