//! Clipped gradients and schedules that cannot be.
use gpumem::network;

network! {
    pub struct TooEarly;
    const TRAIN: Train = Train { batch: 8, clip: GlobalNorm(1.0), update: Fused };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct TooShort;
    const TRAIN: Train = Train { batch: 8, clip: Value(0.0), schedule: Cosine { warmup: 500, total: 100 } };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct InOtherWords;
    const TRAIN: Train = Train { batch: 8, max_grad_norm: 1.0, schedule: StepLR { step_size: 30, gamma: 0.1 } };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

fn main() {}
