use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [stage(2), Flatten, Linear(10)]
    }

    fn stage(depth: usize, channels: usize) -> Block {
        [repeat(depth, Conv2d(channels, 3))]
    }
}

fn main() {}
