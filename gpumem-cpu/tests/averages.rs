//! Moving averages of parameters against `torch.optim.swa_utils.AveragedModel`, in float64: see `truth/optim/ema.py`.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Term, Training};
use gpumem_core::train::optim::{Adafactor, Adam, AdamW, Group, Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent, Ema};
use harness::graphs::{chain, numbers};
use harness::{Loaded, Truth, assert_close};

const NAMES: [(&str, &str); 4] = [
    ("fc1.weight", "linear0.weight"),
    ("fc1.bias", "linear0.bias"),
    ("fc2.weight", "linear2.weight"),
    ("fc2.bias", "linear2.bias"),
];

/// Ten steps of a case of `ema.py`, with each average after each of them.
fn check(case: &str, optimizer: Optimizer, ema: Ema, clip: Option<Clip>) {
    let (truth, start) = (Truth::read("optim/ema.safetensors"), Truth::read("optim/00_sgd.safetensors"));
    for update in [Update::Fused, Update::Separate] {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[4])).unwrap();
        let output = chain(&mut graph, input, "Linear(5) | Tanh | Linear(2)");
        let training = Training {
            loss: &[Term::MSE],
            moments: optimizer.moments(),
            update,
            skips_overflow: false,
            input_gradient: false,
            descent: Descent { clip, ema: Some(ema), ..Descent::PLAIN },
        };
        let mut loaded = Loaded::new(&graph, output, training, 8, optimizer);
        for (theirs, ours) in NAMES {
            let all = start.floats(&format!("mlp.params.{theirs}"));
            let first: Vec<u32> = all[..all.len() / 11].iter().map(|value| value.to_bits()).collect();
            loaded.set(ours, &first);
            loaded.set(&format!("{ours}.average"), &first);
        }
        loaded.set("input", start.words("mlp.X"));
        loaded.set("target", start.words("mlp.Y"));
        for step in 0..10 {
            loaded.step().unwrap();
            for (theirs, ours) in NAMES {
                let all = truth.floats(&format!("{case}.{theirs}"));
                let each = all.len() / 10;
                let found = loaded.get(&format!("{ours}.average")).unwrap();
                let label = format!("{case}, {update:?}: {theirs} after step {step}");
                assert_close(&label, &found, &all[step * each..(step + 1) * each], 1e-5);
            }
        }
        // What the network computes with the averages.
        for (_, ours) in NAMES {
            let words: Vec<u32> =
                loaded.get(&format!("{ours}.average")).unwrap().into_iter().map(f32::to_bits).collect();
            loaded.set(ours, &words);
        }
        let loss = loaded.evaluate().unwrap();
        assert_close(&format!("{case} loss"), &[loss], &truth.floats(&format!("{case}.loss")), 1e-5);
    }
}

#[test]
fn adamw() {
    let optimizer = Optimizer::AdamW(AdamW { lr: 0.01, ..AdamW::DEFAULT });
    check("adamw", optimizer, Ema { decay: 0.9, ..Ema::DEFAULT }, None);
}

#[test]
fn sgd_with_a_warmup() {
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.1, momentum: 0.9, ..Sgd::DEFAULT });
    check("sgd_warmup", optimizer, Ema { decay: 0.8, warmup: true, every: 1 }, None);
}

#[test]
fn adam_after_each_third_step() {
    let optimizer = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });
    check("adam_every", optimizer, Ema { decay: 0.5, every: 3, ..Ema::DEFAULT }, None);
}

#[test]
fn groups_and_clipped_gradients() {
    let groups = &[Group { paths: "*.bias", lr_factor: Some(0.3), weight_decay: Some(0.0), ..Group::DEFAULT }];
    let optimizer = Optimizer::AdamW(AdamW { lr: 0.01, groups, ..AdamW::DEFAULT });
    check("groups_clip", optimizer, Ema { decay: 0.9, ..Ema::DEFAULT }, Some(Clip::GlobalNorm(0.5)));
}

#[test]
fn adafactor() {
    let optimizer = Optimizer::Adafactor(Adafactor { lr: 0.01, ..Adafactor::DEFAULT });
    check("adafactor", optimizer, Ema { decay: 0.7, ..Ema::DEFAULT }, None);
}
