//! The networks, each as it is, in place, partly frozen, and with a smaller input.

use gpumem::Network;
use gpumem::network;

/// A network and its relatives.
pub struct Case {
    /// Its name in the table.
    pub name: &'static str,
    /// The batch and the input.
    pub size: &'static str,
    /// Samples in a step.
    pub batch: u64,
    /// Numbers that tokens or labels may be below.
    pub classes: u32,
    /// The blueprint of the network as it is.
    pub plain: &'static [u8],
    /// With layers that work in place, where there are any.
    pub in_place: Option<&'static [u8]>,
    /// With half of each side of the image, or half of the tokens.
    pub smaller: &'static [u8],
    /// With a backbone that is not trained.
    pub frozen: &'static [u8],
}

/// What is measured.
pub const CASES: [Case; 4] = [
    Case {
        name: "VGG16",
        size: "16 x 96 x 96",
        batch: 16,
        classes: 1000,
        plain: Vgg::<1>::BLUEPRINT,
        in_place: Some(VggInPlace::<1>::BLUEPRINT),
        smaller: VggSmaller::<1>::BLUEPRINT,
        frozen: VggFrozen::<1>::BLUEPRINT,
    },
    Case {
        name: "ResNet-50",
        size: "16 x 96 x 96",
        batch: 16,
        classes: 1000,
        plain: ResNet::<1>::BLUEPRINT,
        in_place: Some(ResNetInPlace::<1>::BLUEPRINT),
        smaller: ResNetSmaller::<1>::BLUEPRINT,
        frozen: ResNetFrozen::<1>::BLUEPRINT,
    },
    Case {
        name: "U-Net",
        size: "4 x 96 x 96",
        batch: 4,
        classes: 2,
        plain: UNet::<1>::BLUEPRINT,
        in_place: Some(UNetInPlace::<1>::BLUEPRINT),
        smaller: UNetSmaller::<1>::BLUEPRINT,
        frozen: UNetFrozen::<1>::BLUEPRINT,
    },
    Case {
        name: "GPT-2",
        size: "4 x 128 tokens",
        batch: 4,
        classes: 50257,
        plain: Gpt::<1>::BLUEPRINT,
        // It has no rectifier, and no BatchNorm.
        in_place: None,
        smaller: GptSmaller::<1>::BLUEPRINT,
        frozen: GptFrozen::<1>::BLUEPRINT,
    },
];

/// VGG16 for images of `$side` x `$side`, with these rectifiers.
macro_rules! vgg {
    ($name:ident, $side:literal, [$($rectify:tt)*], $features:expr) => {
        network! {
            struct $name<const BATCH: usize>;

            const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-4 }, loss: CrossEntropy };

            fn forward(image: Image<3, $side, $side>) -> Logits<1000> {
                [
                    $features, AdaptiveAvgPool2d(7), Flatten, repeat(2, [Linear(4096), $($rectify)*, Dropout(0.5)]),
                    Linear(1000),
                ]
            }

            fn features() -> Block {
                [stage(2, 64), stage(2, 128), stage(3, 256), stage(3, 512), stage(3, 512)]
            }

            fn stage(depth: usize, channels: usize) -> Block {
                [repeat(depth, [Conv2d(channels, 3, padding = 1), $($rectify)*]), MaxPool2d(2)]
            }
        }
    };
}

vgg!(Vgg, 96, [Relu], features());
vgg!(VggInPlace, 96, [Relu(inplace)], features());
vgg!(VggSmaller, 48, [Relu], features());
vgg!(VggFrozen, 96, [Relu], freeze(features()));

