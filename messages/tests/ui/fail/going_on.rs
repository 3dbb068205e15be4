use gpumem::network;

network! {
    pub struct Net;

    const TRAIN: Train = Train { batch: 1 };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [
            Conv2d(16, 3, dilate = 2),
            Rleu,
            Add([Conv2d(16, 3, padding = 1)], [Conv2d(24, 3, padding = 1)]),
            Conv2d(20, 3, groups = 7),
            Flatten,
            Linear(4096, 10),
            Linear(11),
        ]
    }
}

fn main() {}
