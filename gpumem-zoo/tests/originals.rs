//! Each network beside the original: parameters, operations, output, names, and what a step needs.
//!
//! Parameters and operations of torchvision's networks are `num_params` and, to three digits, `_ops` in the metadata of their
//! weights; those with all digits were counted by `FlopCounterMode` of PyTorch 2.15. `../tests/truth/models` has the names of
//! modules and the peaks that PyTorch reached; its README says how they were measured.
// The plan of a generic network is made where its batch is known: here, and of GPT-2 XL that is long.
#![allow(long_running_const_eval)]

use gpumem::__private::memory::budget::budget_at;
use gpumem::__private::memory::tables::Workspaces;
use gpumem::__private::program::Class;
use gpumem::__private::program::Program;
use gpumem::{Line, Network, Precision, Tables};
use gpumem_zoo::alexnet::AlexNet;
use gpumem_zoo::convnext::ConvNeXtTiny;
use gpumem_zoo::dcgan::{Discriminator, Generator};
use gpumem_zoo::densenet::DenseNet121;
use gpumem_zoo::googlenet::GoogLeNet;
use gpumem_zoo::gpt2::{Gpt2, Gpt2Large, Gpt2Medium, Gpt2Xl};
use gpumem_zoo::lenet::LeNet5;
use gpumem_zoo::mixer::{MixerB16, MixerS16};
use gpumem_zoo::mobilenet::{MnasNet, MobileNetV2, MobileNetV3Large, MobileNetV3Small};
use gpumem_zoo::resnet::{ResNeXt50, ResNet18, ResNet34, ResNet50, ResNet101, ResNet152, WideResNet50};
use gpumem_zoo::squeezenet::{SqueezeNet10, SqueezeNet11};
use gpumem_zoo::torch_name;
use gpumem_zoo::unet::UNet;
use gpumem_zoo::vgg::{Vgg11, Vgg11Bn, Vgg13, Vgg13Bn, Vgg16, Vgg16Bn, Vgg19, Vgg19Bn};
use gpumem_zoo::vit::{VitB16, VitS16};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is known of an original.
enum Operations {
    /// Two for each multiplication and addition, of one sample.
    Flops(u64),
    /// Thousands of millions of multiplications and additions, to three digits behind the point.
    Thousandths(u64),
    /// Nobody printed it.
    Unknown,
}

use Operations::{Flops, Thousandths, Unknown};

/// Networks whose plan is above the lower bound at some batch; the README says by how much.
const LOOSE: [&str; 4] = ["Gpt2Xl", "MixerB16", "MobileNetV3Large", "VitS16"];

fn check<N: Network>(parameters: u64, operations: &Operations, output: &[u64]) {
    let macs = sum::<N>(|layer| layer.macs);
    assert_eq!(sum::<N>(|layer| layer.parameters), parameters, "{}: parameters", N::NAME);
    match operations {
        Flops(flops) => assert_eq!(2 * macs, *flops, "{}: operations", N::NAME),
        Thousandths(printed) => assert_eq!((macs + 500_000) / 1_000_000, *printed, "{}: operations", N::NAME),
        Unknown => {}
    }
    assert_eq!(N::LAYERS.last().unwrap().output_shape, output, "{}: output", N::NAME);
    for (kind, tables) in [("train", N::PROGRAM.tables), ("infer", N::INFERENCE.tables)] {
        let tables = &tables.with_workspaces(Workspaces { product: 32 << 20, convolution: 256 << 20 });
        for batch in [1, 7, 32] {
            let budget = budget_at(tables, batch, Precision::F32).unwrap();
            if !LOOSE.contains(&N::NAME) {
                assert_eq!(budget[Line::Arena], budget.lower_bound, "{} {kind} at batch {batch}", N::NAME);
            }
        }
    }
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

/// A test for each network, and one for the table of them all.
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
        fn the_table_is_that_of_the_networks() {
            let mut text = String::from(
                "| network | parameters | GFLOPs forward | MiB of a step, batch 1 | MiB of a step, batch 32 |\n\
                 | --- | ---: | ---: | ---: | ---: |\n",
            );
            $(text += &line::<$network<1>>();)*
            check_doc(&text);
        }
    };
}

