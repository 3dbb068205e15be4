//! The peak of a training step beside PyTorch's: batch 32, f32, SGD with momentum, without anybody's scratch memory.
//!
//! PyTorch's bytes are the largest sum of storages that are alive after any operation: parameters, gradients, momentum, statistics, input,
//! target and activations. Those of the networks of torchvision, timm and diffusers were found by `peaks.py` beside this file with PyTorch 2 on fake
//! tensors. That of the U-Net is the third `training_step` at batch 32 in `tests/truth/models/unet.json`, where the caller holds the output: 0.14 % of the
//! whole. The arena has the input and target twice.
// GPT-2 XL is long.
#![allow(missing_docs, long_running_const_eval)]

mod layer_scale;
mod pages;

use gpumem::{Checkpoint, Line, Network, Precision};
use gpumem_core::graph::{Graph, NodeId, Source};
use gpumem_core::lower::{Blueprint, Sizes, tables, with_normalized_convolutions};
use gpumem_core::memory::budget::budget_at;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Class, Op, Program, Tensor};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_zoo::alexnet::AlexNet;
use gpumem_zoo::convnext::ConvNeXtTiny;
use gpumem_zoo::ddpm::DdpmCifar10;
use gpumem_zoo::densenet::DenseNet121;
use gpumem_zoo::efficientnet::EfficientNetB0;
use gpumem_zoo::gpt2::{Gpt2, Gpt2Xl};
use gpumem_zoo::mobilenet::MobileNetV2;
use gpumem_zoo::resnet::{ResNet18, ResNet50, ResNet152};
use gpumem_zoo::swin::SwinT;
use gpumem_zoo::t5::T5Small;
use gpumem_zoo::unet::UNet;
use gpumem_zoo::vgg::Vgg16;
use gpumem_zoo::vit::VitB16;
use layer_scale::{CaiTXxs24, DinoV2Small};
use std::collections::BTreeSet;

const MOMENTUM: Optimizer = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT });

/// PyTorch's bytes.
const RESNET50: u64 = 2_987_610_000;
const RESNET152: u64 = 6_194_156_224;
const UNET: u64 = 48_600_332_976;
const DENSENET121: u64 = 4_252_878_256;
const VGG16: u64 = 3_986_945_512;
const VIT_B16: u64 = 4_544_252_904;
const CONVNEXT_TINY: u64 = 3_758_114_280;
const SWIN_T: u64 = 3_675_328_408;
const DINOV2_SMALL: u64 = 2_994_917_352;
const CAIT_XXS24: u64 = 4_142_382_312;
const DDPM: u64 = 1_953_176_088;

fn blueprint<N: Network>(checkpoint: Checkpoint) -> Blueprint {
    let mut blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    blueprint.order_for(None);
    let steps = blueprint.training.as_mut().unwrap();
    (steps.checkpoint, steps.moments) = (checkpoint, MOMENTUM.moments());
    blueprint
}

fn setting(batch: u64) -> Sizes {
    Sizes::new(batch, Precision::F32, Workspaces { product: 0, convolution: 0 })
}

fn planned(program: &Program, setting: &Sizes) -> u64 {
    budget_at(&tables(program).as_tables().with_workspaces(setting.workspaces), setting.batch, setting.precision)
        .unwrap()[Line::Arena]
}

fn arena<N: Network>(checkpoint: Checkpoint) -> u64 {
    let setting = setting(32);
    planned(&blueprint::<N>(checkpoint).trainings(&setting).unwrap()[0], &setting)
}

/// The step takes at most so many thousandths of PyTorch's bytes, and so many with `checkpoint: Cheap`.
fn check<N: Network>(torch: u64, [plain, cheap]: [u64; 2]) {
    for (checkpoint, most) in [(Checkpoint::Norms, plain), (Checkpoint::Cheap, cheap)] {
        let share = (1000 * arena::<N>(checkpoint)).div_ceil(torch);
        assert!(share <= most && share + 5 > most, "{}, {checkpoint:?}: {share} thousandths", N::NAME);
    }
}

/// What a value is in memory: views are what they look at.
fn looked_at(graph: &Graph, mut node: NodeId) -> NodeId {
    while let Source::View(input) = graph.nodes[node].source {
        node = input;
    }
    node
}

