//! MobileNets: convolutions of single channels between products over all of them.
//!
//! M. Sandler and others, "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (arXiv:1801.04381), A. Howard and others,
//! "Searching for MobileNetV3" (arXiv:1905.02244), and M. Tan and others, "MnasNet: Platform-Aware Neural Architecture Search for
//! Mobile" (arXiv:1807.11626), as torchvision's `mobilenet_v2`, `mobilenet_v3_small`, `mobilenet_v3_large` and `mnasnet1_0`. Little
//! is computed and much is kept: MobileNetV2 has a sixth of ResNet-18's operations, and a step of 32 images needs two and a half
//! times its memory.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::mobilenet::MobileNetV2;
//!
//! let macs: u64 = MobileNetV2::<32>::LAYERS.iter().map(|layer| layer.macs).sum();
//! assert_eq!(macs / 1_000_000, 300);
//! ```

use gpumem::{blocks, network};

network! {
    /// torchvision's `mobilenet_v2`.
    pub struct MobileNetV2<const BATCH: usize>;

    use blocks crate::modules;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.045, momentum: 0.9, weight_decay: 4e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), GlobalAvgPool, classifier()]
    }

    fn features() -> Block {
        [
            item(inline_convolution(32, 3, 2, 1)),
            item(conv([
                item(inline_convolution(32, 3, 1, 32)), Conv2d(16, 1, bias = false, name = "1"), BatchNorm2d(name = "2"),
            ])),
            item(inline_wider(16, 24, 2)), item(inline_residual(24)),
            item(inline_wider(24, 32, 2)), repeat(2, item(inline_residual(32))),
            item(inline_wider(32, 64, 2)), repeat(3, item(inline_residual(64))),
            item(inline_wider(64, 96, 1)), repeat(2, item(inline_residual(96))),
            item(inline_wider(96, 160, 2)), repeat(2, item(inline_residual(160))),
            item(inline_wider(160, 320, 1)),
            item(inline_convolution(1280, 1, 1, 1)),
        ]
    }

    fn classifier() -> Block {
        [Dropout(0.2), Linear(1000, name = "1")]
    }

    fn conv(inside: Block) -> Block {
        [inside]
    }

    fn inline_convolution(channels: usize, size: usize, stride: usize, groups: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
            BatchNorm2d(name = "1"), Relu6(inplace),
        ]
    }

    fn inline_residual(channels: usize) -> Block {
        [Add([], inline_wider(channels, channels, 1))]
    }

    fn inline_wider(from: usize, to: usize, stride: usize) -> Block {
        [conv([
            item(inline_convolution(6 * from, 1, 1, 1)), item(inline_convolution(6 * from, 3, stride, 6 * from)),
            Conv2d(to, 1, bias = false, name = "2"), BatchNorm2d(name = "3"),
        ])]
    }
}

blocks! {
    /// Convolutions and excitations of MobileNetV3.
    pub mod mobilenet_v3_blocks {
        fn inline_convolution(channels: usize, size: usize, stride: usize, groups: usize, activation: Block) -> Block {
            [
                Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
                BatchNorm2d(eps = 1e-3, momentum = 0.01, name = "1"), activation,
            ]
        }

        fn inline_squeeze(between: usize, channels: usize) -> Block {
            [Mul(
                [],
                [
                    AdaptiveAvgPool2d(1), Conv2d(between, 1, name = "fc1"), Relu, Conv2d(channels, 1, name = "fc2"),
                    Hardsigmoid,
                ],
            )]
        }
    }
}

