#![forbid(unsafe_code)]
#![deny(warnings, missing_docs)]
//! The same network through both entry points.

use gpumem::{Network, network, network_mod};

network! {
    /// Through the macro.
    pub struct Written;

    const WIDTH: usize = 16;
    const TRAIN: Train = Train {
        batch: if cfg!(debug_assertions) { 8 } else { 64 },
        optimizer: Adam { lr: 1e-3, betas: (0.9, 0.99) },
        loss: CrossEntropy,
        cards: [RTX_3060, T4],
    };

    fn forward(image: Image<3, { 2 * WIDTH }, 32>) -> Logits<10> {
        [stage(2, WIDTH, true), tap(early), stage(1, 2 * WIDTH, false), Concat([], [from(early), MaxPool2d(4)]),
            GlobalAvgPool, Linear(10, name = "head")]
    }

    fn stage(depth: usize, channels: usize, normal: bool) -> Block {
        [
            repeat(depth, [
                Conv2d(channels, (3, 3), padding = 1),
                if normal && depth > 1 { BatchNorm2d } else { [] },
                Relu(inplace),
            ]),
            MaxPool2d(4),
        ]
    }
}

/// Through the attribute.
#[network_mod]
pub mod module {
    /// The same network.
    pub struct Written;

    const TRAIN: Train = Train { batch: 8, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(features: Features<8>) -> Features<4> {
        [Linear(8), Add([], Tanh), Mul(Sigmoid, []), Linear(4)]
    }
}

network! {
    /// Generic over the batch.
    pub struct Generic<const BATCH: usize>;

    const INFER: Infer = Infer { batch: BATCH, precision: F16, cards: [T4] };

    fn forward(tokens: Tokens<16>) -> TokenLogits<16, 100> {
        let words = Embedding(100, 32);
        [Add(words, PositionEmbedding(16, 32)), repeat(2, Add([], [LayerNorm, CausalSelfAttention(4)])), Tied(words)]
    }
}

gpumem::fits!(Generic<64>);

network! {
    /// Of 16 samples where nothing else is said.
    pub struct Usual<const BATCH: usize = 16>;

    const TRAIN: Train = Train { batch: (BATCH) };
    const INFER: Infer = Infer { batch: (BATCH) };

    fn forward(x: Features<8>) -> Logits<4> {
        Linear(4)
    }
}

pub(crate) fn main() {
    assert_eq!(Written::LAYERS.last().unwrap().path, "head");
    assert!(module::Written::TRAINING.is_some());
    assert_eq!(Generic::<4>::PROGRAM.batch, 4);
    assert_eq!(<Usual>::TRAIN.batch, 16);
    assert!(Usual::<2>::infer_on(&gpumem::Cpu::new()).is_ok());
}
