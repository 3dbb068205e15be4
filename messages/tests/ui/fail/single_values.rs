use gpumem::prelude::*;

network! {
    pub struct Lonely;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(x: Features<4>) -> Features<2> { [Linear(3), BatchNorm1d, Relu, Linear(2)] }
}

network! {
    pub struct Pooled;

    const TRAIN: Train = Train { batch: 4, micro_batches: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 8, 8>) -> Logits<5> {
        [Conv2d(8, 3), BatchNorm2d, AdaptiveAvgPool2d(1), BatchNorm2d(name = "last"), Flatten, Linear(5)]
    }
}

network! {
    pub struct Sound;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 8, 8>) -> Logits<5> { [Conv2d(8, 3), BatchNorm2d, Flatten, Linear(5)] }
}

network! {
    pub struct Alone;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 0.1 }, loss: Contrastive };

    fn forward(image: Features<4>, text: Features<5>) -> (Features<3>, Features<3>) {
        Outputs([Linear(3), L2Norm], [from(text), Linear(3), L2Norm])
    }
}

fn main() {}
