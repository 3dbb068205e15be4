//! Every optimizer against ten steps of PyTorch, or where there are none against its definition in double precision: parameters
//! before each step and state after the last.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Group, Lion, Muon, NAdam, Optimizer, RAdam, RmsProp, Sgd,
    state_count,
};
use gpumem_core::train::{Clip, Descent};
use harness::graphs::{again, chain, numbers};
use harness::{Loaded, Truth, assert_close};

const NAMES: [(&str, &str); 4] = [
    ("fc1.weight", "linear0.weight"),
    ("fc1.bias", "linear0.bias"),
    ("fc2.weight", "linear2.weight"),
    ("fc2.bias", "linear2.bias"),
];

fn check(file: &str, optimizer: Optimizer, moments: &[&str], update: Update) {
    check_to(file, optimizer, moments, update, 1e-5);
}

fn check_to(file: &str, optimizer: Optimizer, moments: &[&str], update: Update, tolerance: f64) {
    check_clipped(file, optimizer, moments, (update, None), tolerance);
}

fn check_clipped(
    file: &str,
    optimizer: Optimizer,
    moments: &[&str],
    (update, clip): (Update, Option<Clip>),
    tolerance: f64,
) {
    let truth = Truth::read(&format!("optim/{file}.safetensors"));
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let output = chain(&mut graph, input, "Linear(5) | Tanh | Linear(2)");
    assert_eq!(state_count(optimizer.moments()), moments.len() as u64);
    let training = Training {
        loss: &[Term::MSE],
        moments: optimizer.moments(),
        update,
        skips_overflow: false,
        input_gradient: false,
        descent: Descent { clip, ..Descent::PLAIN },
    };
    let mut loaded = Loaded::new(&graph, output, training, 8, optimizer);
    let before = |step: usize, theirs: &str| -> Vec<f32> {
        let all = truth.floats(&format!("mlp.params.{theirs}"));
        let each = all.len() / 11;
        all[step * each..(step + 1) * each].to_vec()
    };
    for (theirs, ours) in NAMES {
        let words: Vec<u32> = before(0, theirs).iter().map(|value| value.to_bits()).collect();
        loaded.set(ours, &words);
    }
    loaded.set("input", truth.words("mlp.X"));
    loaded.set("target", truth.words("mlp.Y"));
    let losses = truth.floats("mlp.loss");
    for step in 0..10 {
        let loss = loaded.step().unwrap();
        assert_close(&format!("{file} loss {step}"), &[loss], &losses[step..=step], tolerance);
        for (theirs, ours) in NAMES {
            let found = loaded.get(ours).unwrap();
            assert_close(&format!("{file} {theirs} after step {step}"), &found, &before(step + 1, theirs), tolerance);
        }
    }
    for (theirs, ours) in NAMES {
        // What a vector has in place of rows and columns.
        let has_rows = moments.first().is_none_or(|&first| first != "row_var") || theirs.ends_with("weight");
        let moments = if has_rows { moments } else { &["variance"] };
        let is_matrix = matches!(optimizer, Optimizer::Muon(_)) && theirs == "fc1.weight";
        let moments = if is_matrix { &["momentum_buffer"] } else { moments };
        for (index, moment) in moments.iter().enumerate() {
            let found = loaded.get(&format!("{ours}.moment{index}")).unwrap();
            let expected = truth.floats(&format!("mlp.state_after.{theirs}.{moment}"));
            assert_close(&format!("{file} {theirs} {moment}"), &found, &expected, tolerance);
        }
    }
}

/// Optimizers with a test in this file, and the one whose tests are in `codes.rs`: one without fails here.
#[test]
fn every_optimizer() {
    let tested = [
        "Sgd",
        "Adam",
        "AdamW",
        "Lion",
        "RmsProp",
        "Adagrad",
        "Adadelta",
        "NAdam",
        "Adamax",
        "RAdam",
        "Adafactor",
        "AdamW8bit",
        "Muon",
    ];
    let all: Vec<&str> = Optimizer::DEFAULTS.iter().map(|optimizer| optimizer.row().name).collect();
    assert_eq!(all, tested);
}

