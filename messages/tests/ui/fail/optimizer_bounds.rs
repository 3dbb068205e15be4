//! Hyperparameters out of their bounds, which only const evaluation knows.
use gpumem::network;

network! {
    pub struct Net;

    const BETA: f64 = 1.0;
    const TRAIN: Train = Train { batch: 8, optimizer: NAdam { betas: (0.9, BETA) }, loss: CrossEntropy };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

network! {
    pub struct Other;

    const TRAIN: Train = Train {
        batch: 8,
        optimizer: Sgd { lr: 0.0, groups: [Group { paths: "*", lr: 0.1 }] },
        loss: CrossEntropy,
    };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() {}
