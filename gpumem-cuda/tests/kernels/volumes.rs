//! Convolutions, pools and norms of volumes.

use crate::host::harness::compile;
use crate::host::harness::graphs::{again, chain, join, layer, numbers};
use crate::host::kernels_in;
use crate::{check, check_narrow, check_products, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};

/// Layers on the network's input.
fn on(input: [u64; 4], text: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        chain(graph, input, text)
    }
}

/// Two layers on one value, the first of which is used twice: gradients are added.
fn twice(input: [u64; 4], text: &str) -> impl Fn(&mut Graph) -> NodeId {
    move |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        let x = layer(graph, input, "Sigmoid");
        let first = layer(graph, x, text);
        let second = again(graph, first, text, 1);
        let third = layer(graph, x, text);
        join(graph, &[second, third], "Add")
    }
}

/// Windows that overlap, leave gaps, hang over the edges; volumes whose sizes are multiples of nothing, and of 4.
const CONVOLUTIONS: [([u64; 4], &str); 6] = [
    ([3, 4, 5, 7], "Conv3d(4, 3)"),
    (
        [4, 5, 6, 4],
        "Conv3d(6, [2; 3; 1], stride = [1; 2; 3], padding = [1; 2; 0], dilation = [2; 1; 1], groups = 2, bias = false)",
    ),
    ([8, 2, 4, 6], "Conv3d(20, 1, groups = 2)"),
    ([3, 3, 5, 4], "Conv3d(3, [3; 2; 2], padding = \"same\", groups = 3)"),
    (
        [4, 2, 3, 5],
        "ConvTranspose3d(6, [3; 2; 2], stride = [2; 1; 3], padding = [1; 0; 1], output_padding = [1; 0; 2], groups = 2)",
    ),
    ([8, 2, 3, 4], "ConvTranspose3d(5, 2, stride = 2)"),
];

#[test]
fn convolutions() {
    for (input, text) in CONVOLUTIONS {
        check(text, 3, on(input, text));
    }
    let text = "Conv3d(4, [1; 3; 3], padding = [0; 1; 1])";
    check(text, 2, twice([4, 2, 5, 4], text));
    let text = "ConvTranspose3d(4, [3; 1; 1], padding = [1; 0; 0])";
    check(text, 2, twice([4, 3, 3, 4], text));
}

#[test]
fn convolutions_in_sixteen_bits() {
    for (input, text) in CONVOLUTIONS {
        check_products(text, 2, on(input, text));
    }
}

/// Of few weights and many positions, the gradient is computed in parts.
#[test]
fn gradients_of_weights_in_parts() {
    for (text, entry) in [
        ("Conv3d(4, 3)", "convolution3d_backward_filter_sum"),
        ("ConvTranspose3d(4, 2)", "convolution3d_transposed_backward_filter_sum"),
    ] {
        let build = on([2, 9, 17, 19], text);
        check(text, 2, &build);
        let mut graph = Graph::default();
        let output = build(&mut graph);
        let (training, optimizer) = gradients();
        let compiled = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
        let kernels = kernels_in(&compiled, 2, Precision::F32, optimizer);
        let sum = kernels.iter().find(|kernel| kernel.entry == entry);
        let sum = sum.unwrap_or_else(|| panic!("{text}: no {entry}"));
        assert!(sum.constants.iter().any(|(name, value)| *name == "PARTS" && value != "1"), "{sum:?}");
    }
}

const POOLS: [([u64; 4], &str); 11] = [
    ([3, 4, 7, 5], "MaxPool3d(2)"),
    ([2, 5, 6, 7], "MaxPool3d([2; 3; 2], [1; 2; 1], padding = [1; 1; 0], dilation = [2; 1; 2], ceil_mode = true)"),
    ([2, 5, 6, 7], "MaxPool3d(3, 2, padding = 1)"),
    ([2, 7, 5, 8], "AdaptiveMaxPool3d([3; 2; 5])"),
    ([3, 6, 7, 5], "AvgPool3d([3; 2; 3], 2, padding = [1; 1; 0], ceil_mode = true)"),
    ([3, 6, 7, 5], "AvgPool3d([3; 2; 3], 2, padding = 1, ceil_mode = true, count_include_pad = false)"),
    ([2, 7, 5, 8], "AdaptiveAvgPool3d([3; 2; 5])"),
    ([2, 2, 3, 5], "AvgPool3d(3, 2, ceil_mode = true)"),
    ([3, 4, 5, 3], "GlobalAvgPool"),
    // A warp for each window; more windows than elements.
    ([5, 4, 7, 7], "AdaptiveAvgPool3d(1)"),
    ([3, 2, 3, 4], "AdaptiveAvgPool3d([3; 5; 6])"),
];

#[test]
fn pools() {
    for (input, text) in POOLS {
        check(text, 3, on(input, text));
    }
    // More elements in a window than a byte counts, or than one thread adds up.
    check("large maxima", 2, on([2, 6, 9, 9], "MaxPool3d([6; 8; 8], 1, padding = [0; 4; 0])"));
    check("large means", 2, on([2, 5, 9, 9], "AvgPool3d([5; 8; 8], 1, padding = [1; 0; 1])"));
    for text in ["MaxPool3d(3, 1, padding = 1)", "AvgPool3d(3, 1, padding = 1)"] {
        check(text, 2, twice([2, 3, 4, 5], text));
    }
}

#[test]
fn pools_in_sixteen_bits() {
    for (input, text) in POOLS {
        check_narrow(text, 2, on(input, text));
    }
}

/// What is a row of planes to the norms keeps its order between convolutions of volumes, whatever maps of the same network do.
#[test]
fn networks_of_volumes() {
    let text = "Conv3d(8, 3, padding = 1, bias = false) | BatchNorm3d | Relu | MaxPool3d(2) | Conv3d(8, [3; 1; 1], padding = [1; 0; 0], bias = false) \
                | InstanceNorm3d(affine = true) | Dropout3d(0.3) | Relu | AdaptiveAvgPool3d([1; 2; 2])";
    check("a network of volumes", 2, on([2, 4, 6, 8], text));
    let both = format!(
        "{text} | Reshape([8; 2; 2]) | Conv2d(8, 3, padding = 1, bias = false) | BatchNorm2d | Relu | Conv2d(8, 1)"
    );
    check("a network of volumes and maps", 2, on([2, 4, 6, 8], &both));
}
