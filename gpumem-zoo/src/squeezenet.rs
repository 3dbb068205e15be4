//! SqueezeNet: AlexNet's accuracy with a fiftieth of its parameters.
//!
//! F. Iandola and others, "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size" (arXiv:1602.07360), versions
//! 1.0 and 1.1, as in torchvision. A fire module squeezes the channels and expands them by convolutions of 1 x 1 and of 3 x 3 side by side.
//! Version 1.1 pools earlier: it has fewer operations and smaller saved tensors.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::squeezenet::SqueezeNet11;
//!
//! assert_eq!(SqueezeNet11::<8>::LAYERS.last().unwrap().output_shape, [1000]);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The blocks of both versions.
    pub mod squeezenet_blocks {
        #[name = ""]
        fn fire(squeeze: usize, expand: usize) -> Block {
            [
                Conv2d(squeeze, 1, name = "squeeze"), Relu(inplace),
                Concat(
                    [Conv2d(expand, 1, name = "expand1x1"), Relu(inplace)],
                    [Conv2d(expand, 3, padding = 1, name = "expand3x3"), Relu(inplace)],
                ),
            ]
        }

        fn classifier() -> Block {
            [Dropout(0.5), Conv2d(1000, 1, name = "1"), Relu(inplace), AdaptiveAvgPool2d(1)]
        }
    }
}

network! {
    /// torchvision's `squeezenet1_0`.
    pub struct SqueezeNet10<const BATCH: usize>;

    use blocks {squeezenet_blocks, crate::modules};

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 2e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), classifier(), Flatten]
    }

    fn features() -> Block {
        [
            Conv2d(96, 7, stride = 2, name = "0"), Relu(inplace),
            MaxPool2d(3, stride = 2, ceil_mode),
            fire(16, 64, name = "3"),
            fire(16, 64, name = "4"),
            fire(32, 128, name = "5"),
            MaxPool2d(3, stride = 2, ceil_mode),
            fire(32, 128, name = "7"),
            fire(48, 192, name = "8"),
            fire(48, 192, name = "9"),
            fire(64, 256, name = "10"),
            MaxPool2d(3, stride = 2, ceil_mode),
            fire(64, 256, name = "12"),
        ]
    }
}

network! {
    /// torchvision's `squeezenet1_1`.
    pub struct SqueezeNet11<const BATCH: usize>;

    use blocks {squeezenet_blocks, crate::modules};

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 2e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), classifier(), Flatten]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, stride = 2, name = "0"), Relu(inplace),
            MaxPool2d(3, stride = 2, ceil_mode),
            fire(16, 64, name = "3"),
            fire(16, 64, name = "4"),
            MaxPool2d(3, stride = 2, ceil_mode),
            fire(32, 128, name = "6"),
            fire(32, 128, name = "7"),
            MaxPool2d(3, stride = 2, ceil_mode),
            fire(48, 192, name = "9"),
            fire(48, 192, name = "10"),
            fire(64, 256, name = "11"),
            fire(64, 256, name = "12"),
        ]
    }
}