/// Bytes that no order of a step goes below without computing something again: the inputs of convolutions, products and normalisations, which
/// their gradients read and which are all there at the loss, parameters, momentum, and the batch once. What one input is in front of another
/// counts as part of that. Between a convolution and a normalisation that are one there is nothing.
fn floor<N: Network>() -> u64 {
    let Blueprint { graph, outputs, .. } = Blueprint::decode(N::BLUEPRINT).unwrap();
    let graph = with_normalized_convolutions(&graph, &outputs);
    let used: BTreeSet<NodeId> = graph.nodes.iter().flat_map(|node| node.inputs()).chain(&outputs).copied().collect();
    let mut read = BTreeSet::new();
    for node in used.iter().map(|&node| &graph.nodes[node]) {
        let Source::Op { op, inputs, .. } = &node.source else { continue };
        if matches!(op, Op::Convolution(_) | Op::Product(_) | Op::BatchNorm(_) | Op::NormalizedConvolution(_)) {
            read.insert(looked_at(&graph, inputs[0]));
        }
    }
    let mut fronts = BTreeSet::new();
    for node in (0..graph.nodes.len()).rev() {
        let is_joined = matches!(graph.nodes[node].source, Source::Op { op: Op::Concat(_), .. });
        if is_joined && (read.contains(&node) || fronts.contains(&node)) {
            fronts.insert(looked_at(&graph, graph.nodes[node].inputs()[0]));
        }
    }
    read.retain(|node| !fronts.contains(node));
    let elements = |node: NodeId| graph.nodes[node].value.shape.elements().unwrap();
    let inputs = (0..graph.nodes.len()).filter(|&node| matches!(graph.nodes[node].source, Source::Input));
    let kept: u64 =
        read.into_iter().filter(|&node| !matches!(graph.nodes[node].source, Source::Input)).map(elements).sum();
    let parameters: u64 = graph.parameters.iter().map(|parameter| parameter.shape.elements().unwrap()).sum();
    4 * (32 * (kept + inputs.map(elements).sum::<u64>()) + 2 * parameters)
}

