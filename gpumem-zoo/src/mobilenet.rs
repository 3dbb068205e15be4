//! MobileNets: depthwise convolutions between 1x1 convolutions.
//!
//! M. Sandler and others, "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (arXiv:1801.04381), A. Howard and others, "Searching for
//! MobileNetV3" (arXiv:1905.02244), and M. Tan and others, "MnasNet: Platform-Aware Neural Architecture Search for Mobile"
//! (arXiv:1807.11626), as torchvision's `mobilenet_v2`, `mobilenet_v3_small`, `mobilenet_v3_large` and `mnasnet1_0`. They compute little
//! and save much: MobileNetV2 has a sixth of ResNet-18's operations, but a step of 32 images needs two and a half times its memory.
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
            item(convolution(32, 3, 2, 1)),
            item(conv([
                item(convolution(32, 3, 1, 32)), Conv2d(16, 1, bias = false, name = "1"), BatchNorm2d(name = "2"),
            ])),
            item(wider(16, 24, 2)), item(residual(24)),
            item(wider(24, 32, 2)), repeat(2, item(residual(32))),
            item(wider(32, 64, 2)), repeat(3, item(residual(64))),
            item(wider(64, 96, 1)), repeat(2, item(residual(96))),
            item(wider(96, 160, 2)), repeat(2, item(residual(160))),
            item(wider(160, 320, 1)),
            item(convolution(1280, 1, 1, 1)),
        ]
    }

    fn classifier() -> Block {
        [Dropout(0.2), Linear(1000, name = "1")]
    }

    fn conv(inside: Block) -> Block {
        [inside]
    }

    #[name = ""]
    fn convolution(channels: usize, size: usize, stride: usize, groups: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
            BatchNorm2d(name = "1"), Relu6(inplace),
        ]
    }

    #[name = ""]
    fn residual(channels: usize) -> Block {
        [Add([], wider(channels, channels, 1))]
    }

    #[name = ""]
    fn wider(from: usize, to: usize, stride: usize) -> Block {
        [conv([
            item(convolution(6 * from, 1, 1, 1)), item(convolution(6 * from, 3, stride, 6 * from)),
            Conv2d(to, 1, bias = false, name = "2"), BatchNorm2d(name = "3"),
        ])]
    }
}

