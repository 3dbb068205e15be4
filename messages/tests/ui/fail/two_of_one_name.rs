//! Two networks of one name.
use gpumem::network;

network! {
    pub struct Net;
    const TRAIN: Train = Train { batch: 4 };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Net;
    const TRAIN: Train = Train { batch: 8 };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(16), Relu, Linear(10)]
    }
}

fn main() {}
