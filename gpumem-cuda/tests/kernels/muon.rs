//! Muon: matrices that are tall, wide and larger than a tile beside parameters that are none, groups, master copies, and launches.

use super::optimizers::{checked, network, setting_of, training};
use crate::host::harness::compile;
use crate::host::{CAPABILITY, compare, compare_in, steps_of};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, lower};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Slot};
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Group, Muon, Optimizer};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;

const MUON: Muon = Muon { lr: 0.02, adamw_lr_factor: 0.5, adamw_eps: 1e-3, ..Muon::DEFAULT };

/// Weights of [5, 12], [70, 245] and [9, 70], which are matrices, and of [31, 9], which makes the output.
fn matrices() -> (Graph, NodeId) {
    network(
        &[2, 9, 8],
        "Conv2d(5, [3; 2]) | Tanh | Flatten | Linear(70) | Tanh | LayerNorm | Linear(9) | Sigmoid | Linear(31)",
    )
}

#[test]
fn matrices_are_those_of_the_cpu() {
    let (graph, output) = matrices();
    let groups = &[
        Group { paths: "*.bias, *norm*", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear*", lr_factor: Some(0.25), ..Group::DEFAULT },
    ];
    for (rule, update) in [
        (MUON, Update::Separate),
        (Muon { groups, match_rms_adamw: true, ..MUON }, Update::Fused),
        (Muon { nesterov: false, ns_steps: 2, momentum: 0.5, adamw_lr_factor: 1.0, ..MUON }, Update::Separate),
        (Muon { ns_coefficients: (1.5, -0.5, 0.0), weight_decay: 0.0, eps: 100.0, ..MUON }, Update::Fused),
    ] {
        let optimizer = Optimizer::Muon(rule);
        let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
        compare(&format!("{optimizer:?}, {update:?}"), &graph, output, training, 3, optimizer, 3, 31, 1e-3);
    }
}

#[test]
fn matrices_of_sixteen_bits() {
    // What rounding leaves of a gradient shows in few layers.
    let (graph, output) = network(&[36], "Linear(20) | Linear(31)");
    for (precision, update) in [
        (Precision::Bf16, Update::Separate),
        (Precision::F16, Update::Fused),
        (Precision::Mixed(Half::Bf16), Update::Fused),
        (Precision::Mixed(Half::F16), Update::Separate),
    ] {
        // A batch has fewer samples than the matrix has rows: what rounding puts where the gradient is 0 grows by a factor of 3.4 in
        // each step of the iteration.
        let optimizer = Optimizer::Muon(Muon { lr: 0.1, ns_steps: 1, adamw_eps: 1.0, ..MUON });
        let training = match precision.scales_loss() {
            true => checked(&[Term::DOT], optimizer, update),
            false => training(&[Term::DOT], optimizer, update),
        };
        let what = format!("{precision:?}, {update:?}");
        compare_in((precision, CAPABILITY), 0..1, (&what, &graph, output, training, 6, optimizer), 1, 5, 1e-2);
    }
}

/// Matrices one after the other, and all other parameters in one launch, which is the end of the step.
#[test]
fn what_is_no_matrix_is_launched_together() {
    let (graph, output) = matrices();
    let optimizer = Optimizer::Muon(Muon { ns_steps: 2, ..MUON });
    let training = training(&[Term::MSE], optimizer, Update::Separate);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
    let steps = steps_of(&placed, 2, Precision::F32, optimizer);
    let step = steps.iter().find(|step| placed.program.operations[step.first].action == Action::Update).unwrap();
    // Ten parameters, and the end of the step.
    assert_eq!(step.count, 11);
    let entry = |call: &Call| match call {
        Call::Kernel(launch) => launch.kernel.entry,
        other => panic!("{other:?}"),
    };
    let found: Vec<&str> = step.calls.iter().map(entry).collect();
    let products = ["muon_product"; 6];
    let each = [&["muon_momentum", "muon_norm", "muon_begin"][..], &products, &["muon_update"]].concat();
    assert_eq!(found, [each.repeat(3), vec!["update"]].concat());
    let Call::Kernel(last) = &step.calls[step.calls.len() - 1] else { panic!("an update is a kernel") };
    assert_eq!(last.numbers[..2], [7, 1]);
}

/// Scratch memory of a matrix may lie where the gradient of an earlier update was, and is then not written before that has run.
#[test]
fn scratch_memory_in_the_place_of_a_gradient_keeps_the_order() {
    let (graph, output) = matrices();
    let optimizer = Optimizer::Muon(Muon { ns_steps: 2, ..MUON });
    let training = training(&[Term::MSE], optimizer, Update::Separate);
    let mut placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
    let operations = placed.program.operations.clone();
    let updates: Vec<usize> = (0..operations.len()).filter(|&at| operations[at].action == Action::Update).collect();
    let of_matrix = |at: &&usize| operations[**at].written(Slot::Workspace).is_some();
    let earlier = *updates.iter().find(|at| !of_matrix(at)).unwrap();
    let matrix = *updates.iter().filter(of_matrix).find(|at| **at > earlier).unwrap();
    let begins = |placed: &Placed| {
        let steps = steps_of(placed, 2, Precision::F32, optimizer);
        steps.iter().map(|step| step.first).rfind(|&first| first <= matrix).unwrap()
    };
    assert_eq!(begins(&placed), updates[0], "all in one step");
    let scratch = operations[matrix].written(Slot::Workspace).unwrap();
    let gradient = operations[earlier].read(Slot::ParameterGradient).unwrap();
    placed.offsets[scratch as usize] = placed.offsets[gradient as usize];
    assert!((earlier + 1..=matrix).contains(&begins(&placed)), "that of the matrix begins another one");
}

/// Scratch memory that is too small is found before anything runs.
#[test]
fn too_little_scratch_memory_is_an_error() {
    let (graph, output) = matrices();
    let optimizer = Optimizer::Muon(MUON);
    let training = training(&[Term::MSE], optimizer, Update::Separate);
    let mut placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
    let mut memories = placed.program.operations.iter().filter_map(|it: &Operation| match it.action {
        Action::Update => it.written(Slot::Workspace),
        _ => None,
    });
    let memory = memories.next().unwrap() as usize;
    assert!(memories.all(|other| other as usize == memory), "updates share their scratch memory");
    // Of the largest matrix: twice itself and its square, the sums of 17 pieces, and the norm.
    let elements = 2 * 70 * 245 + 2 * 70 * 70 + 17 + 1;
    assert_eq!(placed.program.tensors[memory].shape, Shape::new(&[elements]));
    placed.program.tensors[memory].shape = Shape::new(&[100]);
    let found = gpumem_cuda::program_calls::steps(&placed, setting_of(1, optimizer));
    assert_eq!(found.err(), Some(Error::Damaged("an update has less scratch memory than it needs")));
}
