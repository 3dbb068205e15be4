use gpumem::prelude::*;

network! {
    pub struct Odd;

    const HALF: usize = 15;
    const TRAIN: Train = Train { batch: 2 * HALF, ranks: 4 };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Generic<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, ranks: 2 };

    fn forward(x: Features<8>) -> Logits<4> { [Linear(4)] }
}

network! {
    pub struct Adversarial;

    const CRITIC: Train = Train { batch: 8, trains: "critic*", ranks: 2, loss: Mse };
    const ACTOR: Train = Train { batch: 8, trains: "actor*", ranks: 4, loss: Mse };

    fn forward(x: Features<8>) -> Features<4> { [Linear(8, name = "actor"), Linear(4, name = "critic")] }
}

network! {
    pub struct Large;

    const TRAIN: Train = Train {
        batch: 4096,
        ranks: 4,
        precision: Mixed(Bf16),
        optimizer: AdamW { lr: 1e-3 },
        loss: Mse,
        cards: [RTX_3060],
    };

    fn forward(x: Features<24576>) -> Features<24576> { [Linear(24576), Relu, Linear(24576)] }
}

fn main() {}
