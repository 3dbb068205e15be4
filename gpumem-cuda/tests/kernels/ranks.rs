//! Batch norms over the samples of all ranks: each rank's kernels, beside the ranks of the CPU backend.

use crate::gradients;
use crate::host::harness::compile;
use crate::host::harness::graphs::{again, chain, join, layer, numbers};
use crate::host::harness::layouts::arrange;
use crate::host::ranks::{Shared, compare};
use crate::host::{CAPABILITY, Format, Products, kernels};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::Program;
use gpumem_core::train::{Descent, Ranks};
use gpumem_core::{Half, Precision};
use std::collections::BTreeSet;

/// Blocks do not wait for each other there.
const OLDER: (i32, i32) = (7, 5);

const F32: Format = (Precision::F32, CAPABILITY);

/// Gives each rank another mean.
const APART: fn(u64, f32) -> f32 = |rank, number| number + rank as f32 / 2.0;

/// A network, the number of ranks, and the samples of each of them.
struct Case<B> {
    build: B,
    ranks: u64,
    batch: u64,
    micro_batches: u64,
    /// True if maps lie with channels last.
    last: bool,
}

impl<B: Fn(&mut Graph) -> NodeId> Case<B> {
    fn new(ranks: u64, batch: u64, build: B) -> Case<B> {
        Case { build, ranks, batch, micro_batches: 1, last: false }
    }

    fn programs(&self) -> [Program; 2] {
        let mut graph = Graph::default();
        let output = (self.build)(&mut graph);
        let ranks = Ranks { count: self.ranks, sync_batch_norm: true, ..Ranks::ALONE };
        let descent = Descent { ranks, micro_batches: self.micro_batches, ..Descent::PLAIN };
        // Terms of a sum of squares do not cancel.
        let training = Training { descent, loss: &[Term::MSE], ..gradients().0 };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let mut arranged = program.clone();
        if self.last {
            arrange(&mut arranged, 0);
        }
        [program, arranged]
    }

    /// Returns the entry points of the norms of a step.
    fn entries(&self, format: Format) -> BTreeSet<&'static str> {
        let placed = compile(&self.programs()[1], self.batch);
        let steps = Products::Own.steps(&placed, self.batch, format, gradients().1);
        let of_norms = kernels(&steps).into_iter().filter(|kernel| kernel.file.starts_with("batch_norm"));
        of_norms.map(|kernel| kernel.entry).collect()
    }

    fn check(&self, what: &str, format: Format) {
        self.check_with(what, format, APART, 1e-5);
    }

    /// Compares with inputs that are changed on each rank, so that means of ranks differ. Numbers of 16 bits, which ranks round before they add them
    /// up, are compared to 2e-2.
    fn check_with(&self, what: &str, format: Format, input: fn(u64, f32) -> f32, tolerance: f64) {
        let [program, arranged] = self.programs();
        let is_f32 = format.0 == Precision::F32;
        let what = format!("{what} on {} ranks in {format:?}", self.ranks);
        let shared = Shared {
            programs: [&program, &arranged],
            format,
            batch: self.batch,
            optimizer: gradients().1,
            orders: if is_f32 { 0..3 } else { 0..1 },
            tolerance: if is_f32 { tolerance } else { 2e-2 },
            input,
        };
        compare(&what, &shared);
    }
}

/// A chain of layers on one input.
fn along(dims: &'static [u64], layers: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        chain(graph, input, layers)
    }
}

/// Layers between two convolutions of one pixel, with channels last.
fn between(ranks: u64, dims: &'static [u64], layers: &'static str) -> Case<impl Fn(&mut Graph) -> NodeId> {
    let case = Case::new(ranks, 2, along(dims, layers));
    Case { last: true, ..case }
}

const ONE: [&str; 4] =
    ["batch_norm_rank_statistics", "batch_norm_apply_ranks", "batch_norm_rank_sums", "batch_norm_input_ranks"];
const PARTS: [&str; 6] = [
    "batch_norm_statistics",
    "batch_norm_rank_join",
    "batch_norm_apply_ranks",
    "batch_norm_sums",
    "batch_norm_rank_join_sums",
    "batch_norm_input_ranks",
];

#[test]
fn norms_of_all_ranks() {
    let small = along(&[3, 7, 5], "BatchNorm2d(affine = false) | Relu | BatchNorm2d(eps = 0.01, momentum = 0.25)");
    for ranks in [2, 3] {
        let case = Case::new(ranks, 3, small);
        assert_eq!(case.entries(F32), ONE.into());
        case.check("small", F32);
    }
    for precision in [Precision::Bf16, Precision::Mixed(Half::F16)] {
        Case::new(2, 2, along(&[2, 3, 5], "BatchNorm2d")).check("small", (precision, CAPABILITY));
    }
    // Four samples, whose gradients nearly cancel.
    let features = Case::new(4, 1, along(&[5], "Linear(7, bias = false) | BatchNorm1d | Tanh"));
    features.check_with("one sample of features", F32, APART, 1e-4);
}

