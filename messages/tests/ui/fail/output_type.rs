use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(11)]
    }
}

fn main() {}
