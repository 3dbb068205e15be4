//! Steps that do not fit: without recomputation, with all that helps, and beyond the share that activations are given.
use gpumem::network;

network! {
    pub struct Plain;

    const TRAIN: Train = Train { batch: 80, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, cards: [GTX_1650] };

    fn forward(image: Image<3, 224, 224>) -> Logits<10> {
        [Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu, repeat(4, block()), GlobalAvgPool, Linear(10)]
    }

    fn block() -> Block {
        [Add([], [Conv2d(64, 3, padding = 1, bias = false), BatchNorm2d, Relu, Conv2d(64, 3, padding = 1, bias = false), BatchNorm2d]), Relu]
    }
}

network! {
    pub struct Auto;

    const TRAIN: Train = Train { batch: 2048, checkpoint: Auto, cards: [GTX_1650] };

    fn forward(image: Image<3, 224, 224>) -> Logits<10> {
        [Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu, Conv2d(64, 3, padding = 1), Tanh, GlobalAvgPool, Linear(10)]
    }
}

network! {
    pub struct Share;

    const TRAIN: Train = Train { batch: 8, checkpoint: Budget(0.01) };

    fn forward(image: Image<3, 224, 224>) -> Logits<10> {
        [Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu, Conv2d(64, 3, padding = 1), Tanh, GlobalAvgPool, Linear(10)]
    }
}

fn main() {}
