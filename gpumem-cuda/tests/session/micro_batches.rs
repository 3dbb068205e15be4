//! Batches in parts: each is fed while the one before it runs, and all of them make one step.

use super::*;
use crate::host::card::on_a_simulated_card;
use gpumem_core::program::loss::LossOptions;
use gpumem_core::train::optim::Sgd;
use gpumem_core::train::{Clip, Descent};

pub const PARTS: u64 = 3;

pub fn split(precision: Precision, clip: Option<Clip>) -> Job {
    let layers = "Conv2d(4, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | \
                  Flatten | Dropout(0.25) | Linear(5)";
    let training = Training {
        loss: &[Term::CROSS_ENTROPY],
        moments: 2,
        update: Update::Separate,
        skips_overflow: precision.scales_loss(),
        input_gradient: false,
        descent: Descent { clip, micro_batches: PARTS, ..Descent::PLAIN }.at(precision),
    };
    let adam = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });
    job_training(&[2, 6, 6], layers, adam, precision, (training, None))
}

/// All parts of a step, each with another input.
pub fn step(job: &Job, runner: &mut impl Runner, step: usize) -> Result<(), Error> {
    for part in 0..PARTS {
        feed(job, runner, step * PARTS as usize + part as usize);
        if part + 1 < PARTS {
            runner.accumulate(part)?;
        }
    }
    runner.train()
}

/// Losses asked for after each step, and after several, from the ring and copied; nothing is allocated, loaded or captured after the
/// start, and no part waits for the one before it.
#[test]
fn parts_are_fed_and_replayed() {
    if !on_a_simulated_card("micro_batches::parts_are_fed_and_replayed", &[]) {
        return;
    }
    for (unmapped, clip) in [("0", None), ("1", Some(Clip::GlobalNorm(0.5)))] {
        // SAFETY: this process runs one test alone, in one thread.
        unsafe { std::env::set_var("GPUMEM_SIMULATED_UNMAPPED", unmapped) };
        let job = split(Precision::F32, clip);
        let before = counts();
        let mut card = load(&job);
        let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
        let start = counts();
        assert_eq!(start[2] - before[2], 5, "a part and the last one for each half of the input, and the forward pass");
        begin(&job, &mut card);
        begin(&job, &mut cpu);
        // More steps and parts than the ring has words.
        for number in 0..12 {
            step(&job, &mut cpu, number).unwrap();
            step(&job, &mut card, number).unwrap();
            if !(2..5).contains(&number) {
                let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
                assert!((found - expected).abs() < 1e-4, "step {number}: {found}, {expected}");
            }
        }
        compare("after 12 steps", &state(&job, &mut card), &state(&job, &mut cpu));
        let end = counts();
        assert_eq!(end[..2], start[..2], "what belongs to the start");
        assert_eq!((end[2] - start[2], end[3] - start[3]), (0, 12 * PARTS), "graphs captured and replayed");
    }
}

/// A label that is no class is found with its part; the next step begins with its first part again.
#[test]
fn a_step_begins_anew() {
    if !on_a_simulated_card("micro_batches::a_step_begins_anew", &[]) {
        return;
    }
    let job = split(Precision::F32, None);
    let mut one = load(&job);
    let mut other = load(&job);
    begin(&job, &mut one);
    begin(&job, &mut other);
    let run = |card: &mut Session| {
        let parameters = state(&job, card);
        // Running statistics have moved where the first part has run.
        let buffers: Vec<(String, Vec<f32>)> =
            parameters.into_iter().filter(|(name, _)| !name.contains("running")).collect();
        buffers
    };
    let before = run(&mut other);
    feed(&job, &mut other, 40);
    other.accumulate(0).unwrap();
    let (target, labels) = at(job.train.as_ref().unwrap(), Class::Target);
    feed(&job, &mut other, 41);
    assert!(other.feed(target, &bytes(&vec![CLASSES; labels])).is_err());
    assert_eq!(run(&mut other), before);
    for card in [&mut one, &mut other] {
        step(&job, card, 0).unwrap();
    }
    assert_eq!(loss(&job, &mut one).to_bits(), loss(&job, &mut other).to_bits());
    assert_eq!(run(&mut one), run(&mut other));
}

/// Without graphs, and in 16 bits: the same as with them.
#[test]
fn parts_are_launched_call_by_call() {
    if !on_a_simulated_card("micro_batches::parts_are_launched_call_by_call", &[]) {
        return;
    }
    let job = split(Precision::Mixed(Half::F16), None);
    let run = || {
        let mut card = load(&job);
        begin(&job, &mut card);
        let losses: Vec<u32> = (0..4)
            .map(|number| {
                step(&job, &mut card, number).unwrap();
                loss(&job, &mut card).to_bits()
            })
            .collect();
        losses
    };
    let replayed = run();
    // SAFETY: this process runs one test alone, in one thread.
    unsafe { std::env::set_var("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags") };
    let before = counts()[3];
    assert_eq!(run(), replayed);
    assert_eq!(counts()[3], before, "no graph was replayed");
}

/// What a loss is divided by comes with each part, beside its target, while the part before it runs.
#[test]
fn parts_are_fed_what_their_loss_is_divided_by() {
    if !on_a_simulated_card("micro_batches::parts_are_fed_what_their_loss_is_divided_by", &[]) {
        return;
    }
    let counted = LossOptions { ignored: Some(1), ..LossOptions::DEFAULT };
    let training = Training {
        loss: &[Term { options: counted, ..Term::CROSS_ENTROPY }],
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: false,
        descent: Descent { micro_batches: PARTS, ..Descent::PLAIN },
    };
    let sgd = Optimizer::Sgd(Sgd { lr: 0.01, ..Sgd::DEFAULT });
    let job = job_training(&[6], "Linear(9) | Tanh | Linear(5)", sgd, Precision::F32, (training, None));
    let placed = job.train.as_ref().unwrap();
    let [_, divisor] = placed.program.of_class(Class::Target).collect::<Vec<_>>()[..] else { panic!() };
    let step = |runner: &mut dyn Runner, number: usize| {
        for part in 0..PARTS {
            feed(&job, runner, number * PARTS as usize + part as usize);
            let values = vec![(number as f32 + 2.5).to_bits(); BATCH as usize];
            runner.feed(placed.offsets[divisor as usize], &bytes(&values)).unwrap();
            if part + 1 < PARTS {
                runner.accumulate(part).unwrap();
            }
        }
        runner.train().unwrap();
    };
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    let mut before = f32::NAN;
    for number in 0..6 {
        step(&mut card, number);
        step(&mut cpu, number);
        let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
        assert!((found - expected).abs() < 1e-4 && found != before, "step {number}: {found}, {expected}");
        before = found;
    }
    compare("after 6 steps", &state(&job, &mut card), &state(&job, &mut cpu));
}

/// A step of whole batches has no parts.
#[test]
fn whole_batches_are_not_split() {
    if !on_a_simulated_card("micro_batches::whole_batches_are_not_split", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    assert!(card.accumulate(0).unwrap_err().to_string().contains("whole batches"));
    card.train().unwrap();
}
