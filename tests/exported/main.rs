//! Networks as PyTorch's libraries have them: parameters, output and operations of each are those that were measured there.
//!
//! The expected figures are those of `torch.export` and `FlopCounterMode` of PyTorch 2.15 on torchvision 0.29.2 (BSD-3-Clause), timm
//! 1.0.31 (Apache-2.0), and networks of the project's own.
#![allow(missing_docs, reason = "networks of tests")]

mod hrnet;
mod mamba;
mod maps;
mod others;
mod positions;
mod sequences;

use gpumem::__private::memory::budget::budget_at;
use gpumem::__private::memory::tables::Workspaces;
use gpumem::{Line, Network, Precision, Tables, network};

/// Parameters, and twice the multiply-accumulates of one sample's forward pass.
fn sums<N: Network>() -> (u64, u64) {
    let sum = |of: fn(&gpumem::LayerInfo) -> u64| N::LAYERS.iter().map(of).sum::<u64>();
    (sum(|layer| layer.parameters), 2 * sum(|layer| layer.macs))
}

/// Parameters, operations, and the peaks that PyTorch's live tensors reach in a step of 32 samples, with SGD and a momentum and with
/// AdamW.
fn check<N: Network>(parameters: u64, flops: u64, peaks: [u64; 2]) {
    assert_eq!(sums::<N>(), (parameters, flops), "{}", N::NAME);
    check_peaks::<N>(peaks);
}

/// The arena of 32 samples is no larger, without what that figure leaves out: the second batch that there is room for, and workspaces.
fn check_peaks<N: Network>(peaks: [u64; 2]) {
    let tables = N::PROGRAM.tables.with_workspaces(Workspaces { product: 0, convolution: 0 });
    for (moments, theirs) in [1, 2].into_iter().zip(peaks) {
        let budget = budget_at(&Tables { moments, ..tables }, 32, Precision::F32).unwrap();
        let ours = budget[Line::Arena] - budget[Line::BatchIo] / 2;
        let ratio = ours as f64 / theirs as f64;
        println!("{:20} {moments} moments: {ours:>12} bytes, {ratio:.3} of PyTorch's {theirs}", N::NAME);
        assert!(ours <= theirs, "{} with {moments} moments: {ours} bytes, PyTorch {theirs}", N::NAME);
    }
}

network! {
    /// Keywords in raw audio.
    pub struct M5;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(sound: Signal<1, 16000>) -> Logits<35> {
        [block(32, 80, 16), block(32, 3, 1), block(64, 3, 1), block(64, 3, 1), Mean(-1), Linear(35, name = "fc")]
    }

    fn block(channels: usize, size: usize, stride: usize) -> Block {
        [Conv1d(channels, size, stride = stride), BatchNorm1d, Relu, MaxPool1d(4)]
    }
}

network! {
    /// timm's `resmlp_12_224`.
    pub struct ResMlp12;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(384, 16, stride = 16, name = "stem"), Reshape((384, -1)), Transpose(1, 2),
            repeat(12, block()),
            Scale(bias, name = "norm"), Mean(1), Linear(1000, name = "head"),
        ]
    }

    fn block() -> Block {
        [
            Add([], [Scale(bias), Transpose(1, 2), Linear(196), Transpose(1, 2), Scale(init = 1e-4)]),
            Add([], [Scale(bias), Linear(1536), Gelu, Linear(384), Scale(init = 1e-4)]),
        ]
    }
}

network! {
    /// A convolutional network over words.
    pub struct TextCnn;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(words: Tokens<64>) -> Logits<2> {
        [
            Embedding(20000, 300), Transpose(1, 2),
            Concat(window(3), window(4), window(5)), Dropout(0.5), Linear(2, name = "fc"),
        ]
    }

    fn window(size: usize) -> Block {
        [Conv1d(100, size), Relu, Max(2)]
    }
}

network! {
    /// A Llama of transformers: `hidden_size` 768, `intermediate_size` 2048, 12 layers, 12 heads of queries and 4 of keys.
    pub struct LlamaSmall;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>) -> TokenLogits<128, 32000> {
        [
            Embedding(32000, 768, name = "embed_tokens"), repeat(12, decoder(768, 2048)),
            RmsNorm(eps = 1e-6, name = "norm"), Linear(32000, bias = false, name = "lm_head"),
        ]
    }

    fn decoder(width: usize, between: usize) -> Block {
        [
            Add([], [RmsNorm(eps = 1e-6), CausalSelfAttention(12, kv_heads = 4, bias = false, rotary = 10000.0)]),
            Add([], [
                RmsNorm(eps = 1e-6),
                Mul([Linear(between, bias = false, name = "gate_proj"), Silu], Linear(between, bias = false, name = "up_proj")),
                Linear(width, bias = false, name = "down_proj"),
            ]),
        ]
    }
}

