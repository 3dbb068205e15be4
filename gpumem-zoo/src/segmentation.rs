//! FCN and DeepLabV3: a class for each pixel.
//!
//! J. Long, E. Shelhamer and T. Darrell, "Fully Convolutional Networks for Semantic Segmentation" (arXiv:1411.4038), and L.-C. Chen, G.
//! Papandreou, F. Schroff and H. Adam, "Rethinking Atrous Convolution for Semantic Image Segmentation" (arXiv:1706.05587), as torchvision's
//! `fcn_resnet50(aux_loss=True)` and `deeplabv3_resnet50(aux_loss=True)`. Both begin with a ResNet-50 whose third and fourth stages have
//! dilations of two and four in place of strides. A second head after the third stage has a loss with the weight 0.5; inference leaves it
//! out. There are 21 classes, including the background; targets of 255 are ignored.
//!
//! torchvision's metadata have 35,322,218 and 42,004,074 parameters, and 152.717 and 178.722 thousand million multiply-accumulates, second
//! heads included. The networks have the same numbers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::segmentation::{DeepLabV3ResNet50, FcnResNet50};
//!
//! gpumem::fits!(FcnResNet50<8>, RTX_3090);
//! let macs = |layers: &[gpumem::LayerInfo]| layers.iter().map(|layer| layer.macs).sum::<u64>();
//! assert!(macs(DeepLabV3ResNet50::<8>::LAYERS) > macs(FcnResNet50::<8>::LAYERS));
//! ```

use gpumem::{blocks, network};

blocks! {
    /// A ResNet-50 whose output has an eighth of the image's size, and FCN's head, which follows two of its stages.
    pub mod segmentation_blocks {
        #[name = "[]"]
        fn dilated(inner: usize, stride: usize, dilation: usize, project: bool) -> Block {
            [
                Add(
                    [
                        Conv2d(inner, 1, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
                        Conv2d(
                            inner, 3, stride = stride, padding = dilation, dilation = dilation, bias = false, name = "conv2",
                        ),
                        BatchNorm2d(name = "bn2"), Relu(inplace),
                        Conv2d(4 * inner, 1, bias = false, name = "conv3"), BatchNorm2d(name = "bn3"),
                    ],
                    if project { downsample(4 * inner, stride) } else { [] },
                ),
                Relu(inplace),
            ]
        }

        fn downsample(channels: usize, stride: usize) -> Block {
            [Conv2d(channels, 1, stride = stride, bias = false, name = "0"), BatchNorm2d(name = "1")]
        }

        #[name = ""]
        fn third_stage() -> Block {
            [
                Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
                MaxPool2d(3, stride = 2, padding = 1),
                layer1(), layer2(), layer3(),
            ]
        }

        fn layer1() -> Block {
            [dilated(64, 1, 1, true), repeat(2, dilated(64, 1, 1, false))]
        }

        fn layer2() -> Block {
            [dilated(128, 2, 1, true), repeat(3, dilated(128, 1, 1, false))]
        }

        fn layer3() -> Block {
            [dilated(256, 1, 1, true), repeat(5, dilated(256, 1, 2, false))]
        }

        fn layer4() -> Block {
            [dilated(512, 1, 2, true), repeat(2, dilated(512, 1, 4, false))]
        }

        #[name = ""]
        fn fcn_head(between: usize, classes: usize) -> Block {
            [
                Conv2d(between, 3, padding = 1, bias = false, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
                Dropout(0.1), Conv2d(classes, 1, name = "4"),
            ]
        }
    }
}

network! {
    /// torchvision's `fcn_resnet50` with its second head, for images of 520 x 520.
    pub struct FcnResNet50<const BATCH: usize>;

    use blocks segmentation_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy { ignore_index: 255 } + 0.5 * CrossEntropy { ignore_index: 255 }(from = aux),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 520, 520>) -> Map<21, 520, 520> {
        [
            backbone([third_stage(), tap(third), layer4()]),
            classifier(fcn_head(512, 21)), Upsample(size = 520, mode = "bilinear"), tap(out),
            from(third), fcn_head(256, 21, name = "aux_classifier"), Upsample(size = 520, mode = "bilinear"), tap(aux),
            from(out),
        ]
    }

    fn backbone(inside: Block) -> Block {
        [inside]
    }

    fn classifier(inside: Block) -> Block {
        [inside]
    }
}

network! {
    /// torchvision's `deeplabv3_resnet50` with its second head, for images of 520 x 520.
    pub struct DeepLabV3ResNet50<const BATCH: usize>;

    use blocks segmentation_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy { ignore_index: 255 } + 0.5 * CrossEntropy { ignore_index: 255 }(from = aux),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 520, 520>) -> Map<21, 520, 520> {
        [
            backbone([third_stage(), tap(third), layer4()]),
            classifier([
                item([convs(), project([convolution(1, 1)]), Dropout(0.5)]),
                Conv2d(256, 3, padding = 1, bias = false, name = "1"), BatchNorm2d(name = "2"), Relu(inplace),
                Conv2d(21, 1, name = "4"),
            ]),
            Upsample(size = 520, mode = "bilinear"), tap(out),
            from(third), fcn_head(256, 21, name = "aux_classifier"), Upsample(size = 520, mode = "bilinear"), tap(aux),
            from(out),
        ]
    }

    fn convs() -> Block {
        [Concat(
            item(convolution(1, 1)), item(convolution(3, 12)), item(convolution(3, 24)),
            item(convolution(3, 36)),
            item([
                AdaptiveAvgPool2d(1), Conv2d(256, 1, bias = false, name = "1"), BatchNorm2d(name = "2"), Relu(inplace),
                Upsample(size = 65, mode = "bilinear"),
            ]),
        )]
    }

    #[name = ""]
    fn convolution(size: usize, dilation: usize) -> Block {
        [
            Conv2d(256, size, padding = (size / 2) * dilation, dilation = dilation, bias = false, name = "0"),
            BatchNorm2d(name = "1"), Relu(inplace),
        ]
    }

    #[name = "[]"]
    fn item(inside: Block) -> Block {
        [inside]
    }

    fn project(inside: Block) -> Block {
        [inside]
    }

    fn backbone(inside: Block) -> Block {
        [inside]
    }

    fn classifier(inside: Block) -> Block {
        [inside]
    }
}
