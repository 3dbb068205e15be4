//! `eval` and `train`: what training makes of layers that are there as without it, beside float64, validation and networks without them.

#[path = "../golden/mod.rs"]
mod golden;

use golden::{close, lines, numbers, spread};
use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Line};
use std::collections::BTreeMap;

fn on_cpu<N: Network>() -> Net<N, Cpu> {
    Net::<N, Cpu>::load(&Cpu::with_threads(2).unwrap()).unwrap()
}

/// Gives parameters and running statistics numbers of their own.
fn begin<N: Network>(net: &mut Net<N, Cpu>) {
    // Gradients that parts of a batch add to are there in some networks only.
    let begun = net.tensors().filter(|tensor| matches!(tensor.kind, Kind::Parameter | Kind::Statistic));
    let names: Vec<String> = begun.map(|tensor| tensor.name.to_string()).collect();
    for (salt, name) in names.iter().enumerate() {
        let is_positive = name.ends_with("running_var") || name.ends_with("norm.weight");
        let shift = if is_positive { 1.0 } else { 0.0 };
        let count = net.get(name).unwrap().len();
        net.set(name, &(0..count).map(|index| shift + spread(index, salt)).collect::<Vec<f32>>()).unwrap();
    }
}

/// All that lasts and is read by names with this end.
fn lasting<N: Network>(net: &mut Net<N, Cpu>, end: &str) -> BTreeMap<String, Vec<f32>> {
    let names: Vec<String> = net.names().filter(|name| name.ends_with(end)).map(String::from).collect();
    names.into_iter().map(|name| (name.clone(), net.get(&name).unwrap())).collect()
}

network! {
    pub struct Both;

    const TRAIN: Train = Train { batch: 6, optimizer: Sgd { lr: 0.5 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<4> {
        let norm = BatchNorm1d;
        [Linear(4, name = "first"), eval(norm), Tanh, norm, Tanh, eval(norm)]
    }
}

/// Each use has its mode; what one moves, the next one reads.
#[test]
fn a_layer_may_have_uses_in_both_modes() {
    let expected: BTreeMap<&str, Vec<f32>> = lines(include_str!("expected.txt")).into_iter().collect();
    let mut net = on_cpu::<Both>();
    // A layer with several uses has the name of its first use.
    let called = |name: &str| name.replace("norm.", "norm[0].");
    let order = ["first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"];
    for (salt, name) in order.iter().enumerate() {
        let shift = if ["norm.weight", "norm.running_var"].contains(name) { 1.0 } else { 0.0 };
        let count = net.get(&called(name)).unwrap().len();
        net.set(&called(name), &(0..count).map(|index| shift + spread(index, salt + 1)).collect::<Vec<f32>>()).unwrap();
    }
    let (x, t) = (numbers(10), numbers(11));
    let losses: Vec<f32> = (0..2).map(|_| net.train_step(&x, &t).unwrap()).collect();
    close("losses", &losses, &expected["losses"], 1e-6);
    for name in order {
        close(name, &net.get(&called(name)).unwrap(), &expected[name], 2e-6);
    }
}

/// A network of maps around these layers.
macro_rules! maps {
    ($name:ident, { $($settings:tt)* }, $($layers:tt)*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.05 }, loss: Mse, $($settings)* };

            fn forward(x: Image<2, 6, 5>) -> Map<3, 6, 5> { [Conv2d(6, 3, padding = 1), $($layers)*, Conv2d(3, 1)] }
        }
    };
}

maps! { Rests, {}, eval([BatchNorm2d(name = "norm"), Silu, Dropout(0.5), Conv2d(6, 1, bias = false), InstanceNorm2d, BatchNorm2d]), Relu }

