//! Steps that may be skipped, and the norm of gradients where nothing is clipped by it: the kernels beside the CPU backend.

use super::optimizers::{network, training};
use crate::host::harness::compile;
use crate::host::harness::graphs::plan;
use crate::host::{CAPABILITY, Simulated, compare, spread, steps_of};
use gpumem_core::error::Error;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::program::{Action, Class, Slot, StateWord};
use gpumem_core::train::optim::{AdamW, Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;

const MAPS: &str = "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)";
/// With running statistics of two layers.
const TWO: &str = "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | BatchNorm2d | Flatten | Linear(31)";

/// What decides whether a step is skipped.
fn guarded(optimizer: Optimizer, clip: Option<Clip>, measures_norm: bool, micro_batches: u64) -> Training<'static> {
    let descent = Descent { clip, measures_norm, micro_batches, skips: true, ..Descent::PLAIN };
    Training { descent, ..training(&[Term::CROSS_ENTROPY], optimizer, Update::Fused) }
}

const ADAMW: Optimizer = Optimizer::AdamW(AdamW { lr: 0.01, eps: 1e-3, ..AdamW::DEFAULT });

/// Steps that are not skipped, whatever would tell.
#[test]
fn steps_of_finite_gradients() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    for (clip, measures, parts) in [
        (None, false, 1),
        (None, true, 1),
        (Some(Clip::GlobalNorm(0.01)), false, 1),
        (Some(Clip::Value(0.001)), true, 1),
        (None, false, 3),
        (Some(Clip::GlobalNorm(0.01)), false, 3),
    ] {
        let label = format!("{clip:?}, measured: {measures}, {parts} parts");
        compare(&label, &graph, output, guarded(ADAMW, clip, measures, parts), 3, ADAMW, 3, 31, 1e-3);
    }
}

/// The norm alone, without a guard and without a clip.
#[test]
fn a_norm_that_is_measured() {
    let (graph, output) = network(&[3, 6, 6], MAPS);
    let descent = Descent { measures_norm: true, ..Descent::PLAIN };
    let training = Training { descent, ..training(&[Term::CROSS_ENTROPY], ADAMW, Update::Fused) };
    compare("measured", &graph, output, training, 3, ADAMW, 2, 31, 1e-3);
}

/// A step of a network, with the first number of the images of part number `bad` spoilt.
struct Guarded {
    simulated: Simulated,
    parts: u64,
}

impl Guarded {
    fn new(precision: Precision, training: Training<'_>) -> Guarded {
        let (graph, output) = network(&[3, 6, 6], MAPS);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let parts = training.descent.micro_batches;
        let compiled = plan(&program, 3 * parts, precision);
        let (arena, format) = (compiled.budget[Line::Arena], (precision, CAPABILITY));
        let mut simulated = Simulated::new(place(&compiled).unwrap(), 3, arena, ADAMW, format, 0);
        for (id, tensor) in program.tensors.iter().enumerate() {
            let count = tensor.elements(3).unwrap() as usize;
            match tensor.class {
                Class::Parameter => simulated.write(id, &spread(count, id + 1)),
                Class::Moment => simulated.write(id, &vec![0.25f32.to_bits(); count]),
                Class::Buffer => simulated.write(id, &vec![0.5f32.to_bits(); count]),
                Class::Target => simulated.write(id, &vec![7; count]),
                Class::State => {
                    let mut words = vec![0; count];
                    words[StateWord::Step as usize] = 7;
                    words[StateWord::LearningRate as usize] = 0.05f32.to_bits();
                    words[StateWord::LossScale as usize] = 1f32.to_bits();
                    simulated.write(id, &words);
                }
                _ => {}
            }
        }
        Guarded { simulated, parts }
    }

    fn id(&self, class: Class) -> usize {
        self.simulated.placed.program.tensors.iter().position(|tensor| tensor.class == class).unwrap()
    }

    fn step(&mut self, bad: Option<(u64, f32)>) {
        let image = self.id(Class::Input);
        let count = self.simulated.placed.program.tensors[image].elements(3).unwrap() as usize;
        for part in 0..self.parts {
            let mut words = spread(count, 5);
            if let Some((_, number)) = bad.filter(|(at, _)| *at == part) {
                words[1] = number.to_bits();
            }
            self.simulated.write(image, &words);
            match part + 1 < self.parts {
                true => self.simulated.accumulate(part),
                false => self.simulated.step(),
            }
        }
    }

    /// Parameters, optimizer state and running statistics.
    fn lasting(&mut self) -> Vec<Vec<u32>> {
        let lasts = |class| matches!(class, Class::Parameter | Class::Moment | Class::Buffer);
        let tensors = self.simulated.placed.program.tensors.clone();
        let ids = (0..tensors.len()).filter(|&id| lasts(tensors[id].class));
        ids.map(|id| self.simulated.read(id)).collect()
    }

    fn word(&mut self, word: StateWord) -> u32 {
        let state = self.id(Class::State);
        self.simulated.read(state)[word as usize]
    }
}

