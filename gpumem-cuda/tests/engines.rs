//! What cuDNN itself says of the convolutions of whole networks, for cards that are not here: which of them in 16 bits have an
//! engine on tensor cores within the scratch memory that the plan gives them. A change of the answers shows in review:
//! `UPDATE_FIGURES=1` writes the file.
//!
//! `figures/devices.json` has what each card says of itself: the H200's as cuDNN asks for it, the others' with NVIDIA's
//! published figures in place of its own. `scripts/cudnn-check` brings the library, and a driver that answers nothing but its
//! version.

#[path = "../../tests/networks/mod.rs"]
mod networks;
mod planned;
#[path = "engines/recurrences.rs"]
mod recurrences;

use gpumem::cards::{A100_40GB, Card, H200, RTX_4090, T4};
use gpumem::{Network, Precision, network};
use gpumem_cuda::traffic::launches;
use gpumem_cuda::{AbsentCard, Call, Convolution};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/figures/engines.txt");

network! {
    /// torchvision's `resnext50_32x4d`.
    pub struct ResNeXt50;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            stage(3, 128, 1), stage(4, 256, 2), stage(6, 512, 2), stage(3, 1024, 2),
            AdaptiveAvgPool2d(1), Flatten, Linear(1000),
        ]
    }

    fn stage(depth: usize, width: usize, stride: usize) -> Block {
        [bottleneck(width, stride, true), repeat(depth - 1, bottleneck(width, 1, false))]
    }

    fn bottleneck(width: usize, stride: usize, project: bool) -> Block {
        [
            Add(
                [
                    Conv2d(width, 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(width, 3, stride = stride, padding = 1, groups = 32, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(2 * width, 1, bias = false), BatchNorm2d,
                ],
                if project { [Conv2d(2 * width, 1, stride = stride, bias = false), BatchNorm2d] } else { [] },
            ),
            Relu(inplace),
        ]
    }
}

network! {
    /// How torchvision's ResNets begin, with images as they are stored: what the first convolution reads has its channels last.
    pub struct Stem;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };

    fn forward(image: Images<u8, 3, 224, 224>) -> Logits<1000> {
        [
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1), Conv2d(64, 1), GlobalAvgPool, Linear(1000),
        ]
    }
}

network! {
    /// Two transposed convolutions of one map, so that the gradient of the second is added to that of the first: a convolution that adds.
    pub struct Decoder;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };

    fn forward(image: Images<u8, 3, 64, 64>) -> Logits<10> {
        [
            Normalize, Conv2d(128, 3, stride = 2, padding = 1), Relu,
            Add(ConvTranspose2d(64, 4, stride = 2, padding = 1, bias = false), ConvTranspose2d(64, 2, stride = 2)),
            Relu, ConvTranspose2d(16, 4, stride = 2, padding = 1), Relu, GlobalAvgPool, Linear(10),
        ]
    }
}

/// The cards with the format that their tensor cores have, and their names in `devices.json`.
const CARDS: [(&str, &Card, Precision); 4] = [
    ("h200", &H200, Precision::Bf16),
    ("a100", &A100_40GB, Precision::Bf16),
    ("rtx4090", &RTX_4090, Precision::Bf16),
    ("t4", &T4, Precision::F16),
];

fn room(convolution: &Convolution) -> u64 {
    convolution.workspace.map_or(0, |workspace| workspace.bytes)
}

