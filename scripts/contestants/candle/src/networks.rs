//! Networks of `examples/networks/small.rs`, built of candle's layers.

use candle_core::{D, DType, Device, Module, ModuleT, Result, Tensor};
use candle_nn::ops::{layer_norm_slow, softmax};
use candle_nn::{BatchNorm, Conv2d, Conv2dConfig, Dropout, Embedding, Init, Linear, VarBuilder};
use candle_nn::{batch_norm, conv2d_no_bias, embedding, linear, linear_no_bias};

/// A convolution with its batch normalisation.
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new([before, after]: [usize; 2], size: usize, stride: usize, builder: VarBuilder) -> Result<Self> {
        let config = Conv2dConfig { padding: size / 2, stride, ..Default::default() };
        let conv = conv2d_no_bias(before, after, size, config, builder.pp("conv"))?;
        Ok(Self { conv, norm: batch_norm(after, 1e-5, builder.pp("norm"))? })
    }

    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        self.norm.forward_t(&self.conv.forward(x)?, train)
    }
}

pub struct Digits {
    first: ConvNorm,
    second: ConvNorm,
    third: ConvNorm,
    dropout: Dropout,
    head: Linear,
}

impl Digits {
    pub fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Self {
            first: ConvNorm::new([1, 32], 3, 1, builder.pp("first"))?,
            second: ConvNorm::new([32, 32], 3, 1, builder.pp("second"))?,
            third: ConvNorm::new([32, 64], 3, 1, builder.pp("third"))?,
            dropout: Dropout::new(0.3),
            head: linear(64 * 16, 10, builder.pp("head"))?,
        })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(x, true)?.relu()?;
        let x = self.second.forward(&x, true)?.relu()?.max_pool2d(2)?;
        let x = self.third.forward(&x, true)?.relu()?;
        self.head.forward(&self.dropout.forward(&x.flatten_from(1)?, true)?)
    }
}

pub struct Perceptron {
    first: Linear,
    second: Linear,
    head: Linear,
}

impl Perceptron {
    pub fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Self {
            first: linear(784, 512, builder.pp("first"))?,
            second: linear(512, 512, builder.pp("second"))?,
            head: linear(512, 10, builder.pp("head"))?,
        })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(x)?.relu()?;
        self.head.forward(&self.second.forward(&x)?.relu()?)
    }
}

struct Basic {
    first: ConvNorm,
    second: ConvNorm,
    shortcut: Option<ConvNorm>,
}

