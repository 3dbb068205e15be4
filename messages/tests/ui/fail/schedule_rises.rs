//! A schedule that ends at a higher rate than it begins with.
use gpumem::{fits, network};

network! {
    pub struct Rises;
    const TRAIN: Train = Train {
        batch: 8,
        optimizer: Sgd { lr: 1e-4 },
        schedule: Cosine { total: 100, min: 1e-3 },
    };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

// A rate in proportion to the batch is known where the network is named.
network! {
    pub struct Scaled<const BATCH: usize>;
    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1 * BATCH as f64 / 256.0 },
        schedule: Cosine { total: 100, min: 1e-3 },
    };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}
fits!(Scaled<64>);
fits!(Scaled<2>);

fn main() {}
