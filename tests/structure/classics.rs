//! Networks whose structure is more than a chain with one input, one output and one loss.
#![allow(missing_docs, reason = "networks of tests")]

use gpumem::network;

network! {
    /// torchvision's `googlenet` with auxiliary heads, for small images.
    pub struct GoogLeNet;

    const TRAIN: Train = Train {
        batch: 2,
        optimizer: Sgd { lr: 1.0 },
        loss: CrossEntropy + 0.3 * CrossEntropy(from = early) + 0.3 * CrossEntropy(from = middle),
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<1000> {
        [
            conv(64, 7, 2, 3), pool(3), conv(64, 1, 1, 0), conv(192, 3, 1, 1), pool(3),
            inception(64, 96, 128, 16, 32, 32), inception(128, 128, 192, 32, 96, 64), pool(3),
            inception(192, 96, 208, 16, 48, 64), tap(fourth), head(), tap(early),
            from(fourth), inception(160, 112, 224, 24, 64, 64), inception(128, 128, 256, 24, 64, 64),
            inception(112, 144, 288, 32, 64, 64), tap(seventh), head(), tap(middle),
            from(seventh), inception(256, 160, 320, 32, 128, 128), pool(2),
            inception(256, 160, 320, 32, 128, 128), inception(384, 192, 384, 48, 128, 128),
            GlobalAvgPool, Dropout(0.2), Linear(1000, name = "fc"),
        ]
    }

    fn pool(size: usize) -> Block {
        [MaxPool2d(size, 2, ceil_mode)]
    }

    fn conv(channels: usize, size: usize, stride: usize, padding: usize) -> Block {
        [Conv2d(channels, size, stride = stride, padding = padding, bias = false), BatchNorm2d(eps = 1e-3), Relu(inplace)]
    }

    fn inception(one: usize, three_in: usize, three: usize, five_in: usize, five: usize, pooled: usize) -> Block {
        [Concat(
            conv(one, 1, 1, 0),
            [conv(three_in, 1, 1, 0), conv(three, 3, 1, 1)],
            // Named after 5x5 windows in the paper; torchvision's are 3x3.
            [conv(five_in, 1, 1, 0), conv(five, 3, 1, 1)],
            [MaxPool2d(3, stride = 1, padding = 1), conv(pooled, 1, 1, 0)],
        )]
    }

    fn head() -> Block {
        [
            AdaptiveAvgPool2d(4), conv(128, 1, 1, 0), Flatten,
            Linear(1024, name = "fc1"), Relu(inplace), Dropout(0.7), Linear(1000, name = "fc2"),
        ]
    }
}

network! {
    /// torchvision's `resnet18`, of which only a new last layer is trained.
    pub struct ResNet18;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [freeze(eval(backbone())), Linear(10, name = "fc")]
    }

    fn backbone() -> Block {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace), MaxPool2d(3, 2, padding = 1),
            same(64), same(64), wider(128), same(128), wider(256), same(256), wider(512), same(512), GlobalAvgPool,
        ]
    }

    fn same(channels: usize) -> Block {
        [Add([], inside(channels, 1)), Relu(inplace)]
    }

    fn wider(channels: usize) -> Block {
        [Add([Conv2d(channels, 1, stride = 2, bias = false), BatchNorm2d], inside(channels, 2)), Relu(inplace)]
    }

    fn inside(channels: usize, stride: usize) -> Block {
        [
            Conv2d(channels, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
            Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d,
        ]
    }
}

/// torchvision's `resnet50` at batch 32 with Adam, around its layers before the last one.
macro_rules! resnet50 {
    ($name:ident, $($backbone:tt)*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 32, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy };

            fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
                [$($backbone)*, Linear(1000)]
            }

            fn backbone() -> Block {
                [
                    Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
                    MaxPool2d(3, 2, padding = 1),
                    stage(64, 1, 3), stage(128, 2, 4), stage(256, 2, 6), stage(512, 2, 3), GlobalAvgPool,
                ]
            }

            fn stage(width: usize, stride: usize, depth: usize) -> Block {
                [
                    Add(
                        [Conv2d(4 * width, 1, stride = stride, bias = false), BatchNorm2d],
                        inside(width, stride),
                    ),
                    Relu(inplace),
                    repeat(depth - 1, [Add([], inside(width, 1)), Relu(inplace)]),
                ]
            }

            fn inside(width: usize, stride: usize) -> Block {
                [
                    Conv2d(width, 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(width, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(4 * width, 1, bias = false), BatchNorm2d,
                ]
            }
        }
    };
}

resnet50! { ResNet50Trained, backbone() }
resnet50! { ResNet50Frozen, freeze(eval(backbone())) }

network! {
    /// Two pictures through one tower; the output is how far they are apart.
    pub struct Siamese;

    const TRAIN: Train = Train { batch: 3, optimizer: Sgd { lr: 1.0 }, loss: Mse };

    fn forward(left: Features<6>, right: Features<6>) -> Features<4> {
        let tower = [Linear(8), Tanh, Linear(4, bias = false)];
        [Sub(tower, [from(right), tower])]
    }
}

network! {
    /// A variational autoencoder: the noise is an input, and the divergence from the normal distribution a term of the loss.
    pub struct Vae;

    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.5 }, loss: Mse + 0.1 * Mean(from = kl) };

    fn forward(image: Features<16>, noise: Features<3>) -> (Features<16>, Features<3>) {
        [
            Linear(8), Tanh, tap(hidden),
            Linear(3), tap(mean), from(hidden), Linear(3), tap(log_variance),
            divergence(from(mean)), tap(kl),
            from(log_variance), Affine(0.5), Exp, Mul([], from(noise)), Add([], from(mean)), tap(latent),
            Outputs([Linear(8), Tanh, Linear(16)], from(latent)),
        ]
    }

    /// `(mean^2 + variance - log(variance) - 1) / 2` of the logarithm that arrives.
    fn divergence(mean: Block) -> Block {
        [Sub(Add(Exp, [mean, Mul([], [])]), []), Affine(0.5, -0.5)]
    }
}

network! {
    /// Inputs of three kinds, two outputs, and a target for a value that is tapped.
    pub struct Several;

    const TRAIN: Train = Train {
        batch: 3,
        optimizer: Sgd { lr: 1.0 },
        loss: CrossEntropy + 0.5 * Mse(from = side, target = side) + Mean(from = size),
    };

    fn forward(image: Values<2, 4, 3>, tokens: Tokens<5>, wave: Signal<2, 6>) -> (Logits<4>, Signal<2, 6>) {
        [
            Conv2d(6, (3, 2)), Tanh, Flatten, tap(seen),
            from(tokens), Embedding(11, 12), Tanh, LayerNorm, tap(read),
            MatMul([], from(read), transpose_b), Affine(0.1), Softmax, MatMul([], from(read)), Flatten,
            Concat([], from(seen), dim = -1), Linear(12), Tanh, tap(both), Mul([], []), tap(size),
            from(wave), Linear(6), tap(side),
            from(both), Outputs(Linear(4), [from(side), Div([], [Exp, Affine(0.5, 1.0)])]),
        ]
    }
}
