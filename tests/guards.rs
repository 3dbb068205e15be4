//! Numbers of training steps at run time: the `total` of a schedule, the norm of gradients, and steps that are skipped.
#![deny(warnings)]

use gpumem::prelude::*;
use gpumem::{Cpu, Schedule, Trains};

/// A network with running statistics, and one of its settings.
macro_rules! convolution {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, loss: Mse, seed: 3, $($settings)* };

            fn forward(image: Image<2, 4, 4>) -> Features<3> {
                [Conv2d(4, 3), BatchNorm2d, Relu, InplaceAbn, Flatten, Linear(3)]
            }
        }
    };
}

macro_rules! linear {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 2, loss: Mse, optimizer: Sgd { lr: 0.1 }, $($settings)* };

            fn forward(x: Features<3>) -> Features<2> {
                [Linear(2, name = "fc")]
            }
        }
    };
}

linear!(Written, { schedule: Cosine { warmup: 2, total: 9, min: 0.01 } });
linear!(Open, { schedule: Cosine { warmup: 2, min: 0.01 } });
linear!(OpenCycle, { schedule: OneCycle { pct_start: 0.25 } });
linear!(Plain, {});
linear!(Measured, { measure: GradientNorm });
linear!(Clipped, { clip: GlobalNorm(0.01) });
linear!(ByValue, { clip: Value(0.001), measure: GradientNorm, micro_batches: 2 });

fn load<N: Network>() -> Net<N, Cpu> {
    Net::load(&Cpu::with_threads(1).unwrap().with_poison(true).emulate()).unwrap()
}

/// A training step of a network of three numbers.
macro_rules! step {
    ($net:expr, $step:expr) => {{
        let step = $step as usize;
        let x = Tensor::from_fn(|index| ((index * 7 + step * 3) % 11) as f32 / 5.0 - 1.0);
        let y = Tensor::from_fn(|index| ((index * 5 + step) % 7) as f32 / 3.0);
        $net.train_step(&x, &y)
    }};
}

/// The bits of everything that training changes.
fn state<N: Trains>(net: &mut Net<N, Cpu>) -> Vec<(String, Vec<u32>)> {
    let names: Vec<String> = net.state_tensors().into_iter().map(|tensor| tensor.name).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), net.get(&name).unwrap().into_iter().map(f32::to_bits).collect()))
        .collect()
}

#[test]
fn a_total_is_set_before_the_first_step() {
    let (mut written, mut open) = (load::<Written>(), load::<Open>());
    let missing = "its schedule has no `total`; call `net.set_total(steps)` before the first step";
    for error in [step!(open, 0).unwrap_err(), open.lr().unwrap_err(), open.train_again().unwrap_err()] {
        assert!(error.to_string().contains(missing), "{error}");
    }
    assert!(open.schedule().is_open());
    open.set_total(9).unwrap();
    assert_eq!(open.schedule(), written.schedule());
    for step in 0..12 {
        assert_eq!(open.lr().unwrap(), written.lr().unwrap());
        assert_eq!(step!(open, step).unwrap().to_bits(), step!(written, step).unwrap().to_bits());
        assert_eq!(state(&mut open), state(&mut written), "step {step}");
    }
    // What was set stays through a reset.
    open.reset().unwrap();
    assert_eq!(open.lr().unwrap(), 0.1 / 3.0);
}

#[test]
fn a_total_changes_while_a_network_trains() {
    let mut net = load::<Written>();
    for step in 0..5 {
        step!(net, step).unwrap();
    }
    net.set_total(30).unwrap();
    let longer = Schedule::Cosine { warmup: 2, total: 30, min: 0.01 };
    assert_eq!(net.lr().unwrap(), longer.rate(0.1, 5));
    let before = net.get("fc.bias").unwrap();
    net.set("fc.weight", &[0.0; 6]).unwrap();
    net.set("fc.bias", &[0.0; 2]).unwrap();
    // The slope of a mean of squares at 0 is -2 / n times the target.
    let y = Tensor::from_fn(|_| 1.0);
    net.train_step(&Tensor::zeros(), &y).unwrap();
    let moved = net.get("fc.bias").unwrap()[0];
    assert!((f64::from(moved) - longer.rate(0.1, 5)).abs() < 1e-7, "{moved}");
    assert_ne!(before, net.get("fc.bias").unwrap());
}

