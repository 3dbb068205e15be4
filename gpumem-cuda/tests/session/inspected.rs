//! Steps call by call, with a look at the results of each.

use super::*;
use crate::host::card::on_a_simulated_card;
use gpumem_core::program::TensorId;
use gpumem_core::run::device::Inspected;

/// The bits of everything that outlives a step. In 16 bits, two numbers are one word, which may be NaN.
fn bits(job: &Job, runner: &mut Session) -> Vec<Vec<u32>> {
    state(job, runner).into_iter().map(|(_, values)| values.into_iter().map(f32::to_bits).collect()).collect()
}

/// A step that is looked at is a step as any other, in all formats, with gaps between rows and with parts of a batch.
#[test]
fn a_step_that_is_looked_at_changes_the_same() {
    if !on_a_simulated_card("inspected::a_step_that_is_looked_at_changes_the_same", &[]) {
        return;
    }
    for precision in [Precision::F32, Precision::Bf16, Precision::Mixed(Half::F16)] {
        let whole = job(precision);
        let parts = micro_batches::split(precision, None);
        for job in [whole, parts] {
            let (mut plain, mut looked) = (load(&job), load(&job));
            begin(&job, &mut plain);
            begin(&job, &mut looked);
            let parts = job.train.as_ref().unwrap().program.descent.micro_batches;
            for step in 0..2 {
                for part in 0..parts {
                    let fed = step * parts as usize + part as usize;
                    feed(&job, &mut plain, fed);
                    feed(&job, &mut looked, fed);
                    let is_last = part + 1 == parts;
                    if is_last { plain.train() } else { plain.accumulate(part) }.unwrap();
                    let found = looked.inspect((!is_last).then_some(part)).unwrap();
                    assert_eq!(found, Inspected::default(), "{precision:?}, step {step}, part {part}");
                }
                assert_eq!(loss(&job, &mut plain), loss(&job, &mut looked));
            }
            assert!(bits(&job, &mut plain) == bits(&job, &mut looked), "{precision:?}");
        }
    }
}

/// Runs one step of which something is not finite on the card and on the CPU, and returns the tensors that each found first.
fn found(layers: &str) -> [Vec<Option<TensorId>>; 2] {
    let adam = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });
    let job = job_of(&[6], layers, adam, Precision::F32);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    let mut card = load(&job);
    let runners: [&mut dyn Runner; 2] = [&mut card, &mut cpu];
    runners.map(|runner| {
        begin(&job, runner);
        feed(&job, runner, 0);
        let Inspected { nan, infinite } = runner.inspect(None).unwrap();
        [nan, infinite].map(|found| found.map(|(_, tensor)| tensor)).to_vec()
    })
}

/// The card names the tensors that the CPU names.
#[test]
fn the_first_number_that_is_not_finite_is_found() {
    if !on_a_simulated_card("inspected::the_first_number_that_is_not_finite_is_found", &[]) {
        return;
    }
    // Logarithms of negative numbers, and of 0, which products make NaN of.
    for layers in ["Linear(5) | Log | Linear(5)", "Linear(5) | Relu | Log | Linear(5)"] {
        let [card, cpu] = found(layers);
        assert_eq!(card, cpu, "{layers}");
        assert!(card[0].is_some(), "{layers}");
        assert_eq!(card[1].is_some(), layers.contains("Relu"), "{layers}");
    }
}
