//! Passes beside the training step: the loss without an update, and a forward pass of another batch.

use super::*;
use crate::convolutions::{NARROW, job_with};

/// The loss without an update, between steps that are fed, changes nothing and is another graph.
#[test]
fn a_validation_loss_between_steps() {
    if !on_a_simulated_card("passes::a_validation_loss_between_steps", &[]) {
        return;
    }
    let mut job = job(Precision::F32);
    job.evaluation = Some(job.train.as_ref().unwrap().evaluation().unwrap());
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    let start = counts();
    assert_eq!(start[2..], [4, 0], "both halves of the input, the loss and the forward pass are captured");
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    for step in 0..4 {
        for runner in [&mut card as &mut dyn Runner, &mut cpu] {
            feed(&job, runner, step);
            runner.train().unwrap();
        }
        let before = state(&job, &mut card);
        let [found, expected] = [&mut card as &mut dyn Runner, &mut cpu].map(|runner| validate(&job, runner, step));
        assert!((found - expected).abs() < 1e-4, "step {step}: {found}, {expected}");
        assert_eq!(state(&job, &mut card), before, "nothing that lasts has changed");
    }
    compare("after 4 steps", &state(&job, &mut card), &state(&job, &mut cpu));
    assert_eq!(counts()[3] - start[3], 8, "graphs replayed");
}

/// The same in 16 bits, where weights and their momentum lie channels last: the loss alone has no momentum to turn.
#[test]
fn a_validation_loss_with_weights_channels_last() {
    if !on_a_simulated_card("passes::a_validation_loss_with_weights_channels_last", &[]) {
        return;
    }
    let mut wide = job_with(NARROW, true, Precision::F32);
    wide.evaluation = Some(wide.train.as_ref().unwrap().evaluation().unwrap());
    for precision in [Precision::F16, Precision::Mixed(Half::F16)] {
        let mut job = job_with(NARROW, true, precision);
        job.evaluation = Some(job.train.as_ref().unwrap().evaluation().unwrap());
        let mut card = load(&job);
        let mut cpu = Cpu::with_threads(1).unwrap().load(wide.clone()).unwrap();
        begin(&job, &mut card);
        begin(&wide, &mut cpu);
        for step in 0..3 {
            feed(&job, &mut card, step);
            card.train().unwrap();
            feed(&wide, &mut cpu, step);
            cpu.train().unwrap();
            let (found, expected) = (validate(&job, &mut card, step), validate(&wide, &mut cpu, step));
            assert!((found - expected).abs() < 1e-2 * expected, "{precision:?}, step {step}: {found}, {expected}");
        }
    }
}

/// Eight different batches that nobody waits for, against the same eight with the loss asked for after each: what is read too early,
/// or from the half that is being filled, shows.
#[test]
fn batches_in_flight_give_what_they_give_one_at_a_time() {
    if !on_a_simulated_card("passes::batches_in_flight_give_what_they_give_one_at_a_time", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let run = |waits: bool| {
        let mut card = load(&job);
        begin(&job, &mut card);
        for step in 0..8 {
            feed(&job, &mut card, step);
            card.train().unwrap();
            if waits {
                loss(&job, &mut card);
            }
        }
        let last = loss(&job, &mut card).to_bits();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        (last, state(&job, &mut card).into_iter().map(|(name, values)| (name, bits(values))).collect::<Vec<_>>())
    };
    assert_eq!(run(false), run(true));
}

/// A forward pass of another batch between steps: over the parameters as they are, in its own graph.
#[test]
fn another_batch_is_served_between_steps() {
    if !on_a_simulated_card("passes::another_batch_is_served_between_steps", &[]) {
        return;
    }
    // Adam divides by the gradient's size and would make much of its last bits.
    let sgd = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    let job = job_serving(
        &[2, 6, 6],
        "Conv2d(4, 3, bias = false) | BatchNorm2d | Relu | Flatten | Linear(5)",
        sgd,
        Precision::F32,
        Some(2),
    );
    let Served { placed, batch } = job.served.clone().unwrap();
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    let start = counts();
    assert_eq!(start[2..], [4, 0], "both halves of the input and two forward passes are captured");
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    let result = placed.program.results[0] as usize;
    let elements = placed.program.tensors[result].elements(batch).unwrap() as usize;
    for step in 0..3 {
        let serve = |runner: &mut dyn Runner| {
            feed(&job, runner, step);
            runner.train().unwrap();
            let input = placed.program.of_class(Class::Input).next().unwrap() as usize;
            let count = placed.program.tensors[input].elements(batch).unwrap() as usize;
            runner.write(placed.offsets[input], &bytes(&spread(count, 300 + step))).unwrap();
            runner.serve().unwrap();
            let mut found = vec![0; 4 * elements];
            runner.read(placed.offsets[result], &mut found).unwrap();
            found.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<f32>>()
        };
        let (found, expected) = (serve(&mut card), serve(&mut cpu));
        host::harness::assert_close("served", &found, &expected, 1e-3);
    }
    compare("after 3 steps", &state(&job, &mut card), &state(&job, &mut cpu));
}

/// The loss of an input and target of its own.
fn validate(job: &Job, runner: &mut dyn Runner, step: usize) -> f32 {
    let placed = job.evaluation.as_ref().unwrap();
    let ((input, count), (target, labels)) = (at(placed, Class::Input), at(placed, Class::Target));
    runner.write(input, &stored(job, Role::Activation, &spread(count, 200 + step))).unwrap();
    let labels: Vec<u32> = (0..labels).map(|index| (2 * index + step) as u32 % CLASSES).collect();
    runner.write(target, &bytes(&labels)).unwrap();
    runner.evaluate().unwrap();
    let mut loss = [0; 4];
    runner.read(placed.offsets[placed.program.results[0] as usize], &mut loss).unwrap();
    f32::from_le_bytes(loss)
}
