//! Maps whose channels lie side by side, in whole packs of 16 bytes: the kernels that take a pack at a time, beside those of dense maps.

use crate::gradients;
use crate::host::harness::compile;
use crate::host::harness::graphs::{again, chain, join, layer, numbers};
use crate::host::harness::layouts::arrange;
use crate::host::{self, CAPABILITY, FEW, Format, Products, is_apart, kernels_in, steps_of};
use crate::layouts::{check, program};
use crate::norms::forward_program;
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::{Action, Op, Program};
use gpumem_cuda::Kernel;
use gpumem_cuda::program_calls::OperationCalls;
use std::collections::BTreeSet;

/// All maps channels last. Of the ways of `arrange`, those from 3 on mix the orders.
const LAST: usize = 0;
const MIXED: usize = 4;

/// A card on which blocks do not wait for each other.
const OLDER: (i32, i32) = (7, 5);

/// Layers between two convolutions of one pixel, whose other sides the host sees.
fn between(dims: [u64; 3], channels: u64, text: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        chain(graph, input, &format!("Conv2d({channels}, 1, bias = false) | {text} | Conv2d(3, 1)"))
    }
}

/// In 32 bits beside the CPU backend, in 16 beside the kernels of dense maps, and in 32 with the orders mixed.
pub fn check_all(what: &'static str, build: impl Fn(&mut Graph) -> NodeId + Copy) {
    check_some(what, build);
    check_others(what, build);
}

/// In 32 bits and in 16 of one format.
fn check_some(what: &'static str, build: impl Fn(&mut Graph) -> NodeId + Copy) {
    check((what, build), (Precision::F32, CAPABILITY), LAST..LAST + 1, 1e-5);
    check((what, build), (Precision::Bf16, CAPABILITY), LAST..LAST + 1, 1e-2);
}

/// All else of [`check_all`].
fn check_others(what: &'static str, build: impl Fn(&mut Graph) -> NodeId + Copy) {
    for card in [OLDER, FEW] {
        check((what, build), (Precision::F32, card), LAST..LAST + 1, 1e-5);
    }
    check((what, build), (Precision::F32, CAPABILITY), MIXED..MIXED + 1, 1e-5);
    check((what, build), (Precision::F16, CAPABILITY), LAST..LAST + 1, 1e-2);
}

/// The kernels of a training step with all maps channels last.
pub fn kernels(build: impl Fn(&mut Graph) -> NodeId, format: Format) -> Vec<Kernel> {
    let mut program = program(build);
    arrange(&mut program, LAST);
    let steps = Products::Own.steps(&compile(&program, 2), 2, format, gradients().1);
    host::kernels(&steps)
}

fn constant(kernel: &Kernel, name: &str) -> u64 {
    let value = kernel.constants.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    value.unwrap_or_else(|| panic!("{} has no {name}", kernel.entry)).trim_end_matches("ull").parse().unwrap()
}

/// That the kernels of a file are these, with these values of a constant.
fn expect(kernels: &[Kernel], file: &str, name: &str, expected: &[(&str, u64)]) {
    let found: BTreeSet<_> =
        kernels.iter().filter(|it| it.file == file).map(|it| (it.entry, constant(it, name))).collect();
    assert_eq!(found, expected.iter().copied().collect(), "{file}");
}

const ONE: [&str; 2] = ["batch_norm_forward", "batch_norm_backward"];
const PARTS: [&str; 4] = ["batch_norm_statistics", "batch_norm_apply_parts", "batch_norm_sums", "batch_norm_input"];
const TOGETHER: [&str; 2] = ["batch_norm_forward_parts", "batch_norm_backward_parts"];

/// The entry points for so many parts on a card.
fn entries(parts: u64, capability: (i32, i32)) -> &'static [&'static str] {
    match (parts, capability) {
        (1, _) => &ONE,
        (_, OLDER) => &PARTS,
        _ if is_apart() => &PARTS,
        _ => &TOGETHER,
    }
}

