//! Layers of transformers in the forms in which models write them.

use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::{Layer, Lifted, lift};
use std::path::{Path, PathBuf};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn lifted(path: &str) -> Lifted {
    let model = Pt2::open(&tests().join(path)).unwrap().model(None, &[]).unwrap();
    let batch = Batch::follow(&model).unwrap();
    lift(&model, &batch)
}

fn text(layer: &Layer) -> String {
    let arguments = layer.arguments.iter().map(ToString::to_string);
    let options = layer.options.iter().map(|(name, value)| format!("{name} = {value}"));
    let flags = layer.flags.iter().map(ToString::to_string);
    let all: Vec<String> = arguments.chain(options).chain(flags).collect();
    format!("{}({})", layer.kind, all.join(", "))
}

/// Returns the different layers of these kinds, in the order in which they come first, each with its number.
fn counted(lifted: &Lifted, kinds: &[&str]) -> Vec<(usize, String)> {
    let mut counted: Vec<(usize, String)> = Vec::new();
    for layer in lifted.layers.iter().filter(|layer| kinds.contains(&layer.kind)) {
        let text = text(layer);
        match counted.iter_mut().find(|(_, other)| *other == text) {
            Some((count, _)) => *count += 1,
            None => counted.push((1, text)),
        }
    }
    counted
}

/// Attentions, and what belongs to them.
const ATTENTION: [&str; 6] =
    ["Attention", "MultiHeadAttention", "Rotary", "RelativePositionBias", "ShiftedWindowMask", "AlibiBias"];

#[track_caller]
fn has(path: &str, kinds: &[&str], expected: &[(usize, &str)]) {
    let found = counted(&lifted(path), kinds);
    let found: Vec<(usize, &str)> = found.iter().map(|(count, text)| (*count, &text[..])).collect();
    assert_eq!(found, expected, "{path}");
}

#[test]
fn attentions_of_models_are_whole() {
    let models: [(&str, &[(usize, &str)]); 17] = [
        ("albert_base", &[(12, "Attention(heads = 12)")]),
        ("bart_base", &[(12, "Attention(heads = 12)"), (6, "Attention(heads = 12, causal)")]),
        ("bert_base", &[(12, "Attention(heads = 12, dropout = 0.1)")]),
        ("roberta_base", &[(12, "Attention(heads = 12, dropout = 0.1)")]),
        ("dit_s_2", &[(12, "Attention(heads = 6)")]),
        ("gpt2", &[(12, "Attention(heads = 12, dropout = 0.1, causal)")]),
        ("llama_small", &[(12, "Rotary(12)"), (12, "Rotary(4)"), (12, "Attention(heads = 12, kv_heads = 4, causal)")]),
        (
            "mistral_small",
            &[(8, "Rotary(8)"), (8, "Rotary(2)"), (8, "Attention(heads = 8, kv_heads = 2, window = 64, causal)")],
        ),
        (
            "mixtral_narrow",
            &[
                (4, "Rotary(8, base = 1000000.0)"),
                (4, "Rotary(2, base = 1000000.0)"),
                (4, "Attention(heads = 8, kv_heads = 2, causal)"),
            ],
        ),
        ("phi_narrow", &[(16, "Rotary(8, dims = 32)"), (8, "Attention(heads = 8, causal)")]),
        (
            "segformer_b0",
            &[
                (2, "Attention()"),
                (2, "Attention(heads = 2)"),
                (2, "Attention(heads = 5)"),
                (2, "Attention(heads = 8)"),
            ],
        ),
        ("timm_efficientformer_l1", &[(1, "RelativePositionBias(8, size = 7, absolute)"), (1, "Attention(heads = 8)")]),
        (
            "timm_eva02_tiny_patch14_224",
            &[(24, "Rotary(3, size = (16, 16), before = 1, interleaved)"), (12, "Attention(heads = 3)")],
        ),
        ("timm_deit_tiny_distilled_patch16_224", &[(12, "Attention(heads = 3)")]),
        ("timm_mobilevit_s", &[(9, "Attention(heads = 4)")]),
        ("timm_vit_small_patch16_224", &[(12, "Attention(heads = 6)")]),
        ("vit_b_16", &[(12, "MultiHeadAttention(12)")]),
    ];
    for (name, expected) in models {
        has(&format!("models/{name}.pt2"), &ATTENTION, expected);
    }
}

