//! Rates of schedules against PyTorch's, and gradients that are not finite, by the change of a bias whose gradient is known.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::StateWord;
use gpumem_core::run::device::Runner;
use gpumem_core::train::optim::{Group, Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent, Schedule};
use harness::graphs::{chain, numbers};
use harness::{Loaded, Truth, assert_close};

/// As PyTorch's `clip_grad_norm_` with `error_if_nonfinite=False`, and its `clip_grad_value_`.
#[test]
fn gradients_that_are_not_finite() {
    for (clip, target, expected) in [
        (Clip::GlobalNorm(1.0), f32::INFINITY, [f32::NAN, 0.0]),
        (Clip::GlobalNorm(1.0), f32::NAN, [f32::NAN, f32::NAN]),
        (Clip::Value(0.5), f32::INFINITY, [-0.5, -0.25]),
        (Clip::Value(0.5), f32::NAN, [f32::NAN, -0.25]),
    ] {
        let mut loaded = by_bias(Descent { clip: Some(clip), ..Descent::PLAIN }, 1.0);
        loaded.set("target", &[target.to_bits(), 0.25f32.to_bits()]);
        loaded.step().unwrap();
        let found = loaded.get("linear0.bias").unwrap();
        let is_same = |(a, b): (&f32, f32)| *a == b || a.is_nan() && b.is_nan();
        assert!(found.iter().zip(expected).all(is_same), "{clip:?}, {target}: {found:?} is not {expected:?}");
    }
}

/// A network of a product whose bias has as gradient what is its target.
fn by_bias(descent: Descent, lr: f64) -> Loaded {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[1])).unwrap();
    let output = chain(&mut graph, input, "Linear(2)");
    let training = Training {
        loss: &[Term::DOT],
        moments: 0,
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent,
    };
    let mut loaded = Loaded::new(&graph, output, training, 1, Optimizer::Sgd(Sgd { lr, ..Sgd::DEFAULT }));
    loaded.set("input", &[1f32.to_bits()]);
    for name in ["linear0.weight", "linear0.bias"] {
        loaded.set(name, &[0, 0]);
    }
    loaded.set("target", &[1f32.to_bits(), 1f32.to_bits()]);
    loaded
}

/// The rates of 50 steps, by what they take away from a weight whose gradient is 1.
#[test]
fn rates_of_schedules() {
    let truth = Truth::read("optim/schedules.safetensors");
    let all = schedules();
    assert_eq!(truth.names().collect::<Vec<_>>(), all.map(|(name, _)| name));
    for (name, schedule) in all {
        let expected = truth.floats(name);
        let mut loaded = by_bias(Descent { schedule, ..Descent::PLAIN }, 0.1);
        for (step, &rate) in expected.iter().enumerate() {
            loaded.set("linear0.bias", &[0, 0]);
            loaded.step().unwrap();
            let found = -loaded.get("linear0.bias").unwrap()[1];
            assert!((found - rate).abs() <= 1e-6 * rate.max(1e-8), "{name}, step {step}: {found:e} is not {rate:e}");
        }
    }
}

/// Numbers that the state says, and not those that the program was made with, are those of a step: to the bit as if they were written.
#[test]
fn numbers_of_a_schedule_are_those_of_the_state() {
    for (name, schedule) in schedules().into_iter().filter(|(_, schedule)| schedule.total().is_some()) {
        let mut written = by_bias(Descent { schedule, ..Descent::PLAIN }, 0.1);
        let mut set = by_bias(Descent { schedule: schedule.with_total(0), ..Descent::PLAIN }, 0.1);
        let mut words: Vec<u32> = set.get("state").unwrap().into_iter().map(f32::to_bits).collect();
        words[StateWord::Schedule as usize..][..8].copy_from_slice(&schedule.words());
        set.set("state", &words);
        for step in 0..50 {
            written.step().unwrap();
            set.step().unwrap();
            let [expected, found] = [&mut written, &mut set].map(|loaded| loaded.get("linear0.bias").unwrap());
            assert_eq!(found, expected, "{name}, step {step}");
        }
    }
}

/// Those of `clip.py`.
fn schedules() -> [(&'static str, Schedule); 11] {
    let cycle = Schedule::OneCycle { total: 50, pct_start: 0.3, div_factor: 25.0, final_div_factor: 1e4 };
    [
        ("constant", Schedule::PLAIN),
        ("constant_warm", Schedule::Constant { warmup: 7 }),
        ("cosine", Schedule::Cosine { warmup: 0, total: 49, min: 0.0 }),
        ("cosine_min", Schedule::Cosine { warmup: 0, total: 60, min: 0.01 }),
        ("cosine_warm", Schedule::Cosine { warmup: 10, total: 50, min: 0.001 }),
        ("linear", Schedule::Linear { warmup: 0, total: 30, min: 0.0 }),
        ("linear_warm", Schedule::Linear { warmup: 5, total: 40, min: 0.02 }),
        ("one_cycle", cycle),
        (
            "one_cycle_options",
            Schedule::OneCycle { total: 64, pct_start: 0.4, div_factor: 10.0, final_div_factor: 100.0 },
        ),
        ("step", Schedule::Step { warmup: 0, every: 7, factor: 0.5 }),
        ("step_warm", Schedule::Step { warmup: 4, every: 10, factor: 0.1 }),
    ]
}

/// Groups in the same proportion, a training that goes on from a number of steps, and a rate that is set.
#[test]
fn rates_of_groups_and_of_later_steps() {
    let schedule = Schedule::Cosine { warmup: 2, total: 12, min: 0.02 };
    let groups = &[Group { paths: "*.bias", lr_factor: Some(3.0), ..Group::DEFAULT }];
    let mut loaded = by_bias(Descent { schedule, ..Descent::PLAIN }, 0.1);
    let sgd = |lr| Optimizer::Sgd(Sgd { lr, groups, ..Sgd::DEFAULT });
    for (lr, step) in [(0.1, 0u32), (0.1, 7), (0.4, 8), (0.4, 30)] {
        let mut words = vec![0u32; StateWord::COUNT];
        words[0] = step;
        words[StateWord::Schedule as usize..][..8].copy_from_slice(&schedule.words());
        loaded.set("state", &words);
        loaded.runner_mut().set_optimizer(sgd(lr)).unwrap();
        loaded.set("linear0.bias", &[0, 0]);
        loaded.step().unwrap();
        let since = f64::from(step) - 2.0;
        let rate = match step {
            0..2 => lr * (f64::from(step) + 1.0) / 3.0,
            2..12 => 0.02 + (lr - 0.02) * (1.0 + (std::f64::consts::PI * since / 10.0).cos()) / 2.0,
            _ => 0.02,
        };
        assert_close(&format!("{lr} {step}"), &loaded.get("linear0.bias").unwrap(), &[(-3.0 * rate) as f32; 2], 1e-6);
    }
}