impl Basic {
    fn new(before: usize, width: usize, stride: usize, builder: VarBuilder) -> Result<Self> {
        let shortcut = || ConvNorm::new([before, width], 1, stride, builder.pp("shortcut"));
        Ok(Self {
            first: ConvNorm::new([before, width], 3, stride, builder.pp("first"))?,
            second: ConvNorm::new([width, width], 3, 1, builder.pp("second"))?,
            shortcut: (stride != 1).then(shortcut).transpose()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inside = self.second.forward(&self.first.forward(x, false)?.relu()?, false)?;
        match &self.shortcut {
            Some(shortcut) => (inside + shortcut.forward(x, false)?)?.relu(),
            None => (inside + x)?.relu(),
        }
    }
}

/// ResNet-18 for inference.
pub struct ResNet18 {
    stem: ConvNorm,
    blocks: Vec<Basic>,
    head: Linear,
}

impl ResNet18 {
    pub fn new(builder: VarBuilder) -> Result<Self> {
        let (mut blocks, mut before) = (Vec::new(), 64);
        for width in [64, 128, 256, 512] {
            let stride = if width == before { 1 } else { 2 };
            for (before, stride) in [(before, stride), (width, 1)] {
                blocks.push(Basic::new(before, width, stride, builder.pp(format!("block{}", blocks.len())))?);
            }
            before = width;
        }
        let stem = ConvNorm::new([3, 64], 7, 2, builder.pp("stem"))?;
        Ok(Self { stem, blocks, head: linear(512, 10, builder.pp("head"))? })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // After ReLU no element is below 0, so zeros can serve as padding.
        let x = self.stem.forward(x, false)?.relu()?.pad_with_zeros(2, 1, 1)?.pad_with_zeros(3, 1, 1)?;
        let x = x.max_pool2d_with_stride(3, 2)?;
        let x = self.blocks.iter().try_fold(x, |x, block| block.forward(&x))?;
        self.head.forward(&x.mean((2, 3))?)
    }
}

pub const STEPS: usize = 128;
pub const WORDS: usize = 512;
const WIDTH: usize = 256;
const HEADS: usize = 8;
const DEPTH: usize = 4;

/// Layer normalisation with a backward pass. candle's own `LayerNorm` has none. `ops::softmax` is used for that reason too.
struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    fn new(builder: VarBuilder) -> Result<Self> {
        let get = |name, value| builder.get_with_hints(WIDTH, name, Init::Const(value));
        Ok(Self { weight: get("weight", 1.0)?, bias: get("bias", 0.0)? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm_slow(x, &self.weight, &self.bias, 1e-5)
    }
}

struct Block {
    attention_norm: LayerNorm,
    qkv: Linear,
    proj: Linear,
    mlp_norm: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Self {
            attention_norm: LayerNorm::new(builder.pp("attention_norm"))?,
            qkv: linear(WIDTH, 3 * WIDTH, builder.pp("qkv"))?,
            proj: linear(WIDTH, WIDTH, builder.pp("proj"))?,
            mlp_norm: LayerNorm::new(builder.pp("mlp_norm"))?,
            up: linear(WIDTH, 4 * WIDTH, builder.pp("up"))?,
            down: linear(4 * WIDTH, WIDTH, builder.pp("down"))?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let x = (x + self.attention(&self.attention_norm.forward(x)?, mask)?)?;
        let inside = self.up.forward(&self.mlp_norm.forward(&x)?)?.gelu()?;
        x + self.down.forward(&inside)?
    }

    fn attention(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (batch, steps, width) = x.dims3()?;
        let qkv = self.qkv.forward(x)?;
        let part = |index| {
            let part = qkv.narrow(D::Minus1, index * width, width)?;
            part.reshape((batch, steps, HEADS, width / HEADS))?.transpose(1, 2)?.contiguous()
        };
        let scale = ((width / HEADS) as f64).powf(-0.5);
        let scores = (part(0)?.matmul(&part(1)?.t()?)? * scale)?.broadcast_add(mask)?;
        let y = softmax(&scores, D::Minus1)?.matmul(&part(2)?)?;
        self.proj.forward(&y.transpose(1, 2)?.reshape((batch, steps, width))?)
    }
}

pub struct Gpt {
    words: Embedding,
    positions: Embedding,
    mask: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    pub fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Self {
            words: embedding(WORDS, WIDTH, builder.pp("words"))?,
            positions: embedding(STEPS, WIDTH, builder.pp("positions"))?,
            mask: future()?,
            blocks: (0..DEPTH).map(|index| Block::new(builder.pp(format!("block{index}")))).collect::<Result<_>>()?,
            norm: LayerNorm::new(builder.pp("norm"))?,
            head: linear_no_bias(WIDTH, WORDS, builder.pp("head"))?,
        })
    }

    /// Returns the logits of all positions, one row each.
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let x = self.words.forward(tokens)?.broadcast_add(self.positions.embeddings())?;
        let x = self.blocks.iter().try_fold(x, |x, block| block.forward(&x, &self.mask))?;
        self.head.forward(&self.norm.forward(&x)?)?.flatten_to(1)
    }
}

/// Returns the causal mask, which is added to scores and hides later positions.
fn future() -> Result<Tensor> {
    let later = |at: usize| if at % STEPS > at / STEPS { f32::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f32> = (0..STEPS * STEPS).map(later).collect();
    Tensor::from_vec(mask, (STEPS, STEPS), &Device::Cpu)?.to_dtype(DType::F32)
}
