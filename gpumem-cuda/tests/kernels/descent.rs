//! Clipped gradients and rates that change: the kernels beside the CPU backend, whose own are PyTorch's.

use super::optimizers::{checked, network, training};
use crate::host::harness::compile;
use crate::host::harness::graphs::{chain, numbers, plan};
use crate::host::{CAPABILITY, Simulated, compare, compare_in, spread, steps_of};
use gpumem_core::error::Error;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::program::{Action, Class, StateWord};
use gpumem_core::train::optim::{Adafactor, AdamW, AdamW8bit, Group, Muon, Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent, Schedule};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;

const MAPS: &str = "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)";

/// Gradients of these networks are larger.
const NORM: Option<Clip> = Some(Clip::GlobalNorm(0.01));

fn descending(training: Training<'_>, clip: Option<Clip>, schedule: Schedule) -> Training<'_> {
    Training { descent: Descent { clip, schedule, ..Descent::PLAIN }, ..training }
}

/// One rule of each kind of update, with groups and without, each behind the norm of all gradients and with a rate that changes.
#[test]
fn updates_by_the_norm_of_all_gradients() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    let groups = &[
        Group { paths: "*.bias, *norm*", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear*", lr_factor: Some(0.25), ..Group::DEFAULT },
    ];
    let cosine = Schedule::Cosine { warmup: 1, total: 3, min: 0.001 };
    let cases = [
        (Optimizer::Sgd(Sgd { lr: 0.5, momentum: 0.9, ..Sgd::DEFAULT }), Schedule::PLAIN),
        (Optimizer::AdamW(AdamW { lr: 0.01, weight_decay: 0.5, eps: 1e-3, groups, ..AdamW::DEFAULT }), cosine),
        (Optimizer::Adafactor(Adafactor { groups, ..Adafactor::DEFAULT }), cosine),
        (Optimizer::Muon(Muon { lr: 0.02, adamw_lr_factor: 0.5, ..Muon::DEFAULT }), cosine),
    ];
    for (optimizer, schedule) in cases {
        let training = descending(training(&[Term::CROSS_ENTROPY], optimizer, Update::Fused), NORM, schedule);
        compare(&format!("{optimizer:?}"), &graph, output, training, 3, optimizer, 4, 31, 1e-3);
    }
}

/// States of 8 bits are there from 4096 elements on.
#[test]
fn updates_of_codes_by_the_norm() {
    let (graph, output) = network(&[64], "Linear(65)");
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, eps: 1e-3, ..AdamW8bit::DEFAULT });
    let step = Schedule::Step { warmup: 0, every: 1, factor: 0.5 };
    let training = descending(training(&[Term::DOT], optimizer, Update::Fused), NORM, step);
    compare("codes", &graph, output, training, 2, optimizer, 2, 5, 1e-3);
}

#[test]
fn updates_by_value() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.5, momentum: 0.9, weight_decay: 0.1, ..Sgd::DEFAULT });
    for update in [Update::Fused, Update::Separate] {
        let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
        let training = descending(training, Some(Clip::Value(0.001)), Schedule::PLAIN);
        compare(&format!("{update:?}"), &graph, output, training, 3, optimizer, 2, 31, 1e-3);
    }
}

