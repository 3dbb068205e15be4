//! Batches in parts: what is added up over them, and what they draw.

use crate::chains::random;
use crate::host::harness::graphs::random::BATCH;
use crate::host::harness::graphs::{chain, join, layer, numbers, tokens};
use crate::host::{CAPABILITY, Format, compare_in, prepare};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::Measure;
use gpumem_core::program::loss::LossOptions;
use gpumem_core::train::optim::{Adafactor, Adam, AdamW8bit, Muon, Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent, Schedule};
use gpumem_core::{Half, Precision, Update};

const F32: Format = (Precision::F32, CAPABILITY);

fn training<'t>(loss: &'t [Term], moments: u64, micro_batches: u64) -> Training<'t> {
    let descent = Descent { micro_batches, ..Descent::PLAIN };
    Training { loss, moments, update: Update::Separate, skips_overflow: false, input_gradient: false, descent }
}

/// Gradients that three parts add up to.
fn check_in(what: &str, format: Format, (batch, tolerance): (u64, f64), build: impl FnOnce(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    // Its terms cannot cancel.
    let (loss, split) = ([Term::MSE], training(&[], 0, 3));
    let split = Training { loss: &loss, descent: split.descent.at(format.0), ..split };
    let case = (what, &graph, output, split, batch, stay);
    prepare(&[format], case);
    compare_in(format, 0..2, case, 1, 5, tolerance);
}

fn check(what: &str, batch: u64, build: impl FnOnce(&mut Graph) -> NodeId) {
    check_in(what, F32, (batch, 1e-5), build);
}

fn along(dims: &'static [u64], layers: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, layers)
    }
}

/// Parts begin at any draw of four.
#[test]
fn draws_go_on_from_part_to_part() {
    check("single", 1, along(&[7], "Linear(9) | Dropout(0.4) | Linear(3)"));
    check("whole blocks", 2, along(&[8], "Linear(6) | Dropout(0.4) | Linear(3)"));
    check("channels", 1, along(&[3, 4, 3], "Conv2d(5, 1) | Dropout2d(0.5) | Conv2d(2, 1)"));
    check("samples", 3, along(&[3, 4, 3], "Conv2d(5, 1) | DropPath(0.5) | Conv2d(2, 1)"));
    check("between others", 1, along(&[7], "Linear(9) | Tanh | Dropout(0.3) | Sigmoid | Dropout(0.2) | Linear(3)"));
    check("of two shares", 1, along(&[3, 3, 3], "Conv2d(5, 1) | Dropout2d(0.5) | Dropout(0.3) | Tanh | Conv2d(2, 1)"));
    check("normalised", 2, along(&[3, 5, 3], "Conv2d(4, 1, bias = false) | BatchNorm2d | Dropout(0.3) | Conv2d(2, 1)"));
    check("attention", 1, along(&[5, 8], "CausalSelfAttention(2, dropout = 0.3) | Linear(3)"));
    check("attention of fours", 2, along(&[4, 8], "MultiHeadAttention(2, dropout = 0.3) | Linear(3)"));
    // A table's rows are the same for all samples, and so are its draws.
    check("once for all", 1, |graph| {
        let words = graph.input(tokens(3)).unwrap();
        let positions = chain(graph, words, "PositionEmbedding(3, 8)");
        let attended = chain(graph, positions, "Linear(8) | CausalSelfAttention(2, dropout = 0.2) | Dropout(0.3)");
        let words = layer(graph, words, "Embedding(5, 8)");
        let sum = join(graph, &[words, attended], "Add");
        layer(graph, sum, "Linear(4)")
    });
    // Both drop in one pass: the table's elements, which are there once, and each sample's.
    check("once for all, and for each", 1, |graph| {
        let words = graph.input(tokens(3)).unwrap();
        let positions = chain(graph, words, "PositionEmbedding(3, 8) | Dropout(0.3)");
        let words = layer(graph, words, "Embedding(5, 8)");
        let sum = join(graph, &[words, positions], "Add");
        chain(graph, sum, "Dropout(0.4) | Linear(4)")
    });
    // The gradients of the normalisations find their inputs in front of the last map, which has more elements.
    check("dense", 2, |graph| {
        let input = graph.input(numbers(&[3, 5, 3])).unwrap();
        let mut x = layer(graph, input, "Conv2d(6, 1, bias = false)");
        for _ in 0..2 {
            let made = chain(graph, x, "BatchNorm2d | Relu | Dropout(0.3) | Conv2d(2, 1, bias = false)");
            x = join(graph, &[x, made], "Concat");
        }
        chain(graph, x, "BatchNorm2d | Relu | Conv2d(2, 1)")
    });
}

/// Each part rounds what it adds to. Other draws are other numbers altogether.
#[test]
fn draws_in_16_bits() {
    for half in [Half::Bf16, Half::F16] {
        let format = (Precision::Mixed(half), CAPABILITY);
        check_in("narrow", format, (1, 2e-2), along(&[7], "Linear(9) | Dropout(0.4) | Linear(3)"));
        // Scores of about 1: what is added up for their gradients cancels where a weight is nearly 1.
        let attention = "Affine(0.05) | CausalSelfAttention(2, dropout = 0.3) | Linear(3)";
        check_in("attention", format, (1, 2e-2), along(&[5, 32], attention));
        check_in("attention of fours", format, (2, 2e-2), along(&[8, 32], attention));
    }
}

