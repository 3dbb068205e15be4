//! Groups of parameters that match nothing, or ask for what is the same for all.
use gpumem::network;

network! {
    pub struct Net;

    const TRAIN: Train = Train {
        batch: 8,
        optimizer: AdamW {
            lr: 1e-3,
            groups: [
                Group { paths: "*.bias, *norm*", weight_decay: 0.0 },
                Group { paths: "head.*", amsgrad: true },
            ],
        },
        loss: CrossEntropy,
    };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() {}
