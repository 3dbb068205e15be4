use gpumem::network;

network! {
    pub struct Large;

    const TRAIN: Train = Train {
        batch: 4096,
        optimizer: Sgd { lr: 0.1, momentum: 0.9 },
        loss: CrossEntropy,
        cards: [RTX_3060, T4, H200, RTX_3080],
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [Conv2d(256, 3, padding = 1), Relu, Conv2d(256, 3, padding = 1), Relu, GlobalAvgPool, Linear(10)]
    }
}

fn main() {}
