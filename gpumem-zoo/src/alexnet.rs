//! AlexNet, with which deep learning won ImageNet.
//!
//! A. Krizhevsky, I. Sutskever and G. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks" (NIPS 2012), in the form of
//! A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (arXiv:1404.5997), which is torchvision's `alexnet`:
//! five convolutions and three linear layers, without normalisation. 96 % of its parameters are in the linear layers, so that at small
//! batches the optimizer's state is larger than the saved tensors.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::alexnet::AlexNet;
//!
//! let parameters: u64 = AlexNet::<32>::LAYERS.iter().map(|layer| layer.parameters).sum();
//! assert_eq!(parameters, 61_100_840);
//! ```

use gpumem::network;

network! {
    /// torchvision's `alexnet`.
    pub struct AlexNet<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), AdaptiveAvgPool2d(6), Flatten, classifier()]
    }

    fn features() -> Block {
        [
            Conv2d(64, 11, stride = 4, padding = 2, name = "0"), Relu(inplace), MaxPool2d(3, stride = 2),
            Conv2d(192, 5, padding = 2, name = "3"), Relu(inplace), MaxPool2d(3, stride = 2),
            Conv2d(384, 3, padding = 1, name = "6"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "8"), Relu(inplace),
            Conv2d(256, 3, padding = 1, name = "10"), Relu(inplace), MaxPool2d(3, stride = 2),
        ]
    }

    fn classifier() -> Block {
        [
            Dropout(0.5), Linear(4096, name = "1"), Relu(inplace),
            Dropout(0.5), Linear(4096, name = "4"), Relu(inplace),
            Linear(1000, name = "6"),
        ]
    }
}
