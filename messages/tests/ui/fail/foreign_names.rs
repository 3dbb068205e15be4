//! Names of PyTorch, Keras and Flax.
use gpumem::network;

network! {
    pub struct Net;
    fn forward(image: Image<3, 8, 8>) -> Map<8, 8, 8> {
        [
            Sequential(Conv2d(8, 3, padding = 1)),
            LayerNormalization,
            Identity,
            Activation("relu"),
            Contiguous,
            MSELoss(),
        ]
    }
}

network! {
    pub struct Other;
    fn forward(x: Features<8>) -> Logits<10> {
        [Dense(8), swish, Lambda(8), cat(8), Dense(10)]
    }
}

fn main() {}
