use gpumem::network;

network! {
    pub struct Net;

    const TRAIN: Train = Train { batch: 4, checkpoint: Sqrt };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [checkpoint(Flatten, Relu), hidden(), Linear(10)]
    }

    #[checkpoint(2)]
    fn hidden() -> Block {
        [Linear(64), Relu]
    }
}

network! {
    pub struct Share;

    const TRAIN: Train = Train { batch: 4, checkpoint: Budget(60) };

    #[checkpoint]
    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() {}