/// A step beside validation, which knows no backward pass: its loss is the loss of the step, and differences of it the gradient.
#[test]
fn a_step_at_rest_is_that_of_validation() {
    let mut net = on_cpu::<Rests>();
    begin(&mut net);
    let (x, t) = (numbers(10), numbers(11));
    let start = lasting(&mut net, "");
    let expected = f64::from(net.eval_loss(&x, &t).unwrap());
    let found = f64::from(net.train_step(&x, &t).unwrap());
    assert!((found - expected).abs() < 1e-6 * expected, "{found} {expected}");
    let after = lasting(&mut net, "");
    for (name, begun) in &start {
        if name.contains("running_") {
            assert_eq!(&after[name], begun, "{name}");
            continue;
        }
        let change: Vec<f64> = begun.iter().zip(&after[name]).map(|(a, b)| f64::from(a - b)).collect();
        let norm = change.iter().map(|x| x * x).sum::<f64>().sqrt();
        let gradient = norm / 0.05;
        assert!(gradient > 1e-4, "{name} has no gradient");
        let mut at = |step: f64| {
            for (name, begun) in &start {
                net.set(name, begun).unwrap();
            }
            let moved = begun.iter().zip(&change).map(|(x, d)| (f64::from(*x) + step * d / norm) as f32);
            net.set(name, &moved.collect::<Vec<f32>>()).unwrap();
            f64::from(net.eval_loss(&x, &t).unwrap())
        };
        let slopes = [2e-2, 1e-2, 5e-3].map(|width| (at(width) - at(-width)) / (2.0 * width));
        let near = |slope: f64| (slope - gradient).abs() <= 5e-3 * gradient + 1e-4;
        assert!(slopes.into_iter().any(near), "{name}: gradient {gradient}, slopes {slopes:?}");
    }
}

maps! { Whole, { checkpoint: None }, eval([BatchNorm2d(name = "norm"), Silu, Conv2d(6, 3, padding = 1), BatchNorm2d, Relu]) }
maps! { Remade, { checkpoint: Norms }, eval([BatchNorm2d(name = "norm"), Silu, Conv2d(6, 3, padding = 1), BatchNorm2d, Relu]) }
maps! { Lean, { checkpoint: Budget(0.8) }, eval([BatchNorm2d(name = "norm"), Silu, Conv2d(6, 3, padding = 1), BatchNorm2d, Relu]) }
maps! { Again, { checkpoint: None }, checkpoint(eval([BatchNorm2d(name = "norm"), Silu, Conv2d(6, 3, padding = 1), BatchNorm2d, Relu])) }
maps! { Split, { micro_batches: 4 }, eval([BatchNorm2d(name = "norm"), Silu, Conv2d(6, 3, padding = 1), BatchNorm2d, Relu]) }

/// Three steps: their losses, and all that lasts.
fn trained<N: Network>(step: impl Fn(&mut Net<N, Cpu>) -> f32) -> (Vec<f32>, BTreeMap<String, Vec<f32>>) {
    let mut net = on_cpu::<N>();
    begin(&mut net);
    let losses = (0..3).map(|_| step(&mut net)).collect();
    let names: Vec<String> = net.names().map(String::from).collect();
    (losses, names.iter().map(|name| (name.clone(), net.get(name).unwrap())).collect())
}

#[test]
fn what_is_computed_again_is_what_it_was() {
    let (x, t) = (numbers(10), numbers(11));
    let (losses, whole) = trained::<Whole>(|net| net.train_step(&x, &t).unwrap());
    assert!(losses[2] < losses[0], "{losses:?}");
    assert_eq!(trained::<Remade>(|net| net.train_step(&x, &t).unwrap()), (losses.clone(), whole.clone()));
    assert_eq!(trained::<Lean>(|net| net.train_step(&x, &t).unwrap()), (losses.clone(), whole.clone()));
    assert_eq!(trained::<Again>(|net| net.train_step(&x, &t).unwrap()), (losses, whole));
}

/// No sample sees another one, so that parts of a batch are the whole.
#[test]
fn parts_of_a_batch_are_the_whole() {
    let (x, t) = (numbers(10), numbers(11));
    let (losses, whole) = trained::<Whole>(|net| net.train_step(&x, &t).unwrap());
    let (found, split) = trained::<Split>(|net| net.train_step(&x, &t).unwrap());
    close("losses", &found, &losses, 1e-6);
    for (name, expected) in whole {
        close(&name, &split[&name], &expected, 2e-6);
    }
}

network! {
    /// A batch of one vector, which has no variance.
    pub struct Single;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<4> { [Linear(4), eval(BatchNorm1d(name = "norm")), Linear(4)] }
}

#[test]
fn one_sample_is_enough() {
    let mut net = on_cpu::<Single>();
    begin(&mut net);
    let (x, t) = (numbers(10), numbers(11));
    let losses: Vec<f32> = (0..20).map(|_| net.train_step(&x, &t).unwrap()).collect();
    assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
}

