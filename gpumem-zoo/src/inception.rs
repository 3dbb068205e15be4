//! Inception v3: large convolutions are replaced by several small ones, some of one row or one column.
//!
//! C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens and Z. Wojna, "Rethinking the Inception Architecture for Computer Vision"
//! (arXiv:1512.00567), as torchvision's `inception_v3`, with its auxiliary head after the maps of 17 x 17. The head's loss has the weight
//! 0.4, and inference leaves the head out. `transform_input`, which torchvision's weights need, is left out: normalise images with mean and
//! deviation 0.5 in each channel for these weights.
//!
//! torchvision's metadata have 27,161,264 parameters and 5.713 thousand million multiply-accumulates for inference. The network has the
//! same numbers, and 0.006 thousand million more in the auxiliary head.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::inception::InceptionV3;
//!
//! let first = &InceptionV3::<32>::LAYERS[0];
//! assert_eq!(first.path, "Conv2d_1a_3x3.conv");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The blocks, by their names in torchvision. Each named module of the original has a function.
    pub mod inception_blocks {
        #[name = ""]
        fn convolution(channels: usize, height: usize, width: usize) -> Block {
            [
                Conv2d(channels, (height, width), padding = (height / 2, width / 2), bias = false, name = "conv"),
                BatchNorm2d(eps = 1e-3, name = "bn"), Relu(inplace),
            ]
        }

        #[name = ""]
        fn without_padding(channels: usize, size: usize, stride: usize) -> Block {
            [
                Conv2d(channels, size, stride = stride, bias = false, name = "conv"), BatchNorm2d(eps = 1e-3, name = "bn"),
                Relu(inplace),
            ]
        }

        #[name = ""]
        fn pool(channels: usize) -> Block {
            [AvgPool2d(3, stride = 1, padding = 1), convolution(channels, 1, 1, name = "branch_pool")]
        }

        #[name = ""]
        fn mixed_a(pooled: usize) -> Block {
            [Concat(
                convolution(64, 1, 1, name = "branch1x1"),
                [convolution(48, 1, 1, name = "branch5x5_1"), convolution(64, 5, 5, name = "branch5x5_2")],
                [
                    convolution(64, 1, 1, name = "branch3x3dbl_1"), convolution(96, 3, 3, name = "branch3x3dbl_2"),
                    convolution(96, 3, 3, name = "branch3x3dbl_3"),
                ],
                pool(pooled),
            )]
        }

        #[name = ""]
        fn mixed_b() -> Block {
            [Concat(
                without_padding(384, 3, 2, name = "branch3x3"),
                [
                    convolution(64, 1, 1, name = "branch3x3dbl_1"), convolution(96, 3, 3, name = "branch3x3dbl_2"),
                    without_padding(96, 3, 2, name = "branch3x3dbl_3"),
                ],
                MaxPool2d(3, stride = 2),
            )]
        }

        #[name = ""]
        fn mixed_c(between: usize) -> Block {
            [Concat(
                convolution(192, 1, 1, name = "branch1x1"),
                [
                    convolution(between, 1, 1, name = "branch7x7_1"), convolution(between, 1, 7, name = "branch7x7_2"),
                    convolution(192, 7, 1, name = "branch7x7_3"),
                ],
                [
                    convolution(between, 1, 1, name = "branch7x7dbl_1"), convolution(between, 7, 1, name = "branch7x7dbl_2"),
                    convolution(between, 1, 7, name = "branch7x7dbl_3"), convolution(between, 7, 1, name = "branch7x7dbl_4"),
                    convolution(192, 1, 7, name = "branch7x7dbl_5"),
                ],
                pool(192),
            )]
        }

        #[name = ""]
        fn mixed_d() -> Block {
            [Concat(
                [convolution(192, 1, 1, name = "branch3x3_1"), without_padding(320, 3, 2, name = "branch3x3_2")],
                [
                    convolution(192, 1, 1, name = "branch7x7x3_1"), convolution(192, 1, 7, name = "branch7x7x3_2"),
                    convolution(192, 7, 1, name = "branch7x7x3_3"), without_padding(192, 3, 2, name = "branch7x7x3_4"),
                ],
                MaxPool2d(3, stride = 2),
            )]
        }

        #[name = ""]
        fn mixed_e() -> Block {
            [Concat(
                convolution(320, 1, 1, name = "branch1x1"),
                [
                    convolution(384, 1, 1, name = "branch3x3_1"),
                    Concat(convolution(384, 1, 3, name = "branch3x3_2a"), convolution(384, 3, 1, name = "branch3x3_2b")),
                ],
                [
                    convolution(448, 1, 1, name = "branch3x3dbl_1"), convolution(384, 3, 3, name = "branch3x3dbl_2"),
                    Concat(convolution(384, 1, 3, name = "branch3x3dbl_3a"), convolution(384, 3, 1, name = "branch3x3dbl_3b")),
                ],
                pool(192),
            )]
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
            without_padding(32, 3, 2, name = "Conv2d_1a_3x3"), without_padding(32, 3, 1, name = "Conv2d_2a_3x3"),
            convolution(64, 3, 3, name = "Conv2d_2b_3x3"), MaxPool2d(3, stride = 2),
            convolution(80, 1, 1, name = "Conv2d_3b_1x1"), without_padding(192, 3, 1, name = "Conv2d_4a_3x3"),
            MaxPool2d(3, stride = 2),
            mixed_a(32, name = "Mixed_5b"), mixed_a(64, name = "Mixed_5c"), mixed_a(64, name = "Mixed_5d"), mixed_b(name = "Mixed_6a"),
            mixed_c(128, name = "Mixed_6b"), mixed_c(160, name = "Mixed_6c"), mixed_c(160, name = "Mixed_6d"), mixed_c(192, name = "Mixed_6e"), tap(seen),
            AuxLogits(), tap(aux),
            from(seen), mixed_d(name = "Mixed_7a"), mixed_e(name = "Mixed_7b"), mixed_e(name = "Mixed_7c"),
            GlobalAvgPool, Dropout(0.5), Linear(1000, name = "fc"),
        ]
    }

    fn AuxLogits() -> Block {
        [
            AvgPool2d(5, stride = 3), convolution(128, 1, 1, name = "conv0"), without_padding(768, 5, 1, name = "conv1"),
            GlobalAvgPool, Linear(1000, name = "fc"),
        ]
    }
}
