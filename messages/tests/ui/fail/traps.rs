//! What compiles elsewhere and is not what was meant.
use gpumem::network;

network! {
    pub struct Branches;
    fn forward(image: Image<3, 8, 8>) -> Map<3, 8, 8> {
        [Add([], Conv2d(3, 3, padding = 1), BatchNorm2d)]
    }
}

network! {
    pub struct Batch;
    const TRAIN: Train = Train { optimizer: Adam { lr: 1e-3 } };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Probabilities;
    const TRAIN: Train = Train { batch: 4, loss: CrossEntropy };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10), Softmax]
    }
}

network! {
    pub struct Unread;
    fn forward(x: Features<8>) -> Features<8> {
        [Linear(8), tap(skip), Relu]
    }
}

network! {
    pub struct Twice;
    fn forward(x: Features<8>) -> Features<8> {
        [tap(skip), Linear(8), tap(skip), Relu, Add([], from(skip))]
    }
}

fn main() {}
