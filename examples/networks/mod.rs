//! Networks that several programs use: the examples, the benchmark, and the tests that compare them with PyTorch's.
//!
//! The number format is part of a network's program, so each of these is a macro: `resnet50! { ResNet50, F32 }` declares
//! `ResNet50<const BATCH: usize>`. Some take further settings of `TRAIN`: `resnet50! { Kept, F32, checkpoint: None }`.
#![allow(dead_code, unused_macros, reason = "each program that includes this file uses some of it")]

use gpumem::{HostShape, Tensor};

/// torchvision's `resnet50`, trained as in its reference recipe.
macro_rules! resnet50 {
    ($name:ident, $precision:expr $(, $setting:ident: $value:tt)*) => {
        gpumem::network! {
            /// torchvision's `resnet50`.
            pub struct $name<const BATCH: usize>;

            const TRAIN: Train = Train {
                batch: BATCH,
                precision: $precision,
                optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
                loss: CrossEntropy,
                $($setting: $value,)*
            };

            fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
                [
                    Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
                    MaxPool2d(3, stride = 2, padding = 1),
                    stage(3, 64, 1), stage(4, 128, 2), stage(6, 256, 2), stage(3, 512, 2),
                    AdaptiveAvgPool2d(1), Flatten, Linear(1000),
                ]
            }

            fn stage(depth: usize, width: usize, stride: usize) -> Block {
                [bottleneck(width, stride, true), repeat(depth - 1, bottleneck(width, 1, false))]
            }

            fn bottleneck(width: usize, stride: usize, project: bool) -> Block {
                [
                    Add(
                        [
                            Conv2d(width, 1, bias = false), BatchNorm2d, Relu(inplace),
                            Conv2d(width, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                            Conv2d(4 * width, 1, bias = false), BatchNorm2d,
                        ],
                        if project { [Conv2d(4 * width, 1, stride = stride, bias = false), BatchNorm2d] } else { [] },
                    ),
                    Relu(inplace),
                ]
            }
        }
    };
}

/// torchvision's `vgg16`.
macro_rules! vgg16 {
    ($name:ident, $precision:expr) => {
        gpumem::network! {
            /// torchvision's `vgg16`.
            pub struct $name<const BATCH: usize>;

            const TRAIN: Train = Train {
                batch: BATCH,
                precision: $precision,
                optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
                loss: CrossEntropy,
            };

            fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
                [
                    stage(2, 64), stage(2, 128), stage(3, 256), stage(3, 512), stage(3, 512),
                    AdaptiveAvgPool2d(7), Flatten,
                    Linear(25088, 4096), Relu(inplace), Dropout(0.5),
                    Linear(4096), Relu(inplace), Dropout(0.5),
                    Linear(1000),
                ]
            }

            fn stage(depth: usize, channels: usize) -> Block {
                [repeat(depth, [Conv2d(channels, 3, padding = 1), Relu(inplace)]), MaxPool2d(2)]
            }
        }
    };
}

/// GPT-2 small as nanoGPT writes it, without dropout.
macro_rules! gpt2 {
    ($name:ident, $precision:expr $(, $setting:ident: $value:tt)*) => {
        gpumem::network! {
            /// GPT-2 small as nanoGPT writes it, without dropout.
            pub struct $name<const BATCH: usize>;

            const TRAIN: Train = Train {
                batch: BATCH,
                precision: $precision,
                optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
                loss: CrossEntropy,
                $($setting: $value,)*
            };

            fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
                let wte = Embedding(50257, 768);
                [Add(wte, PositionEmbedding(1024, 768)), repeat(12, block(768, 12)), LayerNorm, Tied(wte)]
            }

            fn block(width: usize, heads: usize) -> Block {
                [
                    Add([], [LayerNorm, CausalSelfAttention(heads)]),
                    Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width)]),
                ]
            }
        }
    };
}

/// A batch that is made up, the same in every run.
pub trait Synthetic {
    /// Numbers as wide as normalised pixels, or indices below `limit`; others for another `salt`. Targets that are the inputs would be
    /// learned before they are timed, and products of zeros take less time than others.
    fn synthetic(limit: u32, salt: u32) -> Self;
}

/// Spreads an index over all 32-bit numbers, and what belongs to it under another salt over others.
fn spread(index: usize, salt: u32) -> u32 {
    let first = (index as u32).wrapping_mul(2_654_435_769);
    (first ^ first >> 15 ^ salt).wrapping_mul(2_246_822_519)
}

impl<S: HostShape> Synthetic for Tensor<f32, S> {
    fn synthetic(_: u32, salt: u32) -> Self {
        Tensor::from_fn(|index| (spread(index, salt) as f32 / 2f32.powi(31) - 1.0) * 1.7)
    }
}

impl<S: HostShape> Synthetic for Tensor<u32, S> {
    fn synthetic(limit: u32, salt: u32) -> Self {
        Tensor::from_fn(|index| (spread(index, salt) >> 7) % limit)
    }
}
