//! Numbers that are something of another one: the mistake is where they stand.

use gpumem::network;

network! {
    pub struct Grouped;

    const TRAIN: Train = Train {
        batch: 4,
        optimizer: Sgd {
            lr: 0.1,
            groups: [Group { paths: "*.bias", weight_decay: 0 }, Group { paths: "linear[0].weight", lr: 1 }],
        },
        loss: Mse,
    };

    fn forward(features: Features<3>) -> Features<4> {
        [Linear(5), Relu, Linear(4)]
    }
}

network! {
    pub struct Two;

    const TRAIN: Train = Train { batch: 4, optimizer: Muon { lr: 1, adamw_lr: 1 }, loss: Mse };

    fn forward(features: Features<3>) -> Features<4> {
        [Linear(5), Relu, Linear(4)]
    }
}

fn main() {}
