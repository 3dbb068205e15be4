use gpumem::network;

network! {
    pub struct Large;

    const INFER: Infer = Infer { batch: 9000, precision: F16, cards: [GTX_1650] };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [Conv2d(256, 3, padding = 1), Relu, Conv2d(256, 3, padding = 1), Relu, GlobalAvgPool, Linear(10)]
    }
}

fn main() {}
