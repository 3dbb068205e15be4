use gpumem::prelude::*;

network! {
    pub struct Net;

    const MOMENTUM: f64 = 0.0;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1, momentum: MOMENTUM }, loss: Mse };

    fn forward(x: Features<4>) -> Features<2> {
        [Linear(2)]
    }
}

fn main() {}
