//! Well-known networks, as PyTorch's model zoos define them.
#![allow(dead_code, missing_docs)]

use gpumem::network;

#[macro_use]
#[path = "../../examples/networks/mod.rs"]
mod shared;

/// The networks of the examples, before their batch is chosen.
mod generic {
    resnet50! { ResNet50, F32 }
    vgg16! { Vgg16, F32 }
    gpt2! { Gpt2, F32 }
}

pub type ResNet50 = generic::ResNet50<32>;
pub type Vgg16 = generic::Vgg16<32>;
pub type Gpt2 = generic::Gpt2<1>;

network! {
    /// 784-512-512-10, as in `truth/models/mlp_784_512_512_10.json`.
    pub struct Mlp;

    const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(pixels: Features<784>) -> Logits<10> {
        [Linear(512), Relu, Linear(512), Relu, Linear(10)]
    }
}

network! {
    /// torchvision's `alexnet`.
    pub struct AlexNet;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 11, stride = 4, padding = 2), Relu(inplace), MaxPool2d(3, stride = 2),
            Conv2d(192, 5, padding = 2), Relu(inplace), MaxPool2d(3, stride = 2),
            Conv2d(384, 3, padding = 1), Relu(inplace),
            Conv2d(256, 3, padding = 1), Relu(inplace),
            Conv2d(256, 3, padding = 1), Relu(inplace), MaxPool2d(3, stride = 2),
            AdaptiveAvgPool2d(6), Flatten,
            Dropout(0.5), Linear(4096), Relu(inplace),
            Dropout(0.5), Linear(4096), Relu(inplace),
            Linear(1000),
        ]
    }
}

network! {
    /// torchvision's `resnet18`.
    pub struct ResNet18;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            basic(64, 1, []), basic(64, 1, []),
            basic(128, 2, shortcut(128)), basic(128, 1, []),
            basic(256, 2, shortcut(256)), basic(256, 1, []),
            basic(512, 2, shortcut(512)), basic(512, 1, []),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000),
        ]
    }

    fn basic(channels: usize, stride: usize, shortcut: Block) -> Block {
        [
            Add(
                [
                    Conv2d(channels, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d,
                ],
                shortcut,
            ),
            Relu(inplace),
        ]
    }

    fn shortcut(channels: usize) -> Block {
        [Conv2d(channels, 1, stride = 2, bias = false), BatchNorm2d]
    }
}

network! {
    /// torchvision's `mobilenet_v2`.
    pub struct MobileNetV2;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            conv(32, 3, 2, 1),
            conv(32, 3, 1, 32), Conv2d(16, 1, bias = false), BatchNorm2d,
            inverted(16, 24, 2, []), residual(24),
            inverted(24, 32, 2, []), repeat(2, residual(32)),
            inverted(32, 64, 2, []), repeat(3, residual(64)),
            inverted(64, 96, 1, []), repeat(2, residual(96)),
            inverted(96, 160, 2, []), repeat(2, residual(160)),
            inverted(160, 320, 1, []),
            conv(1280, 1, 1, 1),
            GlobalAvgPool, Dropout(0.2), Linear(1000),
        ]
    }

    fn conv(channels: usize, kernel: usize, stride: usize, groups: usize) -> Block {
        [
            Conv2d(channels, kernel, stride = stride, padding = (kernel - 1) / 2, groups = groups, bias = false),
            BatchNorm2d,
            Relu6(inplace),
        ]
    }

    fn inverted(from: usize, to: usize, stride: usize, after: Block) -> Block {
        [conv(6 * from, 1, 1, 1), conv(6 * from, 3, stride, 6 * from), Conv2d(to, 1, bias = false), BatchNorm2d, after]
    }

    fn residual(channels: usize) -> Block {
        [Add([], inverted(channels, channels, 1, []))]
    }
}

network! {
    /// The U-Net of `truth/models/nets.py`: 64 to 1024 channels, same padding, transposed convolutions.
    pub struct UNet;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 512, 512>) -> Map<2, 512, 512> {
        [level(64, level(128, level(256, level(512, double(1024))))), Conv2d(2, 1)]
    }

    fn level(channels: usize, inside: Block) -> Block {
        [
            double(channels),
            Concat([], [MaxPool2d(2), inside, ConvTranspose2d(channels, 2, stride = 2)]),
            double(channels),
        ]
    }

    fn double(channels: usize) -> Block {
        [repeat(2, [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)])]
    }
}

network! {
    /// GPT-2 small as nanoGPT writes it, with dropout 0.1.
    pub struct Gpt2Dropout;

    const TRAIN: Train = Train { batch: 1, optimizer: AdamW { lr: 6e-4 }, loss: CrossEntropy };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 768);
        [Add(wte, PositionEmbedding(1024, 768)), Dropout(0.1), repeat(12, block(768, 12)), LayerNorm, Tied(wte)]
    }

    fn block(width: usize, heads: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(heads, dropout = 0.1), Dropout(0.1)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width), Dropout(0.1)]),
        ]
    }
}

network! {
    /// A language model of the size that is called medium, as in `truth/models/lstm_lm_native_cells.json`.
    pub struct LstmLm;

    const TRAIN: Train = Train { batch: 20, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(tokens: Tokens<35>) -> TokenLogits<35, 10000> {
        [Embedding(10000, 650), Lstm(650, layers = 2), Linear(10000)]
    }
}
