//! EfficientNets: inverted bottlenecks with excitation, as deep and as wide as a search found.
//!
//! M. Tan and Q. V. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (arXiv:1905.11946) and
//! "EfficientNetV2: Smaller Models and Faster Training" (arXiv:2104.00298), as torchvision's `efficientnet_b0` and
//! `efficientnet_v2_s`, the latter with images of 384 x 384 pixels. Version 2 begins with whole 3 x 3 convolutions, where those of
//! single channels leave a card idle. Blocks are dropped at random with a probability that grows with the depth, to 0.2; the
//! optimizer is RMSProp, with the options of torchvision's recipe.
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
    /// The blocks of both: between lie `ratio` times the channels, `eps` is that of the normalisation, and `drop` the probability
    /// that a block is left out.
    pub mod efficientnet_blocks {
        use blocks super::super::modules;

        fn inline_convolution(
            channels: usize, size: usize, stride: usize, groups: usize, eps: f64, activation: Block,
        ) -> Block {
            [
                Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
                BatchNorm2d(eps = eps, name = "1"), activation,
            ]
        }

        fn inline_squeeze(between: usize, channels: usize) -> Block {
            [Mul(
                [],
                [
                    AdaptiveAvgPool2d(1), Conv2d(between, 1, name = "fc1"), Silu, Conv2d(channels, 1, name = "fc2"),
                    Sigmoid,
                ],
            )]
        }

        fn inline_inverted(from: usize, ratio: usize, size: usize, stride: usize, to: usize, eps: f64) -> Block {
            [block([
                item(inline_convolution(ratio * from, 1, 1, 1, eps, Silu)),
                item(inline_convolution(ratio * from, size, stride, ratio * from, eps, Silu)),
                item(inline_squeeze(from / 4, ratio * from)),
                item(inline_convolution(to, 1, 1, 1, eps, [])),
            ])]
        }

        // The first two convolutions of a bottleneck in one.
        fn inline_fused(from: usize, ratio: usize, size: usize, stride: usize, to: usize) -> Block {
            [block([
                item(inline_convolution(ratio * from, size, stride, 1, 1e-3, Silu)),
                item(inline_convolution(to, 1, 1, 1, 1e-3, [])),
            ])]
        }

        fn inline_residual(channels: usize, ratio: usize, size: usize, eps: f64, drop: f64) -> Block {
            [Add([], [inline_inverted(channels, ratio, size, 1, channels, eps), DropPath(drop)])]
        }

        fn inline_fused_residual(channels: usize, ratio: usize, size: usize, drop: f64) -> Block {
            [Add([], [inline_fused(channels, ratio, size, 1, channels), DropPath(drop)])]
        }

        // A fused bottleneck with no more channels between than around it: one convolution.
        fn inline_same(channels: usize, size: usize, drop: f64) -> Block {
            [Add([], [block(item(inline_convolution(channels, size, 1, 1, 1e-3, Silu))), DropPath(drop)])]
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
            item(inline_convolution(32, 3, 2, 1, 1e-5, Silu)),
            item(item(block([
                item(inline_convolution(32, 3, 1, 32, 1e-5, Silu)), item(inline_squeeze(8, 32)),
                item(inline_convolution(16, 1, 1, 1, 1e-5, [])),
            ]))),
            item([item(inline_inverted(16, 6, 3, 2, 24, 1e-5)), item(inline_residual(24, 6, 3, 1e-5, 0.025))]),
            item([item(inline_inverted(24, 6, 5, 2, 40, 1e-5)), item(inline_residual(40, 6, 5, 1e-5, 0.05))]),
            item([
                item(inline_inverted(40, 6, 3, 2, 80, 1e-5)),
                item(inline_residual(80, 6, 3, 1e-5, 0.075)), item(inline_residual(80, 6, 3, 1e-5, 0.0875)),
            ]),
            item([
                item(inline_inverted(80, 6, 5, 1, 112, 1e-5)),
                item(inline_residual(112, 6, 5, 1e-5, 0.1125)), item(inline_residual(112, 6, 5, 1e-5, 0.125)),
            ]),
            item([
                item(inline_inverted(112, 6, 5, 2, 192, 1e-5)),
                item(inline_residual(192, 6, 5, 1e-5, 0.15)), item(inline_residual(192, 6, 5, 1e-5, 0.1625)),
                item(inline_residual(192, 6, 5, 1e-5, 0.175)),
            ]),
            item(item(inline_inverted(192, 6, 3, 1, 320, 1e-5))),
            item(inline_convolution(1280, 1, 1, 1, 1e-5, Silu)),
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
            item(inline_convolution(24, 3, 2, 1, 1e-3, Silu)),
            item([item(inline_same(24, 3, 0.0)), item(inline_same(24, 3, 0.005))]),
            item([
                item(inline_fused(24, 4, 3, 2, 48)),
                item(inline_fused_residual(48, 4, 3, 0.015)), item(inline_fused_residual(48, 4, 3, 0.02)),
                item(inline_fused_residual(48, 4, 3, 0.025)),
            ]),
            item([
                item(inline_fused(48, 4, 3, 2, 64)),
                item(inline_fused_residual(64, 4, 3, 0.035)), item(inline_fused_residual(64, 4, 3, 0.04)),
                item(inline_fused_residual(64, 4, 3, 0.045)),
            ]),
            item([
                item(inline_inverted(64, 4, 3, 2, 128, 1e-3)),
                item(inline_residual(128, 4, 3, 1e-3, 0.055)), item(inline_residual(128, 4, 3, 1e-3, 0.06)),
                item(inline_residual(128, 4, 3, 1e-3, 0.065)), item(inline_residual(128, 4, 3, 1e-3, 0.07)),
                item(inline_residual(128, 4, 3, 1e-3, 0.075)),
            ]),
            item([
                item(inline_inverted(128, 6, 3, 1, 160, 1e-3)),
                item(inline_residual(160, 6, 3, 1e-3, 0.085)), item(inline_residual(160, 6, 3, 1e-3, 0.09)),
                item(inline_residual(160, 6, 3, 1e-3, 0.095)), item(inline_residual(160, 6, 3, 1e-3, 0.1)),
                item(inline_residual(160, 6, 3, 1e-3, 0.105)), item(inline_residual(160, 6, 3, 1e-3, 0.11)),
                item(inline_residual(160, 6, 3, 1e-3, 0.115)), item(inline_residual(160, 6, 3, 1e-3, 0.12)),
            ]),
            item([
                item(inline_inverted(160, 6, 3, 2, 256, 1e-3)),
                item(inline_residual(256, 6, 3, 1e-3, 0.13)), item(inline_residual(256, 6, 3, 1e-3, 0.135)),
                item(inline_residual(256, 6, 3, 1e-3, 0.14)), item(inline_residual(256, 6, 3, 1e-3, 0.145)),
                item(inline_residual(256, 6, 3, 1e-3, 0.15)), item(inline_residual(256, 6, 3, 1e-3, 0.155)),
                item(inline_residual(256, 6, 3, 1e-3, 0.16)), item(inline_residual(256, 6, 3, 1e-3, 0.165)),
                item(inline_residual(256, 6, 3, 1e-3, 0.17)), item(inline_residual(256, 6, 3, 1e-3, 0.175)),
                item(inline_residual(256, 6, 3, 1e-3, 0.18)), item(inline_residual(256, 6, 3, 1e-3, 0.185)),
                item(inline_residual(256, 6, 3, 1e-3, 0.19)), item(inline_residual(256, 6, 3, 1e-3, 0.195)),
            ]),
            item(inline_convolution(1280, 1, 1, 1, 1e-3, Silu)),
        ]
    }
}
