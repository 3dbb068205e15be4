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

network! {
    pub struct Several;

    const DECAY: f64 = -0.1;
    const TRAIN: Train = Train {
        batch: 8,
        optimizer: Sgd {
            lr: -0.1,
            momentum: 2.0,
            weight_decay: DECAY,
            nesterov: true,
            groups: [Group { paths: "*.weight", weight_decay: 0.1 }, Group { paths: "*.bias", weight_decay: -1.0 }],
        },
        loss: CrossEntropy,
    };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() {}