blocks! {
    /// Convolutions and excitations of MobileNetV3.
    pub mod mobilenet_v3_blocks {
        #[name = ""]
        fn convolution(channels: usize, size: usize, stride: usize, groups: usize, activation: Block) -> Block {
            [
                Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
                BatchNorm2d(eps = 1e-3, momentum = 0.01, name = "1"), activation,
            ]
        }

        #[name = ""]
        fn squeeze(between: usize, channels: usize) -> Block {
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
            item(convolution(16, 3, 2, 1, Hardswish)),
            item(block([item(convolution(16, 3, 2, 16, Relu)), item(squeeze(8, 16)), item(convolution(16, 1, 1, 1, []))])),
            item(block([item(convolution(72, 1, 1, 1, Relu)), item(convolution(72, 3, 2, 72, Relu)), item(convolution(24, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(88, 1, 1, 1, Relu)), item(convolution(88, 3, 1, 88, Relu)), item(convolution(24, 1, 1, 1, []))]))]),
            item(block([item(convolution(96, 1, 1, 1, Hardswish)), item(convolution(96, 5, 2, 96, Hardswish)), item(squeeze(24, 96)), item(convolution(40, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(240, 1, 1, 1, Hardswish)), item(convolution(240, 5, 1, 240, Hardswish)), item(squeeze(64, 240)), item(convolution(40, 1, 1, 1, []))]))]),
            item([Add([], block([item(convolution(240, 1, 1, 1, Hardswish)), item(convolution(240, 5, 1, 240, Hardswish)), item(squeeze(64, 240)), item(convolution(40, 1, 1, 1, []))]))]),
            item(block([item(convolution(120, 1, 1, 1, Hardswish)), item(convolution(120, 5, 1, 120, Hardswish)), item(squeeze(32, 120)), item(convolution(48, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(144, 1, 1, 1, Hardswish)), item(convolution(144, 5, 1, 144, Hardswish)), item(squeeze(40, 144)), item(convolution(48, 1, 1, 1, []))]))]),
            item(block([item(convolution(288, 1, 1, 1, Hardswish)), item(convolution(288, 5, 2, 288, Hardswish)), item(squeeze(72, 288)), item(convolution(96, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(576, 1, 1, 1, Hardswish)), item(convolution(576, 5, 1, 576, Hardswish)), item(squeeze(144, 576)), item(convolution(96, 1, 1, 1, []))]))]),
            item([Add([], block([item(convolution(576, 1, 1, 1, Hardswish)), item(convolution(576, 5, 1, 576, Hardswish)), item(squeeze(144, 576)), item(convolution(96, 1, 1, 1, []))]))]),
            item(convolution(576, 1, 1, 1, Hardswish)),
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
            item(convolution(16, 3, 2, 1, Hardswish)),
            item([Add([], block([item(convolution(16, 3, 1, 16, Relu)), item(convolution(16, 1, 1, 1, []))]))]),
            item(block([item(convolution(64, 1, 1, 1, Relu)), item(convolution(64, 3, 2, 64, Relu)), item(convolution(24, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(72, 1, 1, 1, Relu)), item(convolution(72, 3, 1, 72, Relu)), item(convolution(24, 1, 1, 1, []))]))]),
            item(block([item(convolution(72, 1, 1, 1, Relu)), item(convolution(72, 5, 2, 72, Relu)), item(squeeze(24, 72)), item(convolution(40, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(120, 1, 1, 1, Relu)), item(convolution(120, 5, 1, 120, Relu)), item(squeeze(32, 120)), item(convolution(40, 1, 1, 1, []))]))]),
            item([Add([], block([item(convolution(120, 1, 1, 1, Relu)), item(convolution(120, 5, 1, 120, Relu)), item(squeeze(32, 120)), item(convolution(40, 1, 1, 1, []))]))]),
            item(block([item(convolution(240, 1, 1, 1, Hardswish)), item(convolution(240, 3, 2, 240, Hardswish)), item(convolution(80, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(200, 1, 1, 1, Hardswish)), item(convolution(200, 3, 1, 200, Hardswish)), item(convolution(80, 1, 1, 1, []))]))]),
            item([Add([], block([item(convolution(184, 1, 1, 1, Hardswish)), item(convolution(184, 3, 1, 184, Hardswish)), item(convolution(80, 1, 1, 1, []))]))]),
            item([Add([], block([item(convolution(184, 1, 1, 1, Hardswish)), item(convolution(184, 3, 1, 184, Hardswish)), item(convolution(80, 1, 1, 1, []))]))]),
            item(block([item(convolution(480, 1, 1, 1, Hardswish)), item(convolution(480, 3, 1, 480, Hardswish)), item(squeeze(120, 480)), item(convolution(112, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(672, 1, 1, 1, Hardswish)), item(convolution(672, 3, 1, 672, Hardswish)), item(squeeze(168, 672)), item(convolution(112, 1, 1, 1, []))]))]),
            item(block([item(convolution(672, 1, 1, 1, Hardswish)), item(convolution(672, 5, 2, 672, Hardswish)), item(squeeze(168, 672)), item(convolution(160, 1, 1, 1, []))])),
            item([Add([], block([item(convolution(960, 1, 1, 1, Hardswish)), item(convolution(960, 5, 1, 960, Hardswish)), item(squeeze(240, 960)), item(convolution(160, 1, 1, 1, []))]))]),
            item([Add([], block([item(convolution(960, 1, 1, 1, Hardswish)), item(convolution(960, 5, 1, 960, Hardswish)), item(squeeze(240, 960)), item(convolution(160, 1, 1, 1, []))]))]),
            item(convolution(960, 1, 1, 1, Hardswish)),
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
            item([item(inverted(48, 24, 3, 2)), repeat(2, item([Add([], inverted(72, 24, 3, 1))]))], name = "8"),
            item([item(inverted(72, 40, 5, 2)), repeat(2, item([Add([], inverted(120, 40, 5, 1))]))], name = "9"),
            item([item(inverted(240, 80, 5, 2)), repeat(2, item([Add([], inverted(480, 80, 5, 1))]))], name = "10"),
            item([item(inverted(480, 96, 3, 1)), repeat(1, item([Add([], inverted(576, 96, 3, 1))]))], name = "11"),
            item([item(inverted(576, 192, 5, 2)), repeat(3, item([Add([], inverted(1152, 192, 5, 1))]))], name = "12"),
            item([item(inverted(1152, 320, 3, 1))], name = "13"),
            Conv2d(1280, 1, bias = false, name = "14"), BatchNorm2d(momentum = 0.0003, name = "15"), Relu(inplace),
        ]
    }

    fn classifier() -> Block {
        [Dropout(0.2), Linear(1000, name = "1")]
    }

    #[name = ""]
    fn inverted(wide: usize, channels: usize, size: usize, stride: usize) -> Block {
        [item([
            Conv2d(wide, 1, bias = false, name = "0"), BatchNorm2d(momentum = 0.0003, name = "1"), Relu(inplace),
            Conv2d(wide, size, stride = stride, padding = size / 2, groups = wide, bias = false, name = "3"),
            BatchNorm2d(momentum = 0.0003, name = "4"), Relu(inplace),
            Conv2d(channels, 1, bias = false, name = "6"), BatchNorm2d(momentum = 0.0003, name = "7"),
        ], name = "layers")]
    }
}
