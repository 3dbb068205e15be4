network! {
    pub struct Plain;

    const TRAIN: Train = Train { batch: 64, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060] };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [
            Conv2d(64, 3, padding = 1), BatchNorm2d, Relu,
            repeat(3, stage(128)),
            GlobalAvgPool, Linear(10),
        ]
    }

    fn stage(channels: usize) -> Block {
        [
            Conv2d(channels, 3, padding = 1), BatchNorm2d, Relu,
            MaxPool2d(2),
        ]
    }
}
