//! GoogLeNet, or Inception v1: convolutions of several sizes side by side.
//!
//! C. Szegedy and others, "Going Deeper with Convolutions" (arXiv:1409.4842), with batch normalisation, as torchvision's `googlenet`. The
//! paper's 5 x 5 convolutions are 3 x 3 there and here. The losses of its two auxiliary heads have the weight 0.3 each; inference leaves
//! the heads out.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::googlenet::GoogLeNet;
//!
//! assert_eq!(GoogLeNet::<8>::LAYERS.last().unwrap().path, "fc");
//! ```

use gpumem::network;

network! {
    /// torchvision's `googlenet` with its auxiliary heads.
    pub struct GoogLeNet<const BATCH: usize>;

    use blocks crate::modules;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy + 0.3 * CrossEntropy(from = first) + 0.3 * CrossEntropy(from = second),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            convolution(64, 7, 2, name = "conv1"), MaxPool2d(3, stride = 2, ceil_mode),
            convolution(64, 1, 1, name = "conv2"), convolution(192, 3, 1, name = "conv3"), MaxPool2d(3, stride = 2, ceil_mode),
            inception(64, 96, 128, 16, 32, 32, name = "inception3a"),
            inception(128, 128, 192, 32, 96, 64, name = "inception3b"),
            MaxPool2d(3, stride = 2, ceil_mode),
            inception(192, 96, 208, 16, 48, 64, name = "inception4a"), tap(early), head(name = "aux1"), tap(first), from(early),
            inception(160, 112, 224, 24, 64, 64, name = "inception4b"),
            inception(128, 128, 256, 24, 64, 64, name = "inception4c"),
            inception(112, 144, 288, 32, 64, 64, name = "inception4d"), tap(late), head(name = "aux2"), tap(second), from(late),
            inception(256, 160, 320, 32, 128, 128, name = "inception4e"),
            MaxPool2d(2, stride = 2, ceil_mode),
            inception(256, 160, 320, 32, 128, 128, name = "inception5a"),
            inception(384, 192, 384, 48, 128, 128, name = "inception5b"),
            GlobalAvgPool, Dropout(0.2), Linear(1000, name = "fc"),
        ]
    }

    #[name = ""]
    fn inception(one: usize, before_three: usize, three: usize, before_five: usize, five: usize, pooled: usize) -> Block {
        [Concat(
            convolution(one, 1, 1, name = "branch1"),
            branch2([item(convolution(before_three, 1, 1)), item(convolution(three, 3, 1))]),
            branch3([item(convolution(before_five, 1, 1)), item(convolution(five, 3, 1))]),
            branch4([MaxPool2d(3, stride = 1, padding = 1), convolution(pooled, 1, 1, name = "1")]),
        )]
    }

    #[name = ""]
    fn convolution(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, bias = false, name = "conv"),
            BatchNorm2d(eps = 1e-3, name = "bn"), Relu(inplace),
        ]
    }

    #[name = ""]
    fn head() -> Block {
        [
            AdaptiveAvgPool2d(4), convolution(128, 1, 1, name = "conv"), Flatten, Linear(1024, name = "fc1"), Relu(inplace),
            Dropout(0.7), Linear(1000, name = "fc2"),
        ]
    }

    fn branch2(inside: Block) -> Block {
        [inside]
    }

    fn branch3(inside: Block) -> Block {
        [inside]
    }

    fn branch4(inside: Block) -> Block {
        [inside]
    }
}
