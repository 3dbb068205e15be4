//! Small networks whose steps are timed on the CPU. `scripts/contestants/pytorch.py` has the same in PyTorch.

use gpumem::network;

network! {
    /// The network of the example `digits`.
    pub struct Digits<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 2e-3, weight_decay: 0.01 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> {
        [conv(32), conv(32), MaxPool2d(2), conv(64), Flatten, Dropout(0.3), Linear(10)]
    }

    fn conv(channels: usize) -> Block {
        [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)]
    }
}

network! {
    /// A perceptron of two hidden layers.
    pub struct Perceptron<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 0.01, momentum: 0.9 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(features: Features<784>) -> Logits<10> {
        [Linear(512), Relu, Linear(512), Relu, Linear(10)]
    }
}

network! {
    /// torchvision's `resnet18`, on images of 64 x 64 with ten classes.
    pub struct ResNet18<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            basic(64, 1, false), basic(64, 1, false), basic(128, 2, true), basic(128, 1, false),
            basic(256, 2, true), basic(256, 1, false), basic(512, 2, true), basic(512, 1, false),
            AdaptiveAvgPool2d(1), Flatten, Linear(10),
        ]
    }

    fn basic(width: usize, stride: usize, project: bool) -> Block {
        [
            Add(
                [
                    Conv2d(width, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(width, 3, padding = 1, bias = false), BatchNorm2d,
                ],
                if project { [Conv2d(width, 1, stride = stride, bias = false), BatchNorm2d] } else { [] },
            ),
            Relu(inplace),
        ]
    }
}

network! {
    /// A GPT of four blocks, on 128 tokens.
    pub struct Gpt<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(tokens: Tokens<128>) -> TokenLogits<128, 512> {
        [
            Add(Embedding(512, 256), PositionEmbedding(128, 256)),
            repeat(4, block(256, 8)), LayerNorm, Linear(512, bias = false),
        ]
    }

    fn block(width: usize, heads: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(heads)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width)]),
        ]
    }
}

network! {
    /// A GPT of four blocks, on 256 tokens.
    pub struct LongGpt<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(tokens: Tokens<256>) -> TokenLogits<256, 512> {
        [
            Add(Embedding(512, 192), PositionEmbedding(256, 192)),
            repeat(4, block(192, 6)), LayerNorm, Linear(512, bias = false),
        ]
    }

    fn block(width: usize, heads: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(heads)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width)]),
        ]
    }
}

network! {
    /// torchvision's `mobilenet_v2`, on images of 96 x 96 with ten classes.
    pub struct MobileNetV2<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.045, momentum: 0.9, weight_decay: 4e-5 },
        loss: CrossEntropy,
    };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 96, 96>) -> Logits<10> {
        [
            convolution(32, 3, 2, 1), convolution(32, 3, 1, 32), Conv2d(16, 1, bias = false), BatchNorm2d,
            wider(16, 24, 2), residual(24),
            wider(24, 32, 2), repeat(2, residual(32)),
            wider(32, 64, 2), repeat(3, residual(64)),
            wider(64, 96, 1), repeat(2, residual(96)),
            wider(96, 160, 2), repeat(2, residual(160)),
            wider(160, 320, 1),
            convolution(1280, 1, 1, 1),
            GlobalAvgPool, Dropout(0.2), Linear(10),
        ]
    }

    fn convolution(channels: usize, size: usize, stride: usize, groups: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false),
            BatchNorm2d, Relu6(inplace),
        ]
    }

    fn residual(channels: usize) -> Block {
        [Add([], wider(channels, channels, 1))]
    }

    fn wider(from: usize, to: usize, stride: usize) -> Block {
        [
            convolution(6 * from, 1, 1, 1), convolution(6 * from, 3, stride, 6 * from),
            Conv2d(to, 1, bias = false), BatchNorm2d,
        ]
    }
}

network! {
    /// A vision transformer of six layers, on 64 patches and a class token.
    pub struct Vit<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [
            Conv2d(192, 8, stride = 8), Reshape((192, 64)), Transpose(1, 2), ClassToken,
            Add([], PositionEmbedding(65)), repeat(6, layer(192, 3)), LayerNorm, Select(0), Linear(10),
        ]
    }

    fn layer(width: usize, heads: usize) -> Block {
        [
            Add([], [LayerNorm, MultiHeadAttention(heads)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu, Linear(width)]),
        ]
    }
}

network! {
    /// A U-Net of four scales, on images of 96 x 96 with two classes.
    pub struct UNet<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 96, 96>) -> Map<2, 96, 96> {
        [
            double(32), tap(first), MaxPool2d(2), double(64), tap(second), MaxPool2d(2), double(128), tap(third),
            MaxPool2d(2), double(256),
            Concat(from(third), ConvTranspose2d(128, 2, stride = 2)), double(128),
            Concat(from(second), ConvTranspose2d(64, 2, stride = 2)), double(64),
            Concat(from(first), ConvTranspose2d(32, 2, stride = 2)), double(32),
            Conv2d(2, 1),
        ]
    }

    fn double(channels: usize) -> Block {
        [repeat(2, [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)])]
    }
}

network! {
    /// An LSTM of two layers that classifies sequences of 64 steps.
    pub struct LstmClassifier<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(steps: Sequence<64, 64>) -> Logits<10> {
        [Lstm(256, layers = 2), Select(-1), Linear(10)]
    }
}

network! {
    /// An MLP-Mixer of six layers, on 64 patches.
    pub struct Mixer<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.1 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [
            Conv2d(192, 8, stride = 8), Reshape((192, 64)), Transpose(1, 2),
            repeat(6, layer(64, 96, 192, 768)), LayerNorm, Mean(1), Linear(10),
        ]
    }

    fn layer(tokens: usize, between_tokens: usize, channels: usize, between_channels: usize) -> Block {
        [
            Add([], [LayerNorm, Transpose(1, 2), Linear(between_tokens), Gelu, Linear(tokens), Transpose(1, 2)]),
            Add([], [LayerNorm, Linear(between_channels), Gelu, Linear(channels)]),
        ]
    }
}

network! {
    /// Four blocks of ConvNeXt at one size, on images of 64 x 64.
    pub struct ConvNeXt<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [
            Conv2d(96, 4, stride = 4), Permute((0, 2, 3, 1)), LayerNorm(96), Permute((0, 3, 1, 2)),
            repeat(4, residual(96)), GlobalAvgPool, LayerNorm, Linear(10),
        ]
    }

    fn residual(channels: usize) -> Block {
        [Add(
            [],
            [
                Conv2d(channels, 7, padding = 3, groups = channels), Permute((0, 2, 3, 1)), LayerNorm(channels),
                Linear(channels, 4 * channels), Gelu, Linear(4 * channels, channels), Permute((0, 3, 1, 2)),
                Scale(init = 1e-6),
            ],
        )]
    }
}
