//! DenseNet: every layer reads the outputs of all layers before it in its block.
//!
//! G. Huang, Z. Liu, L. van der Maaten and K. Weinberger, "Densely Connected Convolutional Networks" (arXiv:1608.06993), as torchvision's
//! `densenet121`. It has few parameters, but large saved tensors: each layer's normalisation saves all channels so far, so that memory
//! grows with the square of a block's depth.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::densenet::DenseNet121;
//!
//! assert_eq!(DenseNet121::<8>::LAYERS.last().unwrap().path, "classifier");
//! ```

use gpumem::network;

network! {
    /// torchvision's `densenet121`.
    pub struct DenseNet121<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            features(), Relu(inplace), GlobalAvgPool, Linear(1000, name = "classifier"),
        ]
    }

    fn features() -> Block {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv0"), BatchNorm2d(name = "norm0"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            denseblock1(), transition1(128), denseblock2(), transition2(256), denseblock3(), transition3(512), denseblock4(),
            BatchNorm2d(name = "norm5"),
        ]
    }

    fn denseblock1() -> Block {
        [
            Concat([], denselayer(name = "denselayer1")), Concat([], denselayer(name = "denselayer2")),
            Concat([], denselayer(name = "denselayer3")), Concat([], denselayer(name = "denselayer4")),
            Concat([], denselayer(name = "denselayer5")), Concat([], denselayer(name = "denselayer6")),
        ]
    }

    fn denseblock2() -> Block {
        [
            Concat([], denselayer(name = "denselayer1")), Concat([], denselayer(name = "denselayer2")),
            Concat([], denselayer(name = "denselayer3")), Concat([], denselayer(name = "denselayer4")),
            Concat([], denselayer(name = "denselayer5")), Concat([], denselayer(name = "denselayer6")),
            Concat([], denselayer(name = "denselayer7")), Concat([], denselayer(name = "denselayer8")),
            Concat([], denselayer(name = "denselayer9")), Concat([], denselayer(name = "denselayer10")),
            Concat([], denselayer(name = "denselayer11")), Concat([], denselayer(name = "denselayer12")),
        ]
    }

    fn denseblock3() -> Block {
        [
            Concat([], denselayer(name = "denselayer1")), Concat([], denselayer(name = "denselayer2")),
            Concat([], denselayer(name = "denselayer3")), Concat([], denselayer(name = "denselayer4")),
            Concat([], denselayer(name = "denselayer5")), Concat([], denselayer(name = "denselayer6")),
            Concat([], denselayer(name = "denselayer7")), Concat([], denselayer(name = "denselayer8")),
            Concat([], denselayer(name = "denselayer9")), Concat([], denselayer(name = "denselayer10")),
            Concat([], denselayer(name = "denselayer11")), Concat([], denselayer(name = "denselayer12")),
            Concat([], denselayer(name = "denselayer13")), Concat([], denselayer(name = "denselayer14")),
            Concat([], denselayer(name = "denselayer15")), Concat([], denselayer(name = "denselayer16")),
            Concat([], denselayer(name = "denselayer17")), Concat([], denselayer(name = "denselayer18")),
            Concat([], denselayer(name = "denselayer19")), Concat([], denselayer(name = "denselayer20")),
            Concat([], denselayer(name = "denselayer21")), Concat([], denselayer(name = "denselayer22")),
            Concat([], denselayer(name = "denselayer23")), Concat([], denselayer(name = "denselayer24")),
        ]
    }

    fn denseblock4() -> Block {
        [
            Concat([], denselayer(name = "denselayer1")), Concat([], denselayer(name = "denselayer2")),
            Concat([], denselayer(name = "denselayer3")), Concat([], denselayer(name = "denselayer4")),
            Concat([], denselayer(name = "denselayer5")), Concat([], denselayer(name = "denselayer6")),
            Concat([], denselayer(name = "denselayer7")), Concat([], denselayer(name = "denselayer8")),
            Concat([], denselayer(name = "denselayer9")), Concat([], denselayer(name = "denselayer10")),
            Concat([], denselayer(name = "denselayer11")), Concat([], denselayer(name = "denselayer12")),
            Concat([], denselayer(name = "denselayer13")), Concat([], denselayer(name = "denselayer14")),
            Concat([], denselayer(name = "denselayer15")), Concat([], denselayer(name = "denselayer16")),
        ]
    }

    fn transition1(channels: usize) -> Block {
        [BatchNorm2d(name = "norm"), Relu(inplace), Conv2d(channels, 1, bias = false, name = "conv"), AvgPool2d(2)]
    }

    fn transition2(channels: usize) -> Block {
        [BatchNorm2d(name = "norm"), Relu(inplace), Conv2d(channels, 1, bias = false, name = "conv"), AvgPool2d(2)]
    }

    fn transition3(channels: usize) -> Block {
        [BatchNorm2d(name = "norm"), Relu(inplace), Conv2d(channels, 1, bias = false, name = "conv"), AvgPool2d(2)]
    }

    fn denselayer() -> Block {
        [
            BatchNorm2d(name = "norm1"), Relu(inplace), Conv2d(128, 1, bias = false, name = "conv1"),
            BatchNorm2d(name = "norm2"), Relu(inplace), Conv2d(32, 3, padding = 1, bias = false, name = "conv2"),
        ]
    }
}
