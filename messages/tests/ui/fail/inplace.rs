use gpumem::network;

network! {
    pub struct Net;

    const TRAIN: Train = Train { batch: 8, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Flatten, Linear(10), Sigmoid, Relu(inplace), Linear(10)]
    }
}

fn main() {}
