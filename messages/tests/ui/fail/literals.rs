//! Literals that a field cannot be, and types that are left out.
use gpumem::network;

network! {
    pub struct Fields;
    const TRAIN: Train = Train { batch: -4, seed: -1, tf32: "yes", headroom: 1, conv_workspace: 64 };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Untyped;
    const TRAIN = Train { batch: 8 };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

const EPOCHS: u64 = 30;

network! {
    pub struct Scheduled;
    const TRAIN: Train = Train { batch: 8, schedule: Cosine { total: EPOCHS * 100 } };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Regression;
    const TRAIN: Train = Train { batch: 8, loss: Mse };
    fn forward(x: Features<8>) -> Logits<1> {
        [Linear(1)]
    }
}

network! {
    pub struct Compared;
    const TRAIN: Train = Train { batch: 8, loss: Mse + 0.5 * Mse(from = a, target = b) };
    fn forward(x: Features<8>) -> Features<8> {
        [Linear(8), tap(a), Linear(8), tap(b)]
    }
}

fn main() {}