fn check_both(file: &str, optimizer: Optimizer, moments: &[&str]) {
    check(file, optimizer, moments, Update::Fused);
    check(file, optimizer, moments, Update::Separate);
}

#[test]
fn sgd() {
    check_both("00_sgd", Optimizer::Sgd(Sgd { lr: 0.1, ..Sgd::DEFAULT }), &[]);
}

#[test]
fn sgd_nesterov() {
    let sgd = Sgd { lr: 0.05, momentum: 0.9, nesterov: true, ..Sgd::DEFAULT };
    check_both("02_sgd_nesterov", Optimizer::Sgd(sgd), &["momentum_buffer"]);
}

#[test]
fn sgd_weight_decay() {
    let sgd = Sgd { lr: 0.1, weight_decay: 0.05, ..Sgd::DEFAULT };
    check_both("04_sgd_weight_decay", Optimizer::Sgd(sgd), &[]);
}

#[test]
fn adam() {
    check_both("06_adam", Optimizer::Adam(Adam { lr: 0.05, ..Adam::DEFAULT }), &["exp_avg", "exp_avg_sq"]);
}

#[test]
fn adam_weight_decay() {
    let adam = Adam { lr: 0.05, weight_decay: 0.1, ..Adam::DEFAULT };
    check_both("08_adam_l2_weight_decay", Optimizer::Adam(adam), &["exp_avg", "exp_avg_sq"]);
}

#[test]
fn adamw() {
    let adam = AdamW { lr: 0.05, weight_decay: 0.01, ..AdamW::DEFAULT };
    check_both("10_adamw_default_wd", Optimizer::AdamW(adam), &["exp_avg", "exp_avg_sq"]);
}

/// With the largest mean squares, which are not the last ones.
#[test]
fn amsgrad() {
    let (lr, betas, eps, weight_decay, amsgrad) = (0.05, (0.7, 0.5), 1e-3, 0.2, true);
    let states = &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
    let adam = Adam { lr, betas, eps, weight_decay, amsgrad, ..Adam::DEFAULT };
    check_both("36_adam_amsgrad", Optimizer::Adam(adam), states);
    let adam = AdamW { lr, betas, eps, weight_decay, amsgrad, ..AdamW::DEFAULT };
    check_both("38_adamw_amsgrad", Optimizer::AdamW(adam), states);
}

#[test]
fn rmsprop() {
    check_both("12_rmsprop", Optimizer::RmsProp(RmsProp { lr: 0.01, ..RmsProp::DEFAULT }), &["square_avg"]);
}

#[test]
fn adagrad() {
    check_both("14_adagrad", Optimizer::Adagrad(Adagrad { lr: 0.1, ..Adagrad::DEFAULT }), &["sum"]);
}

#[test]
fn adadelta() {
    check_both("16_adadelta", Optimizer::Adadelta(Adadelta::DEFAULT), &["square_avg", "acc_delta"]);
}

#[test]
fn adafactor() {
    let adafactor = Adafactor { lr: 0.05, ..Adafactor::DEFAULT };
    check_both("22_adafactor", Optimizer::Adafactor(adafactor), &["row_var", "col_var"]);
}

/// PyTorch's `torch.optim.Muon` with the first weight, and its AdamW with all others. Its iteration is in bfloat16: first with that left out
/// of its source, then as it is. The difference between the two is what rounding to 8 bits does in ten steps of 0.05.
#[test]
fn muon() {
    let muon = Muon {
        lr: 0.05,
        weight_decay: 0.1,
        momentum: 0.9,
        adamw_lr_factor: 0.02 / 0.05,
        adamw_weight_decay: 0.05,
        ..Muon::DEFAULT
    };
    check_both("24_muon", Optimizer::Muon(muon), &["exp_avg", "exp_avg_sq"]);
    let matched = Muon { nesterov: false, match_rms_adamw: true, ..muon };
    check_both("26_muon_match_rms", Optimizer::Muon(matched), &["exp_avg", "exp_avg_sq"]);
    check_to("28_muon_bfloat16", Optimizer::Muon(muon), &["exp_avg", "exp_avg_sq"], Update::Fused, 1e-2);
}