/// Layers whose gradients of parameters come about in kernels of their own.
#[test]
fn gradients_add_up() {
    check(
        "maps",
        2,
        along(
            &[3, 6, 5],
            "Conv2d(4, 3, bias = false) | BatchNorm2d | Relu | ConvTranspose2d(3, 2, bias = false) | GroupNorm(1)",
        ),
    );
    check("rows", 2, along(&[3, 8], "LayerNorm | Linear(16) | Glu | RmsNorm | Scale(init = 0.5, bias = true)"));
    check("steps", 1, along(&[3, 6], "Lstm(5) | Gru(4)"));
    check("volumes", 1, along(&[2, 3, 4, 3], "Conv3d(3, 2) | ConvTranspose3d(2, 2)"));
}

/// What all parts of a batch come to is divided by, and not what one does: also where one block would count it beside the rest.
#[test]
fn losses_are_given_what_they_divide_by() {
    let options =
        LossOptions { weights: vec![1.0, 0.5, 2.0, 0.0, 3.0].into(), ignored: Some(3), ..LossOptions::DEFAULT };
    let cross_entropy = Term { options, weight: 0.7, ..Term::CROSS_ENTROPY };
    let likelihood =
        Term { options: LossOptions { ignored: Some(1), ..LossOptions::DEFAULT }, ..Term::of(Measure::Nll) };
    let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    for (dims, layers) in [(&[7][..], "Linear(5)"), (&[3, 8, 8], "Conv2d(5, 1)")] {
        for loss in [&[cross_entropy.clone(), likelihood.clone()][..], &[likelihood.clone(), Term::CROSS_ENTROPY]] {
            let mut graph = Graph::default();
            let input = graph.input(numbers(dims)).unwrap();
            let output = chain(&mut graph, input, layers);
            let case = ("divisors", &graph, output, training(loss, 0, 3), 3, stay);
            prepare(&[F32], case);
            compare_in(F32, 0..2, case, 1, 5, 1e-5);
        }
    }
}

/// What a part adds to a sum 256 times as large would be lost in bfloat16, and is not in f32: half of it is what the last parts add. Weights that
/// two layers use have one sum.
#[test]
fn sums_of_gradients_are_f32() {
    for half in [Half::Bf16, Half::F16] {
        let format = (Precision::Mixed(half), CAPABILITY);
        let parts = if half == Half::Bf16 { 512 } else { 4096 };
        for (dims, layers) in
            [(&[7][..], "Linear(5)"), (&[3, 2, 3], "Conv2d(4, 1, bias = false) | Flatten | Linear(3, bias = false)")]
        {
            let mut graph = Graph::default();
            let input = graph.input(numbers(dims)).unwrap();
            let output = chain(&mut graph, input, layers);
            let loss = [Term::DOT];
            let split = training(&loss, 0, parts);
            let split = Training { descent: split.descent.at(format.0), ..split };
            let case = ("sums", &graph, output, split, 1, Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }));
            prepare(&[format], case);
            compare_in(format, 0..1, case, 1, 5, 2e-2);
        }
    }
}

/// Every rule takes them as they are, and so do clips.
#[test]
fn updates_from_wide_sums() {
    let optimizers = [
        Optimizer::Adam(Adam { lr: 1e-3, ..Adam::DEFAULT }),
        Optimizer::AdamW8bit(AdamW8bit { lr: 1e-3, ..AdamW8bit::DEFAULT }),
        Optimizer::Adafactor(Adafactor { lr: 1e-3, ..Adafactor::DEFAULT }),
        Optimizer::Muon(Muon { lr: 1e-3, ..Muon::DEFAULT }),
        Optimizer::Sgd(Sgd { lr: 1e-3, ..Sgd::DEFAULT }),
    ];
    for optimizer in optimizers {
        for (clip, half) in [(None, Half::Bf16), (Some(Clip::GlobalNorm(0.1)), Half::F16)] {
            let format = (Precision::Mixed(half), CAPABILITY);
            let mut graph = Graph::default();
            let input = graph.input(numbers(&[3, 8, 8])).unwrap();
            let output = chain(&mut graph, input, "Conv2d(8, 3) | Flatten | Linear(17) | Linear(5)");
            let loss = [Term::DOT];
            let descent = Descent { clip, micro_batches: 3, ..Descent::PLAIN }.at(format.0);
            let skips_overflow = format.0.scales_loss();
            let split = Training { descent, skips_overflow, ..training(&loss, optimizer.moments(), 3) };
            let case = (optimizer.row().name, &graph, output, split, 2, optimizer);
            prepare(&[format], case);
            // Of squares of gradients, each of which is rounded.
            compare_in(format, 0..1, case, 2, 5, 5e-2);
        }
    }
}

/// The first term of each part prepares the updates.
#[test]
fn updates_behind_the_last_part() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[7])).unwrap();
    let middle = chain(&mut graph, input, "Linear(9) | Tanh | Dropout(0.3)");
    let output = chain(&mut graph, middle, "Linear(5)");
    let of_middle = Term { from: Some(middle), weight: 0.3, ..Term::of(Measure::Mean) };
    let loss = [Term::CROSS_ENTROPY, of_middle];
    let adam = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });
    let schedule = Schedule::Step { warmup: 2, every: 3, factor: 0.5 };
    for clip in [None, Some(Clip::GlobalNorm(0.1)), Some(Clip::Value(0.2))] {
        let descent = Descent { clip, schedule, micro_batches: 4, ..Descent::PLAIN };
        let training = Training { descent, ..training(&loss, 2, 4) };
        let case = ("updates", &graph, output, training, 3, adam);
        prepare(&[F32], case);
        compare_in(F32, 0..2, case, 3, 5, 1e-4);
    }
}

#[test]
fn random_networks() {
    let stay = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });
    for seed in [1, 3] {
        let (graph, output) = random(seed);
        let case = ("random", &graph, output, training(&[Term::DOT], 0, 2), BATCH, stay);
        prepare(&[F32], case);
        compare_in(F32, 0..1, case, 1, 5, 1e-4);
    }
}
