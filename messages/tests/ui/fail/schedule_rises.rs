//! A schedule that ends at a higher rate than it begins with.
use gpumem::network;

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

fn main() {}
