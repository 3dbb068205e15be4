use gpumem::prelude::*;

network! {
    pub struct Wide;

    const TRAIN: Train = Train { batch: 8, precision: Mixed(Bf16), optimizer: AdamW { lr: 1e-4 }, cards: [RTX_3060] };

    fn forward(x: Features<20000>) -> Logits<10> { [Linear(25000), Gelu, Linear(25000), Gelu, Linear(10)] }
}

fn main() {}