/// A network of sequences with dropout of every kind inside of this.
macro_rules! dropped {
    ($name:ident, $mode:ident) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse };

            fn forward(x: Sequence<5, 8>) -> Sequence<5, 8> {
                [
                    Linear(8),
                    $mode([
                        CausalSelfAttention(2, dropout = 0.4), Add([], [Linear(8), DropPath(0.5)]),
                        MultiHeadAttention(2, dropout = 0.4), Lstm(8, layers = 2, dropout = 0.5),
                        TransformerBlock(8, 2, 16, dropout = 0.5), Dropout(0.5),
                    ]),
                    Linear(8),
                ]
            }
        }
    };
}

dropped! { Kept, eval }
dropped! { Dropped, train }

#[test]
fn nothing_is_dropped() {
    let (x, t) = (numbers(10), numbers(11));
    let mut net = on_cpu::<Kept>();
    let expected = net.eval_loss(&x, &t).unwrap();
    close("loss", &[net.train_step(&x, &t).unwrap()], &[expected], 1e-6);
    let mut net = on_cpu::<Dropped>();
    let without = net.eval_loss(&x, &t).unwrap();
    assert!((without - net.train_step(&x, &t).unwrap()).abs() > 1e-3 * without);
}

blocks! {
    /// A block that knows nothing of modes.
    pub mod parts {
        fn normed() -> Block { [Linear(4), BatchNorm1d] }
    }
}

network! {
    /// A part that trains inside of one that does not.
    pub struct Nested;

    use blocks parts;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<4> { [eval([normed(), train(normed()), Dropout(0.9)]), normed()] }
}

#[test]
fn the_innermost_word_counts_inside_of_blocks() {
    let mut net = on_cpu::<Nested>();
    let before = lasting(&mut net, "running_mean");
    net.train_step(&numbers(10), &numbers(11)).unwrap();
    let moved = |(name, values): (&String, &Vec<f32>)| (before[name] != *values).then(|| name.clone());
    let moved: Vec<String> = lasting(&mut net, "running_mean").iter().filter_map(moved).collect();
    assert_eq!(moved, ["normed[1].batch_norm1d.running_mean", "normed[2].batch_norm1d.running_mean"]);
}

/// A normalisation of `[64, 56, 56]` between two convolutions that are trained.
macro_rules! wide {
    ($name:ident, $norm:expr) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1 }, loss: Mse, checkpoint: None };

            fn forward(x: Image<3, 56, 56>) -> Map<8, 56, 56> { [Conv2d(64, 1), $norm, Conv2d(8, 1)] }
        }
    };
}

wide! { WideTrained, BatchNorm2d }
wide! { WideFrozen, freeze(train(BatchNorm2d)) }
wide! { WideResting, freeze(eval(BatchNorm2d)) }

/// The map that a normalisation by the batch keeps, frozen or not, is not kept at rest: 32 * 64 * 56 * 56 numbers.
#[test]
fn what_is_frozen_and_rests_keeps_no_map() {
    const MAP: u64 = 32 * 64 * 56 * 56 * 4;
    fn kept<N: Network>() -> u64 {
        N::LAYERS.iter().map(|layer| layer.kept_bytes(32, gpumem::Precision::F32)).sum()
    }
    let (trained, frozen, resting) = (kept::<WideTrained>(), kept::<WideFrozen>(), kept::<WideResting>());
    assert_eq!(MAP, 25_690_112);
    assert!(trained - resting >= MAP && frozen - resting >= MAP, "{trained} {frozen} {resting}");
    let activations = |budget: &gpumem::Budget| budget[Line::Activations];
    assert!(
        activations(&WideFrozen::TRAINING.unwrap().budget) > activations(&WideResting::TRAINING.unwrap().budget),
        "the peak has one map less"
    );
    let before = lasting(&mut on_cpu::<WideResting>(), "");
    let mut net = on_cpu::<WideResting>();
    net.train_step(&numbers(10), &numbers(11)).unwrap();
    let moved: Vec<String> = before
        .iter()
        .filter(|(name, values)| net.get(name).unwrap() != **values)
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(moved, ["conv2d[0].bias", "conv2d[0].weight", "conv2d[1].bias", "conv2d[1].weight"]);
    assert!(net.tensors().filter(|tensor| tensor.kind == Kind::Parameter).count() == 6);
}
