//! Words of Python.
use gpumem::network;

network! {
    pub struct Words;
    fn forward(image: Image<3, 8, 8>) -> Map<8, 8, 8> {
        [
            Conv2d(8, 3, padding: 1, bias = False),
            Conv2d(8, [3, 3], padding = 1, bias = None),
            Relu for _ in range(3),
        ]
    }
}

network! {
    pub struct Returned;
    fn forward(x: Features<8>) -> Logits<10> {
        return [Linear(10)];
    }
}

network! {
    pub struct Tuple;
    fn forward(x: Features<8>) -> Logits<10> {
        (Linear(8), Relu, Linear(10))
    }
}

network! {
    pub struct Numbers;
    fn forward(x: Features<8>) -> Logits<10> {
        [Flatten(2), Linear(10.0), Linear(units = 10)]
    }
}

fn main() {}
