use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Concat([Conv2d(8, 3)], [Conv2d(8, 3, padding = 1)]), Flatten, Linear(10)]
    }
}

fn main() {}
