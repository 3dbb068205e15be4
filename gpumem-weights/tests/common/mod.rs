//! Networks of which `scripts/goldens/weights.py` made the originals, and what the tests share.
#![allow(dead_code, reason = "each test uses some of it")]

use gpumem::prelude::*;
use gpumem::{Cpu, Device, Kind};
use gpumem_weights::{Error, Mapping, Weights};
use safetensors::tensor::{Dtype as Type, TensorView, serialize};
use std::path::{Path, PathBuf};

network! {
    /// `SmallResNet` of the script: torchvision's blocks.
    pub struct ResNet;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy, seed: 5 };

    fn forward(image: Image<3, 16, 16>) -> Logits<10> {
        [
            Conv2d(8, 3, stride = 2, padding = 1, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            repeat(2, basic(8, 1), name = "layer1"),
            basic(16, 2, name = "layer2"), basic(16, 1, name = "layer2"),
            GlobalAvgPool, Linear(10, name = "fc"),
        ]
    }

    fn basic(channels: usize, stride: usize) -> Block {
        [
            Add(
                [
                    Conv2d(channels, 3, stride = stride, padding = 1, bias = false, name = "conv1"),
                    BatchNorm2d(name = "bn1"), Relu(inplace),
                    Conv2d(channels, 3, padding = 1, bias = false, name = "conv2"), BatchNorm2d(name = "bn2"),
                ],
                if stride != 1 { downsample(channels, stride) } else { [] },
            ),
            Relu(inplace),
        ]
    }

    fn downsample(channels: usize, stride: usize) -> Block {
        [Conv2d(channels, 1, stride = stride, bias = false, name = "0"), BatchNorm2d(name = "1")]
    }
}

network! {
    /// The same backbone's first layers with a head of 5 classes.
    pub struct Tiny;

    const TRAIN: Train = Train { batch: 2, optimizer: Adam { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 4, 4>) -> Logits<5> {
        [Conv2d(2, 3, bias = false, name = "conv"), BatchNorm2d(name = "bn"), GlobalAvgPool, Linear(5, name = "fc")]
    }
}

network! {
    /// Two layers with one name in PyTorch's spelling.
    pub struct Alike;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(features: Features<4>) -> Features<4> {
        [repeat(2, Linear(4, bias = false), name = "a"), Linear(4, bias = false, name = "a.0")]
    }
}

network! {
    /// `GPT2LMHeadModel` of transformers: its Conv1D are `Linear(.., transposed)`.
    pub struct Gpt2;

    const INFER: Infer = Infer { batch: 2 };

    fn forward(tokens: Tokens<8>) -> TokenLogits<8, 61> {
        let wte = Embedding(61, 24, name = "wte");
        [Add(wte, PositionEmbedding(8, 24, name = "wpe")), repeat(2, h()), LayerNorm(name = "ln_f"), Tied(wte)]
    }

    fn h() -> Block {
        [Add([], [LayerNorm(name = "ln_1"), attn()]), Add([], [LayerNorm(name = "ln_2"), mlp()])]
    }

    fn attn() -> Block {
        [Linear(72, transposed, name = "c_attn"), CausalAttention(2), Linear(24, transposed, name = "c_proj")]
    }

    fn mlp() -> Block {
        [Linear(96, transposed, name = "c_fc"), Gelu(approximate = "tanh"), Linear(24, transposed, name = "c_proj")]
    }
}

network! {
    /// The same function with plain Linears, and one each for queries, keys and values.
    pub struct Apart;

    const INFER: Infer = Infer { batch: 2, precision: F32 };

    fn forward(tokens: Tokens<8>) -> TokenLogits<8, 61> {
        let wte = Embedding(61, 24, name = "wte");
        [Add(wte, PositionEmbedding(8, 24, name = "wpe")), repeat(2, h()), LayerNorm(name = "ln_f"), Tied(wte)]
    }

    fn h() -> Block {
        [Add([], [LayerNorm(name = "ln_1"), attn()]), Add([], [LayerNorm(name = "ln_2"), mlp()])]
    }

    fn attn() -> Block {
        [
            Attention(Linear(24, name = "q"), Linear(24, name = "k"), Linear(24, name = "v"), heads = 2, causal),
            Linear(24, name = "c_proj"),
        ]
    }

    fn mlp() -> Block {
        [Linear(96, name = "c_fc"), Gelu(approximate = "tanh"), Linear(24, name = "c_proj")]
    }
}

network! {
    /// `VisionTransformer` of timm.
    pub struct Vit;

    const INFER: Infer = Infer { batch: 2 };

    fn forward(image: Image<3, 16, 16>) -> Logits<10> {
        [
            patch_embed(), Reshape((24, 16)), Transpose(1, 2), ClassToken(parameter = "cls_token"),
            Add([], PositionEmbedding(17, parameter = "pos_embed")),
            repeat(2, blocks()), LayerNorm(eps = 1e-6, name = "norm"), Select(0), Linear(10, name = "head"),
        ]
    }

    fn patch_embed() -> Block { [Conv2d(24, 4, stride = 4, name = "proj")] }

    fn blocks() -> Block {
        [Add([], [LayerNorm(eps = 1e-6, name = "norm1"), attn()]), Add([], [LayerNorm(eps = 1e-6, name = "norm2"), mlp()])]
    }

    fn attn() -> Block { [Linear(72, name = "qkv"), Attention([], heads = 2), Linear(24, name = "proj")] }

    fn mlp() -> Block { [Linear(96, name = "fc1"), Gelu, Linear(24, name = "fc2")] }
}

/// A file that the script wrote.
pub fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

pub fn apart() -> Mapping {
    let attn = |name: &str| format!("h.*.attn.{name}.*");
    let [q, k, v] = ["q", "k", "v"].map(attn);
    Mapping::gpt2()
        .transpose("transformer.h.*.attn.c_*.weight")
        .transpose("transformer.h.*.mlp.c_*.weight")
        .split("transformer.h.*.attn.c_attn.*", &[&q, &k, &v])
}

/// What PyTorch took and gave: `input` as 4-byte words, `logits`.
pub fn io(name: &str) -> (Vec<[u8; 4]>, Vec<f32>) {
    let bytes = std::fs::read(golden(&format!("{name}.io.safetensors"))).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| tensors.tensor(name).unwrap().data().as_chunks().0.to_vec();
    (words("input"), words("logits").into_iter().map(f32::from_le_bytes).collect())
}

pub fn floats(words: Vec<[u8; 4]>) -> Vec<f32> {
    words.into_iter().map(f32::from_le_bytes).collect()
}

pub fn indices(words: Vec<[u8; 4]>) -> Vec<u32> {
    words.into_iter().map(u32::from_le_bytes).collect()
}

#[track_caller]
pub fn near(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / b.abs().max(1.0));
    let largest = differences.fold(0.0, f32::max);
    assert!(largest <= tolerance, "{largest}");
}

