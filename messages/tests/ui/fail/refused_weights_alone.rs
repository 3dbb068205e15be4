use gpumem::network;

network! {
    pub struct Large;

    const TRAIN: Train = Train {
        batch: 1,
        optimizer: AdamW { lr: 0.1 },
        loss: CrossEntropy,
        cards: [GTX_1650],
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [Flatten, Linear(20000), Relu, Linear(20000), Relu, Linear(10)]
    }
}

fn main() {}
