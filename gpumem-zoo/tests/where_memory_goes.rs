//! The tables of `docs/guide/where-memory-goes.md`: budgets of a network with one weight, and of networks that people train.
// The plan of a generic network is made where its batch is known, and of GPT-2 XL that is long.
#![allow(missing_docs, long_running_const_eval)]

mod pages;

use gpumem::{Line, Network, Precision, network};
use gpumem_core::cards::RTX_3060;
use gpumem_core::lower::{Blueprint, tables};
use gpumem_core::memory::budget::{Budget, budget_at};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::train::Update;
use gpumem_core::train::optim::{AdamW, Optimizer, Sgd};
use gpumem_zoo::gpt2::{Gpt2, Gpt2Xl};
use gpumem_zoo::resnet::ResNet50;
use gpumem_zoo::unet::UNet;
use gpumem_zoo::vgg::Vgg16;
use std::fmt::Write as _;

const PAGE: &str = "../docs/guide/where-memory-goes.md";

network! {
    /// One weight, and the mean of its products.
    pub struct Five;

    const TRAIN: Train = Train { batch: 1_048_576, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: Mean };

    fn forward(x: Features<1>) -> Features<1> {
        [Linear(1, bias = false)]
    }
}

/// Returns the budgets of a training step with this optimizer in f32, and of a forward pass.
fn budgets<N: Network>(batch: u64, optimizer: Optimizer) -> [Budget; 2] {
    budgets_with::<N>(batch, optimizer, Update::Fused)
}

/// Returns [`budgets`] of a step that updates parameters in this way.
fn budgets_with<N: Network>(batch: u64, optimizer: Optimizer, update: Update) -> [Budget; 2] {
    let mut blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    blueprint.order_for(None);
    let steps = blueprint.training.as_mut().unwrap();
    (steps.moments, steps.update) = (optimizer.moments(), update);
    let workspaces = Workspaces { product: 32 << 20, convolution: 256 << 20 };
    let sizes = gpumem_core::lower::Sizes::new(batch, Precision::F32, workspaces);
    let programs = [blueprint.trainings(&sizes).unwrap().remove(0), blueprint.inference().unwrap()];
    programs.map(|program| {
        budget_at(&tables(&program).as_tables().with_workspaces(workspaces), batch, Precision::F32).unwrap()
    })
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Returns bytes below a MiB as they are, and more in MiB.
fn bytes_or_mib(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{bytes} B") } else { format!("{} MiB", mib(bytes)) }
}

#[test]
fn one_weight() {
    let [training, inference] = budgets::<Five>(1_048_576, Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }));
    let mut text = String::from("| line | training | inference |\n| --- | ---: | ---: |\n");
    for (name, line) in [
        ("weights", Line::Weights),
        ("gradients", Line::Gradients),
        ("optimizer", Line::Optimizer),
        ("buffers", Line::Buffers),
        ("batch_io", Line::BatchIo),
        ("activations", Line::Activations),
        ("arena", Line::Arena),
    ] {
        writeln!(text, "| {name} | {} | {} |", bytes_or_mib(training[line]), bytes_or_mib(inference[line])).unwrap();
    }
    pages::check(PAGE, "five", &text);
}

/// Returns the bytes of the gradients of a step that holds them all.
fn held<N: Network>(batch: u64) -> u64 {
    budgets_with::<N>(batch, Optimizer::AdamW(AdamW::DEFAULT), Update::Separate)[0][Line::Gradients]
}

fn row<N: Network>(batch: u64) -> String {
    let [training, inference] = budgets::<N>(batch, Optimizer::AdamW(AdamW::DEFAULT));
    assert_eq!(training[Line::Gradients], 0);
    let reserve = RTX_3060.reserve();
    let figures = [
        training[Line::Weights],
        held::<N>(batch),
        training[Line::Optimizer],
        training[Line::BatchIo],
        training[Line::Activations],
        training.workspace,
        training[Line::Arena] + reserve,
        inference[Line::Arena] + reserve,
    ];
    format!("| `{}`, {batch} | {} |\n", N::NAME, figures.map(mib).join(" | "))
}

#[test]
fn networks_that_people_train() {
    let mut text = String::from(
        "| network, batch | weights | gradients, if held | optimizer | batch_io | activations | largest workspace | a step on an RTX 3060 | \
         a forward pass |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    text += &[row::<ResNet50<1>>(32), row::<Vgg16<1>>(32), row::<UNet<1>>(4), row::<Gpt2<1>>(4), row::<Gpt2Xl<1>>(1)]
        .concat();
    pages::check(PAGE, "networks", &text);
}

#[test]
fn batches() {
    let mut text = String::from(
        "| batch | weights, optimizer | batch_io | activations | activations of a sample |\n| ---: | ---: | ---: | ---: | ---: |\n",
    );
    for batch in [1, 8, 32, 128] {
        let [training, _] = budgets::<ResNet50<1>>(batch, Optimizer::AdamW(AdamW::DEFAULT));
        let activations = training[Line::Activations];
        let lasting = mib(training[Line::Weights] + training[Line::Optimizer]);
        let (io, of_each) = (mib(training[Line::BatchIo]), mib(activations / batch));
        writeln!(text, "| {batch} | {lasting} | {io} | {} | {of_each} |", mib(activations)).unwrap();
    }
    pages::check(PAGE, "batches", &text);
}
