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
    Smooth { loss: CrossEntropy { label_smoothing: 0.1 } }
    Pixels { loss: CrossEntropy { weight: [1.0, 2.0, 0.5], ignore_index: -100 } }
    Shares { loss: CrossEntropy { targets: Probabilities } }
    Weighted { loss: BceWithLogits { pos_weight: [1.0, 2.0, 0.5] } }
    Beta { loss: SmoothL1 { beta: 0.5 } }
    Delta { loss: Huber { delta: 0.7 } }
    Squares { loss: Mse { reduction: Sum } }
    Divergence { loss: KlDiv { log_target: true } }
    BatchMean { loss: KlDiv { log_target: true, reduction: BatchMean } }
}

network! {
    /// Two vectors through one encoder.
    pub struct Twins;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 1.0 }, loss: CosineEmbedding { margin: 0.25 } };

    fn forward(x: Features<3>, y: Features<3>) -> (Features<2>, Features<2>) {
        let encoder = Linear(2, bias = false, name = "encoder");
        Outputs(encoder, [from(y), encoder])
    }
}

network! {
    /// The same, with taps.
    pub struct Tapped;

    const TRAIN: Train =
        Train { batch: 2, optimizer: Sgd { lr: 1.0 }, loss: CosineEmbedding { margin: 0.25 }(from = (left, right)) };

    fn forward(x: Features<3>, y: Features<3>) -> Features<2> {
        let encoder = Linear(2, bias = false, name = "encoder");
        [encoder, tap(left), Sub([], [from(y), encoder, tap(right)])]
    }
}

network! {
    /// Four steps, each of one of three classes.
    pub struct Speech;

    const TRAIN: Train = Train {
        batch: 2,
        optimizer: Sgd { lr: 1.0 },
        loss: Ctc { target_length: 2, zero_infinity: true }(input_lengths = steps),
    };

    fn forward(x: Sequence<4, 2>) -> TokenLogits<4, 3> {
        [Linear(3, bias = false, name = "head"), LogSoftmax]
    }
}

network! {
    /// Two encoders, and a scale that is learned, as CLIP's.
    pub struct Clip;

    const TRAIN: Train =
        Train { batch: 3, optimizer: Sgd { lr: 1.0 }, loss: Contrastive { scale: log_scale }(from = (image, text)) };

    fn forward(x: Features<3>, y: Features<4>) -> Features<2> {
        [
            Parameter(1, init = Constant(1.5), name = "logit_scale"),
            tap(log_scale),
            from(y),
            Linear(2, bias = false, name = "text"),
            L2Norm,
            tap(text),
            from(x),
            Linear(2, bias = false, name = "image"),
            L2Norm,
            tap(image),
            Add([], from(text)),
        ]
    }
}

network! {
    /// Classes, each sample with a weight.
    pub struct Weighed;

    const TRAIN: Train = Train { batch: 3, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy(target = class, weights = w) };

    fn forward(x: Features<2>) -> Logits<3> { [Linear(3, bias = false, name = "head")] }
}

network! {
    /// Numbers of which some count, in parts of the batch.
    pub struct Masked;

    const TRAIN: Train =
        Train { batch: 3, micro_batches: 3, optimizer: Sgd { lr: 1.0 }, loss: Mse(target = y, mask = m) };

    fn forward(x: Features<2>) -> Features<3> { [Linear(3, bias = false, name = "head")] }
}

network! {
    /// Alike and unlike ones of a batch.
    pub struct Hard;

    const TRAIN: Train = Train {
        batch: 4,
        optimizer: Sgd { lr: 1.0 },
        loss: TripletMargin { margin: 0.5, mining: Hardest }(target = ids),
    };

    fn forward(x: Features<2>) -> Features<2> { [Linear(2, bias = false, name = "head")] }
}

