//! Algorithms of the libraries that are chosen by their time on the card.

use super::*;
use crate::convolutions::{NARROW, convolutions_job, job_with};
use crate::host::card::on_a_simulated_card_with_cudnn;
use std::collections::BTreeSet;

/// The algorithms of the first things that the libraries rank take longer: of products 0, of convolutions in f32 3, of those in 16 bits 0.
const SLOW: (&str, &str) = ("GPUMEM_SIMULATED_SLOW", "0:3,3:4");

/// How the libraries compute the launches of a step, after steps that gave these losses.
fn trained(device: &Cuda, job: &Job) -> (BTreeSet<(&'static str, String)>, Vec<f32>) {
    let mut card = load_on(device, job).unwrap();
    begin(job, &mut card);
    let mut step = |step| {
        feed(job, &mut card, step);
        card.train().unwrap();
        loss(job, &mut card)
    };
    let losses = (0..3).map(&mut step).collect();
    let profile = card.profile(1).unwrap();
    let choices = profile.programs[0].launches.iter().filter_map(|launch| launch.choice.as_ref());
    (choices.map(|choice| (choice.library, choice.algorithm.clone())).collect(), losses)
}

/// All algorithms of a library.
fn of<'c>(choices: &'c BTreeSet<(&'static str, String)>, library: &str) -> Vec<&'c str> {
    choices.iter().filter(|(by, _)| *by == library).map(|(_, algorithm)| algorithm.as_str()).collect()
}

/// Those that the libraries rank first, and with autotuning the first of the fastest, with which a step computes the same.
#[test]
fn the_fastest_algorithm_is_taken() {
    if !on_a_simulated_card_with_cudnn("autotune::the_fastest_algorithm_is_taken", &[SLOW]) {
        return;
    }
    let device = Cuda::new(0).unwrap();
    let job = convolutions_job(false, Precision::F32);
    let (ranked, losses) = trained(&device, &job);
    let (timed, of_timed) = trained(&device.clone().with_autotuning(true), &job);
    host::harness::assert_close("losses", &of_timed, &losses, 1e-5);
    assert_eq!(of(&ranked, "cuBLASLt"), ["algorithm 1"]);
    assert_eq!(of(&timed, "cuBLASLt"), ["algorithm 2"]);
    // The one whose results depend on the run is ranked first; it alone is slow.
    let slow = ["FWD_ALGO_DIRECT", "BWD_DATA_ALGO_FFT_TILING", "BWD_FILTER_ALGO_3"];
    let has = |choices: &BTreeSet<_>, name: &str| of(choices, "cuDNN").iter().any(|it| it.contains(name));
    for name in slow {
        assert!(has(&ranked, name) && !has(&timed, name), "{name}: {ranked:?}, {timed:?}");
    }
}

/// Engines of convolutions in 16 bits.
#[test]
fn the_fastest_engine_is_taken() {
    if !on_a_simulated_card_with_cudnn("autotune::the_fastest_engine_is_taken", &[SLOW]) {
        return;
    }
    let device = Cuda::new(0).unwrap();
    let job = job_with(NARROW, false, Precision::Bf16);
    assert_eq!(of(&trained(&device, &job).0, "cuDNN"), ["engine 0"]);
    assert_eq!(of(&trained(&device.with_autotuning(true), &job).0, "cuDNN"), ["engine 4"]);
}

/// Where every run must give the same bits, the libraries' ranking decides.
#[test]
fn a_deterministic_network_is_not_timed() {
    if !on_a_simulated_card_with_cudnn("autotune::a_deterministic_network_is_not_timed", &[SLOW]) {
        return;
    }
    let device = Cuda::new(0).unwrap();
    let job = convolutions_job(true, Precision::F32);
    let (ranked, _) = trained(&device, &job);
    assert_eq!(trained(&device.with_autotuning(true), &job).0, ranked);
    assert_eq!(of(&ranked, "cuBLASLt"), ["algorithm 1"]);
}

/// A candidate that reads a wrong address has broken the context.
#[test]
fn a_candidate_that_fails_is_an_error() {
    let name = "autotune::a_candidate_that_fails_is_an_error";
    if !on_a_simulated_card_with_cudnn(name, &[SLOW, ("GPUMEM_SIMULATED_CUDNN_CRASHES", "filter")]) {
        return;
    }
    let device = Cuda::new(0).unwrap().with_autotuning(true);
    let error = load_on(&device, &convolutions_job(false, Precision::F32)).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("CUDA: cuDNN: trying filter gradient of the convolution"), "{error}");
}
