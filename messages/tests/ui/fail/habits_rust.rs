//! Words of Rust.
use gpumem::network;

network! {
    pub struct Loops;
    fn forward(image: Image<3, 8, 8>) -> Map<3, 8, 8> {
        [
            for i in 0..3 { [Relu] },
            [Tanh; 3],
            repeat(3, |i| Sigmoid),
            repeat([Conv2d(3, 1)], 3),
        ]
    }
}

network! {
    pub struct Listed;
    fn forward(x: Features<8>) -> Logits<10> {
        vec![Linear(10)]
    }
}

network! {
    pub struct Piped;
    fn forward(x: Features<8>) -> Logits<10> {
        Linear(8) |> Relu |> Linear(10)
    }
}

network! {
    pub struct Receiver;
    fn forward(&self, x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Typed;
    fn forward(x: Tensor<f32, (D<1>, D<8>)>) -> Logits<10> {
        [Linear(10)]
    }
}

network! {
    pub struct Fields;
    fn forward(x: Features<8>) -> { classes: Logits<10>, boxes: Features<4> } {
        [Linear(10)]
    }
}

network! {
    pub struct Condition;
    #[cfg(any())]
    const TRAIN: Train = Train { batch: 4 };
    fn forward(x: Features<8>) -> Logits<10> {
        [Linear(10)]
    }
}

/// A network that exists only without a feature is written before the struct.
fn uses() {
    let _ = Condition::TRAIN.batch;
}

fn main() {
    uses();
}