#[test]
fn nadam() {
    check_both("18_nadam", Optimizer::NAdam(NAdam { lr: 0.02, ..NAdam::DEFAULT }), &["exp_avg", "exp_avg_sq"]);
}

/// A rule in double precision: from the number of a step, from 1 on, a weight, its gradient and its states the next weight.
type Definition<'a> = dyn Fn(f64, f64, f64, &mut [f64; 3]) -> f64 + 'a;

/// A rule against its definition for so many steps, on the gradients of each step.
fn defined(optimizer: Optimizer, steps: u32, rule: &Definition<'_>) {
    for update in [Update::Separate, Update::Fused] {
        defined_in(optimizer, steps, update, rule);
    }
}

fn load(optimizer: Optimizer, update: Update) -> Loaded {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let output = chain(&mut graph, input, "Linear(5) | Tanh | Linear(2)");
    let moments = optimizer.moments();
    let training = Training {
        loss: &[Term::MSE],
        moments,
        update,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let mut loaded = Loaded::new(&graph, output, training, 8, optimizer);
    for (index, (name, length)) in [("input", 32), ("target", 16)].into_iter().enumerate() {
        let words: Vec<u32> = (0..length).map(|i| ((i * 7 + index + 1) as f32 * 0.61).sin().to_bits()).collect();
        loaded.set(name, &words);
    }
    for (index, (_, ours)) in NAMES.iter().enumerate() {
        let length = loaded.get(ours).unwrap().len();
        let words: Vec<u32> = (0..length).map(|i| ((i * 5 + index) as f32 * 0.83).cos().to_bits()).collect();
        loaded.set(ours, &words);
    }
    loaded
}

fn defined_in(optimizer: Optimizer, steps: u32, update: Update, rule: &Definition<'_>) {
    let what = format!("{optimizer:?}, {update:?}");
    // Gradients that stay are those of a step without an update.
    let (mut loaded, mut plain) =
        (load(optimizer, update), load(Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }), Update::Separate));
    let count = optimizer.moments() as usize;
    let mut states = NAMES.map(|(_, ours)| {
        let initial: [f64; 3] = std::array::from_fn(|state| optimizer.initial(state));
        for (state, value) in initial.iter().enumerate().take(count) {
            let words = vec![(*value as f32).to_bits(); loaded.get(ours).unwrap().len()];
            loaded.set(&format!("{ours}.moment{state}"), &words);
        }
        vec![initial; loaded.get(ours).unwrap().len()]
    });
    for step in 1..=steps {
        let before = NAMES.map(|(_, ours)| loaded.get(ours).unwrap());
        for ((_, ours), values) in NAMES.iter().zip(&before) {
            plain.set(ours, &values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
        }
        loaded.step().unwrap();
        plain.step().unwrap();
        for (((_, ours), before), states) in NAMES.iter().zip(&before).zip(&mut states) {
            let gradients = plain.get(&format!("{ours}.gradient")).unwrap();
            let expected = before.iter().zip(gradients).zip(states).map(|((&w, gradient), states)| {
                rule(f64::from(step), f64::from(w), f64::from(gradient), states) as f32
            });
            let expected: Vec<f32> = expected.collect();
            assert_close(&format!("{what} {ours} after step {step}"), &loaded.get(ours).unwrap(), &expected, 1e-5);
        }
    }
    for ((_, ours), states) in NAMES.iter().zip(&states) {
        for state in 0..count {
            let expected: Vec<f32> = states.iter().map(|states| states[state] as f32).collect();
            let found = loaded.get(&format!("{ours}.moment{state}")).unwrap();
            assert_close(&format!("{what} {ours} state {state}"), &found, &expected, 1e-5);
        }
    }
}

