//! SqueezeNet: AlexNet's accuracy with a fiftieth of its parameters.
//!
//! F. Iandola and others, "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size"
//! (arXiv:1602.07360), versions 1.0 and 1.1, as torchvision has them. A fire module squeezes the channels and expands them by
//! convolutions of 1 x 1 and of 3 x 3 side by side. Version 1.1 pools earlier: fewer operations, and less to keep.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::squeezenet::SqueezeNet11;
//!
//! assert_eq!(SqueezeNet11::<8>::LAYERS.last().unwrap().output_shape, [1000]);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// What both have.
    pub mod squeezenet_blocks {
        fn inline_fire(squeeze: usize, expand: usize) -> Block {
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
            at_3(inline_fire(16, 64)),
            at_4(inline_fire(16, 64)),
            at_5(inline_fire(32, 128)),
            MaxPool2d(3, stride = 2, ceil_mode),
            at_7(inline_fire(32, 128)),
            at_8(inline_fire(48, 192)),
            at_9(inline_fire(48, 192)),
            at_10(inline_fire(64, 256)),
            MaxPool2d(3, stride = 2, ceil_mode),
            at_12(inline_fire(64, 256)),
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
            at_3(inline_fire(16, 64)),
            at_4(inline_fire(16, 64)),
            MaxPool2d(3, stride = 2, ceil_mode),
            at_6(inline_fire(32, 128)),
            at_7(inline_fire(32, 128)),
            MaxPool2d(3, stride = 2, ceil_mode),
            at_9(inline_fire(48, 192)),
            at_10(inline_fire(48, 192)),
            at_11(inline_fire(64, 256)),
            at_12(inline_fire(64, 256)),
        ]
    }
}