#[test]
fn totals_that_cannot_be_are_refused() {
    let mut open = load::<Open>();
    for (total, message) in [
        (0, "the `total` of its schedule is 0 steps; use at least 1, or leave it out and call `set_total`"),
        (2, "the `total` of its schedule is 2 steps, the 2 of `warmup` among them; it must be more than these"),
        (u64::MAX, "the `total` of its schedule is more steps than can be counted"),
    ] {
        let error = open.set_total(total).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(open.schedule().is_open());
    }
    let error = load::<OpenCycle>().set_total(4).unwrap_err().to_string();
    let message = "with a `total` of 4, the `pct_start` of its schedule is a share of the 4 steps; it must be more than one of them";
    assert!(error.contains(message), "{error}");
    let error = load::<Plain>().set_total(4).unwrap_err().to_string();
    let message = "its schedule is `Constant`, which has no `total`; give it one that ends, as `schedule: Cosine { warmup: 100 }`";
    assert!(error.contains(message), "{error}");
}

#[test]
fn the_norm_of_gradients_is_that_before_clipping() {
    let (mut measured, mut clipped, mut by_value) = (load::<Measured>(), load::<Clipped>(), load::<ByValue>());
    let early = measured.gradient_norm().unwrap_err().to_string();
    assert!(early.contains("there has been no training step whose gradients this could be the norm of"), "{early}");
    for step in 0..4 {
        step!(measured, step).unwrap();
        step!(clipped, step).unwrap();
        step!(by_value, step).unwrap();
        let mut square = 0.0;
        for name in ["fc.weight.gradient", "fc.bias.gradient"] {
            square += measured.get(name).unwrap().iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
        }
        let norm = measured.gradient_norm().unwrap();
        assert!((norm - square.sqrt()).abs() <= 1e-6 * norm && norm > 0.01, "{norm} {square}");
        if step == 0 {
            // These move apart later.
            for other in [clipped.gradient_norm().unwrap(), by_value.gradient_norm().unwrap()] {
                assert!((norm - other).abs() <= 1e-6 * norm, "{norm} {other}");
            }
        }
    }
    let mut plain = load::<Plain>();
    step!(plain, 0).unwrap();
    let error = plain.gradient_norm().unwrap_err().to_string();
    let message = "the norm of its gradients is not computed; write `measure: GradientNorm` in `TRAIN`, or `clip: GlobalNorm(1.0)`";
    assert!(error.contains(message), "{error}");
    assert!(measured.measures_gradient_norm() && !plain.measures_gradient_norm());
}

#[test]
fn a_norm_that_is_measured_changes_no_step() {
    let (mut plain, mut measured) = (load::<Plain>(), load::<Measured>());
    for step in 0..3 {
        assert_eq!(step!(plain, step).unwrap().to_bits(), step!(measured, step).unwrap().to_bits());
    }
    assert_eq!(plain.get("fc.weight").unwrap(), measured.get("fc.weight").unwrap());
}

convolution!(Single, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite });
convolution!(Momentum, { optimizer: Sgd { lr: 0.01, momentum: 0.9 }, skip: NonFinite, conv_norm: Separate, checkpoint: None });
convolution!(Half, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, precision: Bf16 });
convolution!(Mixed16, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, precision: Mixed(Bf16) });
convolution!(Scaled, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, precision: Mixed(F16) });
convolution!(ByNorm, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, clip: GlobalNorm(0.5) });
convolution!(WithNorm, { optimizer: Adafactor { lr: 0.01 }, skip: NonFinite, measure: GradientNorm });
convolution!(InParts, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, micro_batches: 2 });
convolution!(InPartsByNorm, { optimizer: Muon { lr: 0.01 }, skip: NonFinite, micro_batches: 4, clip: GlobalNorm(0.5) });
convolution!(Offloaded, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, offload: OptimizerState });
convolution!(Recomputed, { optimizer: AdamW { lr: 0.01 }, skip: NonFinite, checkpoint: Budget(0.8) });

/// A number of a batch that spoils its step.
#[derive(Clone, Copy, Debug)]
enum Spoils {
    Image(usize, f32),
    Target(usize, f32),
}

