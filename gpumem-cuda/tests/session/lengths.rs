//! Sessions of networks inside of `lengths`: a number a sample, in both halves of the input.

use super::*;
use gpumem_core::program::ops::Seen;
use host::harness::graphs::{counted, layer, within};

/// Attention, a recurrence and a mean over the first of 7 steps.
fn counting(precision: Precision) -> Job {
    let mut graph = Graph::default();
    let x = graph.input(numbers(&[7, 16])).unwrap();
    let (_, lengths) = counted(&mut graph, Seen::Lengths, x, 7);
    let mean = within(&mut graph, &[lengths], &[x], "MultiHeadAttention(1) | Gru(6, bidirectional = true) | Mean(1)");
    let output = layer(&mut graph, mean, "Linear(5)");
    let loss = &[Term::CROSS_ENTROPY];
    let (moments, update, descent) = (1, Update::Fused, gpumem_core::train::Descent::PLAIN);
    let training = Training { loss, moments, update, skips_overflow: false, input_gradient: false, descent };
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    job_of_graph(&graph, output, optimizer, precision, (training, None))
}

/// Where the lengths lie.
fn lengths(placed: &Placed) -> u64 {
    placed.offsets[placed.program.of_class(Class::Input).nth(1).unwrap() as usize]
}

/// Other lengths for each step, an empty sample among them.
fn losses(job: &Job, runner: &mut impl Runner) -> Vec<f32> {
    begin(job, runner);
    let place = lengths(job.train.as_ref().unwrap());
    let step = |step: usize| {
        feed(job, runner, step);
        let all: Vec<u32> = (0..BATCH as usize).map(|sample| [7, 3, 0, 5, 1][(sample + step) % 5]).collect();
        runner.feed(place, &bytes(&all)).unwrap();
        runner.train().unwrap();
        loss(job, runner)
    };
    (0..5).map(step).collect()
}

#[test]
fn steps_with_lengths_are_those_of_the_cpu() {
    if !on_a_simulated_card("lengths::steps_with_lengths_are_those_of_the_cpu", &[]) {
        return;
    }
    // In 16 bits as far as `sixteen_bit_networks_are_trained` goes.
    for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Mixed(Half::Bf16), 5e-2)] {
        let job = counting(precision);
        let mut cpu = Cpu::with_threads(1).unwrap().load(counting(Precision::F32)).unwrap();
        let expected = losses(&counting(Precision::F32), &mut cpu);
        let found = losses(&job, &mut load(&job));
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= tolerance * expected.abs(),
                "{precision:?}: {found}, expected {expected}"
            );
        }
    }
}

/// Before anything runs, and the step after it is as ever.
#[test]
fn lengths_that_are_too_large_are_refused() {
    if !on_a_simulated_card("lengths::lengths_that_are_too_large_are_refused", &[]) {
        return;
    }
    let job = counting(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    let (train, infer) = (lengths(job.train.as_ref().unwrap()), lengths(&job.infer));
    let mut words = vec![7; BATCH as usize];
    words[1] = 8;
    feed(&job, &mut card, 0);
    let error = Error::Index { what: "length", position: 1, value: 8, limit: 8 };
    assert_eq!(card.feed(train, &bytes(&words)), Err(error.clone()));
    assert_eq!(card.write(infer, &bytes(&words)), Err(error));
    words[1] = 7;
    feed(&job, &mut card, 0);
    card.feed(train, &bytes(&words)).unwrap();
    card.train().unwrap();
    assert!(loss(&job, &mut card).is_finite());
}
