//! Optimizer states of 8 bits: codes and scales of the kernels beside those of the CPU backend.

use crate::host::harness::graphs::{chain, numbers, plan};
use crate::host::harness::{Loaded, assert_close};
use crate::host::{
    CAPABILITY, Reference, Run, Simulated, Tested, compare, compare_in, compare_programs, prepare_programs, spread,
    steps_of,
};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::number::dynamic_8bit::DynamicMap;
use gpumem_core::program::{Action, Class, Layout, Program, StateWord, Tensor};
use gpumem_core::train::optim::{Adam, AdamW8bit, Group, Optimizer, Sgd};
use gpumem_core::{Half, Precision, Role, Update};
use gpumem_cuda::operations::order;
use gpumem_cuda::{Call, Launch};

const GROUPS: &[Group] = &[
    Group { paths: "*.bias", weight_decay: Some(0.0), ..Group::DEFAULT },
    Group { paths: "linear1.*", lr_factor: Some(0.25), ..Group::DEFAULT },
];

fn adam(groups: &'static [Group]) -> Optimizer {
    Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, weight_decay: 0.5, groups, ..AdamW8bit::DEFAULT })
}

fn training(loss: &'static [Term], optimizer: Optimizer, update: Update) -> Training<'static> {
    Training {
        loss,
        moments: optimizer.moments(),
        update,
        skips_overflow: true,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    }
}

fn network(dims: &[u64], layers: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = chain(&mut graph, input, layers);
    (graph, output)
}

fn program((graph, output): &(Graph, NodeId), optimizer: Optimizer, update: Update) -> Program {
    let training = training(&[Term::DOT], optimizer, update);
    lower(graph, &[*output], &Options { training: Some(training) }).unwrap()
}

/// A program on the kernels, with these inputs and parameters.
fn simulated(program: &Program, optimizer: Optimizer, order: i32) -> Simulated {
    let compiled = plan(program, 1, Precision::F32);
    let arena = compiled.budget[Line::Arena];
    let mut simulated =
        Simulated::new(place(&compiled).unwrap(), 1, arena, optimizer, (Precision::F32, CAPABILITY), order);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(1).unwrap() as usize;
        match tensor.class {
            Class::Parameter | Class::Input | Class::Target => simulated.put(id, &given(count, id, 0)),
            Class::Moment => simulated.put(id, &vec![0; count]),
            Class::State => {
                let mut words = vec![0; count];
                words[StateWord::LearningRate as usize] = (optimizer.lr() as f32).to_bits();
                words[StateWord::LossScale as usize] = 1f32.to_bits();
                simulated.put(id, &words);
            }
            _ => {}
        }
    }
    simulated
}

/// Numbers of all magnitudes and of both signs, and zeros.
fn given(count: usize, id: usize, step: usize) -> Vec<u32> {
    let numbers = spread(count, id + 1 + 31 * step).into_iter().enumerate().map(|(index, word)| {
        let x = f32::from_bits(word);
        if index % 11 == 0 { 0.0 } else { x * x * x * x * x }
    });
    numbers.map(f32::to_bits).collect()
}

/// Steps on batches of one sample, so that an element of a weight's gradient is one product: both backends then compute the states in the
/// same way, and leave the same bits. In any order of warps; weights are a quotient of the states, in another order of operations.
fn same_bits(what: &str, network: &(Graph, NodeId), turned: bool, optimizer: Optimizer, update: Update) {
    let plain = program(network, optimizer, update);
    let mut other = plain.clone();
    for tensor in other.tensors.iter_mut().filter(|tensor| turned && !tensor.batched && tensor.shape.rank() == 4) {
        tensor.layout = Layout::CHANNELS_LAST;
    }
    assert_eq!(other.tensors.iter().any(Tensor::is_turned), turned);
    for order in 0..3 {
        let mut tested = simulated(&other, optimizer, order);
        let mut cpu = Loaded::new(&network.0, network.1, training(&[Term::DOT], optimizer, update), 1, optimizer);
        for (id, tensor) in plain.tensors.iter().enumerate().filter(|(_, tensor)| tensor.class == Class::Parameter) {
            cpu.set(&tensor.name, &given(tensor.elements(1).unwrap() as usize, id, 0));
        }
        let (mut codes, mut scales) = (0, 0);
        for step in 0..4 {
            for (id, tensor) in plain.tensors.iter().enumerate() {
                if matches!(tensor.class, Class::Input | Class::Target) {
                    let words = given(tensor.elements(1).unwrap() as usize, id, step);
                    tested.put(id, &words);
                    cpu.set(&tensor.name, &words);
                }
            }
            tested.step();
            cpu.step().unwrap();
            for (id, tensor) in plain.tensors.iter().enumerate() {
                let label = format!("{what}, {update:?}, order {order}, step {step}: {}", tensor.name);
                match (tensor.class, tensor.role) {
                    (Class::Moment, Role::Code) => {
                        let expected = cpu.get(&tensor.name).unwrap();
                        let found: Vec<f32> = tested.get(id).into_iter().map(|code| code as f32).collect();
                        assert!(found == expected, "{label}");
                        codes += found.iter().filter(|&&code| code != 0.0).count();
                    }
                    (Class::Moment, _) => {
                        let expected: Vec<u32> = cpu.get(&tensor.name).unwrap().iter().map(|x| x.to_bits()).collect();
                        assert!(tested.get(id) == expected, "{label}");
                        scales += usize::from(expected.iter().any(|&word| word != 0));
                    }
                    (Class::Parameter, _) => {
                        let found: Vec<f32> = tested.get(id).into_iter().map(f32::from_bits).collect();
                        assert_close(&label, &found, &cpu.get(&tensor.name).unwrap(), 1e-6);
                    }
                    _ => {}
                }
            }
        }
        assert!(codes > 0 && scales > 0, "{what}");
    }
}

