//! Each network beside the original: parameters, operations, output, names, and what a step needs.
//!
//! Parameters and operations of torchvision's networks are `num_params` and, to three digits, `_ops` in the metadata of their
//! weights; those with all digits were counted by `FlopCounterMode` of PyTorch 2.15, of GoogLeNet, Inception v3, FCN and DeepLabV3 without
//! their auxiliary heads, which inference does not run. `../tests/truth/models` has the names of modules and the peaks that PyTorch reached; its README says how they were measured.
// The plan of a generic network is made where its batch is known: here, and of GPT-2 XL that is long.
#![allow(long_running_const_eval)]

mod pages;

use gpumem::__private::memory::budget::budget_at;
use gpumem::__private::memory::tables::Workspaces;
use gpumem::__private::program::Class;
use gpumem::__private::program::{Op, Program, Slot};
use gpumem::weights::torch_name;
use gpumem::{Line, Network, Precision, Serve, Tables};
use gpumem_core::lower::{Blueprint, Cached, OwnedTables, lower_cached, tables};
use gpumem_language::source::{Overrides, Text};
use gpumem_zoo::alexnet::AlexNet;
use gpumem_zoo::bert::{
    BertBaseClassifier, BertBaseMaskedLm, BertLargeMaskedLm, DistilBertClassifier, RobertaBaseClassifier,
};
use gpumem_zoo::clip::ClipVitB32;
use gpumem_zoo::convnext::ConvNeXtTiny;
use gpumem_zoo::dcgan::{Discriminator, Generator};
use gpumem_zoo::ddpm::DdpmCifar10;
use gpumem_zoo::deit::{DeitB16, DeitS16, DeitTi16};
use gpumem_zoo::densenet::DenseNet121;
use gpumem_zoo::efficientnet::{EfficientNetB0, EfficientNetV2S};
use gpumem_zoo::googlenet::GoogLeNet;
use gpumem_zoo::gpt2::{Gpt2, Gpt2Large, Gpt2Medium, Gpt2Xl};
use gpumem_zoo::inception::InceptionV3;
use gpumem_zoo::lenet::LeNet5;
use gpumem_zoo::llama::{Gemma2B, Llama1B, Mistral7B, Qwen500M, TinyLlama};
use gpumem_zoo::mamba::Mamba130M;
use gpumem_zoo::mixer::{MixerB16, MixerS16};
use gpumem_zoo::mobilenet::{MnasNet, MobileNetV2, MobileNetV3Large, MobileNetV3Small};
use gpumem_zoo::regnet::RegNetY400Mf;
use gpumem_zoo::resnet::{ResNeXt50, ResNet18, ResNet34, ResNet50, ResNet101, ResNet152, WideResNet50};
use gpumem_zoo::resnet3d::R3d18;
use gpumem_zoo::segformer::SegFormerB0;
use gpumem_zoo::segmentation::{DeepLabV3ResNet50, FcnResNet50};
use gpumem_zoo::shufflenet::ShuffleNetV2;
use gpumem_zoo::squeezenet::{SqueezeNet10, SqueezeNet11};
use gpumem_zoo::swin::SwinT;
use gpumem_zoo::t5::T5Small;
use gpumem_zoo::unet::UNet;
use gpumem_zoo::vae::Vae;
use gpumem_zoo::vgg::{Vgg11, Vgg11Bn, Vgg13, Vgg13Bn, Vgg16, Vgg16Bn, Vgg19, Vgg19Bn};
use gpumem_zoo::vit::{VitB16, VitS16};
use gpumem_zoo::wav2vec2::Wav2Vec2Base;
use gpumem_zoo::whisper::WhisperTiny;
use gpumem_zoo::word_lm::{GruLm, LstmLm};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is known of an original.
enum Operations {
    /// Two for each multiplication and addition, of one sample.
    Flops(u64),
    /// Thousands of millions of multiplications and additions, to three digits behind the point.
    Thousandths(u64),
}

use Operations::{Flops, Thousandths};

/// Networks that can keep a cache.
const CACHED: [&str; 12] = [
    "Gpt2",
    "Gpt2Medium",
    "Gpt2Large",
    "Gpt2Xl",
    "TinyLlama",
    "Llama1B",
    "Qwen500M",
    "Mistral7B",
    "Gemma2B",
    "Mamba130M",
    "LstmLm",
    "GruLm",
];

