//! Losses with options, as they are written in `TRAIN`.

use gpumem::prelude::*;
use gpumem::{Cpu, Error, Loss, Reduction};

/// Networks that are one multiplication by a number, 1 at first: training by 1 takes the gradient of the number off it.
macro_rules! scaled {
    ($($name:ident { $($loss:tt)* })*) => {
        $(network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 1.0 }, $($loss)* };

            fn forward(x: Image<3, 1, 2>) -> Map<3, 1, 2> {
                [Conv2d(3, 1, groups = 3, bias = false, name = "scale")]
            }
        })*
    };
}

scaled! {
    Segments { loss: CrossEntropy { label_smoothing: 0.1, weight: [1.0, 2.0, 0.5], ignore_index: -100 } }
    Strict { loss: CrossEntropy { weight: [1.0, 2.0, 0.5] } }
    Several {
        loss: BceWithLogits { pos_weight: [1.0, 2.0, 0.5] }
            + 0.5 * Huber { delta: 0.7 }(target = second) + SmoothL1 { beta: 0.5, reduction: Sum }(target = second) + L1
            + KlDiv { log_target: true, reduction: BatchMean } + CrossEntropy { targets: Probabilities }
    }
}

const X: [f32; 12] = [0.5, -1.0, 2.0, 0.25, -0.75, 1.5, 1.0, 0.0, -2.0, 0.5, 1.25, -0.25];
const T: [f32; 12] = [0.5, 0.25, 0.0, 1.0, 0.75, 0.1, 0.9, 0.2, 0.3, 0.4, 0.6, 0.8];
const LABELS: [u32; 4] = [2, -100i32 as u32, 0, 1];

/// `-log(softmax)` of a class at one of the four positions, for logits `scale * X`.
fn surprise(position: usize, class: usize, scale: [f64; 3]) -> f64 {
    let at = |class: usize| scale[class] * f64::from(X[position / 2 * 6 + class * 2 + position % 2]);
    (0..3).map(|class| at(class).exp()).sum::<f64>().ln() - at(class)
}

/// The smoothed, weighted cross entropy of the positions that count.
fn segments(scale: [f64; 3]) -> f64 {
    const WEIGHTS: [f64; 3] = [1.0, 2.0, 0.5];
    let (mut sum, mut count) = (0.0, 0.0);
    for (position, label) in LABELS.iter().enumerate().filter(|(_, label)| **label < 3) {
        for (class, weight) in WEIGHTS.iter().enumerate() {
            let hit = f64::from(u8::from(*label as usize == class));
            sum += (0.9 * hit + 0.1 / 3.0) * weight * surprise(position, class, scale);
        }
        count += WEIGHTS[*label as usize];
    }
    sum / count
}

/// All terms of `Several`.
fn several(scale: [f64; 3]) -> f64 {
    let mut sum = 0.0;
    for i in 0..12 {
        let class = i / 2 % 3;
        let (x, t) = (scale[class] * f64::from(X[i]), f64::from(T[i]));
        let (d, p, s) = ((x - t).abs(), [1.0, 2.0, 0.5][class], 1.0 / (1.0 + (-x).exp()));
        sum -= (p * t * s.ln() + (1.0 - t) * (1.0 - s).ln()) / 12.0;
        sum += 0.5 * if d <= 0.7 { d * d / 2.0 } else { 0.7 * (d - 0.35) } / 12.0;
        sum += if d < 0.5 { d * d } else { d - 0.25 };
        sum += d / 12.0;
        sum += t.exp() * (t - x) / 2.0;
        sum += t * surprise(i / 6 * 2 + i % 2, class, scale) / 4.0;
    }
    sum
}

/// A step's loss is that of the formula, and the step goes down its slope.
macro_rules! check {
    ($name:ident, $formula:expr, $targets:expr) => {{
        let mut net = $name::on(&Cpu::new()).unwrap();
        net.set("scale.weight", &[1.0; 3]).unwrap();
        let loss = net.train_step(&Tensor::from_fn(|i| X[i]), $targets).unwrap();
        let expected = $formula([1.0; 3]);
        assert!((f64::from(loss) - expected).abs() < 1e-5 * expected, "{loss}, not {expected}");
        for (class, weight) in net.get("scale.weight").unwrap().into_iter().enumerate() {
            let moved = |by: f64| {
                let mut scale = [1.0; 3];
                scale[class] += by;
                $formula(scale)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (1.0 - f64::from(weight) - slope).abs() < 1e-4 * slope.abs().max(0.1),
                "{class}: {weight}, {slope}"
            );
        }
    }};
}

#[test]
fn classes_with_weights_and_positions_left_out() {
    check!(Segments, segments, &Tensor::from_fn(|i| LABELS[i]));
    // A loss without an update has the same options.
    let mut net = Segments::on(&Cpu::new()).unwrap();
    net.set("scale.weight", &[1.0; 3]).unwrap();
    let loss = net.eval_loss(&Tensor::from_fn(|i| X[i]), &Tensor::from_fn(|i| LABELS[i])).unwrap();
    assert!((f64::from(loss) - segments([1.0; 3])).abs() < 1e-5);
}

#[test]
fn terms_of_many_kinds() {
    check!(Several, several, (&Tensor::from_fn(|i| T[i]), &Tensor::from_fn(|i| T[i])));
}

/// Only what is named is left out.
#[test]
fn targets_that_are_no_class() {
    let mut net = Strict::on(&Cpu::new()).unwrap();
    let error = net.train_step(&Tensor::from_fn(|i| X[i]), &Tensor::from_fn(|i| LABELS[i])).unwrap_err();
    assert!(matches!(error, Error::Index { position: 1, limit: 3, .. }), "{error}");
    let mut net = Segments::on(&Cpu::new()).unwrap();
    let error = net.train_step(&Tensor::from_fn(|i| X[i]), &Tensor::from_fn(|i| [0, 1, 3, 2][i])).unwrap_err();
    assert!(matches!(error, Error::Index { position: 2, value: 3, .. }), "{error}");
}

/// The constant says what was written.
#[test]
fn options_are_in_the_constant() {
    let [term] = Segments::TRAIN.loss else { panic!("one term") };
    assert_eq!((term.loss, term.options.number), (Loss::CrossEntropy, Some(0.1)));
    assert_eq!((&*term.options.weights, term.options.ignored), (&[1.0, 2.0, 0.5][..], Some(-100i32 as u32)));
    assert_eq!(Several::TRAIN.loss[2].options.reduction, Reduction::Sum);
}