/// A weight of 16 blocks and 174 elements, which are no multiple of four, and a bias too small for codes.
#[test]
fn codes_have_the_bits_of_the_cpu() {
    let network = network(&[70], "Linear(61)");
    same_bits("all alike", &network, false, adam(&[]), Update::Fused);
    same_bits("groups", &network, false, adam(GROUPS), Update::Separate);
}

/// Blocks begin and end within filters of 24 channels and nine taps.
#[test]
fn blocks_are_of_the_order_of_the_shape() {
    let network = network(&[24, 3, 3], "Conv2d(20, 3)");
    same_bits("turned", &network, true, adam(&[]), Update::Separate);
    same_bits("turned, groups", &network, true, adam(GROUPS), Update::Fused);
}

#[test]
fn steps_are_those_of_the_cpu() {
    let network = network(&[3, 12, 12], "Conv2d(40, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(7)");
    for update in [Update::Fused, Update::Separate] {
        let optimizer = adam(&[]);
        let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
        compare(&format!("{update:?}"), &network.0, network.1, training, 3, optimizer, 3, 7, 1e-3);
    }
}

/// Beside master copies, and beside parameters of normalisation layers that have none.
#[test]
fn weights_of_sixteen_bits() {
    let (graph, output) = network(&[64, 64], "LayerNorm | Linear(70) | LayerNorm | Linear(66)");
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.5, eps: 1.0, weight_decay: 0.1, ..AdamW8bit::DEFAULT });
    for (precision, update) in [
        (Precision::Bf16, Update::Fused),
        (Precision::F16, Update::Separate),
        (Precision::Mixed(Half::Bf16), Update::Separate),
        (Precision::Mixed(Half::F16), Update::Fused),
    ] {
        let case = ("codes", &graph, output, training(&[Term::DOT], optimizer, update), 2, optimizer);
        compare_in((precision, CAPABILITY), 0..1, case, 1, 5, 2e-2);
    }
}

/// A convolution between two others has its weight turned on tensor cores.
#[test]
fn turned_weights_of_sixteen_bits() {
    let layers = "Conv2d(16, 1) | Conv2d(32, 3, padding = 1) | Conv2d(4, 1)";
    let (graph, output) = network(&[3, 6, 6], layers);
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.5, eps: 1.0, weight_decay: 0.1, ..AdamW8bit::DEFAULT });
    for precision in [Precision::Bf16, Precision::Mixed(Half::F16)] {
        let training = training(&[Term::DOT], optimizer, Update::Separate);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let mut placed = place(&plan(&program, 2, precision)).unwrap();
        order(&mut [&mut placed], precision, CAPABILITY);
        let launches = launches(&placed, precision, optimizer);
        assert!(launches.iter().all(|launch| constant(launch, "TURNED") == Some("1")), "{launches:?}");
        let arranged = &placed.program;
        prepare_programs(&[(precision, CAPABILITY)], std::slice::from_ref(arranged), 2, optimizer);
        let run = Run { batch: 2, optimizer, steps: 1, classes: 5, tolerance: 2e-2, reference: Reference::Cpu };
        compare_programs((precision, CAPABILITY), 0..1, "turned", [&program, arranged], run);
    }
}

fn launches(placed: &gpumem_core::memory::place::Placed, precision: Precision, optimizer: Optimizer) -> Vec<Launch> {
    let steps = steps_of(placed, 2, precision, optimizer);
    let updates = steps.iter().filter(|step| placed.program.operations[step.first].action == Action::Update);
    let launches = updates.flat_map(|step| &step.calls).map(|call| match call {
        Call::Kernel(launch) => launch.clone(),
        other => panic!("{other:?}"),
    });
    launches.collect()
}

fn constant<'l>(launch: &'l Launch, name: &str) -> Option<&'l str> {
    launch.kernel.constants.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

