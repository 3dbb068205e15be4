//! Networks of `examples/networks/small.rs`, built of Burn's layers.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Embedding, EmbeddingConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::{gelu_approximate, relu};
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor};

/// A convolution with its batch normalisation.
#[derive(Module, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(channels: [usize; 2], size: usize, stride: usize, device: &Device) -> Self {
        let conv = Conv2dConfig::new(channels, [size, size]).with_stride([stride, stride]).with_bias(false);
        let conv = conv.with_padding(around(size / 2)).init(device);
        Self { conv, norm: BatchNormConfig::new(channels[1]).init(device) }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// Returns a padding of equal width on all sides.
fn around(width: usize) -> PaddingConfig2d {
    PaddingConfig2d::Explicit(width, width, width, width)
}

#[derive(Module, Debug)]
pub struct Digits {
    first: ConvNorm,
    second: ConvNorm,
    pool: MaxPool2d,
    third: ConvNorm,
    dropout: Dropout,
    head: Linear,
}

impl Digits {
    pub fn new(device: &Device) -> Self {
        Self {
            first: ConvNorm::new([1, 32], 3, 1, device),
            second: ConvNorm::new([32, 32], 3, 1, device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            third: ConvNorm::new([32, 64], 3, 1, device),
            dropout: DropoutConfig::new(0.3).init(),
            head: LinearConfig::new(64 * 16, 10).init(device),
        }
    }

    pub fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = relu(self.first.forward(x));
        let x = self.pool.forward(relu(self.second.forward(x)));
        let x = relu(self.third.forward(x));
        self.head.forward(self.dropout.forward(x.flatten(1, 3)))
    }
}

#[derive(Module, Debug)]
pub struct Perceptron {
    first: Linear,
    second: Linear,
    head: Linear,
}

impl Perceptron {
    pub fn new(device: &Device) -> Self {
        let linear = |before, after| LinearConfig::new(before, after).init(device);
        Self { first: linear(784, 512), second: linear(512, 512), head: linear(512, 10) }
    }

    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.head.forward(relu(self.second.forward(relu(self.first.forward(x)))))
    }
}

#[derive(Module, Debug)]
struct Basic {
    first: ConvNorm,
    second: ConvNorm,
    shortcut: Option<ConvNorm>,
}

impl Basic {
    fn new(before: usize, width: usize, stride: usize, device: &Device) -> Self {
        Self {
            first: ConvNorm::new([before, width], 3, stride, device),
            second: ConvNorm::new([width, width], 3, 1, device),
            shortcut: (stride != 1).then(|| ConvNorm::new([before, width], 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let inside = self.second.forward(relu(self.first.forward(x.clone())));
        let around = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        relu(inside + around)
    }
}

#[derive(Module, Debug)]
pub struct ResNet18 {
    stem: ConvNorm,
    pool: MaxPool2d,
    blocks: Vec<Basic>,
    mean: AdaptiveAvgPool2d,
    head: Linear,
}

impl ResNet18 {
    pub fn new(device: &Device) -> Self {
        let (mut blocks, mut before) = (Vec::new(), 64);
        for width in [64, 128, 256, 512] {
            blocks.push(Basic::new(before, width, if width == before { 1 } else { 2 }, device));
            blocks.push(Basic::new(width, width, 1, device));
            before = width;
        }
        Self {
            stem: ConvNorm::new([3, 64], 7, 2, device),
            pool: MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(around(1)).init(),
            blocks,
            mean: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(512, 10).init(device),
        }
    }

    pub fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(relu(self.stem.forward(x)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.head.forward(self.mean.forward(x).flatten(1, 3))
    }
}

pub const STEPS: usize = 128;
pub const WORDS: usize = 512;
const WIDTH: usize = 256;
const HEADS: usize = 8;
const DEPTH: usize = 4;

#[derive(Module, Debug)]
struct Block {
    attention_norm: LayerNorm,
    qkv: Linear,
    proj: Linear,
    mlp_norm: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(device: &Device) -> Self {
        let linear = |before, after| LinearConfig::new(before, after).init(device);
        let norm = || LayerNormConfig::new(WIDTH).init(device);
        Self {
            attention_norm: norm(),
            qkv: linear(WIDTH, 3 * WIDTH),
            proj: linear(WIDTH, WIDTH),
            mlp_norm: norm(),
            up: linear(WIDTH, 4 * WIDTH),
            down: linear(4 * WIDTH, WIDTH),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let x = x.clone() + self.attention(self.attention_norm.forward(x));
        let inside = gelu_approximate(self.up.forward(self.mlp_norm.forward(x.clone())));
        x + self.down.forward(inside)
    }

    fn attention(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, steps, width] = x.dims();
        let qkv = self.qkv.forward(x);
        let part = |index| {
            let part: Tensor<3> = qkv.clone().narrow(2, index * width, width);
            part.reshape([batch, steps, HEADS, width / HEADS]).swap_dims(1, 2)
        };
        let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
        let y = attention(part(0), part(1), part(2), None, None, options);
        self.proj.forward(y.swap_dims(1, 2).reshape([batch, steps, width]))
    }
}

#[derive(Module, Debug)]
pub struct Gpt {
    words: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    pub fn new(device: &Device) -> Self {
        Self {
            words: EmbeddingConfig::new(WORDS, WIDTH).init(device),
            positions: EmbeddingConfig::new(STEPS, WIDTH).init(device),
            blocks: (0..DEPTH).map(|_| Block::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, WORDS).with_bias(false).init(device),
        }
    }

    /// Returns the logits of all positions, one row each.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let x = self.words.forward(tokens) + self.positions.weight.val().unsqueeze();
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.head.forward(self.norm.forward(x)).flatten(0, 1)
    }
}