network! {
    /// torchvision's `mobilenet_v3_small`.
    pub struct MobileNetV3Small<const BATCH: usize>;

    use blocks {mobilenet_v3_blocks, crate::modules};

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), GlobalAvgPool, classifier()]
    }

    fn features() -> Block {
        [
            item(inline_convolution(16, 3, 2, 1, Hardswish)),
            item(block([item(inline_convolution(16, 3, 2, 16, Relu)), item(inline_squeeze(8, 16)), item(inline_convolution(16, 1, 1, 1, []))])),
            item(block([item(inline_convolution(72, 1, 1, 1, Relu)), item(inline_convolution(72, 3, 2, 72, Relu)), item(inline_convolution(24, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(88, 1, 1, 1, Relu)), item(inline_convolution(88, 3, 1, 88, Relu)), item(inline_convolution(24, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(96, 1, 1, 1, Hardswish)), item(inline_convolution(96, 5, 2, 96, Hardswish)), item(inline_squeeze(24, 96)), item(inline_convolution(40, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(240, 1, 1, 1, Hardswish)), item(inline_convolution(240, 5, 1, 240, Hardswish)), item(inline_squeeze(64, 240)), item(inline_convolution(40, 1, 1, 1, []))]))]),
            item([Add([], block([item(inline_convolution(240, 1, 1, 1, Hardswish)), item(inline_convolution(240, 5, 1, 240, Hardswish)), item(inline_squeeze(64, 240)), item(inline_convolution(40, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(120, 1, 1, 1, Hardswish)), item(inline_convolution(120, 5, 1, 120, Hardswish)), item(inline_squeeze(32, 120)), item(inline_convolution(48, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(144, 1, 1, 1, Hardswish)), item(inline_convolution(144, 5, 1, 144, Hardswish)), item(inline_squeeze(40, 144)), item(inline_convolution(48, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(288, 1, 1, 1, Hardswish)), item(inline_convolution(288, 5, 2, 288, Hardswish)), item(inline_squeeze(72, 288)), item(inline_convolution(96, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(576, 1, 1, 1, Hardswish)), item(inline_convolution(576, 5, 1, 576, Hardswish)), item(inline_squeeze(144, 576)), item(inline_convolution(96, 1, 1, 1, []))]))]),
            item([Add([], block([item(inline_convolution(576, 1, 1, 1, Hardswish)), item(inline_convolution(576, 5, 1, 576, Hardswish)), item(inline_squeeze(144, 576)), item(inline_convolution(96, 1, 1, 1, []))]))]),
            item(inline_convolution(576, 1, 1, 1, Hardswish)),
        ]
    }

    fn classifier() -> Block {
        [Linear(1024, name = "0"), Hardswish, Dropout(0.2), Linear(1000, name = "3")]
    }
}

network! {
    /// torchvision's `mobilenet_v3_large`.
    pub struct MobileNetV3Large<const BATCH: usize>;

    use blocks {mobilenet_v3_blocks, crate::modules};

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), GlobalAvgPool, classifier()]
    }

    fn features() -> Block {
        [
            item(inline_convolution(16, 3, 2, 1, Hardswish)),
            item([Add([], block([item(inline_convolution(16, 3, 1, 16, Relu)), item(inline_convolution(16, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(64, 1, 1, 1, Relu)), item(inline_convolution(64, 3, 2, 64, Relu)), item(inline_convolution(24, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(72, 1, 1, 1, Relu)), item(inline_convolution(72, 3, 1, 72, Relu)), item(inline_convolution(24, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(72, 1, 1, 1, Relu)), item(inline_convolution(72, 5, 2, 72, Relu)), item(inline_squeeze(24, 72)), item(inline_convolution(40, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(120, 1, 1, 1, Relu)), item(inline_convolution(120, 5, 1, 120, Relu)), item(inline_squeeze(32, 120)), item(inline_convolution(40, 1, 1, 1, []))]))]),
            item([Add([], block([item(inline_convolution(120, 1, 1, 1, Relu)), item(inline_convolution(120, 5, 1, 120, Relu)), item(inline_squeeze(32, 120)), item(inline_convolution(40, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(240, 1, 1, 1, Hardswish)), item(inline_convolution(240, 3, 2, 240, Hardswish)), item(inline_convolution(80, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(200, 1, 1, 1, Hardswish)), item(inline_convolution(200, 3, 1, 200, Hardswish)), item(inline_convolution(80, 1, 1, 1, []))]))]),
            item([Add([], block([item(inline_convolution(184, 1, 1, 1, Hardswish)), item(inline_convolution(184, 3, 1, 184, Hardswish)), item(inline_convolution(80, 1, 1, 1, []))]))]),
            item([Add([], block([item(inline_convolution(184, 1, 1, 1, Hardswish)), item(inline_convolution(184, 3, 1, 184, Hardswish)), item(inline_convolution(80, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(480, 1, 1, 1, Hardswish)), item(inline_convolution(480, 3, 1, 480, Hardswish)), item(inline_squeeze(120, 480)), item(inline_convolution(112, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(672, 1, 1, 1, Hardswish)), item(inline_convolution(672, 3, 1, 672, Hardswish)), item(inline_squeeze(168, 672)), item(inline_convolution(112, 1, 1, 1, []))]))]),
            item(block([item(inline_convolution(672, 1, 1, 1, Hardswish)), item(inline_convolution(672, 5, 2, 672, Hardswish)), item(inline_squeeze(168, 672)), item(inline_convolution(160, 1, 1, 1, []))])),
            item([Add([], block([item(inline_convolution(960, 1, 1, 1, Hardswish)), item(inline_convolution(960, 5, 1, 960, Hardswish)), item(inline_squeeze(240, 960)), item(inline_convolution(160, 1, 1, 1, []))]))]),
            item([Add([], block([item(inline_convolution(960, 1, 1, 1, Hardswish)), item(inline_convolution(960, 5, 1, 960, Hardswish)), item(inline_squeeze(240, 960)), item(inline_convolution(160, 1, 1, 1, []))]))]),
            item(inline_convolution(960, 1, 1, 1, Hardswish)),
        ]
    }

    fn classifier() -> Block {
        [Linear(1280, name = "0"), Hardswish, Dropout(0.2), Linear(1000, name = "3")]
    }
}

network! {
    /// torchvision's `mnasnet1_0`.
    pub struct MnasNet<const BATCH: usize>;

    use blocks crate::modules;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [layers(), GlobalAvgPool, classifier()]
    }

    fn layers() -> Block {
        [
            Conv2d(32, 3, stride = 2, padding = 1, bias = false, name = "0"),
            BatchNorm2d(momentum = 0.0003, name = "1"), Relu(inplace),
            Conv2d(32, 3, padding = 1, groups = 32, bias = false, name = "3"),
            BatchNorm2d(momentum = 0.0003, name = "4"), Relu(inplace),
            Conv2d(16, 1, bias = false, name = "6"), BatchNorm2d(momentum = 0.0003, name = "7"),
            at_8([item(inline_inverted(48, 24, 3, 2)), repeat(2, item([Add([], inline_inverted(72, 24, 3, 1))]))]),
            at_9([item(inline_inverted(72, 40, 5, 2)), repeat(2, item([Add([], inline_inverted(120, 40, 5, 1))]))]),
            at_10([item(inline_inverted(240, 80, 5, 2)), repeat(2, item([Add([], inline_inverted(480, 80, 5, 1))]))]),
            at_11([item(inline_inverted(480, 96, 3, 1)), repeat(1, item([Add([], inline_inverted(576, 96, 3, 1))]))]),
            at_12([item(inline_inverted(576, 192, 5, 2)), repeat(3, item([Add([], inline_inverted(1152, 192, 5, 1))]))]),
            at_13([item(inline_inverted(1152, 320, 3, 1))]),
            Conv2d(1280, 1, bias = false, name = "14"), BatchNorm2d(momentum = 0.0003, name = "15"), Relu(inplace),
        ]
    }

    fn classifier() -> Block {
        [Dropout(0.2), Linear(1000, name = "1")]
    }

    fn inline_inverted(wide: usize, channels: usize, size: usize, stride: usize) -> Block {
        [as_layers([
            Conv2d(wide, 1, bias = false, name = "0"), BatchNorm2d(momentum = 0.0003, name = "1"), Relu(inplace),
            Conv2d(wide, size, stride = stride, padding = size / 2, groups = wide, bias = false, name = "3"),
            BatchNorm2d(momentum = 0.0003, name = "4"), Relu(inplace),
            Conv2d(channels, 1, bias = false, name = "6"), BatchNorm2d(momentum = 0.0003, name = "7"),
        ])]
    }

    fn as_layers(inside: Block) -> Block {
        [inside]
    }
}