/// Parameters and running statistics.
pub fn state<N: Network, D: Device>(net: &mut Net<N, D>) -> Vec<(String, Vec<f32>)> {
    let is_model = |kind: Kind| matches!(kind, Kind::Parameter | Kind::Statistic);
    let names: Vec<String> =
        net.tensors().filter(|tensor| is_model(tensor.kind)).map(|tensor| tensor.name.to_string()).collect();
    names.into_iter().map(|name| (name.clone(), net.get(&name).unwrap())).collect()
}

pub fn cpu() -> Cpu {
    Cpu::new()
}

/// Bytes that this process has had at once, as Linux counts them.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// The message with the folder left out.
pub fn text(error: Error, folder: &Path) -> String {
    assert_eq!(format!("{error:?}"), error.to_string(), "what a `main` that returns it prints");
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

#[track_caller]
pub fn opens_with(folder: &Path, name: &str, expected: &str) {
    let error = Weights::open(folder.join(name)).expect_err(name);
    assert_eq!(text(error, folder), expected);
}

pub type Tensors<'a> = &'a [(&'a str, &'a [usize], f32)];

/// A file of tensors, each of one value.
pub fn file(tensors: Tensors<'_>) -> Vec<u8> {
    let data: Vec<(&str, &[usize], Vec<u8>)> = tensors
        .iter()
        .map(|&(name, shape, value)| (name, shape, value.to_le_bytes().repeat(shape.iter().product())))
        .collect();
    let views =
        data.iter().map(|(name, shape, bytes)| (*name, TensorView::new(Type::F32, shape.to_vec(), bytes).unwrap()));
    serialize(views, None).unwrap()
}

pub const TINY: [(&str, &[usize], f32); 7] = [
    ("bn.bias", &[2], 0.0),
    ("bn.running_mean", &[2], 0.5),
    ("bn.running_var", &[2], 2.0),
    ("bn.weight", &[2], 1.0),
    ("conv.weight", &[2, 3, 3, 3], 0.25),
    ("fc.bias", &[5], 0.125),
    ("fc.weight", &[5, 2], 3.0),
];

pub fn tiny() -> Vec<(&'static str, &'static [usize], f32)> {
    TINY.to_vec()
}