/// Every form is read whole, and what it is for is one layer.
#[test]
fn forms_are_known() {
    let all: Vec<&str> = ATTENTION.iter().chain(&PARTS).copied().collect();
    for (name, expected) in FORMS {
        let path = format!("forms/{name}.pt2");
        let unknown = lifted(&path).unknown;
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        has(&path, &all, expected);
    }
}

/// Layers that transformers consist of beside attention.
const PARTS: [&str; 12] = [
    "RmsNorm",
    "L2Norm",
    "Gelu",
    "QuickGelu",
    "Silu",
    "DropPath",
    "ClassToken",
    "PositionEmbedding",
    "SelectiveScan",
    "StepSizes",
    "Tied",
    "TopK",
];

const FORMS: [(&str, &[(usize, &str)]); 27] = [
    ("cait", &[(1, "PositionEmbedding(16)"), (4, "Gelu()"), (2, "Attention(heads = 4)")]),
    ("encoder", &[(2, "MultiHeadAttention(4, dropout = 0.1)")]),
    // torchvision scales by the width of all heads.
    (
        "maxvit",
        &[
            (9, "Gelu()"),
            (2, "Silu()"),
            (2, "RelativePositionBias(2, size = 4)"),
            (2, "Attention(heads = 2, scale = 0.25)"),
            (5, "DropPath(0.1)"),
            (2, "RelativePositionBias(4, size = 4)"),
            (2, "Attention(heads = 4, scale = 0.1767766952966369)"),
        ],
    ),
    (
        "swin_torchvision",
        &[
            (2, "RelativePositionBias(2, size = 4)"),
            (2, "Attention(heads = 2)"),
            (4, "Gelu()"),
            (1, "ShiftedWindowMask(16, 4, 2)"),
            (2, "DropPath(0.0333333333333333)"),
            (2, "RelativePositionBias(4, size = 4)"),
            (2, "Attention(heads = 4)"),
            (2, "DropPath(0.0666666666666667)"),
            (1, "ShiftedWindowMask(8, 4, 2)"),
            (2, "DropPath(0.1)"),
        ],
    ),
    ("transformer", &[(4, "MultiHeadAttention(4, dropout = 0.1)"), (2, "Attention(heads = 4, dropout = 0.1)")]),
    ("twins_svt", &[(2, "Attention()"), (8, "Gelu()"), (2, "Attention(heads = 2)"), (4, "Attention(heads = 4)")]),
    (
        "bloom",
        &[(2, "AlibiBias(4)"), (2, "Attention(heads = 4, causal)"), (2, "Gelu(approximate = \"tanh\")"), (1, "Tied()")],
    ),
    (
        "codegen",
        &[
            (4, "Rotary(4, dims = 8, interleaved)"),
            (2, "Attention(heads = 4, causal)"),
            (2, "Gelu(approximate = \"tanh\")"),
        ],
    ),
    (
        "falcon",
        &[
            (2, "Rotary(4)"),
            (2, "Rotary(1)"),
            (2, "Attention(heads = 4, kv_heads = 1, causal)"),
            (2, "Gelu()"),
            (1, "Tied()"),
        ],
    ),
    (
        "gemma3",
        &[
            (9, "RmsNorm(eps = 1e-6, elementwise_affine = false)"),
            (4, "RmsNorm((16,), eps = 1e-6, elementwise_affine = false)"),
            (2, "Rotary(4)"),
            (2, "Rotary(2)"),
            (2, "Attention(heads = 4, kv_heads = 2, scale = 0.0625, window = 8, causal)"),
            (2, "Gelu(approximate = \"tanh\")"),
            (1, "Tied()"),
        ],
    ),
    (
        "gpt2",
        &[
            (1, "PositionEmbedding(64)"),
            (2, "Attention(heads = 4, dropout = 0.1, causal)"),
            (2, "Gelu(approximate = \"tanh\")"),
            (1, "Tied()"),
        ],
    ),
    ("gpt_neox", &[(4, "Rotary(4, dims = 4)"), (2, "Attention(heads = 4, causal)"), (2, "Gelu()")]),
    (
        "gptj",
        &[
            (4, "Rotary(4, dims = 8, interleaved)"),
            (2, "Attention(heads = 4, causal)"),
            (2, "Gelu(approximate = \"tanh\")"),
        ],
    ),
    (
        "mamba",
        &[(2, "RmsNorm(eps = 1e-5)"), (2, "Silu()"), (1, "StepSizes(64)"), (1, "SelectiveScan()"), (1, "Tied()")],
    ),
    // `local_attention` is 8 in both directions together.
    (
        "modernbert",
        &[
            (2, "Rotary(4, base = 160000.0)"),
            (1, "Attention(heads = 4)"),
            (3, "Gelu()"),
            (2, "Rotary(4)"),
            (1, "Attention(heads = 4, window = 5)"),
            (1, "Tied(bias)"),
        ],
    ),
    (
        "mpnet",
        &[
            (1, "PositionEmbedding(512, 64, padding_idx = 1)"),
            (1, "RelativePositionBias(4, buckets = 32)"),
            (2, "Attention(heads = 4, dropout = 0.1)"),
            (2, "Gelu()"),
        ],
    ),
    ("mpt", &[(2, "AlibiBias(4)"), (2, "Attention(heads = 4, causal)"), (2, "Gelu()"), (1, "Tied()")]),
    ("multihead_weights", &[(1, "MultiHeadAttention(4)")]),
    ("perceiver", &[(3, "Attention(heads = 4, dropout = 0.1)"), (3, "Gelu()")]),
    (
        "phi3",
        &[
            (5, "RmsNorm(eps = 1e-5)"),
            (2, "Rotary(4)"),
            (2, "Rotary(2)"),
            (2, "Attention(heads = 4, kv_heads = 2, causal)"),
            (2, "Silu()"),
        ],
    ),
    (
        "qwen3",
        &[
            (5, "RmsNorm(eps = 1e-6)"),
            (4, "RmsNorm((16,), eps = 1e-6)"),
            (2, "Rotary(4)"),
            (2, "Rotary(2)"),
            (2, "Attention(heads = 4, kv_heads = 2, causal)"),
            (2, "Silu()"),
        ],
    ),
    (
        "whisper",
        &[
            (6, "Gelu()"),
            (1, "PositionEmbedding(50)"),
            (4, "Attention(heads = 4)"),
            (1, "PositionEmbedding(32)"),
            (2, "Attention(heads = 4, causal)"),
            (1, "Tied()"),
        ],
    ),
    (
        "gpt_neo",
        &[
            (1, "PositionEmbedding(64)"),
            (1, "Attention(heads = 4, scale = 1.0, causal)"),
            (2, "Gelu(approximate = \"tanh\")"),
            (1, "Attention(heads = 4, scale = 1.0, window = 8, causal)"),
            (1, "Tied()"),
        ],
    ),
    ("opt", &[(2, "Attention(heads = 4, causal)"), (1, "Tied()")]),
    (
        "qwen2moe",
        &[
            (5, "RmsNorm(eps = 1e-6)"),
            (2, "Rotary(4)"),
            (2, "Rotary(2)"),
            (2, "Attention(heads = 4, kv_heads = 2, causal)"),
            (10, "Silu()"),
            (2, "TopK(2)"),
            (2, "TopK(2, indices)"),
        ],
    ),
    (
        "swin",
        &[
            (2, "RelativePositionBias(2, size = 4)"),
            (2, "Attention(heads = 2)"),
            (4, "Gelu()"),
            (1, "ShiftedWindowMask(16, 4, 2)"),
            (1, "DropPath(0.0333333333333333)"),
            (2, "RelativePositionBias(4, size = 4)"),
            (2, "Attention(heads = 4)"),
            (1, "DropPath(0.0666666666666667)"),
            (1, "ShiftedWindowMask(8, 4, 2)"),
            (1, "DropPath(0.1)"),
        ],
    ),
    (
        "t5",
        &[
            (12, "RmsNorm(eps = 1e-6)"),
            (1, "RelativePositionBias(4, buckets = 32)"),
            (4, "Attention(heads = 4, dropout = 0.1, scale = 1.0)"),
            (1, "RelativePositionBias(4, buckets = 32, bidirectional = false)"),
            (2, "Attention(heads = 4, dropout = 0.1, scale = 1.0, causal)"),
            (1, "Tied()"),
        ],
    ),
];
