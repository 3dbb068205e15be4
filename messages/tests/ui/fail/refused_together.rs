//! Each of two networks fits the card, both do not.

use gpumem::prelude::*;

network! {
    pub struct Generator;
    const TRAIN: Train = Train { batch: 64, loss: Mse, cards: [RTX_3060] };
    fn forward(x: Features<16384>) -> Features<16384> { [Linear(20000), Relu, Linear(16384)] }
}

network! {
    pub struct Critic<const N: usize>;
    const TRAIN: Train = Train { batch: N, loss: CrossEntropy };
    fn forward(x: Features<16384>) -> Logits<2> { [Linear(70000), Relu, Linear(2)] }
}

gpumem::fits!(Generator + Critic<64>, RTX_3060);
gpumem::fits!(Generator + Critic<64>, RTX_3090);

fn main() {}
