use gpumem::network;

network! {
    pub struct Net;

    const TRAIN: Train = Train {
        batchs: 8,
        optimizer: Sdg { lr: 0.1 },
        loss: CrossEntropie,
        precision: Bf32,
        micro_batches: 0,
    };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() {}
