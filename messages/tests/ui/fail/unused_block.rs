use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10)]
    }

    fn stage(channels: usize) -> Block {
        [Conv2d(channels, 3)]
    }
}

fn main() {}