originals! {
    (AlexNet, 61_100_840, Flops(1_428_376_960), [1000]),
    (ConvNeXtTiny, 28_589_128, Thousandths(4_456), [1000]),
    (Generator, 3_576_704, Flops(209_256_448), [3, 64, 64]),
    (Discriminator, 2_765_568, Flops(207_634_432), [1]),
    (DenseNet121, 7_978_856, Thousandths(2_834), [1000]),
    (GoogLeNet, 6_624_904, Thousandths(1_498), [1000]),
    (Gpt2, 124_439_808, Flops(291_648_307_200), [1024, 50257]),
    (Gpt2Medium, 354_823_168, Unknown, [1024, 50257]),
    (Gpt2Large, 774_030_080, Unknown, [1024, 50257]),
    (Gpt2Xl, 1_557_611_200, Unknown, [1024, 50257]),
    (LeNet5, 61_706, Unknown, [10]),
    (MixerS16, 18_528_264, Flops(7_553_916_928), [1000]),
    (MixerB16, 59_880_472, Unknown, [1000]),
    (MobileNetV2, 3_504_872, Flops(601_548_544), [1000]),
    (MobileNetV3Small, 2_542_856, Flops(113_020_800), [1000]),
    (MobileNetV3Large, 5_483_032, Thousandths(217), [1000]),
    (MnasNet, 4_383_312, Flops(628_831_744), [1000]),
    (ResNet18, 11_689_512, Flops(3_628_146_688), [1000]),
    (ResNet34, 21_797_672, Thousandths(3_664), [1000]),
    (ResNet50, 25_557_032, Thousandths(4_089), [1000]),
    (ResNet101, 44_549_160, Thousandths(7_801), [1000]),
    (ResNet152, 60_192_808, Thousandths(11_514), [1000]),
    (ResNeXt50, 25_028_904, Thousandths(4_230), [1000]),
    (WideResNet50, 68_883_240, Thousandths(11_398), [1000]),
    (SqueezeNet10, 1_248_424, Thousandths(819), [1000]),
    (SqueezeNet11, 1_235_496, Thousandths(349), [1000]),
    (UNet, 31_037_698, Flops(385_372_651_520), [2, 512, 512]),
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
}

/// Compares the table of the README with `text`.
fn check_doc(text: &str) {
    let path = format!("{}/README.md", env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- zoo -->\n", "<!-- end of zoo -->");
    let (from, to) = (doc.find(start).unwrap() + start.len(), doc.find(end).unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{text}{}", &doc[..from], &doc[to..])).unwrap();
        return;
    }
    assert_eq!(&doc[from..to], text, "run `UPDATE_DOCS=1 cargo test -p gpumem-zoo --test originals`");
}

/// Parameters and running statistics under the original's names, with their shapes, in the order of names.
fn state<N: Network>() -> BTreeMap<String, Vec<u64>> {
    let program = Program::decode(N::PROGRAM.program).unwrap();
    let tensors = program.tensors.iter().filter(|tensor| matches!(tensor.class, Class::Parameter | Class::Buffer));
    tensors.map(|tensor| (torch_name(&tensor.name), tensor.shape.dims().to_vec())).collect()
}

/// FNV-1a of a state dict's lines `name [shape]`, in the order of names.
fn digest<N: Network>() -> (usize, u64) {
    let state = state::<N>();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (name, shape) in &state {
        for byte in format!("{name} {shape:?}\n").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    (state.len(), hash)
}

/// Digests of state dicts that torchvision 0.29.2 and timm 1.0.31 made, without `num_batches_tracked`.
#[test]
fn names_and_shapes_are_those_of_the_state_dict() {
    assert_eq!(digest::<AlexNet<1>>(), (16, 0x8aef_27c5_a301_d050), "AlexNet");
    assert_eq!(digest::<Generator<1>>(), (21, 0xc43e_823d_7851_74b7), "Generator");
    assert_eq!(digest::<Discriminator<1>>(), (17, 0xbda5_e40c_26b5_79c2), "Discriminator");
    assert_eq!(digest::<MixerS16<1>>(), (102, 0xa21b_0ef8_b66c_139f), "MixerS16");
    assert_eq!(digest::<MobileNetV3Small<1>>(), (210, 0x6208_068d_d86c_7dd7), "MobileNetV3Small");
    assert_eq!(digest::<MnasNet<1>>(), (262, 0x2e46_a113_9d6e_6ce6), "MnasNet");
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
