//! EfficientNets: inverted bottlenecks with squeeze and excitation, whose depth and width were found by a search.
//!
//! M. Tan and Q. V. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (arXiv:1905.11946) and "EfficientNetV2:
//! Smaller Models and Faster Training" (arXiv:2104.00298), as torchvision's `efficientnet_b0` and `efficientnet_v2_s`, the latter with
//! images of 384 x 384 pixels. Version 2 begins with dense 3 x 3 convolutions, where depthwise ones would leave a card idle. Blocks are
//! dropped at random with a probability that grows with the depth, to 0.2; the optimizer is RMSProp, with the options of torchvision's
//! recipe.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::efficientnet::EfficientNetB0;
//!
//! let macs: u64 = EfficientNetB0::<32>::LAYERS.iter().map(|layer| layer.macs).sum();
//! assert_eq!(macs / 1_000_000, 385);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The blocks of both networks. The inner channels are `ratio` times the outer ones, `eps` is that of the normalisation, and `drop` is
    /// the probability that a block is left out.
    pub mod efficientnet_blocks {
        use blocks super::super::modules;

        #[name = ""]
        fn convolution(
            channels: usize, size: usize, stride: usize, groups: usize, eps: f64, activation: Block,
        ) -> Block {
            [
                Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
                BatchNorm2d(eps = eps, name = "1"), activation,
            ]
        }

        #[name = ""]
        fn squeeze(between: usize, channels: usize) -> Block {
            [Mul(
                [],
                [
                    AdaptiveAvgPool2d(1), Conv2d(between, 1, name = "fc1"), Silu, Conv2d(channels, 1, name = "fc2"),
                    Sigmoid,
                ],
            )]
        }

        #[name = ""]
        fn inverted(from: usize, ratio: usize, size: usize, stride: usize, to: usize, eps: f64) -> Block {
            [block([
                item(convolution(ratio * from, 1, 1, 1, eps, Silu)),
                item(convolution(ratio * from, size, stride, ratio * from, eps, Silu)),
                item(squeeze(from / 4, ratio * from)),
                item(convolution(to, 1, 1, 1, eps, [])),
            ])]
        }

        // The first two convolutions of a bottleneck, fused into one.
        #[name = ""]
        fn fused(from: usize, ratio: usize, size: usize, stride: usize, to: usize) -> Block {
            [block([
                item(convolution(ratio * from, size, stride, 1, 1e-3, Silu)),
                item(convolution(to, 1, 1, 1, 1e-3, [])),
            ])]
        }

        #[name = ""]
        fn residual(channels: usize, ratio: usize, size: usize, eps: f64, drop: f64) -> Block {
            [Add([], [inverted(channels, ratio, size, 1, channels, eps), DropPath(drop)])]
        }

        #[name = ""]
        fn fused_residual(channels: usize, ratio: usize, size: usize, drop: f64) -> Block {
            [Add([], [fused(channels, ratio, size, 1, channels), DropPath(drop)])]
        }

        // A fused bottleneck whose inner channels equal the outer ones: a single convolution.
        #[name = ""]
        fn same(channels: usize, size: usize, drop: f64) -> Block {
            [Add([], [block(item(convolution(channels, size, 1, 1, 1e-3, Silu))), DropPath(drop)])]
        }

        fn classifier() -> Block {
            [Dropout(0.2), Linear(1000, name = "1")]
        }
    }
}

