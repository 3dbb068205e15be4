//! ResNet, ResNeXt and Wide ResNet: layers learn the difference between their input and output.
//!
//! K. He, X. Zhang, S. Ren and J. Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385); S. Xie and others, "Aggregated
//! Residual Transformations for Deep Neural Networks" (arXiv:1611.05431), whose middle convolution is split into groups; S. Zagoruyko and
//! N. Komodakis, "Wide Residual Networks" (arXiv:1605.07146), whose middle convolution has twice the channels. As in torchvision, the
//! stride of a bottleneck is that of its 3 x 3 convolution ("v1.5"). The blocks are [`resnet_blocks`], and the layers are
//! [`resnet_basic_layers`] and [`resnet_bottleneck_layers`]; you can use them in your own networks.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::resnet::ResNet50;
//!
//! let last = ResNet50::<32>::LAYERS.iter().rev().find(|layer| layer.kind == "BatchNorm2d").unwrap();
//! assert_eq!(last.path, "layer4[2].bn3");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The residual blocks.
    pub mod resnet_blocks {
        #[name = "[]"]
        fn basic(channels: usize, stride: usize, project: bool) -> Block {
            [
                Add(
                    [
                        Conv2d(channels, 3, stride = stride, padding = 1, bias = false, name = "conv1"),
                        BatchNorm2d(name = "bn1"), Relu(inplace),
                        Conv2d(channels, 3, padding = 1, bias = false, name = "conv2"), BatchNorm2d(name = "bn2"),
                    ],
                    if project { downsample(channels, stride) } else { [] },
                ),
                Relu(inplace),
            ]
        }

        #[name = "[]"]
        fn bottleneck(inner: usize, groups: usize, channels: usize, stride: usize, project: bool) -> Block {
            [
                Add(
                    [
                        Conv2d(inner, 1, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
                        Conv2d(inner, 3, stride = stride, padding = 1, groups = groups, bias = false, name = "conv2"),
                        BatchNorm2d(name = "bn2"), Relu(inplace),
                        Conv2d(channels, 1, bias = false, name = "conv3"), BatchNorm2d(name = "bn3"),
                    ],
                    if project { downsample(channels, stride) } else { [] },
                ),
                Relu(inplace),
            ]
        }

        fn downsample(channels: usize, stride: usize) -> Block {
            [Conv2d(channels, 1, stride = stride, bias = false, name = "0"), BatchNorm2d(name = "1")]
        }
    }

    /// The layers of ResNet-18 and ResNet-34, with the given numbers of blocks.
    pub mod resnet_basic_layers {
        use blocks super::resnet_blocks;

        fn layer1(blocks: usize) -> Block {
            [repeat(blocks, resnet_blocks::basic(64, 1, false))]
        }

        fn layer2(blocks: usize) -> Block {
            [resnet_blocks::basic(128, 2, true), repeat(blocks - 1, resnet_blocks::basic(128, 1, false))]
        }

        fn layer3(blocks: usize) -> Block {
            [resnet_blocks::basic(256, 2, true), repeat(blocks - 1, resnet_blocks::basic(256, 1, false))]
        }

        fn layer4(blocks: usize) -> Block {
            [resnet_blocks::basic(512, 2, true), repeat(blocks - 1, resnet_blocks::basic(512, 1, false))]
        }
    }

    /// The layers of the other networks, with the given numbers of blocks. The first layer's middle convolutions have `width` channels.
    pub mod resnet_bottleneck_layers {
        use blocks super::resnet_blocks;

        fn layer1(blocks: usize, width: usize, groups: usize) -> Block {
            [
                resnet_blocks::bottleneck(width, groups, 256, 1, true),
                repeat(blocks - 1, resnet_blocks::bottleneck(width, groups, 256, 1, false)),
            ]
        }

        fn layer2(blocks: usize, width: usize, groups: usize) -> Block {
            [
                resnet_blocks::bottleneck(2 * width, groups, 512, 2, true),
                repeat(blocks - 1, resnet_blocks::bottleneck(2 * width, groups, 512, 1, false)),
            ]
        }

        fn layer3(blocks: usize, width: usize, groups: usize) -> Block {
            [
                resnet_blocks::bottleneck(4 * width, groups, 1024, 2, true),
                repeat(blocks - 1, resnet_blocks::bottleneck(4 * width, groups, 1024, 1, false)),
            ]
        }

        fn layer4(blocks: usize, width: usize, groups: usize) -> Block {
            [
                resnet_blocks::bottleneck(8 * width, groups, 2048, 2, true),
                repeat(blocks - 1, resnet_blocks::bottleneck(8 * width, groups, 2048, 1, false)),
            ]
        }
    }
}

network! {
    /// torchvision's `resnet18`.
    pub struct ResNet18<const BATCH: usize>;

    use blocks resnet_basic_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(2), layer2(2), layer3(2), layer4(2),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}

network! {
    /// torchvision's `resnet34`.
    pub struct ResNet34<const BATCH: usize>;

    use blocks resnet_basic_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(3), layer2(4), layer3(6), layer4(3),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}

network! {
    /// torchvision's `resnet50`.
    pub struct ResNet50<const BATCH: usize>;

    use blocks resnet_bottleneck_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(3, 64, 1), layer2(4, 64, 1), layer3(6, 64, 1), layer4(3, 64, 1),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}

network! {
    /// torchvision's `resnet101`.
    pub struct ResNet101<const BATCH: usize>;

    use blocks resnet_bottleneck_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(3, 64, 1), layer2(4, 64, 1), layer3(23, 64, 1), layer4(3, 64, 1),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}

network! {
    /// torchvision's `resnet152`.
    pub struct ResNet152<const BATCH: usize>;

    use blocks resnet_bottleneck_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(3, 64, 1), layer2(8, 64, 1), layer3(36, 64, 1), layer4(3, 64, 1),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}

network! {
    /// torchvision's `resnext50_32x4d`.
    pub struct ResNeXt50<const BATCH: usize>;

    use blocks resnet_bottleneck_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(3, 128, 32), layer2(4, 128, 32), layer3(6, 128, 32), layer4(3, 128, 32),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}

network! {
    /// torchvision's `wide_resnet50_2`.
    pub struct WideResNet50<const BATCH: usize>;

    use blocks resnet_bottleneck_layers;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(3, 128, 1), layer2(4, 128, 1), layer3(6, 128, 1), layer4(3, 128, 1),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000, name = "fc"),
        ]
    }
}