#[test]
fn batch_norm() {
    // One part; three and six parts; blocks with threads that have no channels.
    let cases = [([3, 7, 5], 8, 1, 1), ([3, 27, 29], 24, 3, 6), ([2, 5, 7], 136, 1, 1)];
    for (dims, channels, narrow, wide) in cases {
        let build = between(dims, channels, "BatchNorm2d | Relu | BatchNorm2d(affine = false, eps = 0.01)");
        for (precision, pack, parts) in [(Precision::Bf16, 8, narrow), (Precision::F32, 4, wide)] {
            for capability in [CAPABILITY, OLDER] {
                let all = kernels(build, (precision, capability));
                let entries = entries(parts, capability);
                let with = |value: u64| entries.iter().map(|&entry| (entry, value)).collect::<Vec<_>>();
                expect(&all, "batch_norm_last.cu", "PARTS", &with(parts));
                expect(&all, "batch_norm_last.cu", "PACK", &with(pack));
                expect(&all, "batch_norm.cu", "PACK", &[]);
            }
        }
        check_all("batch norm", build);
    }
}

#[test]
fn batch_norm_that_is_undone() {
    for (dims, channels) in [([3, 7, 5], 8), ([3, 27, 29], 24)] {
        let build = between(
            dims,
            channels,
            "InplaceAbn(affine = false, activation_param = 0.5) | Tanh | InplaceAbn(eps = 0.01, activation_param = 0.8)",
        );
        check_all("batch norm that is undone", build);
    }
}

/// Element by element, in whatever order. What is dropped depends on the order of the shape, so dropout has a
/// launch of its own, unless whole samples are dropped.
#[test]
fn chains() {
    for (text, expected) in
        [("Silu | Tanh | Sigmoid", 2), ("Silu | Dropout(0.5) | Tanh", 0), ("Silu | DropPath(0.5) | Tanh", 2)]
    {
        let build = between([3, 5, 7], 8, text);
        for precision in [Precision::F32, Precision::Bf16] {
            let all = kernels(build, (precision, CAPABILITY));
            assert_eq!(all.iter().filter(|kernel| kernel.entry == "chain").count(), expected, "{text}");
        }
        check_all(text, build);
    }
}

/// A residual block, in which the first normalisation is rectified, and the second one's sum.
fn block(dims: [u64; 3], rectifier: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        let whole = layer(graph, input, "Conv2d(16, 1, bias = false)");
        let x = chain(graph, whole, "BatchNorm2d | Relu | Tanh | BatchNorm2d");
        let sum = join(graph, &[x, whole], "Add");
        chain(graph, sum, &format!("{rectifier} | Conv2d(3, 1)"))
    }
}

/// On maps in which no normalised element is so near to 0 that rounding decides whether it is cut off, and none of `Tanh` so near to 1 that its
/// slope is mostly rounding.
#[test]
fn fused_batch_norm() {
    for (dims, parts) in [([3, 6, 7], 1), ([3, 27, 30], 6)] {
        let entries = entries(parts, CAPABILITY);
        for rectifier in ["Relu(inplace = true)", "Relu6"] {
            let build = block(dims, rectifier);
            let mut program = program(build);
            arrange(&mut program, LAST);
            let placed = compile(&program, 2);
            let steps = steps_of(&placed, 2, Precision::F32, gradients().1);
            let operations = &placed.program.operations;
            let is_norm = |step: &&OperationCalls| {
                let all = &operations[step.first..step.first + step.count];
                all.iter().any(|it| matches!(it.action, Action::Run { op: Op::BatchNorm(_), .. }))
            };
            // Nobody reads what the first one's rectifier gave again: both gradients are one operation.
            assert_eq!(steps.iter().filter(is_norm).map(|step| step.count).collect::<Vec<_>>(), [2, 3, 2, 1]);
            let all = kernels_in(&placed, 2, Precision::F32, gradients().1);
            let norms: Vec<&Kernel> = all.iter().filter(|it| it.file.starts_with("batch_norm")).collect();
            assert!(norms.iter().all(|it| it.file == "batch_norm_last.cu" && entries.contains(&it.entry)));
            for name in ["RESIDUAL", "MASKED"] {
                assert!(norms.iter().any(|it| constant(it, name) == 1), "{name}");
            }
            check_all("a residual block", build);
        }
    }
}