/// PyTorch has no Lion.
#[test]
fn lion() {
    let lion = Lion { lr: 0.01, weight_decay: 0.1, ..Lion::DEFAULT };
    defined(Optimizer::Lion(lion), 10, &|_, w, g, [m, ..]| {
        let towards = 0.9 * *m + 0.1 * g;
        *m = 0.99 * *m + 0.01 * g;
        w * (1.0 - 0.01 * 0.1) - 0.01 * towards.signum()
    });
}

/// With every state that it can have, in the order of the momentum and the mean.
#[test]
fn rmsprop_with_its_options() {
    for (momentum, centered) in [(0.9, false), (0.0, true), (0.8, true)] {
        let rms =
            RmsProp { lr: 0.02, alpha: 0.9, eps: 1e-3, weight_decay: 0.1, momentum, centered, ..RmsProp::DEFAULT };
        defined(Optimizer::RmsProp(rms), 10, &|_, w, g, [square, second, third]| {
            let g = g + 0.1 * w;
            *square = 0.9 * *square + 0.1 * g * g;
            let (buffer, mean) = if momentum > 0.0 { (second, third) } else { (third, second) };
            let mut average = *square;
            if centered {
                *mean = 0.9 * *mean + 0.1 * g;
                average -= *mean * *mean;
            }
            *buffer = momentum * *buffer + g / (average.sqrt() + 1e-3);
            w - 0.02 * *buffer
        });
    }
}

/// A gradient that does not change has no variance: rounding must not make its root a number that is none.
#[test]
fn a_variance_below_zero_counts_as_zero() {
    let rms = RmsProp { lr: 1e-30, alpha: 0.5, eps: 1.0, centered: true, ..RmsProp::DEFAULT };
    let mut loaded = load(Optimizer::RmsProp(rms), Update::Fused);
    (0..200).for_each(|_| assert!(loaded.step().unwrap().is_finite()));
    for (_, ours) in NAMES {
        assert!(loaded.get(ours).unwrap().iter().all(|w| w.is_finite()), "{ours}");
    }
}

#[test]
fn adagrad_with_its_options() {
    let adagrad =
        Adagrad { lr: 0.1, lr_decay: 0.3, weight_decay: 0.05, initial_accumulator_value: 0.25, ..Adagrad::DEFAULT };
    defined(Optimizer::Adagrad(adagrad), 10, &|t, w, g, [sum, ..]| {
        let g = g + 0.05 * w;
        *sum += g * g;
        w - 0.1 / (1.0 + (t - 1.0) * 0.3) * g / (sum.sqrt() + 1e-10)
    });
}

#[test]
fn adadelta_with_its_options() {
    let adadelta = Adadelta { lr: 0.5, rho: 0.8, eps: 1e-4, weight_decay: 0.1, ..Adadelta::DEFAULT };
    defined(Optimizer::Adadelta(adadelta), 10, &|_, w, g, [square, moved, _]| {
        let g = g + 0.1 * w;
        *square = 0.8 * *square + 0.2 * g * g;
        let delta = (*moved + 1e-4).sqrt() / (*square + 1e-4).sqrt() * g;
        *moved = 0.8 * *moved + 0.2 * delta * delta;
        w - 0.5 * delta
    });
}

#[test]
fn nadam_with_its_options() {
    for decoupled_weight_decay in [false, true] {
        let nadam = NAdam {
            lr: 0.02,
            betas: (0.8, 0.99),
            weight_decay: 0.1,
            momentum_decay: 0.5,
            decoupled_weight_decay,
            ..NAdam::DEFAULT
        };
        let mu = |t: f64| 0.8 * (1.0 - 0.5 * 0.96f64.powf(t * 0.5));
        defined(Optimizer::NAdam(nadam), 10, &|t, w, g, [m, v, _]| {
            let product: f64 = (1..=t as u32).map(|t| mu(f64::from(t))).product();
            let (w, g) = if decoupled_weight_decay { (w * (1.0 - 0.02 * 0.1), g) } else { (w, g + 0.1 * w) };
            *m = 0.8 * *m + 0.2 * g;
            *v = 0.99 * *v + 0.01 * g * g;
            let root = (*v / (1.0 - 0.99f64.powf(t))).sqrt() + 1e-8;
            let next = mu(t + 1.0);
            w - 0.02 * (1.0 - mu(t)) / (1.0 - product) * g / root - 0.02 * next / (1.0 - product * next) * *m / root
        });
    }
}

