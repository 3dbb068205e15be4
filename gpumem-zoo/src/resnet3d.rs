//! ResNet-18 for video clips: every convolution is over frames, rows and columns.
//!
//! D. Tran and others, "A Closer Look at Spatiotemporal Convolutions for Action Recognition" (arXiv:1711.11248), as its R3D.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::resnet3d::R3d18;
//!
//! let last = R3d18::<4>::LAYERS.iter().rev().find(|layer| layer.kind == "Conv3d").unwrap();
//! assert_eq!(last.path, "layer4[1].conv2.0");
//! ```

use gpumem::network;

network! {
    /// torchvision's `r3d_18`, for clips of 16 frames and the 400 classes of Kinetics.
    pub struct R3d18<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(clip: Volume<3, 16, 112, 112>) -> Logits<400> {
        [
            stem(),
            layer1(), layer2(), layer3(), layer4(),
            AdaptiveAvgPool3d(1), Flatten, Linear(400, name = "fc"),
        ]
    }

    fn stem() -> Block {
        [
            Conv3d(64, (3, 7, 7), stride = (1, 2, 2), padding = (1, 3, 3), bias = false, name = "0"),
            BatchNorm3d(name = "1"), Relu(inplace),
        ]
    }

    fn layer1() -> Block {
        [repeat(2, basic(64, 1, false))]
    }

    fn layer2() -> Block {
        [basic(128, 2, true), basic(128, 1, false)]
    }

    fn layer3() -> Block {
        [basic(256, 2, true), basic(256, 1, false)]
    }

    fn layer4() -> Block {
        [basic(512, 2, true), basic(512, 1, false)]
    }

    #[name = "[]"]
    fn basic(channels: usize, stride: usize, project: bool) -> Block {
        [
            Add(
                [conv1(channels, stride), Relu(inplace), conv2(channels)],
                if project { downsample(channels, stride) } else { [] },
            ),
            Relu(inplace),
        ]
    }

    fn conv1(channels: usize, stride: usize) -> Block {
        [Conv3d(channels, 3, stride = stride, padding = 1, bias = false, name = "0"), BatchNorm3d(name = "1")]
    }

    fn conv2(channels: usize) -> Block {
        [Conv3d(channels, 3, padding = 1, bias = false, name = "0"), BatchNorm3d(name = "1")]
    }

    fn downsample(channels: usize, stride: usize) -> Block {
        [Conv3d(channels, 1, stride = stride, bias = false, name = "0"), BatchNorm3d(name = "1")]
    }
}