network! {
    /// torchvision's `efficientnet_b0`.
    pub struct EfficientNetB0<const BATCH: usize>;

    use blocks {efficientnet_blocks, crate::modules};

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: RmsProp { lr: 0.256, alpha: 0.9, eps: 0.0316, momentum: 0.9, weight_decay: 1e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), GlobalAvgPool, classifier()]
    }

    fn features() -> Block {
        [
            item(convolution(32, 3, 2, 1, 1e-5, Silu)),
            item(item(block([
                item(convolution(32, 3, 1, 32, 1e-5, Silu)), item(squeeze(8, 32)),
                item(convolution(16, 1, 1, 1, 1e-5, [])),
            ]))),
            item([item(inverted(16, 6, 3, 2, 24, 1e-5)), item(residual(24, 6, 3, 1e-5, 0.025))]),
            item([item(inverted(24, 6, 5, 2, 40, 1e-5)), item(residual(40, 6, 5, 1e-5, 0.05))]),
            item([
                item(inverted(40, 6, 3, 2, 80, 1e-5)),
                item(residual(80, 6, 3, 1e-5, 0.075)), item(residual(80, 6, 3, 1e-5, 0.0875)),
            ]),
            item([
                item(inverted(80, 6, 5, 1, 112, 1e-5)),
                item(residual(112, 6, 5, 1e-5, 0.1125)), item(residual(112, 6, 5, 1e-5, 0.125)),
            ]),
            item([
                item(inverted(112, 6, 5, 2, 192, 1e-5)),
                item(residual(192, 6, 5, 1e-5, 0.15)), item(residual(192, 6, 5, 1e-5, 0.1625)),
                item(residual(192, 6, 5, 1e-5, 0.175)),
            ]),
            item(item(inverted(192, 6, 3, 1, 320, 1e-5))),
            item(convolution(1280, 1, 1, 1, 1e-5, Silu)),
        ]
    }
}

network! {
    /// torchvision's `efficientnet_v2_s`.
    pub struct EfficientNetV2S<const BATCH: usize>;

    use blocks {efficientnet_blocks, crate::modules};

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: RmsProp { lr: 0.256, alpha: 0.9, eps: 0.0316, momentum: 0.9, weight_decay: 1e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 384, 384>) -> Logits<1000> {
        [features(), GlobalAvgPool, classifier()]
    }

    fn features() -> Block {
        [
            item(convolution(24, 3, 2, 1, 1e-3, Silu)),
            item([item(same(24, 3, 0.0)), item(same(24, 3, 0.005))]),
            item([
                item(fused(24, 4, 3, 2, 48)),
                item(fused_residual(48, 4, 3, 0.015)), item(fused_residual(48, 4, 3, 0.02)),
                item(fused_residual(48, 4, 3, 0.025)),
            ]),
            item([
                item(fused(48, 4, 3, 2, 64)),
                item(fused_residual(64, 4, 3, 0.035)), item(fused_residual(64, 4, 3, 0.04)),
                item(fused_residual(64, 4, 3, 0.045)),
            ]),
            item([
                item(inverted(64, 4, 3, 2, 128, 1e-3)),
                item(residual(128, 4, 3, 1e-3, 0.055)), item(residual(128, 4, 3, 1e-3, 0.06)),
                item(residual(128, 4, 3, 1e-3, 0.065)), item(residual(128, 4, 3, 1e-3, 0.07)),
                item(residual(128, 4, 3, 1e-3, 0.075)),
            ]),
            item([
                item(inverted(128, 6, 3, 1, 160, 1e-3)),
                item(residual(160, 6, 3, 1e-3, 0.085)), item(residual(160, 6, 3, 1e-3, 0.09)),
                item(residual(160, 6, 3, 1e-3, 0.095)), item(residual(160, 6, 3, 1e-3, 0.1)),
                item(residual(160, 6, 3, 1e-3, 0.105)), item(residual(160, 6, 3, 1e-3, 0.11)),
                item(residual(160, 6, 3, 1e-3, 0.115)), item(residual(160, 6, 3, 1e-3, 0.12)),
            ]),
            item([
                item(inverted(160, 6, 3, 2, 256, 1e-3)),
                item(residual(256, 6, 3, 1e-3, 0.13)), item(residual(256, 6, 3, 1e-3, 0.135)),
                item(residual(256, 6, 3, 1e-3, 0.14)), item(residual(256, 6, 3, 1e-3, 0.145)),
                item(residual(256, 6, 3, 1e-3, 0.15)), item(residual(256, 6, 3, 1e-3, 0.155)),
                item(residual(256, 6, 3, 1e-3, 0.16)), item(residual(256, 6, 3, 1e-3, 0.165)),
                item(residual(256, 6, 3, 1e-3, 0.17)), item(residual(256, 6, 3, 1e-3, 0.175)),
                item(residual(256, 6, 3, 1e-3, 0.18)), item(residual(256, 6, 3, 1e-3, 0.185)),
                item(residual(256, 6, 3, 1e-3, 0.19)), item(residual(256, 6, 3, 1e-3, 0.195)),
            ]),
            item(convolution(1280, 1, 1, 1, 1e-3, Silu)),
        ]
    }
}