/// What becomes of the convolutions of a training step on a card, and those that the library should have had.
fn line<N: Network>(card: (&str, &Card, Precision), batch: u64, text: &mut String) -> Vec<String> {
    let (name, card, precision) = card;
    let properties: serde_json::Value = serde_json::from_str(include_str!("figures/devices.json")).unwrap();
    let absent = AbsentCard::new(&properties[name].to_string()).unwrap();
    let (placed, setting, _) = planned::training::<N>(card, Some(precision), Some(batch), true).unwrap();
    let (mut asked, mut own) = (Vec::new(), BTreeSet::new());
    for launch in launches(&placed, setting).unwrap() {
        match launch.call {
            Call::Convolution(convolution) => asked.push((launch.path, convolution)),
            Call::Kernel(kernel) if kernel.kernel.file.starts_with("convolution") && launch.flops > 0 => {
                own.insert(launch.path);
            }
            Call::Kernel(_)
            | Call::Product(_)
            | Call::Attention(_)
            | Call::Recurrence(_)
            | Call::Passage(_)
            | Call::Exchange(_) => {}
        }
    }
    let (mut served, mut fastest, mut most, mut missed) = (0, 0, 0, Vec::new());
    let mut known = BTreeMap::new();
    for (path, convolution) in &asked {
        let of_any = Convolution {
            x: 0,
            w: 0,
            y: 0,
            bias: convolution.bias.map(|_| 0),
            addend: convolution.addend.map(|_| 0),
            workspace: None,
            ..*convolution
        };
        let answers = known
            .entry((of_any, room(convolution)))
            .or_insert_with(|| (absent.engine(convolution).unwrap(), absent.fastest(convolution, u64::MAX).unwrap()));
        let (Some(taken), best) = *answers else {
            let least = answers.1.map(|best| best.workspace);
            missed.push(format!("{name} {path}: {convolution}: {least:?} bytes wanted"));
            continue;
        };
        served += 1;
        fastest += u32::from(Some(taken) == best);
        most = most.max(taken.workspace);
    }
    let own: Vec<String> = own.into_iter().collect();
    let _ = writeln!(
        text,
        "{} {name} {} {batch}: {} convolutions, {served} with an engine, {fastest} with the fastest, {most} bytes at most; own \
         kernels: {}",
        N::NAME,
        precision.name(),
        asked.len(),
        own.join(" ")
    );
    missed
}

/// What becomes of the attention of a training step on a card, and what the library should have had.
fn attention<N: Network>(card: (&str, &Card, Precision), batch: u64, text: &mut String) -> Vec<String> {
    let (name, card, precision) = card;
    let properties: serde_json::Value = serde_json::from_str(include_str!("figures/devices.json")).unwrap();
    let absent = AbsentCard::new(&properties[name].to_string()).unwrap();
    let (placed, setting, _) = planned::training::<N>(card, Some(precision), Some(batch), true).unwrap();
    let (mut asked, mut served, mut engines, mut most, mut missed) = (0, 0, BTreeSet::new(), 0, Vec::new());
    for launch in launches(&placed, setting).unwrap() {
        let Call::Attention(it) = launch.call else { continue };
        asked += 1;
        match absent.attention(&it, it.workspace.map_or(0, |workspace| workspace.bytes)).unwrap() {
            Some(taken) => {
                served += 1;
                engines.insert(taken.engine);
                most = most.max(taken.workspace);
            }
            None => {
                missed.push(format!("{name} {}: {it}: {:?}", launch.path, absent.attention(&it, u64::MAX).unwrap()))
            }
        }
    }
    let _ = writeln!(
        text,
        "{} {name} {} {batch}: {asked} of attention, {served} with an engine of {engines:?}, {most} bytes at most",
        N::NAME,
        precision.name()
    );
    missed
}

#[test]
#[ignore = "needs libcudnn: scripts/cudnn-check"]
fn every_dense_convolution_and_all_attention_has_an_engine() {
    let (mut text, mut missed) = (String::new(), Vec::new());
    for card in CARDS {
        missed.extend(line::<networks::ResNet50>(card, 256, &mut text));
        missed.extend(line::<networks::Vgg16>(card, 64, &mut text));
        missed.extend(line::<networks::UNet>(card, 16, &mut text));
        missed.extend(line::<networks::MobileNetV2>(card, 256, &mut text));
        missed.extend(line::<ResNeXt50>(card, 256, &mut text));
        missed.extend(line::<Stem>(card, 256, &mut text));
        missed.extend(line::<Decoder>(card, 256, &mut text));
        missed.extend(attention::<networks::Gpt2>(card, 16, &mut text));
    }
    print!("{text}");
    println!("{}", missed.join("\n"));
    if std::env::var_os("UPDATE_FIGURES").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert_eq!(text, kept, "write the file anew with UPDATE_FIGURES=1, and look at the difference");
    assert!(missed.is_empty());
}