#[test]
fn adamax() {
    let adamax = Adamax { lr: 0.02, betas: (0.8, 0.9), eps: 1e-3, weight_decay: 0.1, ..Adamax::DEFAULT };
    defined(Optimizer::Adamax(adamax), 10, &|t, w, g, [m, u, _]| {
        let g = g + 0.1 * w;
        *m = 0.8 * *m + 0.2 * g;
        *u = (0.9 * *u).max(g.abs() + 1e-3);
        w - 0.02 / (1.0 - 0.8f64.powf(t)) * *m / *u
    });
}

/// Before and behind the step from which on it divides: the sixth with this `beta2`.
#[test]
fn radam() {
    for decoupled_weight_decay in [false, true] {
        let radam = RAdam { lr: 0.01, weight_decay: 0.1, decoupled_weight_decay, ..RAdam::DEFAULT };
        defined(Optimizer::RAdam(radam), 12, &|t, w, g, [m, v, _]| {
            let (w, g) = if decoupled_weight_decay { (w * (1.0 - 0.01 * 0.1), g) } else { (w, g + 0.1 * w) };
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let corrected = *m / (1.0 - 0.9f64.powf(t));
            let (infinite, of_square) = (2.0 / (1.0 - 0.999) - 1.0, 1.0 - 0.999f64.powf(t));
            let length = infinite - 2.0 * t * 0.999f64.powf(t) / of_square;
            assert_eq!(length > 5.0, t >= 6.0);
            if length <= 5.0 {
                return w - 0.01 * corrected;
            }
            let above = (length - 4.0) * (length - 2.0) * infinite;
            let below = (infinite - 4.0) * (infinite - 2.0) * length;
            w - 0.01 * corrected * (above / below).sqrt() * of_square.sqrt() / (v.sqrt() + 1e-8)
        });
    }
}