#[test]
fn batch_norm_adds_gradients() {
    for dims in [[3, 5, 7], [3, 27, 29]] {
        let build = move |graph: &mut Graph| {
            let input = graph.input(numbers(&dims)).unwrap();
            let x = layer(graph, input, "Conv2d(24, 1, bias = false)");
            let y = layer(graph, x, "BatchNorm2d");
            // With the same parameters.
            let y = again(graph, y, "BatchNorm2d", 1);
            let z = chain(graph, x, "BatchNorm2d(affine = false) | Relu");
            let sum = join(graph, &[x, y, z], "Add");
            layer(graph, sum, "Conv2d(3, 1)")
        };
        let all = kernels(build, (Precision::F32, CAPABILITY));
        for name in ["ADD", "ADD_WEIGHT", "ADD_BIAS"] {
            assert!(all.iter().any(|it| it.file == "batch_norm_last.cu" && constant(it, name) == 1), "{name}");
        }
        check_all("gradients added", build);
    }
}

const POOLS: [&str; 17] = [
    "MaxPool2d(3, 2, padding = 1) | Relu",
    "MaxPool2d([3; 2], stride = [2; 3], padding = [1; 0], dilation = [2; 1], ceil_mode = true)",
    "MaxPool2d([3; 2], stride = [1; 3], padding = [1; 1]) | Relu",
    "MaxPool2d(2)",
    "MaxPool2d(4, 2, padding = 2)",
    "AvgPool2d(3, 2, padding = 1, ceil_mode = true)",
    "AvgPool2d([3; 4], [2; 3], padding = [1; 2], ceil_mode = true, count_include_pad = false)",
    "AdaptiveAvgPool2d([3; 2])",
    "AdaptiveMaxPool2d([4; 2])",
    "Upsample([3; 2])",
    "Upsample(1.7)",
    "Upsample([1.5; 0.6], mode = \"bilinear\")",
    "Upsample(size = [13; 5], mode = \"bicubic\", align_corners = true)",
    "Pad([-1; 2; 3; 0], value = 0.5)",
    "Pad([3; 2; 1; 4], mode = \"reflect\")",
    "Pad([3; 2; 1; 8], mode = \"replicate\")",
    "Pad([3; 2; 1; 4], mode = \"circular\")",
];

