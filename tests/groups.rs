//! Numbers of the rule by group of parameters, and rates by layer.
#![deny(warnings)]

use gpumem::Cpu;
use gpumem::prelude::*;

/// Two maps whose sum is the loss, so that no gradient depends on a parameter: each is trained as if it were alone.
macro_rules! side_by_side {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 2, loss: Mean, seed: 3, $($settings)* };

            fn forward(x: Features<5>) -> Features<3> {
                [Add([Linear(3, name = "body")], [Linear(3, name = "head")])]
            }
        }
    };
}

fn trained<N: gpumem::Trains>(step: impl Fn(&mut Net<N, Cpu>, usize)) -> Net<N, Cpu> {
    let mut net = Net::<N, Cpu>::load(&Cpu::with_threads(1).unwrap()).unwrap();
    (0..8).for_each(|number| step(&mut net, number));
    net
}

macro_rules! steps {
    ($name:ident) => {
        trained::<$name>(|net, step| {
            let x = Tensor::from_fn(move |index| ((index * 7 + step * step * 3) % 11) as f32 / 5.0 - 1.0);
            net.train_step(&x, ()).unwrap();
        })
    };
}

/// The head has the numbers of its group, as if all parameters had them, and the body those of the optimizer.
macro_rules! differ {
    ($optimizer:ident { $($all:tt)* }, { $($own:tt)* }, { $($both:tt)* }) => {{
        side_by_side!(Grouped, { optimizer: $optimizer { $($all)* $($both)* groups: [Group { paths: "head.*", $($own)* }] } });
        side_by_side!(Own, { optimizer: $optimizer { $($own)* $($both)* } });
        side_by_side!(All, { optimizer: $optimizer { $($all)* $($both)* } });
        let (mut grouped, mut own, mut all) = (steps!(Grouped), steps!(Own), steps!(All));
        for name in ["weight", "bias"] {
            let (body, head) = (format!("body.{name}"), format!("head.{name}"));
            assert_eq!(grouped.get(&head).unwrap(), own.get(&head).unwrap(), "{} {head}", stringify!($optimizer));
            assert_eq!(grouped.get(&body).unwrap(), all.get(&body).unwrap(), "{} {body}", stringify!($optimizer));
            // The gradient of a bias is the same in each step, so that its means are, whatever their decay is.
            if name == "weight" {
                assert_ne!(own.get(&head).unwrap(), all.get(&head).unwrap(), "{} {head}", stringify!($optimizer));
            }
        }
    }};
}

#[test]
fn groups_have_numbers_of_the_rule() {
    differ!(Adam { betas: (0.9, 0.999), eps: 1e-8, }, { betas: (0.5, 0.7), eps: 1e-2, }, { lr: 0.01, });
    differ!(AdamW { betas: (0.9, 0.999), }, { betas: (0.0, 0.7), }, { lr: 0.01, weight_decay: 0.1, });
    differ!(AdamW { eps: 1e-8, }, { eps: 1e-1, }, { lr: 0.01, amsgrad: true, });
    differ!(AdamW8bit { betas: (0.9, 0.95), }, { betas: (0.5, 0.7), eps: 1e-2, }, { lr: 0.01, });
    differ!(Adamax { betas: (0.9, 0.999), }, { betas: (0.5, 0.7), eps: 1e-2, }, { lr: 0.01, });
    differ!(Lion { betas: (0.9, 0.99), }, { betas: (0.2, 0.3), }, { lr: 0.01, });
    differ!(NAdam { eps: 1e-8, }, { eps: 1e-1, }, { lr: 0.01, });
    differ!(RAdam { eps: 1e-8, }, { eps: 1.0, }, { lr: 0.01, });
    differ!(RmsProp { momentum: 0.9, }, { momentum: 0.5, eps: 1e-2, }, { lr: 0.01, centered: true, });
    differ!(Adagrad { eps: 1e-10, }, { eps: 1e-1, }, { lr: 0.01, });
    differ!(Adadelta { eps: 1e-6, }, { eps: 1e-2, }, { lr: 1.0, });
    differ!(Sgd { momentum: 0.9, }, { momentum: 0.5, }, { lr: 0.01, nesterov: true, });
}

network! {
    pub struct Layered;

    const TRAIN: Train = Train {
        batch: 2,
        loss: Mse,
        optimizer: AdamW {
            lr: 0.01,
            weight_decay: 0.05,
            groups: [
                Group { paths: "patch_embed.*, blocks[*].*", layer_decay: 0.75 },
                Group { paths: "*.bias, *norm*", weight_decay: 0.0 },
            ],
        },
    };

    fn forward(x: Features<6>) -> Features<3> {
        [Linear(4, name = "patch_embed"), repeat(3, blocks()), LayerNorm(name = "norm"), Linear(3, name = "head")]
    }

    fn blocks() -> Block {
        [Add([], [LayerNorm(name = "norm1"), Linear(8, name = "fc1"), Gelu, Linear(4, name = "fc2")])]
    }
}

/// `0.75^(depth - layer)`, by hand: the embedding is layer 0, block number n layer 1 + n, and what no path names is layer 4, the last.
#[test]
fn rates_decay_by_layer() {
    let optimizer = Layered::TRAIN.optimizer;
    for (name, factor, decay) in [
        ("patch_embed.weight", 0.31640625, 0.05),
        ("patch_embed.bias", 0.31640625, 0.0),
        ("blocks[0].fc1.weight", 0.421875, 0.05),
        ("blocks[0].norm1.weight", 0.421875, 0.0),
        ("blocks[1].fc2.weight", 0.5625, 0.05),
        ("blocks[2].fc1.bias", 0.75, 0.0),
        ("norm.weight", 1.0, 0.0),
        ("head.weight", 1.0, 0.05),
    ] {
        assert_eq!(optimizer.own(name), (factor, decay), "{name}");
    }
    let net = Layered::on(&Cpu::new()).unwrap();
    assert!(net.names().any(|name| name == "blocks[2].fc1.bias"), "{:?}", net.names().collect::<Vec<_>>());
}

/// A rate in the same group is what the factors multiply, and one in a later group takes its place.
#[test]
fn rates_of_groups_decay_too() {
    network! {
        pub struct Scaled;

        const TRAIN: Train = Train {
            batch: 2,
            loss: Mse,
            optimizer: Sgd {
                lr: 0.01,
                groups: [
                    Group { paths: "layer[*].*", lr: 0.02, layer_decay: DECAY },
                    Group { paths: "layer[0].*", lr: 0.001 },
                ],
            },
        };

        const DECAY: f64 = 1.0 / 2.0;

        fn forward(x: Features<4>) -> Features<4> {
            [repeat(3, layer()), Linear(4, name = "head")]
        }

        fn layer() -> Block {
            [Linear(4), Tanh]
        }
    }
    let optimizer = Scaled::TRAIN.optimizer;
    for (name, factor) in [
        ("layer[0].linear.weight", 0.1),
        ("layer[1].linear.weight", 0.5),
        ("layer[2].linear.bias", 1.0),
        ("head.bias", 1.0),
    ] {
        let found = optimizer.own(name).0;
        assert!((found - factor).abs() < 1e-12, "{name}: {found}");
    }
}
