//! Every field of `TRAIN` and `INFER`, in the user's own words.
#![deny(warnings, missing_docs)]
#![forbid(unsafe_code)]

use gpumem::prelude::*;
use gpumem::{Clip, ConvNorm, Ema, Half, Measurement, Precision, Schedule, Shard, Skip, Update};

network! {
    /// Every field.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Every;

    /// How it is trained.
    const TRAIN: Train = Train {
        batch: if cfg!(debug_assertions) { 8 } else { 64 },
        micro_batches: 1,
        ranks: 2,
        shard: Parameters,
        bucket: mib(16.0),
        channels: 4,
        sync_batch_norm: true,
        precision: Mixed(F16),
        optimizer: Sgd { lr: RATE, momentum: 0.9, weight_decay: 5e-4, nesterov: true },
        loss: CrossEntropy,
        cards: [RTX_3060, A100_80GB],
        update: Separate,
        conv_norm: Separate,
        clip: GlobalNorm(RATE * 100.0),
        schedule: Cosine { warmup: STEPS / 10, total: STEPS, min: 1e-6 },
        measure: GradientNorm,
        skip: NonFinite,
        ema: Ema { decay: 0.99, warmup: true, every: 2 },
        conv_workspace: 128 << 20,
        headroom: 512 << 20,
        tf32: true,
        deterministic: true,
        seed: 42,
    };
    const INFER: Infer = Infer { batch: 1, precision: F16, cards: [T4], headroom: 1 << 20 };
    const RATE: f64 = 0.01;
    const STEPS: u64 = 90 * 500;
    const CLASSES: usize = SIDE / 4 + 2;
    /// Height and width.
    pub const SIDE: usize = 32;

    fn forward(image: Image<3, SIDE, { SIDE * 2 }>) -> Logits<CLASSES> {
        [Conv2d(8, 3, padding = 1), BatchNorm2d, Relu(inplace), MaxPool2d(2), Flatten, Linear(CLASSES)]
    }
}

/// The network of a function.
pub fn local() -> &'static str {
    network! {
        struct Local;
        const TRAIN: Train = Train { batch: 2, optimizer: AdamW { betas: (0.9, 0.99) } };
        fn forward(x: Features<4>) -> Logits<3> { Linear(3) }
    }
    Local::NAME
}

#[network_mod]
mod documented {
    //! A module with a documentation of its own.
    #![allow(dead_code)]

    /// A network.
    pub struct Tiny;

    fn forward(x: Features<4>) -> Features<3> {
        [Linear(3)]
    }
}

pub(crate) fn main() {
    let train = Every::TRAIN;
    assert_eq!(train.batch, if cfg!(debug_assertions) { 8 } else { 64 });
    assert_eq!((train.precision, train.update), (Precision::Mixed(Half::F16), Update::Separate));
    assert_eq!(train.conv_norm, ConvNorm::Separate);
    assert_eq!((train.measure, train.skip), (Measurement::GradientNorm, Skip::NonFinite));
    assert_eq!(train.ema, Some(Ema { decay: 0.99, warmup: true, every: 2 }));
    assert_eq!((train.conv_workspace, train.headroom, train.seed), (128 << 20, 512 << 20, 42));
    assert_eq!((train.ranks, train.shard, train.bucket, train.channels), (2, Shard::Parameters, 16 << 20, 4));
    assert_eq!(train.clip, Some(Clip::GlobalNorm(1.0)));
    assert_eq!(train.schedule, Schedule::Cosine { warmup: 4500, total: 45_000, min: 1e-6 });
    assert!(train.tf32 && train.deterministic && train.micro_batches == 1);
    assert_eq!((Every::INFER.batch, Every::INFER.precision, SIDE), (1, Precision::F16, 32));
    assert_eq!((local(), documented::Tiny::NAME), ("Local", "Tiny"));
}
