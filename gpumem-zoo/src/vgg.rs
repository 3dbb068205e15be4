//! VGG: a deep stack of 3 x 3 convolutions.
//!
//! K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (arXiv:1409.1556): configurations A,
//! B, D and E, with batch normalisation (`_bn`) and without, as in torchvision. Each of five stages halves the map and, except the last,
//! doubles the channels; three quarters of VGG-16's parameters are in the first linear layer. Most bytes of saved tensors are in the first
//! two stages, whose maps are large.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::vgg::Vgg16;
//!
//! let names: Vec<&str> = Vgg16::<8>::LAYERS.iter().map(|layer| layer.path).collect();
//! assert!(names.contains(&"features.28") && names.contains(&"classifier.6"));
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The classifier at the end of all of them.
    pub mod vgg_blocks {
        fn classifier() -> Block {
            [
                Linear(4096, name = "0"), Relu(inplace), Dropout(0.5),
                Linear(4096, name = "3"), Relu(inplace), Dropout(0.5),
                Linear(1000, name = "6"),
            ]
        }
    }
}

network! {
    /// torchvision's `vgg11`.
    pub struct Vgg11<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "3"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "6"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "8"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "11"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "13"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "16"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "18"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg11_bn`.
    pub struct Vgg11Bn<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "4"), BatchNorm2d(name = "5"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "8"), BatchNorm2d(name = "9"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "11"), BatchNorm2d(name = "12"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "15"), BatchNorm2d(name = "16"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "18"), BatchNorm2d(name = "19"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "22"), BatchNorm2d(name = "23"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "25"), BatchNorm2d(name = "26"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg13`.
    pub struct Vgg13<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), Relu(inplace),
            Conv2d(64, 3, padding = 1, name = "2"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "5"), Relu(inplace),
            Conv2d(128, 3, padding = 1, name = "7"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "10"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "12"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "15"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "17"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "20"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "22"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg13_bn`.
    pub struct Vgg13Bn<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            Conv2d(64, 3, padding = 1, name = "3"), BatchNorm2d(name = "4"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "7"), BatchNorm2d(name = "8"), Relu(inplace),
            Conv2d(128, 3, padding = 1, name = "10"), BatchNorm2d(name = "11"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "14"), BatchNorm2d(name = "15"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "17"), BatchNorm2d(name = "18"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "21"), BatchNorm2d(name = "22"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "24"), BatchNorm2d(name = "25"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "28"), BatchNorm2d(name = "29"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "31"), BatchNorm2d(name = "32"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg16`.
    pub struct Vgg16<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), Relu(inplace),
            Conv2d(64, 3, padding = 1, name = "2"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "5"), Relu(inplace),
            Conv2d(128, 3, padding = 1, name = "7"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "10"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "12"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "14"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "17"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "19"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "21"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "24"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "26"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "28"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg16_bn`.
    pub struct Vgg16Bn<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            Conv2d(64, 3, padding = 1, name = "3"), BatchNorm2d(name = "4"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "7"), BatchNorm2d(name = "8"), Relu(inplace),
            Conv2d(128, 3, padding = 1, name = "10"), BatchNorm2d(name = "11"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "14"), BatchNorm2d(name = "15"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "17"), BatchNorm2d(name = "18"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "20"), BatchNorm2d(name = "21"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "24"), BatchNorm2d(name = "25"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "27"), BatchNorm2d(name = "28"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "30"), BatchNorm2d(name = "31"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "34"), BatchNorm2d(name = "35"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "37"), BatchNorm2d(name = "38"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "40"), BatchNorm2d(name = "41"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg19`.
    pub struct Vgg19<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), Relu(inplace),
            Conv2d(64, 3, padding = 1, name = "2"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "5"), Relu(inplace),
            Conv2d(128, 3, padding = 1, name = "7"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "10"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "12"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "14"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "16"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "19"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "21"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "23"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "25"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "28"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "30"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "32"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "34"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}

network! {
    /// torchvision's `vgg19_bn`.
    pub struct Vgg19Bn<const BATCH: usize>;

    use blocks vgg_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(7), Flatten, vgg_blocks::classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 3, padding = 1, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            Conv2d(64, 3, padding = 1, name = "3"), BatchNorm2d(name = "4"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(128, 3, padding = 1, name = "7"), BatchNorm2d(name = "8"), Relu(inplace),
            Conv2d(128, 3, padding = 1, name = "10"), BatchNorm2d(name = "11"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(256, 3, padding = 1, name = "14"), BatchNorm2d(name = "15"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "17"), BatchNorm2d(name = "18"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "20"), BatchNorm2d(name = "21"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "23"), BatchNorm2d(name = "24"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "27"), BatchNorm2d(name = "28"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "30"), BatchNorm2d(name = "31"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "33"), BatchNorm2d(name = "34"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "36"), BatchNorm2d(name = "37"), Relu(inplace),
            MaxPool2d(2),
            Conv2d(512, 3, padding = 1, name = "40"), BatchNorm2d(name = "41"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "43"), BatchNorm2d(name = "44"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "46"), BatchNorm2d(name = "47"), Relu(inplace),
            Conv2d(512, 3, padding = 1, name = "49"), BatchNorm2d(name = "50"), Relu(inplace),
            MaxPool2d(2),
        ]
    }
}
