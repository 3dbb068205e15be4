use gpumem::prelude::*;

network! {
    pub struct Mlp;

    const TRAIN: Train = Train { batch: 20_000_000, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060] };

    fn forward(features: Features<64>) -> Logits<10> {
        [Linear(128), Relu, Dropout(0.1), Linear(10)]
    }
}

fn main() {}