/// ResNet-50 for images of `$side` x `$side`, with this behind its convolutions.
macro_rules! resnet {
    ($name:ident, $side:literal, [$($rectified:tt)*], $features:expr) => {
        network! {
            struct $name<const BATCH: usize>;

            const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-4 }, loss: CrossEntropy };

            fn forward(image: Image<3, $side, $side>) -> Logits<1000> {
                [$features, AdaptiveAvgPool2d(1), Flatten, Linear(1000)]
            }

            fn features() -> Block {
                [
                    Conv2d(64, 7, stride = 2, padding = 3, bias = false), $($rectified)*,
                    MaxPool2d(3, stride = 2, padding = 1),
                    layer(3, 64, 1), layer(4, 128, 2), layer(6, 256, 2), layer(3, 512, 2),
                ]
            }

            fn layer(depth: usize, inner: usize, stride: usize) -> Block {
                [bottleneck(inner, stride, true), repeat(depth - 1, bottleneck(inner, 1, false))]
            }

            fn bottleneck(inner: usize, stride: usize, project: bool) -> Block {
                [
                    Add(
                        [
                            Conv2d(inner, 1, bias = false), $($rectified)*,
                            Conv2d(inner, 3, stride = stride, padding = 1, bias = false), $($rectified)*,
                            Conv2d(4 * inner, 1, bias = false), BatchNorm2d,
                        ],
                        if project { [Conv2d(4 * inner, 1, stride = stride, bias = false), BatchNorm2d] } else { [] },
                    ),
                    Relu,
                ]
            }
        }
    };
}

resnet!(ResNet, 96, [BatchNorm2d, Relu], features());
resnet!(ResNetInPlace, 96, [InplaceAbn], features());
resnet!(ResNetSmaller, 48, [BatchNorm2d, Relu], features());
resnet!(ResNetFrozen, 96, [BatchNorm2d, Relu], freeze(train(features())));

/// U-Net for images of `$side` x `$side`, with this behind its convolutions, and this on its way down.
macro_rules! unet {
    ($name:ident, $side:literal, [$($rectified:tt)*], $down:tt) => {
        network! {
            struct $name<const BATCH: usize>;

            const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-4 }, loss: CrossEntropy };

            fn forward(image: Image<3, $side, $side>) -> Map<2, $side, $side> {
                [
                    down(64), tap(first), MaxPool2d(2), down(128), tap(second), MaxPool2d(2), down(256), tap(third),
                    MaxPool2d(2), down(512), tap(fourth), MaxPool2d(2), down(1024),
                    Concat(from(fourth), up(512)), double(512), Concat(from(third), up(256)), double(256),
                    Concat(from(second), up(128)), double(128), Concat(from(first), up(64)), double(64), Conv2d(2, 1),
                ]
            }

            fn up(channels: usize) -> Block { [ConvTranspose2d(channels, 2, stride = 2)] }

            fn down(channels: usize) -> Block { $down }

            fn double(channels: usize) -> Block {
                [repeat(2, [Conv2d(channels, 3, padding = 1, bias = false), $($rectified)*])]
            }
        }
    };
}

unet!(UNet, 96, [BatchNorm2d, Relu], [double(channels)]);
unet!(UNetInPlace, 96, [InplaceAbn], [double(channels)]);
unet!(UNetSmaller, 48, [BatchNorm2d, Relu], [double(channels)]);
unet!(UNetFrozen, 96, [BatchNorm2d, Relu], [freeze(train(double(channels)))]);

/// GPT-2 small for `$steps` tokens; the embeddings and the first nine layers may be frozen.
macro_rules! gpt {
    ($name:ident, $steps:literal, [$($frozen:tt)*], $below:expr) => {
        network! {
            struct $name<const BATCH: usize>;

            use blocks gpumem_zoo::gpt2::gpt2_blocks;

            const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-4 }, loss: CrossEntropy };

            fn forward(tokens: Tokens<$steps>) -> TokenLogits<$steps, 50257> {
                let words = Embedding(50257, 768 $($frozen)*);
                [Add(words, PositionEmbedding($steps, 768 $($frozen)*)), $below, repeat(3, h(768, 12)), LayerNorm, Tied(words)]
            }

            fn below() -> Block { [repeat(9, h(768, 12))] }
        }
    };
}

gpt!(Gpt, 128, [], below());
gpt!(GptSmaller, 64, [], below());
gpt!(GptFrozen, 128, [, freeze], freeze(below()));
