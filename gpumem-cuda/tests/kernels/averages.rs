//! Moving averages of parameters: the kernel beside the CPU backend.

use super::optimizers::{network, training};
use crate::host::harness::compile;
use crate::host::{CAPABILITY, compare, compare_in, steps_of};
use gpumem_core::error::Error;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::{Action, Slot};
use gpumem_core::train::optim::{Adafactor, AdamW, AdamW8bit, Muon, Optimizer, Sgd};
use gpumem_core::train::{Descent, Ema, Offload};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;

const MAPS: &str = "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)";
const ADAMW: Optimizer = Optimizer::AdamW(AdamW { lr: 0.01, eps: 1e-3, ..AdamW::DEFAULT });

fn averaging(training: Training<'_>, ema: Ema) -> Training<'_> {
    Training { descent: Descent { ema: Some(ema), ..training.descent }, ..training }
}

#[test]
fn averages_of_every_kind_of_update() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    let ema = Ema { decay: 0.9, ..Ema::DEFAULT };
    for optimizer in [
        ADAMW,
        Optimizer::Sgd(Sgd { lr: 0.5, momentum: 0.9, ..Sgd::DEFAULT }),
        Optimizer::Adafactor(Adafactor::DEFAULT),
        Optimizer::Muon(Muon { lr: 0.02, ..Muon::DEFAULT }),
    ] {
        for update in [Update::Fused, Update::Separate] {
            let training = averaging(training(&[Term::CROSS_ENTROPY], optimizer, update), ema);
            compare(&format!("{optimizer:?}, {update:?}"), &graph, output, training, 3, optimizer, 4, 31, 1e-3);
        }
    }
    let (graph, output) = network(&[64], "Linear(65)");
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, eps: 1e-3, ..AdamW8bit::DEFAULT });
    let training = averaging(training(&[Term::DOT], optimizer, Update::Fused), ema);
    compare("codes", &graph, output, training, 2, optimizer, 3, 5, 1e-3);
}

/// An average after each third step, and a warm-up; both count with the state.
#[test]
fn averages_of_some_steps() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    for ema in [Ema { decay: 0.5, every: 3, ..Ema::DEFAULT }, Ema { decay: 0.999, warmup: true, every: 2 }] {
        let training = averaging(training(&[Term::CROSS_ENTROPY], ADAMW, Update::Fused), ema);
        compare(&format!("{ema:?}"), &graph, output, training, 3, ADAMW, 8, 31, 1e-3);
    }
}

/// In 16 bits, with master copies and parameters of norms beside them, and without.
#[test]
fn averages_are_in_32_bits() {
    let (graph, output) = network(&[3, 36], "LayerNorm | Linear(31)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    for precision in [Precision::Bf16, Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)] {
        for offload in [Offload::None, Offload::OptimizerState] {
            let ema = Ema { decay: 0.9, ..Ema::DEFAULT };
            let training = averaging(training(&[Term::DOT], optimizer, Update::Fused), ema);
            let training = Training {
                descent: Descent { offload, ..training.descent },
                skips_overflow: precision.scales_loss(),
                ..training
            };
            let case = ("averages", &graph, output, training, 2, optimizer);
            compare_in((precision, CAPABILITY), 0..1, case, 3, 5, 1e-2);
        }
    }
}

/// More parameters than a launch takes, and after all of them the end of the step.
#[test]
fn averages_of_many_parameters() {
    let sgd = Optimizer::Sgd(Sgd { lr: 0.01, ..Sgd::DEFAULT });
    let (graph, output) = network(&[6], &["LayerNorm"; 20].join(" | "));
    let training = averaging(training(&[Term::DOT], sgd, Update::Separate), Ema::DEFAULT);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
    let steps = steps_of(&placed, 2, Precision::F32, sgd);
    let last: Vec<(usize, &str)> = steps[steps.len() - 3..]
        .iter()
        .map(|step| match &step.calls[..] {
            [Call::Kernel(launch)] => (step.count, launch.kernel.entry),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(last, [(40, "update_many"), (40, "average_many"), (1, "advance")]);
    compare("many", &graph, output, training, 2, sgd, 3, 5, 1e-3);
}

#[test]
fn averages_have_their_parameters() {
    let (graph, output) = network(&[5], "Linear(4)");
    let sgd = Optimizer::Sgd(Sgd::DEFAULT);
    let training = averaging(training(&[Term::DOT], sgd, Update::Fused), Ema::DEFAULT);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
    let setting = super::optimizers::setting_of(1, sgd);
    let mut changed = placed.clone();
    for operation in changed.program.operations.iter_mut().filter(|it| it.action == Action::Average) {
        operation.writes.retain(|operand| operand.slot != Slot::Average);
    }
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("an average lacks a tensor")));
    let mut changed = placed;
    changed.program.descent.ema = None;
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("a program without moving averages computes some")));
}
