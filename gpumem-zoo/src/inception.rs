//! Inception v3: large windows as several small ones, some of one row or one column.
//!
//! C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens and Z. Wojna, "Rethinking the Inception Architecture for Computer Vision"
//! (arXiv:1512.00567), as torchvision's `inception_v3`, with its auxiliary head behind the maps of 17 x 17, whose loss counts 0.4 and
//! which is no part of inference. `transform_input`, which comes with torchvision's weights, is left out: those want images whose mean
//! and deviation are taken as 0.5 in each channel.
//!
//! torchvision's metadata say 27,161,264 parameters and 5.713 thousand million multiplications and additions of inference; so does the
//! network here, and the auxiliary head has 0.006 more.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::{inception::InceptionV3, torch_name};
//!
//! let first = &InceptionV3::<32>::LAYERS[0];
//! assert_eq!(torch_name(first.path), "Conv2d_1a_3x3.conv");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// Blocks by their names in torchvision. Each module of the original that is named has a function here.
    pub mod inception_blocks {
        fn inline_convolution(channels: usize, height: usize, width: usize) -> Block {
            [
                Conv2d(channels, (height, width), padding = (height / 2, width / 2), bias = false, name = "conv"),
                BatchNorm2d(eps = 1e-3, name = "bn"), Relu(inplace),
            ]
        }

        fn inline_without_padding(channels: usize, size: usize, stride: usize) -> Block {
            [
                Conv2d(channels, size, stride = stride, bias = false, name = "conv"), BatchNorm2d(eps = 1e-3, name = "bn"),
                Relu(inplace),
            ]
        }

        fn inline_pool(channels: usize) -> Block {
            [AvgPool2d(3, stride = 1, padding = 1), branch_pool(inline_convolution(channels, 1, 1))]
        }

        fn inline_a(pooled: usize) -> Block {
            [Concat(
                branch1x1(inline_convolution(64, 1, 1)),
                [branch5x5_1(inline_convolution(48, 1, 1)), branch5x5_2(inline_convolution(64, 5, 5))],
                [
                    branch3x3dbl_1(inline_convolution(64, 1, 1)), branch3x3dbl_2(inline_convolution(96, 3, 3)),
                    branch3x3dbl_3(inline_convolution(96, 3, 3)),
                ],
                inline_pool(pooled),
            )]
        }

        fn inline_b() -> Block {
            [Concat(
                branch3x3(inline_without_padding(384, 3, 2)),
                [
                    branch3x3dbl_1(inline_convolution(64, 1, 1)), branch3x3dbl_2(inline_convolution(96, 3, 3)),
                    branch3x3dbl_3(inline_without_padding(96, 3, 2)),
                ],
                MaxPool2d(3, stride = 2),
            )]
        }

        fn inline_c(between: usize) -> Block {
            [Concat(
                branch1x1(inline_convolution(192, 1, 1)),
                [
                    branch7x7_1(inline_convolution(between, 1, 1)), branch7x7_2(inline_convolution(between, 1, 7)),
                    branch7x7_3(inline_convolution(192, 7, 1)),
                ],
                [
                    branch7x7dbl_1(inline_convolution(between, 1, 1)), branch7x7dbl_2(inline_convolution(between, 7, 1)),
                    branch7x7dbl_3(inline_convolution(between, 1, 7)), branch7x7dbl_4(inline_convolution(between, 7, 1)),
                    branch7x7dbl_5(inline_convolution(192, 1, 7)),
                ],
                inline_pool(192),
            )]
        }

        fn inline_d() -> Block {
            [Concat(
                [branch3x3_1(inline_convolution(192, 1, 1)), branch3x3_2(inline_without_padding(320, 3, 2))],
                [
                    branch7x7x3_1(inline_convolution(192, 1, 1)), branch7x7x3_2(inline_convolution(192, 1, 7)),
                    branch7x7x3_3(inline_convolution(192, 7, 1)), branch7x7x3_4(inline_without_padding(192, 3, 2)),
                ],
                MaxPool2d(3, stride = 2),
            )]
        }

        fn inline_e() -> Block {
            [Concat(
                branch1x1(inline_convolution(320, 1, 1)),
                [
                    branch3x3_1(inline_convolution(384, 1, 1)),
                    Concat(branch3x3_2a(inline_convolution(384, 1, 3)), branch3x3_2b(inline_convolution(384, 3, 1))),
                ],
                [
                    branch3x3dbl_1(inline_convolution(448, 1, 1)), branch3x3dbl_2(inline_convolution(384, 3, 3)),
                    Concat(branch3x3dbl_3a(inline_convolution(384, 1, 3)), branch3x3dbl_3b(inline_convolution(384, 3, 1))),
                ],
                inline_pool(192),
            )]
        }

        fn branch1x1(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3_1(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3_2(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3_2a(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3_2b(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3dbl_1(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3dbl_2(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3dbl_3(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3dbl_3a(inside: Block) -> Block {
            [inside]
        }

        fn branch3x3dbl_3b(inside: Block) -> Block {
            [inside]
        }

        fn branch5x5_1(inside: Block) -> Block {
            [inside]
        }

        fn branch5x5_2(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7_1(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7_2(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7_3(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7dbl_1(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7dbl_2(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7dbl_3(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7dbl_4(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7dbl_5(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7x3_1(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7x3_2(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7x3_3(inside: Block) -> Block {
            [inside]
        }

        fn branch7x7x3_4(inside: Block) -> Block {
            [inside]
        }

        fn branch_pool(inside: Block) -> Block {
            [inside]
        }
    }
}

network! {
    /// torchvision's `inception_v3` with its auxiliary head, for images of 299 x 299.
    pub struct InceptionV3<const BATCH: usize>;

    use blocks inception_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: RmsProp { lr: 0.045, alpha: 0.9, eps: 1.0 },
        loss: CrossEntropy { label_smoothing: 0.1 } + 0.4 * CrossEntropy { label_smoothing: 0.1 }(from = aux),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 299, 299>) -> Logits<1000> {
        [
            Conv2d_1a_3x3(inline_without_padding(32, 3, 2)), Conv2d_2a_3x3(inline_without_padding(32, 3, 1)),
            Conv2d_2b_3x3(inline_convolution(64, 3, 3)), MaxPool2d(3, stride = 2),
            Conv2d_3b_1x1(inline_convolution(80, 1, 1)), Conv2d_4a_3x3(inline_without_padding(192, 3, 1)),
            MaxPool2d(3, stride = 2),
            Mixed_5b(inline_a(32)), Mixed_5c(inline_a(64)), Mixed_5d(inline_a(64)), Mixed_6a(inline_b()),
            Mixed_6b(inline_c(128)), Mixed_6c(inline_c(160)), Mixed_6d(inline_c(160)), Mixed_6e(inline_c(192)), tap(seen),
            AuxLogits(), tap(aux),
            from(seen), Mixed_7a(inline_d()), Mixed_7b(inline_e()), Mixed_7c(inline_e()),
            GlobalAvgPool, Dropout(0.5), Linear(1000, name = "fc"),
        ]
    }

    fn AuxLogits() -> Block {
        [
            AvgPool2d(5, stride = 3), conv0(inline_convolution(128, 1, 1)), conv1(inline_without_padding(768, 5, 1)),
            GlobalAvgPool, Linear(1000, name = "fc"),
        ]
    }

    fn Conv2d_1a_3x3(inside: Block) -> Block {
        [inside]
    }

    fn Conv2d_2a_3x3(inside: Block) -> Block {
        [inside]
    }

    fn Conv2d_2b_3x3(inside: Block) -> Block {
        [inside]
    }

    fn Conv2d_3b_1x1(inside: Block) -> Block {
        [inside]
    }

    fn Conv2d_4a_3x3(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_5b(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_5c(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_5d(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_6a(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_6b(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_6c(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_6d(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_6e(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_7a(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_7b(inside: Block) -> Block {
        [inside]
    }

    fn Mixed_7c(inside: Block) -> Block {
        [inside]
    }

    fn conv0(inside: Block) -> Block {
        [inside]
    }

    fn conv1(inside: Block) -> Block {
        [inside]
    }
}
