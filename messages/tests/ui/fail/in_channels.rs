use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Conv2d(8, 3), Conv2d(16, 8, 3), Flatten, Linear(10)]
    }
}

fn main() {}