/// A step of a network with groups is for each parameter that of an optimizer with the numbers of its group.
#[test]
fn groups_have_numbers_of_their_own() {
    let groups = &[
        Group { paths: "*.bias", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear2.*", lr_factor: Some(10.0), ..Group::DEFAULT },
    ];
    let adamw = AdamW { lr: 0.01, weight_decay: 0.5, ..AdamW::DEFAULT };
    let own = [(0.01, 0.5), (0.01, 0.0), (0.1, 0.5), (0.1, 0.0)];
    for update in [Update::Separate, Update::Fused] {
        let mut loaded = load(Optimizer::AdamW(AdamW { groups, ..adamw }), update);
        loaded.step().unwrap();
        let mut found = Vec::new();
        for ((_, ours), (lr, weight_decay)) in NAMES.into_iter().zip(own) {
            let mut alone = load(Optimizer::AdamW(AdamW { lr, weight_decay, ..adamw }), update);
            alone.step().unwrap();
            found.push(loaded.get(ours).unwrap());
            assert_eq!(found.last(), alone.get(ours).as_ref(), "{ours}");
        }
        let mut plain = load(Optimizer::AdamW(adamw), update);
        plain.step().unwrap();
        let same: Vec<bool> =
            NAMES.iter().zip(found).map(|((_, ours), found)| plain.get(ours).unwrap() == found).collect();
        assert_eq!(same, [true, false, false, false]);
    }
}

fn check_clips(file: &str, optimizer: Optimizer, moments: &[&str], clip: Clip) {
    for update in [Update::Fused, Update::Separate] {
        check_clipped(file, optimizer, moments, (update, Some(clip)), 1e-5);
    }
}

#[test]
fn gradients_are_clipped_by_their_norm() {
    let sgd = Sgd { lr: 0.1, ..Sgd::DEFAULT };
    check_clips("20_sgd_lr0.1_clip_grad_norm0.5", Optimizer::Sgd(sgd), &[], Clip::GlobalNorm(0.5));
    let groups = &[Group { paths: "linear2.*", lr_factor: Some(4.0), weight_decay: Some(0.0), ..Group::DEFAULT }];
    let adamw = AdamW { lr: 0.01, eps: 1e-2, weight_decay: 0.1, groups, ..AdamW::DEFAULT };
    let means = ["exp_avg", "exp_avg_sq"];
    check_clips("32_adamw_groups_clip_norm", Optimizer::AdamW(adamw), &means, Clip::GlobalNorm(0.25));
    let adafactor = Optimizer::Adafactor(Adafactor { lr: 0.05, ..Adafactor::DEFAULT });
    check_clips("34_adafactor_clip_norm", adafactor, &["row_var", "col_var"], Clip::GlobalNorm(0.25));
}

#[test]
fn gradients_are_clipped_by_value() {
    let sgd = Optimizer::Sgd(Sgd { lr: 0.1, ..Sgd::DEFAULT });
    check_clips("30_sgd_clip_value", sgd, &[], Clip::Value(0.05));
}

/// A step of every optimizer whose gradients are clipped is its step with gradients that were as small before: those of a loss with a smaller
/// weight. A parameter that is frozen has no part in the norm, and one that two layers share counts once, with all of its gradient.
#[test]
fn every_optimizer_with_clipped_gradients() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let first = chain(&mut graph, input, "Linear(4) | Tanh");
    let second = again(&mut graph, first, "Linear(4)", 0);
    let output = chain(&mut graph, second, "Tanh | Linear(4)");
    let frozen = graph.parameters.len() - 1;
    graph.freeze_parameter(frozen);
    let load = |optimizer: Optimizer, weight: f64, clip: Option<Clip>| {
        let (of_mse, of_dot) = (Term { weight, ..Term::MSE }, Term { weight: 2.0 * weight, ..Term::DOT });
        let training = Training {
            loss: &[of_mse, of_dot],
            moments: optimizer.moments(),
            update: Update::Separate,
            skips_overflow: false,
            input_gradient: false,
            descent: Descent { clip, ..Descent::PLAIN },
        };
        let mut loaded = Loaded::new(&graph, output, training, 3, optimizer);
        loaded.initialise(5);
        for (index, name) in ["input", "target"].into_iter().enumerate() {
            let words: Vec<u32> = (0..12).map(|i| ((i * 7 + index) as f32 * 0.61).sin().to_bits()).collect();
            loaded.set(name, &words);
        }
        loaded.step().unwrap();
        loaded
    };
    let names: Vec<&str> = graph.trained_parameters().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names.len(), 3);
    let mut plain = load(Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }), 1.0, None);
    let mut square = 0.0;
    for name in &names {
        let gradient = plain.get(&format!("{name}.gradient")).unwrap();
        square += gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
    }
    let factor = 0.125;
    let most = factor * (square.sqrt() + 1e-6);
    for optimizer in Optimizer::DEFAULTS {
        let mut clipped = load(*optimizer, 1.0, Some(Clip::GlobalNorm(most)));
        let mut smaller = load(*optimizer, factor, None);
        let mut larger = load(*optimizer, 1.0, Some(Clip::GlobalNorm(1e9)));
        let mut without = load(*optimizer, 1.0, None);
        for name in &names {
            let what = format!("{optimizer:?} {name}");
            assert_close(&what, &clipped.get(name).unwrap(), &smaller.get(name).unwrap(), 1e-5);
            assert_eq!(larger.get(name), without.get(name), "{what}");
        }
    }
}
