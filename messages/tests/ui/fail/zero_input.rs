use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 0, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }
}

fn main() {}