network! {
    /// A Phi of transformers: attention and the layers behind it side by side, half of each head turned.
    pub struct PhiNarrow;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>) -> TokenLogits<128, 32000> {
        [
            Embedding(32000, 512, name = "embed_tokens"), repeat(8, decoder(512, 2048)),
            LayerNorm(name = "final_layernorm"), Linear(32000, name = "lm_head"),
        ]
    }

    fn decoder(width: usize, between: usize) -> Block {
        Add([], [
            LayerNorm(name = "input_layernorm"),
            Add(
                CausalSelfAttention(8, rotary = 10000.0, rotary_dims = 32),
                [Linear(between, name = "fc1"), Gelu(approximate = "tanh"), Linear(width, name = "fc2")],
            ),
        ])
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<M5>(26_915, 7_641_472, [18_685_388, 18_793_120]);
    check::<ResMlp12>(15_350_872, 6_019_479_552, [1_812_754_280, 1_874_158_368]);
    check::<TextCnn>(6_360_902, 43_801_200, [78_805_328, 149_791_368]);
    check::<LlamaSmall>(124_668_672, 26_222_788_608, [6_280_878_344, 6_779_553_476]);
    check::<PhiNarrow>(58_011_904, 10_905_190_400, [4_408_182_920, 4_640_231_004]);
}

/// The networks that were exported, and what each is called where its figures are compared: here, or in the zoo.
const EXPORTED: [(&str, &str); 44] = [
    ("albert_base", "Albert"),
    ("alexnet", "AlexNet"),
    ("bart_base", "BartBase"),
    ("bert_base", "Bert"),
    ("bilstm_tagger", "BiLstmTagger"),
    ("conv_autoencoder", "ConvAutoencoder"),
    ("csp_pan_detector", "CspPan"),
    ("dcgan_discriminator", "Discriminator"),
    ("dcgan_generator", "Generator"),
    ("dit_s_2", "DiTS2"),
    ("gpt2", "Gpt2"),
    ("gru_lm", "GruLm"),
    ("llama_small", "LlamaSmall"),
    ("lstm_lm", "LstmLm"),
    ("m5_audio", "M5"),
    ("mamba_130m_narrow", "MambaNarrow"),
    ("mistral_small", "MistralSmall"),
    ("mixtral_narrow", ""),
    ("mnasnet1_0", "MnasNet"),
    ("mobilenet_v3_small", "MobileNetV3Small"),
    ("phi_narrow", "PhiNarrow"),
    ("resnet_generator", "ResNetGenerator"),
    ("roberta_base", "RobertaBaseClassifier"),
    ("segformer_b0", "SegFormerB0"),
    ("text_cnn", "TextCnn"),
    ("timm_coat_lite_tiny", "CoatLiteTiny"),
    ("timm_darknet53", "Darknet53"),
    ("timm_deit_tiny_distilled_patch16_224", "DeitTinyDistilled"),
    ("timm_dm_nfnet_f0", "NfNetF0"),
    ("timm_edgenext_xx_small", "EdgeNeXtXxSmall"),
    ("timm_efficientformer_l1", "EfficientFormerL1"),
    ("timm_eva02_tiny_patch14_224", "Eva02Tiny"),
    ("timm_ghostnet_100", "GhostNet"),
    ("timm_hrnet_w18_small", "HrNetW18Small"),
    ("timm_mixer_s16_224", "MixerS16"),
    ("timm_mobilenetv4_conv_small", "MobileNetV4Small"),
    ("timm_mobilevit_s", "MobileVitS"),
    ("timm_poolformer_s12", "PoolFormerS12"),
    ("timm_repvgg_a0", "RepVggA0"),
    ("timm_resmlp_12_224", "ResMlp12"),
    ("timm_seresnet50", "SeResNet50"),
    ("timm_vit_small_patch16_224", "VitS16"),
    ("vae_784", "Vae"),
    ("vit_b_16", "VitB16"),
];

/// Whoever looks for a network finds it compared, or what it lacks in docs/reference/limits.md.
#[test]
fn every_exported_network_is_compared_or_among_the_limits() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        ["tests/exported", "gpumem-zoo/tests"].iter().flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let sources = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let compared: String = sources.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let limits = std::fs::read_to_string(root.join("docs/reference/limits.md")).unwrap();
    for (name, network) in EXPORTED {
        let is_a_limit = limits.contains(&format!("`{name}`"));
        let forms = [format!("check::<{network}>("), format!("sums::<{network}>("), format!("\n    ({network}, ")];
        let is_compared = forms.iter().any(|form| compared.contains(form));
        assert_eq!(is_a_limit, network.is_empty(), "{name} in docs/reference/limits.md");
        assert!(is_a_limit || is_compared, "{name} is not compared");
    }
}
