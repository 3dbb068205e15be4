//! Numbers out of their bounds of networks that are generic over their batch: all at once, and where the network is declared.
use gpumem::{fits, network};

network! {
    pub struct Several<const BATCH: usize>;
    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: -1.0, momentum: 2.0 },
        loss: CrossEntropy,
    };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Betas<const BATCH: usize>;
    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 1e-4, betas: (1.5, 0.9), eps: -1e-8, groups: [Group { paths: "*", weight_decay: -1.0 }] },
        schedule: Cosine { total: 100, min: 1e-3 },
    };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

// A rate in proportion to the batch is known where the network is named. Other numbers are known before.
network! {
    pub struct Scaled<const BATCH: usize>;
    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: RmsProp { lr: 0.1 * (BATCH as f64 - 64.0), alpha: 2.0, momentum: -1.0 },
    };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}
fits!(Scaled<64>);
fits!(Scaled<2>);

fn main() {}