/// Gradients of 16 bits and of 32 beside each other, with master copies, where a step may be skipped.
#[test]
fn gradients_of_sixteen_bits() {
    let (graph, output) = network(&[3, 36], "LayerNorm | Linear(31)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 5.0, momentum: 0.9, ..Sgd::DEFAULT });
    for precision in [Precision::Bf16, Precision::Mixed(Half::F16)] {
        let training = match precision.scales_loss() {
            true => checked(&[Term::DOT], optimizer, Update::Fused),
            false => training(&[Term::DOT], optimizer, Update::Fused),
        };
        let training = descending(training, NORM, Schedule::PLAIN);
        let case = ("sixteen bits", &graph, output, training, 2, optimizer);
        compare_in((precision, CAPABILITY), 0..1, case, 2, 5, 1e-2);
    }
}

/// Every schedule over all of its parts, by what the kernels leave in the state and by the weights that come of it.
#[test]
fn rates_of_schedules() {
    let (graph, output) = network(&[3], "Linear(2)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.1, ..Sgd::DEFAULT });
    for schedule in [
        Schedule::Constant { warmup: 3 },
        Schedule::Cosine { warmup: 5, total: 40, min: 0.001 },
        Schedule::Linear { warmup: 0, total: 40, min: 0.02 },
        Schedule::Step { warmup: 2, every: 7, factor: 0.5 },
        Schedule::OneCycle { total: 45, pct_start: 0.4, div_factor: 10.0, final_div_factor: 100.0 },
    ] {
        let training = descending(training(&[Term::DOT], optimizer, Update::Fused), None, schedule);
        compare(&format!("{schedule:?}"), &graph, output, training, 2, optimizer, 50, 2, 1e-5);
    }
}

/// The squares of all gradients are one launch, their norm is another, and updates are in one as they are without it.
#[test]
fn all_squares_are_one_launch() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    let optimizer = Optimizer::AdamW(AdamW::DEFAULT);
    let training = descending(training(&[Term::CROSS_ENTROPY], optimizer, Update::Fused), NORM, Schedule::PLAIN);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
    let steps = steps_of(&placed, 3, Precision::F32, optimizer);
    let found: Vec<(usize, Vec<&str>)> = steps[steps.len() - 3..]
        .iter()
        .map(|step| {
            let entries = step.calls.iter().map(|call| match call {
                Call::Kernel(launch) => launch.kernel.entry,
                other => panic!("{other:?}"),
            });
            (step.count, entries.collect())
        })
        .collect();
    assert_eq!(found, [(5, vec!["norm_squares"]), (1, vec!["norm_total"]), (6, vec!["update"])]);
    // 2480 weights of the product are three pieces, all others one each.
    let sums = placed.program.tensors.iter().find(|tensor| tensor.name == "squares of gradients").unwrap();
    assert_eq!(sums.shape.elements(), Some(7));
}

/// More gradients than one launch takes, of which a second one goes on with the sums behind those of the first.
#[test]
fn squares_of_many_gradients() {
    for (layers, expected) in
        [(13, vec![(26, "norm_squares_many")]), (205, vec![(406, "norm_squares_many"), (4, "norm_squares")])]
    {
        let optimizer = Optimizer::Sgd(Sgd::DEFAULT);
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[6])).unwrap();
        let output = (0..layers).fold(input, |x, _| chain(&mut graph, x, "LayerNorm"));
        let training = descending(training(&[Term::DOT], optimizer, Update::Separate), NORM, Schedule::PLAIN);
        let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
        let steps = steps_of(&placed, 2, Precision::F32, optimizer);
        let is_of_squares = |step: &&gpumem_cuda::program_calls::OperationCalls| {
            matches!(placed.program.operations[step.first].action, Action::Squares(_))
        };
        let found: Vec<(usize, &str)> = steps
            .iter()
            .filter(is_of_squares)
            .map(|step| match &step.calls[..] {
                [Call::Kernel(launch)] => (step.count, launch.kernel.entry),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected, "{layers}");
        compare(&format!("{layers} layers"), &graph, output, training, 2, optimizer, 1, 5, 1e-3);
    }
}

/// It is the norm without the loss scale that counts, and a step that is skipped leaves what gradients were multiplied with.
#[test]
fn the_loss_scale_is_no_part_of_the_norm() {
    let (graph, output) = network(&[5], "Linear(4)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.5, ..Sgd::DEFAULT });
    let training = descending(checked(&[Term::DOT], optimizer, Update::Fused), NORM, Schedule::PLAIN);
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let compiled = plan(&program, 2, Precision::F16);
    let (arena, format) = (compiled.budget[Line::Arena], (Precision::F16, CAPABILITY));
    let mut simulated = Simulated::new(place(&compiled).unwrap(), 2, arena, optimizer, format, 0);
    let state = program.tensors.iter().position(|tensor| tensor.class == Class::State).unwrap();
    let step = |simulated: &mut Simulated, scale: f32| {
        for (id, tensor) in program.tensors.iter().enumerate() {
            let count = tensor.elements(2).unwrap() as usize;
            match tensor.class {
                Class::Parameter | Class::Input | Class::Target => simulated.write(id, &spread(count, id + 1)),
                Class::State => {
                    let mut words = vec![0; count];
                    words[StateWord::LearningRate as usize] = 0.5f32.to_bits();
                    words[StateWord::LossScale as usize] = scale.to_bits();
                    words[StateWord::Clip as usize] = 7f32.to_bits();
                    simulated.write(id, &words);
                }
                _ => {}
            }
        }
        simulated.step();
        (f32::from_bits(simulated.read(state)[StateWord::Clip as usize]), simulated.read(0), simulated.read(1))
    };
    let expected = step(&mut simulated, 1.0);
    assert!(expected.0 > 0.0 && expected.0 < 0.1);
    assert_eq!(step(&mut simulated, 64.0), expected);
    let skipped = step(&mut simulated, f32::INFINITY);
    assert!(skipped.0 == 7.0 && skipped.1 != expected.1);
}

/// A rate that changes is taken from the state, where a loss has left it; and a program without a norm has none to add up.
#[test]
fn what_updates_need_is_there() {
    let (graph, output) = network(&[5], "Linear(4)");
    let optimizer = Optimizer::Sgd(Sgd::DEFAULT);
    let linear = Schedule::Linear { warmup: 0, total: 4, min: 0.0 };
    let training = descending(training(&[Term::DOT], optimizer, Update::Fused), NORM, linear);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
    let setting = super::optimizers::setting_of(1, optimizer);
    let mut changed = placed.clone();
    changed.program.operations.retain(|operation| !matches!(operation.action, Action::Loss(_)));
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("an update without a loss, which prepares it")));
    let mut changed = placed.clone();
    changed.program.descent.clip = None;
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("a program that needs no norm of gradients computes it")));
    let mut changed = placed.clone();
    for operation in &mut changed.program.operations {
        if let Action::Squares(first) = &mut operation.action {
            *first += 1;
        }
    }
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("the squares of a gradient have less memory than they need")));
}