/// Thousandths of PyTorch's bytes, as a share with three digits.
fn share(bytes: u64, torch: u64) -> String {
    let thousandths = (1000 * bytes).div_ceil(torch);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

fn floor_line<N: Network>(torch: u64) -> String {
    let (floor, keeping) = (floor::<N>(), arena::<N>(Checkpoint::None));
    assert!(floor <= keeping, "{}", N::NAME);
    let [plain, cheap] = [Checkpoint::Norms, Checkpoint::Cheap].map(arena::<N>);
    let [floor, keeping, plain, cheap] = [floor, keeping, plain, cheap].map(|bytes| share(bytes, torch));
    format!("| `{}` | {floor} | {keeping} | {plain} | {cheap} |\n", N::NAME)
}

fn floors_are_those_of_the_memory_model() {
    let head = "| network | inputs of convolutions, products and normalisations, parameters, momentum, batch | `checkpoint: None` | a step | `checkpoint: Cheap` |";
    let mut text = format!("{head}\n| --- | ---: | ---: | ---: | ---: |\n");
    text += &floor_line::<ResNet50<32>>(RESNET50);
    text += &floor_line::<ResNet152<32>>(RESNET152);
    text += &floor_line::<UNet<32>>(UNET);
    text += &floor_line::<DenseNet121<32>>(DENSENET121);
    text += &floor_line::<Vgg16<32>>(VGG16);
    pages::check("../docs/lab/memory-results.md", "floors", &text);
}

fn order_line<N: Network>(batch: u64) -> String {
    let (blueprint, setting) = (blueprint::<N>(Checkpoint::None), setting(batch));
    let rule = planned(&blueprint.training(setting.precision).unwrap().unwrap(), &setting);
    let found = planned(&blueprint.training_for(&setting).unwrap().unwrap(), &setting);
    assert!(found <= rule, "{}", N::NAME);
    format!("| `{}`, {batch} | {} | {} |\n", N::NAME, rule >> 20, found >> 20)
}

fn orders_are_those_of_the_memory_model() {
    let mut text = String::from("| network, batch | rule | found |\n| --- | ---: | ---: |\n");
    text += &order_line::<Vgg16<32>>(32);
    text += &order_line::<UNet<32>>(32);
    text += &order_line::<AlexNet<32>>(32);
    text += &order_line::<Gpt2<1>>(1);
    text += &order_line::<Gpt2Xl<1>>(1);
    text += &order_line::<T5Small<1>>(1);
    text += &order_line::<ResNet18<1>>(1);
    text += &order_line::<ResNet50<1>>(1);
    text += &order_line::<ResNet50<1>>(32);
    pages::check("../docs/lab/memory-results.md", "orders", &text);
}

/// What is alive of DenseNet-121 at its peak and at the loss.
fn concatenations_are_those_of_the_memory_model() {
    let setting = setting(32);
    let program = blueprint::<DenseNet121<32>>(Checkpoint::Norms).training_for(&setting).unwrap().unwrap();
    let alive = |at: usize| -> u64 {
        let lives = |tensor: &&Tensor| (tensor.first..=tensor.last).contains(&(at as u32));
        let all = program.tensors.iter().filter(|tensor| tensor.class == Class::Transient).filter(lives);
        all.map(|tensor| tensor.stored(setting.batch).unwrap() * tensor.role.bytes(setting.precision)).sum()
    };
    let peak = (0..program.operations.len()).map(alive).max().unwrap();
    let loss = alive(program.operations.iter().position(|it| matches!(it.action, Action::Loss(_))).unwrap());
    let mib = |bytes: u64| (bytes + (1 << 19)) >> 20;
    let share = 100.0 * (peak - loss) as f64 / planned(&program, &setting) as f64;
    let head = "| `DenseNet121`, 32: MiB at the peak | at the loss | difference | of the arena |\n| ---: | ---: | ---: | ---: |";
    let text = format!("{head}\n| {} | {} | {} | {share:.1} % |\n", mib(peak), mib(loss), mib(peak - loss));
    pages::check("../docs/lab/memory-results.md", "concatenations", &text);
}

fn norms_line<N: Network>() -> String {
    let [keeping, plain] = [Checkpoint::None, Checkpoint::Norms].map(arena::<N>);
    format!("| `{}` | {} | {} | {} |\n", N::NAME, keeping >> 20, plain >> 20, share(plain, keeping))
}

/// What outputs of normalisations take, which are made again.
fn norms_are_those_of_the_memory_model() {
    let mut text =
        String::from("| network | `checkpoint: None`, MiB | a step | share |\n| --- | ---: | ---: | ---: |\n");
    text += &norms_line::<ResNet50<32>>();
    text += &norms_line::<EfficientNetB0<32>>();
    text += &norms_line::<UNet<32>>();
    text += &norms_line::<MobileNetV2<32>>();
    text += &norms_line::<DenseNet121<32>>();
    pages::check("../docs/lab/memory-results.md", "norms", &text);
}

fn rows_line<N: Network>(torch: u64) -> String {
    let [keeping, plain, cheap] =
        [Checkpoint::None, Checkpoint::Norms, Checkpoint::Cheap].map(|checkpoint| share(arena::<N>(checkpoint), torch));
    format!("| `{}` | {keeping} | {plain} | {cheap} |\n", N::NAME)
}

/// What outputs of row norms and functions take, which are made again.
fn row_norms_are_those_of_the_memory_model() {
    let head = "| network | `checkpoint: None` | a step | `checkpoint: Cheap` |\n| --- | ---: | ---: | ---: |\n";
    let mut text = String::from(head);
    text += &rows_line::<VitB16<32>>(VIT_B16);
    text += &rows_line::<ConvNeXtTiny<32>>(CONVNEXT_TINY);
    text += &rows_line::<SwinT<32>>(SWIN_T);
    text += &rows_line::<DinoV2Small<32>>(DINOV2_SMALL);
    text += &rows_line::<CaiTXxs24<32>>(CAIT_XXS24);
    text += &rows_line::<DdpmCifar10<32>>(DDPM);
    pages::check("../docs/lab/memory-results.md", "row norms", &text);
}

/// One after the other, for all write one file where tables are made anew.
#[test]
fn tables_are_those_of_the_memory_model() {
    floors_are_those_of_the_memory_model();
    norms_are_those_of_the_memory_model();
    orders_are_those_of_the_memory_model();
    concatenations_are_those_of_the_memory_model();
    row_norms_are_those_of_the_memory_model();
}

#[test]
fn steps_take_less_than_pytorchs() {
    check::<ResNet50<32>>(RESNET50, [553, 537]);
    check::<ResNet152<32>>(RESNET152, [549, 542]);
    check::<UNet<32>>(UNET, [586, 586]);
    check::<DenseNet121<32>>(DENSENET121, [239, 239]);
    check::<Vgg16<32>>(VGG16, [606, 606]);
}
