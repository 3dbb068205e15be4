//! Updates of pieces of parameters, whose states and master copies pass through staging buffers.

use crate::host::harness::graphs::{chain, numbers};
use crate::host::{CAPABILITY, compare_in, prepare};
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{AdamW, Group, Lion, Optimizer, RmsProp, Sgd};
use gpumem_core::train::{Clip, Descent, Offload, Schedule};
use gpumem_core::{Half, Precision, Update};

fn training<'t>(optimizer: Optimizer, precision: Precision, descent: Descent) -> Training<'t> {
    Training {
        loss: &[Term::MSE],
        moments: optimizer.moments(),
        update: Update::Fused,
        skips_overflow: precision.scales_loss(),
        input_gradient: false,
        descent: Descent { offload: Offload::OptimizerState, ..descent },
    }
}

/// Optimizers with none, one, two and three states, groups, and everything that changes a gradient.
#[test]
fn every_kind_of_update() {
    let groups = &[Group { paths: "*bias", lr_factor: Some(0.5), weight_decay: Some(0.0) }];
    let optimizers = [
        Optimizer::AdamW(AdamW { lr: 1e-2, groups, ..AdamW::DEFAULT }),
        Optimizer::Lion(Lion { lr: 1e-2, ..Lion::DEFAULT }),
        Optimizer::RmsProp(RmsProp { lr: 1e-3, momentum: 0.9, centered: true, ..RmsProp::DEFAULT }),
        Optimizer::Sgd(Sgd { lr: 1e-2, ..Sgd::DEFAULT }),
    ];
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 4, 4])).unwrap();
    let output = chain(&mut graph, input, "Conv2d(3, 3) | BatchNorm2d | Tanh | Flatten | Linear(9) | Tanh | Linear(5)");
    let schedule = Schedule::Step { warmup: 2, every: 3, factor: 0.5 };
    let descents = [
        Descent::PLAIN,
        Descent { clip: Some(Clip::GlobalNorm(0.1)), schedule, ..Descent::PLAIN },
        Descent { clip: Some(Clip::Value(0.2)), micro_batches: 2, ..Descent::PLAIN },
    ];
    for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Mixed(Half::Bf16), 3e-2)] {
        let format = (precision, CAPABILITY);
        for optimizer in optimizers {
            for descent in descents {
                let case = ("update", &graph, output, training(optimizer, precision, descent), 3, optimizer);
                prepare(&[format], case);
                compare_in(format, 0..2, case, 3, 5, tolerance);
            }
        }
    }
}

/// The second piece of a weight begins where the first one ends.
#[test]
fn pieces_of_one_weight() {
    let adam = Optimizer::AdamW(AdamW { lr: 1e-2, ..AdamW::DEFAULT });
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[1030])).unwrap();
    let output = chain(&mut graph, input, "Linear(1021)");
    for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Mixed(Half::Bf16), 3e-2)] {
        let format = (precision, CAPABILITY);
        let case = ("pieces", &graph, output, training(adam, precision, Descent::PLAIN), 1, adam);
        prepare(&[format], case);
        compare_in(format, 0..1, case, 1, 5, tolerance);
    }
}
