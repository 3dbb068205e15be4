use gpumem::network;

network! {
    pub struct Net;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [
            Conv2d(8, 33),
            Relu(inplce),
            stage(2, 3),
            stage(2, 3),
            Flaten,
            Linear(4096, 11),
        ]
    }

    fn stage(depth: usize, channels: usize) -> Block {
        [repeat(depth, [Conv2d(channels, 3, groups = 2), Relu6(inplace)])]
    }
}

fn main() {
    // The struct exists all the same: no second-order errors here.
    let _: Option<Net> = None;
    let _ = <Net as gpumem::Network>::LAYERS;
}