#[test]
fn norms_of_all_ranks_in_parts() {
    for (dims, batch) in [(&[2, 48, 50][..], 3), (&[2, 43, 53], 2)] {
        let case = Case::new(2, batch, along(dims, "BatchNorm2d"));
        assert_eq!(case.entries(F32), PARTS.into());
        case.check("in parts", F32);
    }
}

#[test]
fn norms_of_all_ranks_with_channels_last() {
    let layers = "Conv2d(8, 1, bias = false) | BatchNorm2d(eps = 0.01) | Relu | Conv2d(3, 1)";
    let one = between(3, &[3, 7, 5], layers);
    let layers = "Conv2d(24, 1, bias = false) | BatchNorm2d | Silu | Conv2d(3, 1)";
    let several = between(2, &[3, 27, 29], layers);
    for format in [F32, (Precision::F32, OLDER), (Precision::Bf16, CAPABILITY)] {
        assert_eq!(one.entries(format), ONE.into());
        one.check("one part", format);
        assert_eq!(several.entries(format), PARTS.into());
        several.check("in parts", format);
    }
}

/// Gradients of the input and of parameters are added to others.
#[test]
fn norms_of_all_ranks_add_gradients() {
    let twice = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 4, 5])).unwrap();
        let once = layer(graph, input, "BatchNorm2d");
        again(graph, once, "BatchNorm2d", 0)
    };
    Case::new(2, 2, twice).check("parameters", F32);
    let shared = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 4, 5])).unwrap();
        let read = ["BatchNorm2d", "BatchNorm2d(affine = false)"].map(|text| layer(graph, input, text));
        let sum = join(graph, &read, "Add");
        join(graph, &[input, sum], "Add")
    };
    Case::new(2, 2, shared).check("input", F32);
}

/// Functions after a norm, and sums: some run with the norm, and none as with a norm of one rank.
#[test]
fn norms_of_all_ranks_with_what_follows() {
    for layers in [
        "InplaceAbn(affine = false) | Tanh | InplaceAbn(eps = 0.01, activation_param = 0.25)",
        "BatchNorm2d | Silu | Dropout(0.25)",
    ] {
        Case::new(3, 2, along(&[3, 7, 5], layers)).check(layers, F32);
    }
    let residual = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        let first = chain(graph, input, "Conv2d(4, 1, bias = false) | BatchNorm2d | Relu");
        let made = chain(graph, first, "Conv2d(4, 3, padding = 1, bias = false) | BatchNorm2d");
        let sum = join(graph, &[first, made], "Add");
        chain(graph, sum, "Relu | Conv2d(2, 1)")
    };
    for last in [false, true] {
        Case { last, ..Case::new(2, 2, residual) }.check("residual", F32);
    }
    // The second norm reads the first channels of a concatenation, and both norms are recomputed.
    let dense = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 6, 5])).unwrap();
        let mut x = layer(graph, input, "Conv2d(4, 1, bias = false)");
        for _ in 0..2 {
            let first = graph.nodes.len();
            let made = chain(graph, x, "BatchNorm2d | Silu | Conv2d(4, 1, bias = false)");
            graph.groups.push([first, graph.nodes.len()]);
            x = join(graph, &[x, made], "Concat");
        }
        chain(graph, x, "BatchNorm2d | Relu | Conv2d(3, 1)")
    };
    // The last norm takes away most of what earlier ones shift.
    Case::new(2, 2, dense).check_with("a dense block", F32, APART, 3e-4);
}

/// Statistics are exact where means are many deviations away from 0, and from those of other ranks.
#[test]
fn norms_of_all_ranks_far_from_zero() {
    let far = |_: u64, number: f32| number + 1000.0;
    let apart = |rank: u64, number: f32| number + 1000.0 * rank as f32;
    for dims in [&[1, 24, 25][..], &[1, 64, 66]] {
        let case = Case::new(2, 2, along(dims, "BatchNorm2d"));
        case.check_with("far from zero", F32, far, 1e-3);
        case.check_with("far from each other", F32, apart, 1e-3);
    }
}

/// Each micro-batch has statistics of its own, over the samples of all ranks.
#[test]
fn norms_of_all_ranks_in_micro_batches() {
    let case = Case::new(2, 2, along(&[3, 4, 5], "Conv2d(4, 1, bias = false) | BatchNorm2d | Relu"));
    Case { micro_batches: 2, ..case }.check("micro-batches", F32);
}
