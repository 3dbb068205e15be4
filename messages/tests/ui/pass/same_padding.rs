//! `padding = "same"`, also with kernels that need more of it at the end.

use gpumem::network;

network! {
    pub struct Net;

    const TRAIN: Train = Train { batch: 2 };

    fn forward(image: Image<3, 7, 9>) -> Logits<10> {
        [
            Conv2d(4, 3, padding = "same"),
            Conv2d(4, (2, 4), padding = "same", dilation = (3, 1)),
            Conv2d(4, (8, 1), padding = "same"),
            Conv2d(4, 2, padding = "valid"),
            Flatten,
            Linear(192, 10),
        ]
    }
}

pub(crate) fn main() {
    assert_eq!(<Net as gpumem::Network>::LAYERS[2].output_shape, [4, 7, 9]);
}
