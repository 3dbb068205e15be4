//! Groups of parameters with numbers of the rule: a launch for each, beside the CPU backend, whose rules are one parameter's.

use super::optimizers::{network, training};
use crate::host::harness::compile;
use crate::host::{CAPABILITY, compare, compare_in, steps_of};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::train::optim::{Adam, AdamW, AdamW8bit, Adamax, Group, Lion, NAdam, Optimizer, RmsProp, Sgd};
use gpumem_core::train::{Descent, Offload, Schedule};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;

const MAPS: &str = "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)";

const GROUPS: &[Group] = &[
    Group { paths: "*norm*", betas: Some((0.5, 0.75)), ..Group::DEFAULT },
    Group {
        paths: "*.bias",
        eps: Some(1e-2),
        momentum: Some(0.25),
        lr_factor: Some(0.5),
        weight_decay: Some(0.0),
        ..Group::DEFAULT
    },
    Group { paths: "linear*.weight", betas: Some((0.0, 0.9)), momentum: Some(0.75), ..Group::DEFAULT },
];

#[test]
fn numbers_of_the_rule_by_group() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    for optimizer in [
        Optimizer::Adam(Adam { lr: 0.01, eps: 1e-3, groups: GROUPS, ..Adam::DEFAULT }),
        Optimizer::AdamW(AdamW { lr: 0.01, eps: 1e-3, amsgrad: true, groups: GROUPS, ..AdamW::DEFAULT }),
        Optimizer::Adamax(Adamax { lr: 0.01, eps: 1e-3, groups: GROUPS, ..Adamax::DEFAULT }),
        Optimizer::NAdam(NAdam { lr: 0.01, eps: 1e-3, groups: GROUPS, ..NAdam::DEFAULT }),
        Optimizer::Lion(Lion { lr: 0.01, groups: GROUPS, ..Lion::DEFAULT }),
        Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9, nesterov: true, groups: GROUPS, ..Sgd::DEFAULT }),
        Optimizer::RmsProp(RmsProp {
            lr: 0.01,
            eps: 1e-3,
            momentum: 0.9,
            centered: true,
            groups: GROUPS,
            ..RmsProp::DEFAULT
        }),
    ] {
        for update in [Update::Fused, Update::Separate] {
            let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
            compare(&format!("{optimizer:?}, {update:?}"), &graph, output, training, 3, optimizer, 4, 31, 1e-3);
        }
    }
}

#[test]
fn codes_by_group() {
    let (graph, output) = network(&[64], "Linear(65) | Linear(65)");
    let groups = &[Group { paths: "linear1*", betas: Some((0.5, 0.75)), ..Group::DEFAULT }];
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, eps: 1e-3, groups, ..AdamW8bit::DEFAULT });
    let training = training(&[Term::DOT], optimizer, Update::Fused);
    compare("codes", &graph, output, training, 2, optimizer, 3, 5, 1e-3);
}

/// In 16 bits with master copies, in pieces from host memory, and with a rate that changes.
#[test]
fn groups_of_master_copies_and_pieces() {
    let (graph, output) = network(&[3, 36], "LayerNorm | Linear(31)");
    let groups = &[
        Group { paths: "*norm*", betas: Some((0.5, 0.75)), eps: Some(0.5), ..Group::DEFAULT },
        Group { paths: "linear*.weight", betas: Some((0.25, 0.9)), ..Group::DEFAULT },
    ];
    // What 16 bits lose of a small gradient is no large part of a step.
    let optimizer = Optimizer::AdamW(AdamW { lr: 0.01, eps: 0.25, groups, ..AdamW::DEFAULT });
    for offload in [Offload::None, Offload::OptimizerState] {
        let schedule = Schedule::Linear { warmup: 1, total: 9, min: 0.0 };
        let descent = Descent { offload, schedule, ..Descent::PLAIN };
        let training = Training { descent, ..training(&[Term::DOT], optimizer, Update::Fused) };
        let case = ("groups", &graph, output, training, 2, optimizer);
        compare_in((Precision::Mixed(Half::Bf16), CAPABILITY), 0..1, case, 3, 5, 1e-2);
    }
}

/// A launch for each set of numbers, and the last of them is the end of the step.
#[test]
fn each_rule_has_a_launch() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    let optimizer = Optimizer::AdamW(AdamW { groups: GROUPS, ..AdamW::DEFAULT });
    let training = training(&[Term::CROSS_ENTROPY], optimizer, Update::Separate);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
    let steps = steps_of(&placed, 3, Precision::F32, optimizer);
    let last = steps.last().unwrap();
    let launches: Vec<_> = last
        .calls
        .iter()
        .map(|call| match call {
            Call::Kernel(launch) => (launch.kernel.entry, launch.numbers[0], launch.numbers[1]),
            other => panic!("{other:?}"),
        })
        .collect();
    // The convolution's weight; weight and bias of the norm, of which the bias has an `eps` too; weight and bias of the product.
    assert_eq!(last.count, 6);
    let counts: Vec<u32> = launches.iter().map(|(_, count, _)| *count).collect();
    assert_eq!((launches.len(), counts.iter().sum::<u32>()), (5, 5));
    let ends: Vec<u32> = launches.iter().map(|(_, _, ends)| *ends).collect();
    assert_eq!(ends, [0, 0, 0, 0, 1]);
}