#[test]
fn a_step_that_is_skipped_leaves_all_that_lasts() {
    for (precision, clip, measures, parts) in [
        (Precision::F32, None, false, 1),
        (Precision::F32, Some(Clip::GlobalNorm(0.01)), false, 1),
        (Precision::F32, None, true, 3),
        (Precision::F32, None, false, 3),
        (Precision::Bf16, None, false, 1),
        (Precision::Mixed(Half::Bf16), Some(Clip::Value(0.1)), false, 2),
    ] {
        for (bad, number) in [(0, f32::INFINITY), (parts - 1, f32::NAN)] {
            let label = format!("{precision:?}, {clip:?}, measured: {measures}, {parts} parts, {number} in {bad}");
            let training = guarded(ADAMW, clip, measures, parts);
            let training = Training { descent: training.descent.at(precision), ..training };
            let mut guarded = Guarded::new(precision, training);
            let before = guarded.lasting();
            guarded.step(Some((bad, number)));
            assert!(guarded.lasting() == before, "{label}");
            let words = [StateWord::Step, StateWord::Skipped, StateWord::Overflow].map(|word| guarded.word(word));
            assert_eq!(words, [7, 1, 0], "{label}");
            if measures {
                assert!(!f32::from_bits(guarded.word(StateWord::Norm)).is_finite(), "{label}");
            }
            guarded.step(None);
            // A second moment of 16 bits may be rounded to what it was.
            let program = &guarded.simulated.placed.program;
            let lasts = |class| matches!(class, Class::Parameter | Class::Moment | Class::Buffer);
            let tensors: Vec<_> = program.tensors.iter().filter(|tensor| lasts(tensor.class)).cloned().collect();
            let after = guarded.lasting();
            for ((tensor, after), before) in tensors.iter().zip(&after).zip(&before) {
                assert!(after != before || tensor.class == Class::Moment, "{label}: {}", tensor.name);
            }
            let words = [StateWord::Step, StateWord::Skipped, StateWord::Overflow].map(|word| guarded.word(word));
            assert_eq!(words, [8, 1, 0], "{label}");
        }
    }
}

/// All running statistics are saved by one launch and put back by another, between the looks at gradients and the updates.
#[test]
fn statistics_are_two_launches() {
    let (graph, output) = network(&[3, 6, 6], TWO);
    let training = guarded(ADAMW, None, false, 1);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
    let steps = steps_of(&placed, 3, Precision::F32, ADAMW);
    let entry = |step: &gpumem_cuda::program_calls::OperationCalls| match &step.calls[..] {
        [Call::Kernel(launch)] => (step.count, launch.kernel.entry),
        other => panic!("{other:?}"),
    };
    assert_eq!(entry(&steps[0]), (4, "statistics_save"));
    let last: Vec<_> = steps[steps.len() - 3..].iter().map(entry).collect();
    assert_eq!(last, [(7, "check"), (4, "statistics_restore"), (8, "update")]);
    let saved = placed.program.tensors.iter().find(|tensor| tensor.name == "statistics of before the step").unwrap();
    // Of 5 channels each, from a multiple of 64 elements on.
    assert_eq!(
        (saved.shape.elements(), saved.first, saved.last as usize),
        (Some(256), 0, {
            let restores =
                |operation: &gpumem_core::program::Operation| matches!(operation.action, Action::RestoreStatistics(_));
            placed.program.operations.iter().rposition(restores).unwrap()
        })
    );
}

/// More statistics than the launch of a few takes.
#[test]
fn statistics_of_many_layers() {
    let sgd = Optimizer::Sgd(Sgd { lr: 0.01, ..Sgd::DEFAULT });
    let (graph, output) = network(&[6, 2, 2], &["BatchNorm2d"; 20].join(" | "));
    let training = Training { loss: &[Term::DOT], moments: 0, ..guarded(sgd, None, false, 1) };
    compare("many", &graph, output, training, 2, sgd, 2, 5, 1e-3);
}

#[test]
fn statistics_have_a_place_in_their_copy() {
    let (graph, output) = network(&[3, 6, 6], TWO);
    let placed =
        compile(&lower(&graph, &[output], &Options { training: Some(guarded(ADAMW, None, false, 1)) }).unwrap(), 3);
    let setting = super::optimizers::setting_of(3, ADAMW);
    let mut changed = placed.clone();
    for operation in &mut changed.program.operations {
        if let Action::RestoreStatistics(first) = &mut operation.action {
            *first += 256;
        }
    }
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("running statistics are copied to less memory than they need")));
    let mut changed = placed;
    for operation in &mut changed.program.operations {
        if matches!(operation.action, Action::SaveStatistics(_)) {
            operation.writes.retain(|operand| operand.slot != Slot::Saved(0));
        }
    }
    let found = gpumem_cuda::program_calls::steps(&changed, setting).err();
    assert_eq!(found, Some(Error::Damaged("a copy of running statistics lacks a tensor")));
}