/// Compares with the original. Every network has its forward pass alone, too.
fn check<N: Serve>(parameters: u64, operations: &Operations, output: &[u64]) {
    let macs = sum::<N>(|layer| layer.macs);
    assert_eq!(sum::<N>(|layer| layer.parameters), parameters, "{}: parameters", N::NAME);
    match operations {
        Flops(flops) => assert_eq!(2 * macs, *flops, "{}: operations", N::NAME),
        Thousandths(printed) => assert_eq!((macs + 500_000) / 1_000_000, *printed, "{}: operations", N::NAME),
    }
    assert_eq!(N::LAYERS.last().unwrap().output_shape, output, "{}: output", N::NAME);
    assert!(blueprint(N::NAME) == N::BLUEPRINT, "{}: the source, read as text", N::NAME);
    assert_eq!(cached::<N>().len(), if CACHED.contains(&N::NAME) { 2 } else { 0 }, "{}: cache", N::NAME);
    check_plans::<N>();
}

/// The blueprint of a network, read from the sources of this crate without a compiler.
fn blueprint(name: &str) -> Vec<u8> {
    let folder = format!("{}/src", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |file: std::path::PathBuf| {
        let name = format!("gpumem-zoo/src/{}", file.file_name().unwrap().display());
        Text::read(&std::fs::read_to_string(file).unwrap()).unwrap().in_file(&name)
    };
    let texts: Vec<Text> = files.map(read).collect();
    let mut all = Text::default();
    texts.iter().for_each(|text| all.add_blocks(text));
    let mut text = texts.into_iter().find(|text| text.names().iter().any(|own| own == name)).unwrap();
    text.add_blocks(&all);
    text.declared(Some(name), &Overrides::default()).unwrap().blueprint.encode()
}

/// Every plan reaches its lower bound, with workspaces of a card, in 32 bits and in 16.
fn check_plans<N: Network>() {
    let programs = [("training", *N::PROGRAM.tables), ("inference", *N::INFERENCE.tables)];
    let cached = cached::<N>();
    let cached = cached.iter().map(|(of, tables)| (*of, tables.as_tables()));
    for (of, tables) in programs.into_iter().chain(cached) {
        let tables = tables.with_workspaces(Workspaces { product: 32 << 20, convolution: 256 << 20 });
        for precision in [Precision::F32, Precision::Bf16] {
            for batch in [1, 7, 32] {
                let budget = budget_at(&tables, batch, precision).unwrap();
                let plan = format!("{}, {of} at batch {batch} in {precision:?}", N::NAME);
                let (arena, bound) = (budget[Line::Arena], budget.lower_bound);
                assert_eq!(arena, bound, "{plan}");
            }
        }
    }
}

/// The forward passes with a cache: of one token, and of several.
fn cached<N: Network>() -> Vec<(&'static str, OwnedTables)> {
    let blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    let passes = [("cached inference, a token", 1), ("cached inference, 64 tokens", 64)].map(|(of, chunk)| {
        let program = lower_cached(&blueprint.graph, &blueprint.outputs, Cached { steps: 256, chunk });
        program.ok().map(|program| (of, tables(&program)))
    });
    passes.into_iter().flatten().collect()
}

fn sum<N: Network>(of: fn(&gpumem::LayerInfo) -> u64) -> u64 {
    N::LAYERS.iter().map(of).sum()
}

/// The network's line in the table of the README.
fn line<N: Network>() -> String {
    let mib = |batch| {
        let budget = budget_at(N::PROGRAM.tables, batch, Precision::F32).unwrap();
        budget[Line::Arena] as f64 / f64::from(1 << 20)
    };
    let parameters = sum::<N>(|layer| layer.parameters);
    let giga = 2.0 * sum::<N>(|layer| layer.macs) as f64 / 1e9;
    format!("| `{}` | {parameters} | {giga:.3} | {:.1} | {:.1} |\n", N::NAME, mib(1), mib(32))
}

/// The network's line in the table of rectifiers that keep bits, if it has some: how many, and bytes of a sample in f32 as outputs and as bits.
fn sides<N: Network>() -> String {
    let program = Program::decode(N::PROGRAM.program).unwrap();
    let kept = program.operations.iter().filter_map(|operation| match operation.backward() {
        Some(Op::Rectifier(op)) => {
            let bits = operation.read(Slot::Saved(0))?;
            Some((op.of.shape.elements()?, program.tensor(bits).stored_of_each()?))
        }
        _ => None,
    });
    let kept: Vec<(u64, u64)> = kept.collect();
    if kept.is_empty() {
        return String::new();
    }
    let [outputs, bits] = kept.iter().fold([0; 2], |[outputs, bits], (o, b)| [outputs + 4 * o, bits + b]);
    format!("| `{}` | {} | {outputs} | {bits} |\n", N::NAME, kept.len())
}

/// A test for each network, and one for the tables of them all.
macro_rules! originals {
    ($(($network:ident, $parameters:expr, $operations:expr, $output:expr),)*) => {
        #[allow(non_snake_case, reason = "tests have the networks' names")]
        mod original {
            use super::*;

            $(
                #[test]
                fn $network() {
                    check::<super::$network<1>>($parameters, &$operations, &$output);
                }
            )*
        }

        #[test]
        fn the_tables_are_those_of_the_networks() {
            let mut networks = String::from(
                "| network | parameters | GFLOPs forward | MiB of a step, batch 1 | MiB of a step, batch 32 |\n\
                 | --- | ---: | ---: | ---: | ---: |\n",
            );
            let mut rectifiers = String::from(
                "| network | rectifiers | bytes of a sample as outputs, f32 | as bits |\n| --- | ---: | ---: | ---: |\n",
            );
            $(
                rectifiers += &sides::<$network<1>>();
                networks += &line::<$network<1>>();
            )*
            pages::check("README.md", "zoo", &networks);
            pages::check("../docs/lab/memory-results.md", "sides", &rectifiers);
        }
    };
}

originals! {
    (AlexNet, 61_100_840, Flops(1_428_376_960), [1000]),
    // Without the bias of 30522 words.
    (BertBaseMaskedLm, 109_514_298, Flops(121_244_221_440), [512, 30522]),
    (BertLargeMaskedLm, 335_174_458, Flops(368_085_827_584), [512, 30522]),
    (BertBaseClassifier, 109_483_778, Flops(22_348_434_432), [2]),
    (RobertaBaseClassifier, 124_647_170, Flops(22_348_434_432), [2]),
    (DistilBertClassifier, 66_955_010, Flops(11_174_808_576), [2]),
    // Without the products of all images with all texts.
    (ClipVitB32, 151_277_313, Flops(14_777_163_776), [512]),
    (ConvNeXtTiny, 28_589_128, Thousandths(4_456), [1000]),
    (Generator, 3_576_704, Flops(209_256_448), [3, 64, 64]),
    (Discriminator, 2_765_568, Flops(207_634_432), [1]),
    (DdpmCifar10, 35_746_307, Flops(12_443_713_536), [3, 32, 32]),
    (DeitTi16, 5_910_800, Flops(2_522_007_552), [1000]),
    (DeitS16, 22_436_432, Flops(9_248_280_576), [1000]),
    (DeitB16, 87_338_192, Flops(35_313_623_040), [1000]),
    (DenseNet121, 7_978_856, Thousandths(2_834), [1000]),
    (EfficientNetB0, 5_288_548, Flops(771_629_504), [1000]),
    (EfficientNetV2S, 21_458_488, Flops(16_731_234_304), [1000]),
    (GoogLeNet, 13_004_888, Flops(2_996_752_384), [1000]),
    (Gpt2, 124_439_808, Flops(291_648_307_200), [1024, 50257]),
    (Gpt2Medium, 354_823_168, Flops(826_951_073_792), [1024, 50257]),
    (Gpt2Large, 774_030_080, Flops(1_774_570_700_800), [1024, 50257]),
    (Gpt2Xl, 1_557_611_200, Flops(3_506_703_564_800), [1024, 50257]),
    (LeNet5, 61_706, Flops(833_040), [10]),
    (InceptionV3, 27_161_264, Flops(11_426_432_192), [1000]),
    (TinyLlama, 1_100_048_384, Flops(4_992_899_481_600), [2048, 32000]),
    (Llama1B, 1_235_814_400, Flops(5_611_374_772_224), [2048, 128256]),
    (Qwen500M, 494_032_768, Flops(2_384_042_393_600), [2048, 151936]),
    (Mistral7B, 7_248_023_552, Flops(31_336_081_391_616), [2048, 32768]),
    (Gemma2B, 2_506_172_416, Flops(10_883_447_128_064), [2048, 256000]),
    (Mamba130M, 129_135_360, Flops(264_204_288_000), [1024, 50280]),
    (MixerS16, 18_528_264, Flops(7_553_916_928), [1000]),
    (MixerB16, 59_880_472, Flops(25_203_535_872), [1000]),
    (MobileNetV2, 3_504_872, Flops(601_548_544), [1000]),
    (MobileNetV3Small, 2_542_856, Flops(113_020_800), [1000]),
    (MobileNetV3Large, 5_483_032, Thousandths(217), [1000]),
    (MnasNet, 4_383_312, Flops(628_831_744), [1000]),
    (RegNetY400Mf, 4_344_144, Flops(803_685_696), [1000]),
    (ResNet18, 11_689_512, Flops(3_628_146_688), [1000]),
    (ResNet34, 21_797_672, Thousandths(3_664), [1000]),
    (ResNet50, 25_557_032, Thousandths(4_089), [1000]),
    (ResNet101, 44_549_160, Thousandths(7_801), [1000]),
    (ResNet152, 60_192_808, Thousandths(11_514), [1000]),
    (ResNeXt50, 25_028_904, Thousandths(4_230), [1000]),
    (WideResNet50, 68_883_240, Thousandths(11_398), [1000]),
    (R3d18, 33_371_472, Flops(81_393_106_944), [400]),
    (SegFormerB0, 3_752_694, Flops(3_803_840_512), [150, 64, 64]),
    (FcnResNet50, 35_322_218, Flops(285_451_545_600), [21, 520, 520]),
    (DeepLabV3ResNet50, 42_004_074, Flops(337_462_411_776), [21, 520, 520]),
    (ShuffleNetV2, 2_278_604, Flops(289_815_984), [1000]),
    (SqueezeNet10, 1_248_424, Thousandths(819), [1000]),
    (SqueezeNet11, 1_235_496, Thousandths(349), [1000]),
    (SwinT, 28_288_354, Flops(8_981_133_312), [1000]),
    (T5Small, 60_506_624, Flops(36_624_662_528), [128, 32128]),
    (UNet, 31_037_698, Flops(385_372_651_520), [2, 512, 512]),
    (Vae, 652_824, Flops(1_302_400), [784]),
    (Vgg11, 132_863_336, Thousandths(7_609), [1000]),
    (Vgg11Bn, 132_868_840, Thousandths(7_609), [1000]),
    (Vgg13, 133_047_848, Thousandths(11_308), [1000]),
    (Vgg13Bn, 133_053_736, Thousandths(11_308), [1000]),
    (Vgg16, 138_357_544, Thousandths(15_470), [1000]),
    (Vgg16Bn, 138_365_992, Thousandths(15_470), [1000]),
    (Vgg19, 143_667_240, Thousandths(19_632), [1000]),
    (Vgg19Bn, 143_678_248, Thousandths(19_632), [1000]),
    (VitB16, 86_567_656, Flops(35_127_656_448), [1000]),
    (VitS16, 22_050_664, Flops(9_197_764_608), [1000]),
    // Without what stands in for steps that are hidden.
    (Wav2Vec2Base, 94_395_552, Flops(148_157_573_120), [499, 32]),
    (WhisperTiny, 37_760_640, Flops(71_082_196_992), [448, 51865]),
    // PyTorch does not count what an LSTM multiplies: a step maps the input and the last output to four gates, in each of two layers.
    (LstmLm, 13_280_400, Flops(455_000_000 + 2 * 35 * 2 * 4 * 650 * (650 + 650)), [35, 10000]),
    (GruLm, 11_587_800, Flops(809_900_000), [35, 10000]),
}

/// A peak of single operations that are almost as high as each other: harder in 16 bits than any other network here.
#[test]
fn ddpm_is_packed_to_its_bound_in_sixteen_bits() {
    let tables = DdpmCifar10::<1>::PROGRAM.tables;
    let tables = tables.with_workspaces(Workspaces { product: 32 << 20, convolution: 256 << 20 });
    for batch in 1..=40 {
        let budget = budget_at(&tables, batch, Precision::Bf16).unwrap();
        assert_eq!(budget[Line::Arena], budget.lower_bound, "at batch {batch}");
    }
}

/// Name and shape in the original's state dict: tables of a transformer have a dimension for the batch there.
fn original_name(path: &str, mut shape: Vec<u64>) -> (String, Vec<u64>) {
    let name = torch_name(path);
    let tables = ["class_token", "pos_embedding", "cls_token", "dist_token", "pos_embed"];
    if shape.len() == 2 && tables.iter().any(|table| name.ends_with(table)) {
        shape.insert(0, 1);
    }
    (name, shape)
}

/// Parameters and running statistics under the original's names, with their shapes, in the order of names.
fn state<N: Network>() -> BTreeMap<String, Vec<u64>> {
    let program = Program::decode(N::PROGRAM.program).unwrap();
    let tensors = program.tensors.iter().filter(|tensor| matches!(tensor.class, Class::Parameter | Class::Buffer));
    tensors.map(|tensor| original_name(&tensor.name, tensor.shape.dims().to_vec())).collect()
}

/// FNV-1a of a state dict's lines `name [shape]`, in the order of names.
fn digest<N: Network>() -> (usize, u64) {
    digest_of(&state::<N>())
}

fn digest_of(state: &BTreeMap<String, Vec<u64>>) -> (usize, u64) {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (name, shape) in state {
        for byte in format!("{name} {shape:?}\n").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    (state.len(), hash)
}

macro_rules! state_dicts {
    ($(($network:ident, $tensors:expr, $digest:expr),)*) => {
        #[test]
        fn names_and_shapes_are_those_of_the_state_dict() {
            $(assert_eq!(digest::<$network<1>>(), ($tensors, $digest), stringify!($network));)*
        }
    };
}

// Tensors and digests of state dicts that torchvision 0.29.2, timm 1.0.31, transformers 5.23.0, diffusers 0.42.1 and PyTorch's examples made,
// without `num_batches_tracked`.
state_dicts! {
    (AlexNet, 16, 0x8aef_27c5_a301_d050),
    (ConvNeXtTiny, 182, 0x55d6_eafb_0a8c_7cff),
    (Generator, 21, 0xc43e_823d_7851_74b7),
    (Discriminator, 17, 0xbda5_e40c_26b5_79c2),
    (DdpmCifar10, 328, 0x6abe_9b5e_66e7_1d93),
    (DenseNet121, 606, 0xfb86_7ca5_94e7_9589),
    (EfficientNetB0, 311, 0x5c24_6a99_fb3c_e69c),
    (EfficientNetV2S, 672, 0xa935_2567_46b9_84b8),
    (GoogLeNet, 305, 0x4bb5_6cdd_8102_6599),
    (Gpt2, 148, 0xd425_e407_49e0_f8e6),
    (Gpt2Medium, 292, 0x7dc7_7e1a_888b_b772),
    (Gpt2Large, 436, 0x3f19_f586_ce83_c462),
    (Gpt2Xl, 580, 0x9408_b192_f56e_9e96),
    (Mamba130M, 242, 0x0d5c_6ecd_1816_1df1),
    (MixerS16, 102, 0xa21b_0ef8_b66c_139f),
    (MixerB16, 150, 0xa830_2396_ba8b_065c),
    (MobileNetV2, 262, 0xaf55_7b53_cb3d_00c9),
    (MobileNetV3Small, 210, 0x6208_068d_d86c_7dd7),
    (MobileNetV3Large, 266, 0xd5f7_c86b_eec2_5bb6),
    (MnasNet, 262, 0x2e46_a113_9d6e_6ce6),
    (ResNet18, 102, 0x18b0_56aa_6aa6_fea6),
    (ResNet34, 182, 0xd3f2_0fb1_a6eb_ec98),
    (ResNet50, 267, 0xd296_b015_caae_1553),
    (ResNet101, 522, 0x53de_be43_3849_4eae),
    (ResNet152, 777, 0x0ccb_b95c_5a95_6870),
    (ResNeXt50, 267, 0x738d_0374_af5a_481a),
    (WideResNet50, 267, 0xb99d_2668_8c06_62c7),
    (R3d18, 102, 0xc94f_e7c8_9ab7_301a),
    (SqueezeNet10, 52, 0x77f6_3d8f_9f16_a555),
    (SqueezeNet11, 52, 0xb3e2_14f6_c586_3cf2),
    (SegFormerB0, 207, 0x3539_a77d_6ab3_8c12),
    (SwinT, 173, 0x45d5_37ff_7fba_3ce1),
    (T5Small, 131, 0xbc6d_7a0f_c0b0_44d5),
    (Wav2Vec2Base, 212, 0x7b77_f26b_2827_249b),
    (WhisperTiny, 167, 0x7487_49a6_5cca_7ff7),
    (Vgg11, 22, 0x288d_104a_e091_ee95),
    (Vgg11Bn, 54, 0x2cb7_05fc_d527_6415),
    (Vgg13, 26, 0x202f_819e_d780_229c),
    (Vgg13Bn, 66, 0x524f_736b_7e3a_2262),
    (Vgg16, 32, 0xc289_28e3_9d00_7d16),
    (Vgg16Bn, 84, 0x6368_e90f_c807_17fb),
    (Vgg19, 38, 0x36d3_3bf2_95df_503e),
    (Vgg19Bn, 102, 0x1d6a_738f_8088_1bcc),
    (Vae, 10, 0x455f_d8ba_10e8_b809),
    (LstmLm, 10, 0x01c4_c235_371d_8ee9),
    (GruLm, 10, 0x370b_973c_bdb5_51f5),
    (VitB16, 152, 0x6512_e108_ff55_8aa4),
    (VitS16, 152, 0xf5e7_8326_e3f1_45bc),
}

/// Parameters and running statistics by their [`torch_name`], with their shapes, in the order of names.
fn torch_state<N: Network>() -> BTreeMap<String, Vec<u64>> {
    let program = Program::decode(N::PROGRAM.program).unwrap();
    let tensors = program.tensors.iter().filter(|tensor| matches!(tensor.class, Class::Parameter | Class::Buffer));
    tensors.map(|tensor| (torch_name(&tensor.name), tensor.shape.dims().to_vec())).collect()
}

/// CLIP's parameters that are no matrices in the original.
fn clip_state<N: Network>() -> BTreeMap<String, Vec<u64>> {
    let own = |(name, shape): (String, Vec<u64>)| match &*name {
        "logit_scale" => (name, Vec::new()),
        "vision_model.embeddings.class_embedding" => (name, shape[1..].to_vec()),
        _ => (name, shape),
    };
    torch_state::<N>().into_iter().map(own).collect()
}

/// The same of networks whose originals have names of their own, without what is there twice.
#[test]
fn names_and_shapes_are_those_of_further_state_dicts() {
    assert_eq!(digest::<InceptionV3<1>>(), (484, 0x0806_5d98_5784_ce36), "InceptionV3");
    assert_eq!(digest::<TinyLlama<1>>(), (201, 0xfa05_e7b9_3c92_392e), "TinyLlama");
    assert_eq!(digest::<Llama1B<1>>(), (146, 0x7777_b71c_1b68_cd49), "Llama1B");
    assert_eq!(digest::<Qwen500M<1>>(), (290, 0xd6ce_9baf_ec6c_fcdc), "Qwen500M");
    assert_eq!(digest::<Mistral7B<1>>(), (291, 0x304f_36e4_fad9_bef4), "Mistral7B");
    assert_eq!(digest::<Gemma2B<1>>(), (164, 0x5e7e_7bff_4dcc_268d), "Gemma2B");
    assert_eq!(digest::<RegNetY400Mf<1>>(), (331, 0xa46c_6c12_a7fd_4d70), "RegNetY400Mf");
    assert_eq!(digest::<FcnResNet50<1>>(), (279, 0x28d2_e882_0343_0583), "FcnResNet50");
    assert_eq!(digest::<DeepLabV3ResNet50<1>>(), (309, 0xf537_940b_9a8c_d9a3), "DeepLabV3ResNet50");
    assert_eq!(digest::<BertBaseMaskedLm<1>>(), (202, 0x3a4d_7fcd_26c7_464a), "BertBaseMaskedLm");
    assert_eq!(digest::<BertLargeMaskedLm<1>>(), (394, 0x3499_0c0d_8b25_5f76), "BertLargeMaskedLm");
    assert_eq!(digest::<BertBaseClassifier<1>>(), (201, 0x0870_1a69_b928_03c2), "BertBaseClassifier");
    assert_eq!(digest::<RobertaBaseClassifier<1>>(), (201, 0xac89_4c09_5c9c_519f), "RobertaBaseClassifier");
    assert_eq!(digest::<DistilBertClassifier<1>>(), (104, 0xbb53_902d_653b_f7f9), "DistilBertClassifier");
    assert_eq!(digest::<DeitS16<1>>(), (155, 0x249a_9a6d_d987_ab48), "DeitS16");
    assert_eq!(digest::<DeitB16<1>>(), (155, 0x22f7_1e9e_08cf_78f2), "DeitB16");
    assert_eq!(digest_of(&clip_state::<ClipVitB32<1>>()), (398, 0x04c4_4852_296f_c5df), "ClipVitB32");
    assert_eq!(digest::<ShuffleNetV2<1>>(), (282, 0xc11e_ab98_4ed1_3fd7), "ShuffleNetV2");
}

fn truth(file: &str) -> Value {
    let path = format!("{}/../tests/truth/models/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Modules with parameters have the original's names and numbers, and no step has a higher peak than PyTorch's.
fn beside_pytorch<N: Network>(file: &str) {
    let truth = truth(file);
    let theirs = truth["layers_batch1"].as_array().unwrap().iter();
    let theirs = theirs.filter(|module| module["params"] != 0 && module["name"] != "lm_head");
    let theirs =
        theirs.map(|module| (module["name"].as_str().unwrap().to_string(), module["params"].as_u64().unwrap()));
    let ours = N::LAYERS.iter().filter(|layer| layer.parameters != 0);
    let ours = ours.map(|layer| (torch_name(layer.path), layer.parameters));
    assert_eq!(ours.collect::<BTreeMap<_, _>>(), theirs.collect(), "{file}");
    for (batch, figures) in truth["batches"].as_object().unwrap() {
        for (name, moments) in [("sgd", 0), ("sgd_momentum", 1), ("adam", 2)] {
            let runs = figures["training_step"].as_array().unwrap().iter();
            let runs = runs.filter(|run| run["optimizer"] == name && run["zero_grad"] == "set_to_none");
            let theirs = runs.map(|run| run["peak_bytes"].as_u64().unwrap()).min().unwrap();
            let tables = Tables { moments, ..*N::PROGRAM.tables };
            let arena = budget_at(&tables, batch.parse().unwrap(), Precision::F32).unwrap()[Line::Arena];
            assert!(arena <= theirs, "{file}, batch {batch}, {name}: {arena} bytes, PyTorch {theirs}");
        }
    }
}

#[test]
fn modules_and_peaks_are_pytorchs() {
    beside_pytorch::<AlexNet<1>>("alexnet");
    beside_pytorch::<Gpt2<1>>("gpt2_small_sdpa_efficient");
    beside_pytorch::<MobileNetV2<1>>("mobilenet_v2");
    beside_pytorch::<ResNet18<1>>("resnet18");
    beside_pytorch::<ResNet50<1>>("resnet50");
    beside_pytorch::<UNet<1>>("unet");
    beside_pytorch::<Vgg16<1>>("vgg16");
}

/// The arena of 32 samples is no larger, without what that figure leaves out: the second batch that there is room for, and workspaces.
fn check_peaks<N: Network>(peaks: [u64; 2]) {
    let tables = N::PROGRAM.tables.with_workspaces(Workspaces { product: 0, convolution: 0 });
    for (moments, theirs) in [1, 2].into_iter().zip(peaks) {
        let budget = budget_at(&Tables { moments, ..tables }, 32, Precision::F32).unwrap();
        let ours = budget[Line::Arena] - budget[Line::BatchIo] / 2;
        assert!(ours <= theirs, "{} with {moments} moments: {ours} bytes, PyTorch {theirs}", N::NAME);
    }
}

/// Measured over the operations of exported networks, in f32, on tensors without numbers: what PyTorch's live tensors reach in a step
/// with SGD and a momentum, and with AdamW. That of an LSTM leaves out what its one operation keeps.
#[test]
fn peaks_are_at_most_those_of_exported_networks() {
    check_peaks::<AlexNet<1>>([847_727_592, 1_299_000_260]);
    check_peaks::<Discriminator<1>>([59_920_544, 70_982_860]);
    check_peaks::<Generator<1>>([78_461_480, 92_768_348]);
    check_peaks::<GruLm<1>>([325_792_328, 372_143_568]);
    check_peaks::<MnasNet<1>>([1_472_846_280, 1_490_380_160]);
    check_peaks::<MobileNetV3Small<1>>([551_224_440, 561_396_432]);
    check_peaks::<SegFormerB0<1>>([2_980_720_312, 2_995_731_908]);
    check_peaks::<MixerS16<1>>([1_740_463_336, 1_814_576_800]);
    check_peaks::<VitS16<1>>([2_110_270_952, 2_198_474_216]);
    check_peaks::<Vae<1>>([8_090_920, 13_161_452]);
    check_peaks::<VitB16<1>>([4_544_380_904, 4_890_652_136]);
}
