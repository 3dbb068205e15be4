//! Every optimizer against ten steps of PyTorch: parameters before each step and state after the last.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{Adam, AdamW, Lion, Optimizer, Sgd};
use harness::graphs::{chain, numbers};
use harness::{Loaded, Truth, assert_close};

const NAMES: [(&str, &str); 4] = [
    ("fc1.weight", "linear0.weight"),
    ("fc1.bias", "linear0.bias"),
    ("fc2.weight", "linear2.weight"),
    ("fc2.bias", "linear2.bias"),
];

fn check(file: &str, optimizer: Optimizer, moments: &[&str], update: Update) {
    let truth = Truth::read(&format!("optim/{file}.safetensors"));
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let output = chain(&mut graph, input, "Linear(5) | Tanh | Linear(2)");
    assert_eq!(optimizer.moments(), moments.len() as u64);
    let training = Training {
        loss: &[Term::MSE],
        moments: moments.len() as u64,
        update,
        skips_overflow: false,
        input_gradient: false,
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
        assert_close(&format!("{file} loss {step}"), &[loss], &losses[step..=step], 1e-5);
        for (theirs, ours) in NAMES {
            let found = loaded.get(ours).unwrap();
            assert_close(&format!("{file} {theirs} after step {step}"), &found, &before(step + 1, theirs), 1e-5);
        }
    }
    for (theirs, ours) in NAMES {
        for (index, moment) in moments.iter().enumerate() {
            let found = loaded.get(&format!("{ours}.moment{index}")).unwrap();
            let expected = truth.floats(&format!("mlp.state_after.{theirs}.{moment}"));
            assert_close(&format!("{file} {theirs} {moment}"), &found, &expected, 1e-5);
        }
    }
}

/// Optimizers with a test in this file: one without fails here.
#[test]
fn every_optimizer() {
    let tested = ["Sgd", "Adam", "AdamW", "Lion"];
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

/// PyTorch has no Lion: its rule in double precision, on the gradients that plain descent with a rate of 1 takes off.
#[test]
fn lion() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[4])).unwrap();
    let output = chain(&mut graph, input, "Linear(5) | Tanh | Linear(2)");
    let load = |optimizer: Optimizer| {
        let training = Training {
            loss: &[Term::MSE],
            moments: optimizer.moments(),
            update: Update::Separate,
            skips_overflow: false,
            input_gradient: false,
        };
        Loaded::new(&graph, output, training, 8, optimizer)
    };
    let lion = Lion { lr: 0.01, weight_decay: 0.1, ..Lion::DEFAULT };
    let (mut loaded, mut plain) = (load(Optimizer::Lion(lion)), load(Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT })));
    for (index, (name, length)) in [("input", 32), ("target", 16)].into_iter().enumerate() {
        let words: Vec<u32> = (0..length).map(|i| ((i * 7 + index + 1) as f32 * 0.61).sin().to_bits()).collect();
        loaded.set(name, &words);
        plain.set(name, &words);
    }
    for (index, (_, ours)) in NAMES.iter().enumerate() {
        let length = loaded.get(ours).unwrap().len();
        let words: Vec<u32> = (0..length).map(|i| ((i * 5 + index) as f32 * 0.83).cos().to_bits()).collect();
        loaded.set(ours, &words);
    }
    let mut moments = NAMES.map(|(_, ours)| vec![0.0; loaded.get(ours).unwrap().len()]);
    for step in 0..10 {
        let before = NAMES.map(|(_, ours)| loaded.get(ours).unwrap());
        for ((_, ours), values) in NAMES.iter().zip(&before) {
            plain.set(ours, &values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
        }
        loaded.step().unwrap();
        plain.step().unwrap();
        for (((_, ours), before), moments) in NAMES.iter().zip(&before).zip(&mut moments) {
            let descended = plain.get(ours).unwrap();
            let expected = before.iter().zip(descended).zip(moments.iter_mut()).map(|((&w, after), m)| {
                let (w, gradient) = (f64::from(w), f64::from(w) - f64::from(after));
                let towards: f64 = 0.9 * *m + 0.1 * gradient;
                *m = 0.99 * *m + 0.01 * gradient;
                (w * (1.0 - 0.01 * 0.1) - 0.01 * towards.signum()) as f32
            });
            let expected: Vec<f32> = expected.collect();
            assert_close(&format!("{ours} after step {step}"), &loaded.get(ours).unwrap(), &expected, 1e-5);
        }
    }
    for ((_, ours), expected) in NAMES.iter().zip(&moments) {
        let expected: Vec<f32> = expected.iter().map(|&m| m as f32).collect();
        assert_close(&format!("{ours} m"), &loaded.get(&format!("{ours}.moment0")).unwrap(), &expected, 1e-4);
    }
}
