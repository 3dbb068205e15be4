//! Layers of one's own, from `operation!` to a training step.

use gpumem::Cpu;
use gpumem::operation::{Backward, Forward};
use gpumem::prelude::*;

operation! {
    /// `x * sigmoid(beta * x)`.
    pub fn Swish(x, beta: f64 = 1.0) {
        x * sigmoid(beta * x)
    }

    /// Backward keeps the output.
    pub fn Squash(x) {
        value: { let doubled = exp(2.0 * x); (doubled - 1.0) / (doubled + 1.0) },
        derivative: 1.0 - y * y,
    }
}

/// `y = weight * (a + b)`, where `a` and `b` are the halves of the last axis.
mod fold {
    use super::{Backward, Forward};

    pub fn forward(call: &mut Forward<'_>) {
        let half = call.size("features") / 2;
        for (row, y) in call.y.chunks_mut(half).enumerate() {
            let x = &call.x[2 * half * row..][..2 * half];
            for i in 0..half {
                y[i] = call.parameters[0][i] * (x[i] + x[half + i]);
            }
        }
    }

    pub fn backward(call: &mut Backward<'_>) {
        let half = call.size("features") / 2;
        for (row, dy) in call.dy.chunks(half).enumerate() {
            for i in 0..half {
                let (a, b) = (2 * half * row + i, 2 * half * row + half + i);
                if let Some(dx) = &mut call.dx {
                    dx[a] += call.parameters[0][i] * dy[i];
                    dx[b] += call.parameters[0][i] * dy[i];
                }
                if let Some(dweight) = &mut call.dparameters[0] {
                    dweight[i] += (call.x[a] + call.x[b]) * dy[i];
                }
            }
        }
    }
}

blocks! {
    pub mod parts {
        operation! {
            /// Adds the halves of the last axis.
            fn Fold(x: [rows.., features], start: f64 = 1.0) -> [rows.., features / 2] {
                requires: [features % 2 == 0],
                parameters: { weight: [features / 2] = start },
                keeps: [x, weight],
                macs: rows * features,
                cpu: super::fold,
                cuda: "operations/fold.cu",
            }
        }

        fn halved(width: usize) -> Block { [Linear(2 * width), Fold(0.5)] }
    }
}

network! {
    pub struct Own;

    use blocks parts;
    use blocks {Swish, Squash as squashes};

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    operation! {
        /// Between -1 and 1.
        fn Clip(x, limit: f64 = 1.0) { clamp(x, -limit, limit) }
    }

    fn forward(x: Features<6>) -> Logits<3> {
        [parts::halved(8), Swish(1.5), parts::Fold, Clip(limit = 2), squashes::Squash, Linear(3)]
    }
}

#[test]
fn it_learns() {
    let mut net = Own::on(&Cpu::new()).unwrap();
    let x = Tensor::from_fn(|index| ((index * 7) % 5) as f32 - 2.0);
    let labels = Tensor::from([0, 1, 2, 1]);
    let first = net.train_step(&x, &labels).unwrap();
    let last = (0..300).map(|_| net.train_step(&x, &labels).unwrap()).last().unwrap();
    assert!(last < 0.2 * first, "{first} {last}");
    let names: Vec<String> = net.names().map(str::to_string).collect();
    assert!(
        names.contains(&"halved.fold.weight".to_string()) && names.contains(&"fold.weight".to_string()),
        "{names:?}"
    );
}

#[test]
fn what_they_keep_is_counted() {
    let kept = |path: &str| {
        let layer = Own::LAYERS.iter().find(|layer| layer.path == path).unwrap();
        (layer.kind, layer.output_shape, layer.kept[1])
    };
    // What arrives, which the layer before does not keep.
    assert_eq!(kept("halved.fold"), ("Fold", &[8][..], 16));
    assert_eq!(kept("swish"), ("Swish", &[8][..], 8));
    assert_eq!(kept("squash").0, "Squash");
    let fold = Own::LAYERS.iter().find(|layer| layer.path == "fold").unwrap();
    assert_eq!((fold.parameters, fold.macs), (4, 8));
}

mod declared {
    use gpumem::prelude::*;

    network! {
        pub struct Declared;

        const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse };

        operation! {
            fn Scan(x: [steps, width], states: usize) {
                parameters: { a: [width, states] = Uniform(0.5), b: [width] = Kaiming(width) },
                saves: { all: [steps, width, states] },
                keeps: [x, a],
                workspace: (width, 2 * width),
                macs: steps * width * states,
            }
        }

        fn forward(x: Sequence<5, 4>) -> Sequence<5, 4> { [Scan(16), Linear(4)] }
    }
}

#[test]
fn what_is_only_declared_counts_and_does_not_run() {
    use declared::Declared;

    let scan = &Declared::LAYERS[0];
    assert_eq!((scan.parameters, scan.macs), (4 * 16 + 4, 5 * 4 * 16));
    // The states of all steps in f32.
    assert_eq!(scan.kept[3], 5 * 4 * 16);
    let error = Declared::on(&Cpu::new()).unwrap_err().to_string();
    let expected = "the CPU: operation `Scan` is declared without `cpu`, so it counts in budgets, but nothing computes it here; add \
                    `cpu: path` to its `operation!`";
    assert_eq!(error, expected);
}

/// Two networks that differ in who declares their activation.
macro_rules! with_activation {
    ($name:ident, $activation:expr, $($operation:tt)*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

            $($operation)*

            fn forward(x: Features<6>) -> Logits<3> { [Linear(8), $activation, Linear(3)] }
        }
    };
}

mod theirs {
    use gpumem::prelude::*;

    with_activation!(Theirs, Silu,);
}

mod own {
    use gpumem::prelude::*;

    with_activation!(Ours, Own, operation! { fn Own(x) { x * sigmoid(x) } });
}

#[test]
fn a_formula_is_what_a_layer_is() {
    let device = Cpu::new();
    let (mut theirs, mut own) = (theirs::Theirs::on(&device).unwrap(), own::Ours::on(&device).unwrap());
    let labels = Tensor::from([0, 1, 2, 1]);
    for step in 0..20 {
        let x = Tensor::from_fn(|index| ((index * 7 + step) % 5) as f32 - 2.0);
        let (theirs, own) = (theirs.train_step(&x, &labels).unwrap(), own.train_step(&x, &labels).unwrap());
        assert!((theirs - own).abs() < 1e-5 * theirs, "{theirs} {own}");
    }
    assert_eq!(own::Ours::BUDGET, theirs::Theirs::BUDGET);
}
