//! GoogLeNet, or Inception v1: convolutions of several sizes side by side.
//!
//! C. Szegedy and others, "Going Deeper with Convolutions" (arXiv:1409.4842), with batch normalisation, as torchvision's `googlenet`.
//! What the paper calls 5 x 5 is 3 x 3 there, and here. Its two auxiliary heads, whose losses count 0.3 each, are no part of
//! inference.
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
            conv1(inline_convolution(64, 7, 2)), MaxPool2d(3, stride = 2, ceil_mode),
            conv2(inline_convolution(64, 1, 1)), conv3(inline_convolution(192, 3, 1)), MaxPool2d(3, stride = 2, ceil_mode),
            inception3a(inline_inception(64, 96, 128, 16, 32, 32)),
            inception3b(inline_inception(128, 128, 192, 32, 96, 64)),
            MaxPool2d(3, stride = 2, ceil_mode),
            inception4a(inline_inception(192, 96, 208, 16, 48, 64)), tap(early), aux1(inline_head()), tap(first), from(early),
            inception4b(inline_inception(160, 112, 224, 24, 64, 64)),
            inception4c(inline_inception(128, 128, 256, 24, 64, 64)),
            inception4d(inline_inception(112, 144, 288, 32, 64, 64)), tap(late), aux2(inline_head()), tap(second), from(late),
            inception4e(inline_inception(256, 160, 320, 32, 128, 128)),
            MaxPool2d(2, stride = 2, ceil_mode),
            inception5a(inline_inception(256, 160, 320, 32, 128, 128)),
            inception5b(inline_inception(384, 192, 384, 48, 128, 128)),
            GlobalAvgPool, Dropout(0.2), Linear(1000, name = "fc"),
        ]
    }

    fn inline_inception(one: usize, before_three: usize, three: usize, before_five: usize, five: usize, pooled: usize) -> Block {
        [Concat(
            branch1(inline_convolution(one, 1, 1)),
            branch2([item(inline_convolution(before_three, 1, 1)), item(inline_convolution(three, 3, 1))]),
            branch3([item(inline_convolution(before_five, 1, 1)), item(inline_convolution(five, 3, 1))]),
            branch4([MaxPool2d(3, stride = 1, padding = 1), at_1(inline_convolution(pooled, 1, 1))]),
        )]
    }

    fn inline_convolution(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, bias = false, name = "conv"),
            BatchNorm2d(eps = 1e-3, name = "bn"), Relu(inplace),
        ]
    }

    fn inline_head() -> Block {
        [
            AdaptiveAvgPool2d(4), conv(inline_convolution(128, 1, 1)), Flatten, Linear(1024, name = "fc1"), Relu(inplace),
            Dropout(0.7), Linear(1000, name = "fc2"),
        ]
    }

    fn inception3a(inside: Block) -> Block {
        [inside]
    }

    fn inception3b(inside: Block) -> Block {
        [inside]
    }

    fn inception4a(inside: Block) -> Block {
        [inside]
    }

    fn inception4b(inside: Block) -> Block {
        [inside]
    }

    fn inception4c(inside: Block) -> Block {
        [inside]
    }

    fn inception4d(inside: Block) -> Block {
        [inside]
    }

    fn inception4e(inside: Block) -> Block {
        [inside]
    }

    fn inception5a(inside: Block) -> Block {
        [inside]
    }

    fn inception5b(inside: Block) -> Block {
        [inside]
    }

    fn conv1(inside: Block) -> Block {
        [inside]
    }

    fn conv2(inside: Block) -> Block {
        [inside]
    }

    fn conv3(inside: Block) -> Block {
        [inside]
    }

    fn branch1(inside: Block) -> Block {
        [inside]
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

    fn aux1(inside: Block) -> Block {
        [inside]
    }

    fn aux2(inside: Block) -> Block {
        [inside]
    }

    fn conv(inside: Block) -> Block {
        [inside]
    }
}