/// Large and small parameters, of any format, are updated in one launch, of a kernel that has the maps as they are computed.
#[test]
fn all_are_one_launch() {
    let optimizer = adam(GROUPS);
    let network = network(&[64], "Linear(64) | LayerNorm | Linear(65)");
    let program = program(&network, optimizer, Update::Separate);
    let placed = place(&plan(&program, 2, Precision::Mixed(Half::Bf16))).unwrap();
    let launches = launches(&placed, Precision::Mixed(Half::Bf16), optimizer);
    let [launch] = &launches[..] else { panic!("{launches:?}") };
    // Weights, master copies, gradients, two states, two scales, and the state of the step.
    assert_eq!((launch.arguments.len(), launch.numbers[0]), (8, 6));
    let first = DynamicMap::SIGNED.entries()[0].to_bits();
    assert!(constant(launch, "SIGNED_MAP").unwrap().starts_with(&format!("{{{first:#x}u,")));
    // Which are too small for codes.
    let halves = &launch.numbers[launch.numbers.len() - 12..];
    let small: Vec<bool> = (0..6).map(|tensor| halves[tensor / 2] >> (16 * (tensor % 2)) & 1024 != 0).collect();
    let sizes: Vec<bool> = (program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter))
        .map(|tensor| tensor.elements(1).unwrap() < 4096)
        .collect();
    assert_eq!(small, sizes);
    assert_eq!(small.iter().filter(|&&small| small).count(), 4);
}

/// What is no number is seen: in weights at once, and in the states of its block from then on.
#[test]
fn a_block_with_a_gradient_that_is_no_number() {
    let optimizer = adam(&[]);
    let network = network(&[70], "Linear(61, bias = false)");
    let training = Training { skips_overflow: false, ..training(&[Term::DOT], optimizer, Update::Separate) };
    let plain = lower(&network.0, &[network.1], &Options { training: Some(training) }).unwrap();
    let mut tested = simulated(&plain, optimizer, 0);
    let named = |name: &str| plain.tensors.iter().position(|tensor| tensor.name == name).unwrap();
    let mut target = given(61, 5, 1);
    target[4] = f32::NAN.to_bits();
    tested.put(named("target"), &target);
    tested.step();
    let weights: Vec<bool> = tested.get(named("linear0.weight")).iter().map(|&x| f32::from_bits(x).is_nan()).collect();
    // A row of 70 from element 280 on, in the blocks from 256 on.
    assert!(weights.iter().enumerate().all(|(index, &is_nan)| is_nan == (280..350).contains(&index)));
    for moment in [2, 3] {
        let scales = tested.get(named(&format!("linear0.weight.moment{moment}")));
        let found: Vec<bool> = scales.iter().map(|&x| f32::from_bits(x).is_nan()).collect();
        assert!(found.iter().enumerate().all(|(index, &is_nan)| is_nan == (index == 1)), "{found:?}");
    }
}

#[test]
fn states_of_another_optimizer_are_refused() {
    let ours = adam(&[]);
    let (adam, sgd) = (Optimizer::Adam(Adam::DEFAULT), Optimizer::Sgd(Sgd::DEFAULT));
    let network = network(&[64], "Linear(64)");
    for (one, other) in [(ours, adam), (adam, ours), (ours, sgd)] {
        let placed = place(&plan(&program(&network, one, Update::Separate), 1, Precision::F32)).unwrap();
        let what = "states of 8 bits for another optimizer; name the optimizer in `TRAIN`".into();
        let refused = Error::Unsupported { device: "CUDA", what };
        let setting = crate::optimizers::setting_of(1, other);
        assert_eq!(gpumem_cuda::program_calls::steps(&placed, setting).err(), Some(refused));
    }
}

/// The test of the tests: codes are not those of the kernel if either barrier is gone.
#[test]
fn a_deleted_barrier_is_caught() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let optimizer = adam(&[]);
    let plain = program(&network(&[70], "Linear(61, bias = false)"), optimizer, Update::Separate);
    let codes = plain.tensors.iter().position(|tensor| tensor.role == Role::Code).unwrap();
    let after = |order: i32, from: &'static str, to: &'static str| {
        let mut tested = simulated(&plain, optimizer, order);
        tested.change(|_, text| text.replacen(from, to, 1));
        // In the first step there is nothing to be decoded.
        tested.step();
        tested.step();
        tested.get(codes)
    };
    let right = after(0, "", "");
    for (from, to) in [
        ("fill(maps);\n        __syncthreads();", "fill(maps);"),
        ("highest[warp][s] = most;\n    }\n    __syncthreads();", "highest[warp][s] = most;\n    }"),
    ] {
        assert!(gpumem_cuda::SOURCES.iter().any(|(_, text)| text.contains(from)), "{from}");
        assert!((0..3).any(|order| after(order, from, to) != right), "{from}");
    }
    assert!((1..3).all(|order| after(order, "", "") == right));
}