#[test]
fn pools() {
    for text in POOLS {
        let build = between([3, 9, 7], 16, text);
        let all = kernels(build, (Precision::Bf16, CAPABILITY));
        let files =
            ["max_pool.cu", "average_pool.cu", "average_pool_adaptive.cu", "resize.cu", "interpolate.cu", "pad.cu"];
        let packs: Vec<u64> = all.iter().filter(|it| files.contains(&it.file)).map(|it| constant(it, "PACK")).collect();
        assert_eq!(packs, [8, 8], "{text}");
        check_some(text, build);
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn pools_in_other_formats() {
    POOLS.into_iter().for_each(|text| check_others(text, between([3, 9, 7], 16, text)));
}

/// A lane, four and 32 for each window; more packs than a block has.
const PLANES: [([u64; 3], &str, u64); 4] = [
    ([2, 3, 5], "AdaptiveAvgPool2d(1)", 1),
    ([2, 7, 5], "AdaptiveAvgPool2d(1)", 4),
    ([2, 17, 19], "AdaptiveAvgPool2d(1)", 32),
    ([2, 31, 35], "AdaptiveAvgPool2d([1; 2])", 32),
];

#[test]
fn means_of_planes() {
    for (dims, text, lanes) in PLANES {
        let build = between(dims, 72, text);
        let forward: Vec<Kernel> = kernels(build, (Precision::Bf16, CAPABILITY));
        let entry = "average_pool_adaptive_forward";
        let forward: Vec<Kernel> = forward.into_iter().filter(|it| it.entry == entry).collect();
        expect(&forward, "average_pool_adaptive.cu", "LANES", &[(entry, lanes)]);
        check_some(text, build);
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn means_of_planes_in_other_formats() {
    PLANES.into_iter().for_each(|(dims, text, _)| check_others(text, between(dims, 72, text)));
}

/// A map of one pixel may be dense: its channels lie side by side all the same.
#[test]
fn means_of_planes_without_a_layout() {
    let build = |graph: &mut Graph| {
        let input = graph.input(numbers(&[2, 7, 5])).unwrap();
        chain(graph, input, "Conv2d(16, 1, bias = false) | GlobalAvgPool | Flatten | Linear(4)")
    };
    let entries = ["average_pool_adaptive_forward", "average_pool_adaptive_backward"];
    expect(
        &kernels(build, (Precision::Bf16, CAPABILITY)),
        "average_pool_adaptive.cu",
        "PACK",
        &entries.map(|entry| (entry, 8)),
    );
    check_all("GlobalAvgPool", build);
}

#[test]
fn gradients_are_added() {
    for text in
        ["MaxPool2d(3, 1, padding = 1)", "AvgPool2d(3, 1, padding = 1)", "AdaptiveAvgPool2d([5; 7])", "Upsample(1)"]
    {
        check_all(text, move |graph: &mut Graph| {
            let input = graph.input(numbers(&[3, 5, 7])).unwrap();
            let x = layer(graph, input, "Conv2d(8, 1, bias = false)");
            let branches = [layer(graph, x, text), layer(graph, x, text), x];
            let sum = join(graph, &branches, "Add");
            layer(graph, sum, "Conv2d(3, 1)")
        });
    }
}

/// Parts of 8, 16 and 12 channels: 16 bytes at a time, and eight; the first two parts are used again.
#[test]
fn channels_side_by_side() {
    let build = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 5, 7])).unwrap();
        let branches = ["Conv2d(8, 1)", "Conv2d(16, 1)", "Conv2d(12, 1)"].map(|text| layer(graph, input, text));
        let whole = join(graph, &branches[..2], "Concat");
        let all = join(graph, &[branches[2], whole, branches[0]], "Concat");
        layer(graph, all, "Conv2d(2, 1)")
    };
    let all = kernels(build, (Precision::Bf16, CAPABILITY));
    let parts: BTreeSet<(u64, u64, u64)> = all
        .iter()
        .filter(|it| it.file == "concat.cu")
        .map(|it| (constant(it, "PART"), constant(it, "WHOLE"), constant(it, "START")))
        .collect();
    assert_eq!(parts, [(8, 24, 0), (16, 24, 8), (12, 44, 0), (24, 44, 12), (8, 44, 36)].into());
    check_all("Concat", build);
}

/// Maps that are the input's, channels last, and back.
fn turned(dims: [u64; 3], options: &Options, build: impl Fn(&mut Graph, NodeId) -> NodeId) -> Program {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&dims)).unwrap();
    let x = layer(&mut graph, input, "AvgPool2d(1)");
    let y = build(&mut graph, x);
    let output = layer(&mut graph, y, "AvgPool2d(1)");
    let mut program = lower(&graph, &[output], options).unwrap();
    arrange(&mut program, LAST);
    program
}

#[test]
fn batch_norm_far_from_zero() {
    for (dims, parts) in [([8, 5, 7], 1), ([8, 47, 53], 6)] {
        let options = Options { training: Some(gradients().0) };
        let program = turned(dims, &options, |graph, x| layer(graph, x, "BatchNorm2d"));
        let all = kernels_in(&compile(&program, 2), 2, Precision::F32, gradients().1);
        let expected: Vec<_> = entries(parts, CAPABILITY).iter().map(|&entry| (entry, parts)).collect();
        expect(&all, "batch_norm_last.cu", "PARTS", &expected);
        // A thousand and more deviations.
        forward_program(program, 2, |value| (f32::from_bits(value) + 1000.0).to_bits(), 1e-3);
    }
}

#[test]
fn batch_norm_of_inference() {
    for (dims, parts) in [([24, 3, 5], 1), ([8, 33, 35], 4)] {
        let program = turned(dims, &Options { training: None }, |graph, input| {
            let x = chain(graph, input, "BatchNorm2d | Relu");
            let y = chain(graph, x, "BatchNorm2d(affine = false)");
            let sum = join(graph, &[x, y], "Add");
            layer(graph, sum, "Relu6")
        });
        let all = kernels_in(&compile(&program, 3), 3, Precision::F32, gradients().1);
        expect(&all, "batch_norm_last.cu", "PARTS", &[("batch_norm_apply", parts)]);
        // Both normalisations with what follows.
        assert_eq!(all.len(), 4);
        forward_program(program, 3, |value| value, 1e-5);
    }
}