network! {
    /// Generic over its batch: one sample can be served, and not be trained.
    pub struct AnyClip<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 1.0 }, loss: NtXent };

    fn forward(x: Features<3>, y: Features<3>) -> (Features<2>, Features<2>) {
        let encoder = Linear(2, bias = false, name = "encoder");
        Outputs(encoder, [from(y), encoder])
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

/// The loss and the slope of each number, as PyTorch computes them in float64.
macro_rules! check_beside_pytorch {
    ($($name:ident($targets:expr, $loss:literal, $slopes:expr);)*) => {$(
        let mut net = $name::on(&Cpu::new()).unwrap();
        net.set("scale.weight", &[1.0; 3]).unwrap();
        let loss = net.train_step(&Tensor::from_fn(|i| X[i]), &Tensor::from_fn(|i| $targets[i])).unwrap();
        assert!((f64::from(loss) - $loss).abs() < 1e-6 * $loss, "{}: {loss}", stringify!($name));
        let expected: [f64; 3] = $slopes;
        for (weight, slope) in net.get("scale.weight").unwrap().into_iter().zip(expected) {
            assert!((1.0 - f64::from(weight) - slope).abs() < 1e-6 * slope.abs().max(1.0), "{}: {weight}", stringify!($name));
        }
    )*};
}

const CLASSES: [u32; 4] = [2, 1, 0, 1];

#[test]
fn losses_beside_pytorch() {
    check_beside_pytorch! {
        Smooth(CLASSES, 1.53637016, [-0.11536969, 0.27602838, 0.57658941]);
        Pixels(LABELS, 1.08924509, [-0.15090727, 0.06152118, 0.26585528]);
        Shares(T, 2.35665783, [-0.02533675, 0.60574653, 0.61348651]);
        Weighted(T, 0.93229747, [-0.01055443, 0.20570637, 0.13003104]);
        Beta(T, 0.74666667, [0.1, 0.32083333, 0.3125]);
        Delta(T, 0.47510417, [0.06666667, 0.22291667, 0.21354166]);
        Squares(T, 17.21000005, [2.70000005, 16.92500004, 8.59999994]);
        Divergence(T, 0.61485481, [-0.16666152, -0.06048043, -0.14927247]);
        BatchMean(T, 3.68912887, [-0.99996914, -0.36288258, -0.89563484]);
    }
}

/// A step takes this gradient off a weight.
fn check_update(before: &[f32], after: &[f32], gradient: &[f64]) {
    assert_eq!((before.len(), after.len()), (gradient.len(), gradient.len()));
    for ((before, after), gradient) in before.iter().zip(after).zip(gradient) {
        assert!((f64::from(before - after) - gradient).abs() < 1e-6, "{before} - {after}, not {gradient}");
    }
}

#[test]
fn pairs_beside_pytorch() {
    const ENCODER: [f32; 6] = [0.5, -1.0, 0.25, 1.0, 0.75, -0.5];
    const GRADIENT: [f64; 6] = [
        0.012234323359140417,
        -0.02333269262786286,
        -0.05652992144240128,
        -0.010042764992827788,
        -0.040614148206117875,
        -0.05037200440104017,
    ];
    let x = Tensor::from_fn(|i| [1.0, 2.0, -1.0, 0.5, -0.5, 1.5][i]);
    let y = Tensor::from_fn(|i| [0.25, 1.0, 0.5, 1.0, -1.0, 2.0][i]);
    let target: Tensor<f32, (D<2>,)> = Tensor::from_fn(|i| [1.0, -1.0][i]);
    let mut twins = Twins::on(&Cpu::new()).unwrap();
    twins.set("encoder.weight", &ENCODER).unwrap();
    let loss = twins.eval_loss((&x, &y), &target).unwrap();
    assert!((f64::from(loss) - 0.385972521766404).abs() < 1e-6, "{loss}");
    assert_eq!(twins.train_step((&x, &y), &target).unwrap(), loss);
    check_update(&ENCODER, &twins.get("encoder.weight").unwrap(), &GRADIENT);
    let mut tapped = Tapped::on(&Cpu::new()).unwrap();
    tapped.set("encoder.weight", &ENCODER).unwrap();
    assert_eq!(tapped.train_step((&x, &y), &target).unwrap(), loss);
    check_update(&ENCODER, &tapped.get("encoder.weight").unwrap(), &GRADIENT);
}

#[test]
fn sequences_beside_pytorch() {
    const HEAD: [f32; 6] = [0.5, -1.0, 1.0, 0.75, -0.5, 0.25];
    const GRADIENT: [f64; 6] = [
        -0.9470928990216939,
        -0.0775972132799119,
        1.1380952057776885,
        0.11990667010574335,
        -0.1910023067559944,
        -0.04230945682583144,
    ];
    const STEPS: [f32; 16] = [1.0, 2.0, 0.5, -0.5, -1.0, 1.0, 0.25, 0.75, 0.0, 1.0, 1.5, -1.0, 2.0, 0.5, -0.5, -0.5];
    let x = Tensor::from_fn(|i| STEPS[i]);
    let labels: Tensor<u32, (D<2>, D<2>)> = Tensor::from_fn(|i| [1, 1, 2, -1i32 as u32][i]);
    let steps = |steps: [u32; 2]| -> Tensor<u32, (D<2>,)> { Tensor::from_fn(|i| steps[i]) };
    let mut net = Speech::on(&Cpu::new()).unwrap();
    net.set("head.weight", &HEAD).unwrap();
    let loss = net.train_step(&x, (&labels, &steps([4, 3]))).unwrap();
    assert!((f64::from(loss) - 2.192698107954042).abs() < 2e-6, "{loss}");
    check_update(&HEAD, &net.get("head.weight").unwrap(), &GRADIENT);
    // No way leads to a label twice in two steps, nor to one in none.
    assert_eq!(net.eval_loss(&x, (&labels, &steps([2, 0]))).unwrap(), 0.0);
    let error = net.train_step(&x, (&labels, &steps([4, 5]))).unwrap_err();
    assert!(matches!(error, Error::Index { what: "input length", position: 1, value: 5, limit: 5 }), "{error}");
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

#[test]
fn batches_beside_pytorch() {
    const IMAGE: [f32; 6] = [0.5, -1.0, 0.25, 1.0, 0.75, -0.5];
    const TEXT: [f32; 8] = [0.25, 0.5, -0.75, 1.0, -0.5, 1.0, 0.5, 0.25];
    const OF_IMAGE: [f64; 6] = [
        0.5877687498584645,
        -0.16788959341884951,
        0.5313287998463025,
        0.40632171088523117,
        -0.35515463890564103,
        1.4691238000313165,
    ];
    const OF_TEXT: [f64; 8] = [
        -0.17873336355596872,
        0.3081777334067116,
        0.5115493176103139,
        0.2080011519309155,
        0.011547354945664473,
        0.04912070333977275,
        0.052061911382071224,
        -0.012490684382077094,
    ];
    let x: Tensor<f32, (D<3>, D<3>)> = Tensor::from_fn(|i| [1.0, 2.0, -1.0, 0.5, -0.5, 1.5, -1.0, 0.25, 0.75][i]);
    let y: Tensor<f32, (D<3>, D<4>)> =
        Tensor::from_fn(|i| [0.25, 1.0, 0.5, -0.5, 1.0, -1.0, 2.0, 0.5, -0.75, 0.5, 1.5, 1.0][i]);
    let mut net = Clip::on(&Cpu::new()).unwrap();
    net.set("image.weight", &IMAGE).unwrap();
    net.set("text.weight", &TEXT).unwrap();
    assert_eq!(net.get("logit_scale.weight").unwrap(), [1.5]);
    let loss = net.eval_loss((&x, &y), ()).unwrap();
    assert!((f64::from(loss) - 3.8556927316058784).abs() < 1e-5, "{loss}");
    assert_eq!(net.train_step((&x, &y), ()).unwrap(), loss);
    check_update(&IMAGE, &net.get("image.weight").unwrap(), &OF_IMAGE);
    check_update(&TEXT, &net.get("text.weight").unwrap(), &OF_TEXT);
    check_update(&[1.5], &net.get("logit_scale.weight").unwrap(), &[3.4893680870569574]);
    // It learns what belongs together.
    let mut net = Clip::on(&Cpu::new()).unwrap();
    net.set_lr(0.1).unwrap();
    let first = net.train_step((&x, &y), ()).unwrap();
    let last = (0..60).map(|_| net.train_step((&x, &y), ()).unwrap()).last().unwrap();
    assert!(last < 0.7 * first, "{first}, then {last}");
}

#[test]
fn weights_and_masks_beside_pytorch() {
    const HEAD: [f32; 6] = [0.5, -1.0, 1.0, 0.75, -0.25, 0.5];
    let x: Tensor<f32, (D<3>, D<2>)> = Tensor::from_fn(|i| [1.0, 2.0, -1.0, 0.5, 0.25, 1.5][i]);
    let class: Tensor<u32, (D<3>,)> = Tensor::from_fn(|i| [2, 0, 1][i]);
    let weights: Tensor<f32, (D<3>,)> = Tensor::from_fn(|i| [0.5, 2.0, 0.0][i]);
    let mut net = Weighed::on(&Cpu::new()).unwrap();
    net.set("head.weight", &HEAD).unwrap();
    let loss = net.train_step(&x, (&class, &weights)).unwrap();
    assert!((f64::from(loss) - 1.612166848998247).abs() < 1e-6, "{loss}");
    let gradient = [
        0.5731199365936032,
        -0.2801581707165691,
        -2.4991421918529877e-05,
        0.34953880047830904,
        -0.5730949451716846,
        -0.06938062976173986,
    ];
    check_update(&HEAD, &net.get("head.weight").unwrap(), &gradient);
    // Each part of the batch is one sample, and divides by what the mask of all comes to.
    let y: Tensor<f32, (D<3>, D<3>)> = Tensor::from_fn(|i| [0.5, -0.5, 1.0, 2.0, 0.0, -1.0, 0.25, 0.75, 1.5][i]);
    let mask: Tensor<f32, (D<3>, D<3>)> = Tensor::from_fn(|i| [1.0, 0.0, 1.0, 1.0, 0.5, 0.0, 0.0, 1.0, 1.0][i]);
    let mut net = Masked::on(&Cpu::new()).unwrap();
    net.set("head.weight", &HEAD).unwrap();
    let loss = net.eval_loss(&x, (&y, &mask)).unwrap();
    assert!((f64::from(loss) - 2.6015625).abs() < 1e-6, "{loss}");
    assert!((net.train_step(&x, (&y, &mask)).unwrap() - loss).abs() < 1e-6);
    let gradient = [0.36363636363636354, -2.0, 0.17045454545454547, 0.2840909090909091, -0.1647727272727273, -0.625];
    check_update(&HEAD, &net.get("head.weight").unwrap(), &gradient);
}

#[test]
fn what_is_found_in_a_batch_is_learned() {
    let x: Tensor<f32, (D<4>, D<2>)> = Tensor::from_fn(|i| [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0][i]);
    let ids: Tensor<u32, (D<4>,)> = Tensor::from_fn(|i| [7, 8, 7, 8][i]);
    let mut net = Hard::on(&Cpu::new()).unwrap();
    net.set("head.weight", &[1.0, 0.0, 0.0, 1.0]).unwrap();
    // Positives and negatives are 1 away: the term is the margin, and the second axis, along which positives are, shrinks.
    assert_eq!(net.train_step(&x, &ids).unwrap(), 0.5);
    assert_eq!(net.get("head.weight").unwrap(), [2.0, 0.0, 0.0, 0.0]);
    assert_eq!(net.eval_loss(&x, &ids).unwrap(), 0.0);
}

#[test]
fn one_sample_is_served_and_not_trained() {
    let Err(error) = AnyClip::<1>::on(&Cpu::new()) else { panic!("there is nothing to compare") };
    let said = "`NtXent` compares samples with each other, and there is one; use a batch of at least 2";
    assert!(error.to_string().contains(said), "{error}");
    assert!(AnyClip::<2>::on(&Cpu::new()).is_ok());
}
