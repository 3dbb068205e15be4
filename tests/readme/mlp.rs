network! {
    pub struct Mlp;

    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060] };

    fn forward(features: Features<64>) -> Logits<10> {
        [Linear(128), Relu, Dropout(0.1), Linear(10)]
    }
}
