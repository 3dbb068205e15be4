//! `spectral_norm`: weights over their largest singular value, beside PyTorch in float64.

#[path = "../golden/mod.rs"]
mod golden;

use golden::{close, lines_of, numbers, spread};
use gpumem::prelude::*;
use gpumem::{Cpu, Kind};

network! {
    pub struct Critic;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.5 }, loss: Mse };

    fn forward(x: Image<2, 4, 3>) -> Features<4> {
        [
            Conv2d(3, 3, padding = 1, spectral_norm, name = "conv"), Tanh,
            ConvTranspose2d(2, 2, stride = 2, spectral_norm, name = "up"), Tanh, AvgPool2d(2),
            Flatten, Linear(4, bias = false, spectral_norm, name = "fc"),
        ]
    }
}

network! {
    pub struct Twice;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.5 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<4> {
        let w = Linear(4, spectral_norm, name = "w");
        [eval(w), Tanh, w]
    }
}

macro_rules! check {
    ($network:ident) => {{
        let expected = lines_of(include_str!("expected.txt"), stringify!($network));
        let mut net = $network::on(&Cpu::with_threads(2).unwrap()).unwrap();
        for (salt, (name, values)) in expected[2..].iter().enumerate() {
            let mut begin: Vec<f32> = (0..values.len()).map(|index| spread(index, salt + 1)).collect();
            if name.ends_with("_u") || name.ends_with("_v") {
                let length = begin.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
                begin.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
            }
            net.set(name, &begin).unwrap();
        }
        let losses: Vec<f32> =
            (0..3).map(|step| net.train_step(&numbers(50 + step), &numbers(60 + step)).unwrap()).collect();
        close("losses", &losses, &expected[0].1, 4e-6);
        close("last", net.forward(&numbers(70)).unwrap().as_slice(), &expected[1].1, 4e-6);
        for (name, values) in &expected[2..] {
            close(name, &net.get(name).unwrap(), values, 4e-6);
        }
    }};
}

#[test]
fn steps_are_those_of_pytorch() {
    check!(Critic);
    check!(Twice);
}

/// A validation loss uses the vectors as they are, and moves none.
#[test]
fn vectors_rest_without_training() {
    let mut net = Critic::on(&Cpu::with_threads(2).unwrap()).unwrap();
    let names: Vec<String> =
        net.tensors().filter(|tensor| tensor.kind == Kind::Statistic).map(|tensor| tensor.name.to_string()).collect();
    assert_eq!(names.len(), 6);
    let all =
        |net: &mut Net<Critic, Cpu>| -> Vec<Vec<f32>> { names.iter().map(|name| net.get(name).unwrap()).collect() };
    let before = all(&mut net);
    let (x, t) = (numbers(1), numbers(2));
    let loss = net.eval_loss(&x, &t).unwrap();
    let output = net.forward(&x).unwrap();
    let squares: f32 = output.as_slice().iter().zip(t.as_slice()).map(|(y, t)| (y - t) * (y - t)).sum();
    assert!((squares / 16.0 - loss).abs() < 1e-6 * loss);
    assert_eq!(all(&mut net), before);
    net.train_step(&x, &t).unwrap();
    assert_ne!(all(&mut net), before);
}

/// They begin as those of 15 steps of the power iteration: sigma is near the largest singular value, so that no row is longer than 1 by more
/// than what is left to converge.
#[test]
fn vectors_begin_near_the_largest_singular_value() {
    let mut net = Critic::on(&Cpu::with_threads(2).unwrap()).unwrap();
    let w = net.get("fc.parametrizations.weight.original").unwrap();
    let [u, v] = ["_u", "_v"].map(|end| net.get(&format!("fc.parametrizations.weight.0.{end}")).unwrap());
    let length = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!((length(&u) - 1.0).abs() < 1e-6 && (length(&v) - 1.0).abs() < 1e-6);
    let product: Vec<f32> = w.chunks(24).map(|row| row.iter().zip(&v).map(|(w, v)| w * v).sum()).collect();
    let sigma: f32 = product.iter().zip(&u).map(|(product, u)| product * u).sum();
    // W v = sigma u, nearly.
    let rest: Vec<f32> = product.iter().zip(&u).map(|(product, u)| product - sigma * u).collect();
    assert!(length(&rest) < 0.05 * sigma, "{rest:?} {sigma}");
}
