use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [MaxPool2d(4), Conv2d(8, 9), Flatten, Linear(10)]
    }
}

fn main() {}
