use gpumem::network;

network! {
    pub struct Large<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [GTX_1650] };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [Conv2d(256, 3, padding = 1), Relu, Conv2d(256, 3, padding = 1), Relu, GlobalAvgPool, Linear(10)]
    }
}

gpumem::fits!(Large<64>);
gpumem::fits!(Large<2048>);

fn main() {}
