use gpumem::prelude::*;

network! {
    pub struct Odd;

    const TRAIN: Train = Train { batch: 30, micro_batches: 4, cards: [RTX_3060] };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Computed;

    const HALF: usize = 5;
    const TRAIN: Train = Train { batch: 2 * HALF, micro_batches: 4 };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Generic<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, micro_batches: 2 };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}
fits!(Generic<4>);
fits!(Generic<7>);

network! {
    pub struct Weighted;

    const TRAIN: Train = Train {
        batch: 8,
        micro_batches: 2,
        loss: Nll { ignore_index: 0 },
        update: Fused,
    };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4), LogSoftmax] }
}

network! {
    pub struct Unread;

    const PARTS: usize = 2;
    const TRAIN: Train = Train { batch: 8, micro_batches: PARTS };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

fn main() {}
