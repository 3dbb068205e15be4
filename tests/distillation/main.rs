//! Distillation beside PyTorch in float64: a teacher that rests, and a student that learns from it and from labels.

#[path = "../golden/mod.rs"]
mod golden;

use golden::{close, lines, spread};
use gpumem::prelude::*;
use gpumem::{Cpu, Kind};
use std::collections::BTreeMap;

network! {
    pub struct Distillation;

    const TRAIN: Train = Train {
        batch: 6,
        optimizer: AdamW { lr: 0.01 },
        loss: 0.5 * CrossEntropy(from = logits) + 8.0 * Mean(from = kl),
    };

    fn forward(x: Features<4>) -> (Logits<5>, Logits<5>) {
        [
            student(), tap(logits), Affine(0.25), LogSoftmax, tap(own),
            from(x), freeze(eval(teacher())), tap(known), Affine(0.25), LogSoftmax,
            Mul(Exp, Sub([], from(own))), Sum(1), tap(kl),
            Outputs(from(logits), from(known)),
        ]
    }

    fn teacher() -> Block {
        [Linear(8, name = "fc1"), BatchNorm1d(name = "norm"), Relu, Dropout(0.5), Linear(5, name = "fc2")]
    }

    fn student() -> Block {
        [Linear(3, name = "fc1"), Tanh, Linear(5, name = "fc2")]
    }
}

#[test]
fn a_teacher_gives_the_same_numbers_in_every_step() {
    let expected = lines(include_str!("expected.txt"));
    let mut net = Distillation::on(&Cpu::with_threads(2).unwrap()).unwrap();
    for (salt, (name, values)) in expected.iter().enumerate().skip(1) {
        let shift = if name.ends_with("running_var") || name.ends_with("norm.weight") { 1.0 } else { 0.0 };
        net.set(name, &(0..values.len()).map(|index| shift + spread(index, salt)).collect::<Vec<f32>>()).unwrap();
    }
    // Nothing of the teacher has a gradient, a state of the optimizer or a copy.
    let trained = net.tensors().filter(|tensor| matches!(tensor.kind, Kind::Gradient | Kind::OptimizerState));
    assert!(trained.map(|tensor| tensor.name).all(|name| name.starts_with("student.")));

    let x = Tensor::from_fn(|index| spread(index, 99));
    let known = |net: &mut Net<Distillation, Cpu>| net.forward(&x).unwrap().1;
    let taught = known(&mut net);
    let before: BTreeMap<String, Vec<f32>> =
        expected[1..].iter().map(|(name, _)| (name.to_string(), net.get(name).unwrap())).collect();
    let labels: Tensor<u32, _> = Tensor::from_fn(|index| index as u32 * 2 % 5);
    let mut losses = Vec::new();
    for step in 0..5 {
        losses.push(net.train_step(&Tensor::from_fn(|index| spread(index, 50 + step)), &labels).unwrap());
        assert_eq!(known(&mut net).as_slice(), taught.as_slice(), "step {step}");
    }
    for (name, expected) in expected {
        let found = if name == "losses" { losses.clone() } else { net.get(name).unwrap() };
        if name.starts_with("teacher.") {
            assert_eq!(found, before[name], "{name}");
        }
        close(name, &found, &expected, 4e-6);
    }
}