/// Trains with and without spoilt batches in between, and compares all that lasts.
macro_rules! skips {
    ($name:ident) => {{
        let (mut net, mut other) = (load::<$name>(), load::<$name>());
        let image = |step: usize| Tensor::from_fn(move |index| ((index * 7 + step * 3) % 11) as f32 / 5.0 - 1.0);
        let target = |step: usize| Tensor::from_fn(move |index| ((index * 5 + step) % 7) as f32 / 3.0);
        let name = stringify!($name);
        assert!(net.skips_non_finite());
        let mut skipped = 0;
        for step in 0..4usize {
            let expected = other.train_step(&image(step), &target(step)).unwrap();
            assert_eq!(
                net.train_step(&image(step), &target(step)).unwrap().to_bits(),
                expected.to_bits(),
                "{name} {step}"
            );
            assert_eq!(state(&mut net), state(&mut other), "{name}, after step {step}");
            assert_eq!((net.steps().unwrap(), net.skipped().unwrap()), (step as u64 + 1, skipped), "{name}");
            // A number of the first and of the last sample: of each part of a batch.
            for spoils in [
                Spoils::Image(3, f32::INFINITY),
                Spoils::Image(4 * 32 - 1, f32::NAN),
                Spoils::Target(0, f32::NAN),
                Spoils::Target(11, f32::INFINITY),
            ] {
                let before = net.state_numbers().unwrap();
                let bad = |index: usize, value: f32, at: usize, to: f32| if index == at { to } else { value };
                let (x, y) = match spoils {
                    Spoils::Image(at, to) => (Tensor::from_fn(|i| bad(i, ((i * 7) % 11) as f32, at, to)), target(step)),
                    Spoils::Target(at, to) => (image(step), Tensor::from_fn(|i| bad(i, 1.0, at, to))),
                };
                let loss = net.train_step(&x, &y).unwrap();
                assert!(!loss.is_finite(), "{name}, {spoils:?}: {loss}");
                skipped += 1;
                assert_eq!(state(&mut net), state(&mut other), "{name}, after step {step} and {spoils:?}");
                assert_eq!(net.steps().unwrap(), before.steps, "{name}");
                assert_eq!(net.skipped().unwrap(), skipped, "{name}");
                assert!(net.eval_loss(&image(step), &target(step)).unwrap().is_finite(), "{name}, {spoils:?}");
            }
        }
        assert_ne!(state(&mut net)[0], state(&mut load::<$name>())[0], "{name}");
    }};
}

#[test]
fn a_step_that_is_skipped_changes_nothing() {
    skips!(Single);
    skips!(Momentum);
    skips!(ByNorm);
    skips!(WithNorm);
    skips!(Recomputed);
}

#[test]
fn steps_are_skipped_at_every_precision() {
    skips!(Half);
    skips!(Mixed16);
    skips!(Scaled);
}

#[test]
fn a_batch_in_parts_is_skipped_as_a_whole() {
    skips!(InParts);
    skips!(InPartsByNorm);
}

#[test]
fn states_in_host_memory_stay_where_a_step_is_skipped() {
    skips!(Offloaded);
}

#[test]
fn the_norm_of_a_step_that_is_skipped_is_not_finite() {
    let mut net = load::<ByNorm>();
    net.train_step(&Tensor::from_fn(|_| 1.0), &Tensor::from_fn(|_| f32::NAN)).unwrap();
    assert!(net.gradient_norm().unwrap().is_nan());
}

#[test]
fn totals_and_skipped_steps_are_part_of_a_state() {
    let mut net = load::<Open>();
    net.set_total(20).unwrap();
    step!(net, 0).unwrap();
    let snapshot = net.snapshot().unwrap();
    assert_eq!((snapshot.numbers().total, snapshot.numbers().skipped), (Some(20), 0));
    let mut other = load::<Open>();
    other.restore(&snapshot).unwrap();
    assert_eq!(other.lr().unwrap(), net.lr().unwrap());
    step!(other, 1).unwrap();
    // What `TRAIN` says is no part of it.
    assert_eq!(load::<Written>().state_numbers().unwrap().total, None);
    let mut single = load::<Single>();
    single.train_step(&Tensor::zeros(), &Tensor::from_fn(|_| f32::NAN)).unwrap();
    let numbers = single.state_numbers().unwrap();
    assert_eq!((numbers.steps, numbers.skipped), (0, 1));
    let mut resumed = load::<Single>();
    resumed.set_state_numbers(numbers).unwrap();
    assert_eq!(resumed.skipped().unwrap(), 1);
    let mut wrong = numbers;
    wrong.total = Some(4);
    let error = resumed.set_state_numbers(wrong).unwrap_err().to_string();
    assert!(error.contains("its schedule is `Constant`, which has no `total`"), "{error}");
}

/// Without `skip`, running statistics of a spoilt batch last: what the guard is for.
#[test]
fn without_a_guard_a_step_spoils_the_network() {
    convolution!(Unguarded, { optimizer: AdamW { lr: 0.01 } });
    let mut net = load::<Unguarded>();
    net.train_step(&Tensor::from_fn(|index| if index == 0 { f32::INFINITY } else { 1.0 }), &Tensor::zeros()).unwrap();
    assert!(!net.eval_loss(&Tensor::zeros(), &Tensor::zeros()).unwrap().is_finite());
    assert!(!net.skips_non_finite());
}
