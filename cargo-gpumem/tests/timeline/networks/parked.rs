network! {
    /// Tensors in host memory.
    pub struct Parked;

    const TRAIN: Train = Train {
        batch: 64,
        optimizer: Adam { lr: 1e-3 },
        loss: CrossEntropy,
        offload: All,
        checkpoint: None,
        cards: [RTX_3060],
    };

    fn forward(image: Image<3, 128, 128>) -> Logits<10> {
        [
            repeat(8, [Conv2d(64, 3, padding = 1), BatchNorm2d, Relu]),
            GlobalAvgPool, Linear(10),
        ]
    }
}
