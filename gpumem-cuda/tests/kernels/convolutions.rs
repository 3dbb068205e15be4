use crate::host::harness::compile;
use crate::host::harness::graphs::{again, join, layer, numbers};
use crate::host::kernels_in;
use crate::{check, check_products, gradients};
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, lower};
use gpumem_core::{Precision, Role};
use gpumem_cuda::Kernel;

fn one(batch: u64, input: [u64; 3], text: &str) {
    check(text, batch, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        layer(graph, input, text)
    });
}

/// Two layers on one input, the first of which is used twice: gradients are added.
fn twice(batch: u64, input: [u64; 3], text: &str) {
    check(text, batch, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        let first = layer(graph, input, text);
        let second = again(graph, first, text, 0);
        let third = layer(graph, input, text);
        join(graph, &[second, third], "Add")
    });
}

/// Windows that overlap, leave gaps, hang over the edges; maps whose sizes are multiples of nothing, and of 4.
#[test]
fn conv2d() {
    one(3, [3, 7, 5], "Conv2d(4, 3)");
    one(2, [4, 9, 8], "Conv2d(5, [3; 2], stride = [2; 1], padding = [1; 2], dilation = [2; 3], bias = false)");
    one(3, [7, 5, 7], "Conv2d(6, 1)");
    one(2, [12, 6, 8], "Conv2d(20, 1, groups = 2)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn conv2d_of_further_shapes() {
    one(2, [8, 6, 6], "Conv2d(37, 1)");
    one(2, [9, 7, 6], "Conv2d(5, 1, stride = 2)");
    one(2, [9, 7, 6], "Conv2d(5, 1, padding = 1)");
    one(2, [34, 5, 7], "Conv2d(33, 5, stride = 3, padding = 4)");
}

/// Padding that is larger at the end: of even kernels, with dilation, in groups, of single channels.
#[test]
fn conv2d_padded_to_the_same_size() {
    one(3, [3, 7, 5], "Conv2d(4, [2; 4], padding = \"same\")");
    one(2, [4, 6, 8], "Conv2d(6, [4; 2], padding = \"same\", dilation = [1; 3], groups = 2)");
    one(2, [3, 7, 9], "Conv2d(3, 2, padding = \"same\", groups = 3)");
    twice(2, [4, 8, 8], "Conv2d(4, 2, padding = \"same\")");
}

/// Tiles of 128, several along each dimension, and more positions than the gradient of a weight adds up at once.
#[test]
fn conv2d_in_large_tiles() {
    one(2, [3, 64, 65], "Conv2d(129, 1)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn conv2d_in_large_tiles_of_windows() {
    one(2, [3, 47, 91], "Conv2d(129, 1, padding = 1)");
}

#[test]
fn conv2d_in_groups() {
    one(3, [6, 7, 9], "Conv2d(9, 3, groups = 3, padding = 1)");
    one(2, [4, 6, 5], "Conv2d(2, 2, groups = 2)");
}

/// One channel in a group: grey images, depthwise, with and without several outputs for each.
#[test]
fn conv2d_of_single_channels() {
    one(3, [1, 11, 10], "Conv2d(5, 3, padding = 1)");
    one(3, [5, 7, 9], "Conv2d(5, 3, groups = 5, stride = 2, padding = 1)");
    one(
        2,
        [3, 9, 17],
        "Conv2d(6, [3; 5], groups = 3, stride = [1; 3], padding = [0; 6], dilation = [2; 3], bias = false)",
    );
}

#[test]
fn conv2d_used_twice() {
    twice(3, [3, 5, 7], "Conv2d(3, 3, padding = 1)");
    twice(2, [3, 5, 7], "Conv2d(3, 3, padding = 1, groups = 3)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn conv2d_used_twice_in_large_tiles() {
    twice(2, [4, 64, 65], "Conv2d(4, [1; 3], padding = [0; 1])");
}

#[test]
fn conv_transpose2d() {
    one(3, [3, 5, 4], "ConvTranspose2d(4, 3, stride = 2, padding = 1, output_padding = 1)");
    one(2, [4, 5, 7], "ConvTranspose2d(6, [3; 2], stride = [2; 3], dilation = [2; 1], groups = 2, bias = false)");
    one(2, [33, 4, 5], "ConvTranspose2d(35, 2, stride = 2)");
    // A window of one tap, and more pixels than windows.
    one(2, [6, 3, 4], "ConvTranspose2d(5, 1, dilation = 3, output_padding = [2; 1])");
}

#[test]
fn conv_transpose2d_of_single_channels() {
    one(3, [3, 5, 4], "ConvTranspose2d(3, 3, groups = 3, stride = 2)");
    one(2, [6, 5, 7], "ConvTranspose2d(1, [2; 3], padding = [0; 1], dilation = 2)");
}

#[test]
fn conv_transpose2d_used_twice() {
    twice(3, [3, 5, 7], "ConvTranspose2d(3, 3, padding = 1)");
    twice(2, [3, 5, 7], "ConvTranspose2d(3, 3, padding = 1, groups = 3)");
}

/// The parts that the gradient of a weight is summed in, with a workspace of this many bytes, or a whole one.
fn parts(batch: u64, input: [u64; 3], text: &str, workspace: Option<u64>) -> Vec<(&'static str, String)> {
    let mut graph = Graph::default();
    let x = graph.input(numbers(&input)).unwrap();
    let output = layer(&mut graph, x, text);
    let (training, optimizer) = gradients();
    let mut placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), batch);
    for (tensor, bytes) in placed.program.tensors.iter().zip(&mut placed.bytes) {
        if let (Role::ConvolutionWorkspace, Some(most)) = (tensor.role, workspace) {
            *bytes = most.min(*bytes);
        }
    }
    let kernels = kernels_in(&placed, batch, Precision::F32, optimizer);
    let filter = kernels.iter().filter(|kernel| kernel.entry.contains("_filter"));
    let count = |kernel: &Kernel| kernel.constants.iter().find(|(name, _)| *name == "PARTS").unwrap().1.clone();
    filter.map(|kernel| (kernel.entry, count(kernel))).collect()
}

#[test]
fn gradients_of_weights_in_parts() {
    // 2697 products in two parts; 8190 in seven, of which the last is shorter; one channel; transposed.
    let cases = [
        (3, [3, 31, 29], "Conv2d(5, 3, padding = 1)", "convolution_backward_filter", "2"),
        (2, [4, 65, 63], "Conv2d(4, 1, groups = 2)", "convolution_backward_filter", "7"),
        (2, [3, 37, 41], "Conv2d(6, 3, groups = 3, bias = false)", "convolution_backward_filter", "2"),
        (3, [3, 31, 29], "ConvTranspose2d(4, 2, stride = 2)", "convolution_transposed_backward_filter", "2"),
    ];
    for (batch, input, text, entry, count) in cases {
        let found = parts(batch, input, text, None);
        assert_eq!(found[0], (entry, count.into()), "{text}");
        assert!(found[1].0.ends_with("_filter_sum") && found.len() == 2, "{text}: {found:?}");
        assert_eq!(parts(batch, input, text, Some(0)), [(entry, "1".into())], "{text}, without a workspace");
    }
    let capped = parts(2, [4, 65, 63], "Conv2d(4, 1)", Some(3 * 16 * 4 + 8));
    assert_eq!(capped[0].1, "3", "three weights of 16 elements fit");
    twice(2, [3, 31, 29], "Conv2d(3, 3, padding = 1)");
    one(2, [3, 37, 41], "Conv2d(6, 3, groups = 3, bias = false)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn gradients_of_weights_in_parts_of_further_shapes() {
    one(3, [3, 31, 29], "Conv2d(5, 3, padding = 1)");
    one(2, [4, 65, 63], "Conv2d(4, 1, groups = 2)");
    one(3, [3, 31, 29], "ConvTranspose2d(4, 2, stride = 2)");
    twice(3, [3, 31, 29], "Conv2d(3, 3, padding = 1)");
    twice(2, [3, 37, 41], "Conv2d(3, 3, groups = 3, padding = 1)");
    twice(3, [3, 31, 29], "ConvTranspose2d(3, 3, padding = 1)");
    narrow(3, [3, 31, 29], "Conv2d(5, 3, padding = 1)");
    narrow(3, [3, 29, 31], "Conv2d(3, 3, groups = 3, padding = 1)");
}

/// How many launches the gradient of the input takes.
fn phases(input: [u64; 3], text: &str) -> usize {
    let mut graph = Graph::default();
    let x = graph.input(numbers(&input)).unwrap();
    let output = layer(&mut graph, x, text);
    let (training, optimizer) = gradients();
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
    let kernels = kernels_in(&placed, 2, Precision::F32, optimizer);
    kernels.iter().filter(|kernel| kernel.entry == "convolution_backward_data").count()
}

/// Input, layer, and launches of the input's gradient.
const PHASES: [([u64; 3], &str, usize); 8] = [
    // Even and odd maps and padding; dilation that a stride divides, and one that it does not.
    ([3, 8, 7], "Conv2d(5, 3, stride = 2, padding = 1)", 4),
    ([4, 9, 8], "Conv2d(3, [3; 2], stride = [2; 1], padding = [1; 2], dilation = [2; 3])", 2),
    ([2, 11, 12], "Conv2d(3, [2; 3], stride = [1; 4], padding = [0; 3], dilation = [1; 2])", 4),
    ([3, 7, 13], "Conv2d(4, [1; 5], stride = [1; 3], padding = [0; 4], dilation = [1; 2])", 3),
    // Three of four phases have no tap: they are 0.
    ([3, 6, 5], "Conv2d(4, 1, stride = 2)", 4),
    // A map of one column has no pixel in two of them.
    ([3, 6, 1], "Conv2d(4, [3; 1], stride = 2, padding = [1; 0])", 2),
    // Too many phases for a kernel each; none.
    ([3, 9, 9], "Conv2d(4, 4, stride = 3, padding = 1)", 1),
    ([3, 6, 5], "Conv2d(4, 3)", 1),
];

/// The layer alone, and its gradient added to one that is there.
fn alone_and_added(input: [u64; 3], text: &str) {
    one(2, input, text);
    check(text, 2, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        let branches = [layer(graph, input, text), layer(graph, input, text)];
        join(graph, &branches, "Add")
    });
}

#[test]
fn gradients_of_inputs_in_phases() {
    for (input, text, count) in PHASES {
        assert_eq!(phases(input, text), count, "{text}");
    }
    for (input, text, _) in [PHASES[1], PHASES[5]] {
        alone_and_added(input, text);
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn gradients_of_inputs_in_every_kind_of_phases() {
    for (input, text, _) in PHASES {
        alone_and_added(input, text);
    }
    for text in ["ConvTranspose2d(4, 1, stride = 2)", "ConvTranspose2d(4, [2; 3], stride = 2, dilation = [2; 1])"] {
        one(2, [3, 5, 4], text);
    }
}

/// In 16-bit numbers: the layer alone, and twice, so that gradients are added.
fn narrow(batch: u64, input: [u64; 3], text: &str) {
    check_products(text, batch, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        layer(graph, input, text)
    });
    check_products(text, batch, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        let branches = [layer(graph, input, text), layer(graph, input, text)];
        join(graph, &branches, "Add")
    });
}

#[test]
fn sixteen_bits() {
    narrow(2, [3, 7, 6], "Conv2d(5, 3, stride = 2, padding = 1)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_of_further_shapes() {
    narrow(2, [16, 6, 8], "Conv2d(16, 1, groups = 2)");
    narrow(1, [8, 19, 17], "Conv2d(40, 3, padding = 1)");
    narrow(3, [34, 5, 7], "Conv2d(33, 3, stride = 3, padding = 4)");
    narrow(2, [6, 6, 8], "Conv2d(9, [3; 2], groups = 3, dilation = [2; 1])");
    narrow(2, [40, 8, 8], "Conv2d(36, 1)");
    narrow(3, [7, 5, 7], "Conv2d(6, 1)");
    narrow(2, [3, 7, 9], "Conv2d(6, 3, groups = 3, padding = 1)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_transposed() {
    narrow(2, [5, 5, 4], "ConvTranspose2d(4, 3, stride = 2, padding = 1, output_padding = 1)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_transposed_of_further_shapes() {
    narrow(2, [33, 4, 5], "ConvTranspose2d(35, 2, stride = 2)");
    narrow(2, [6, 3, 4], "ConvTranspose2d(5, 1, dilation = 3, output_padding = [2; 1])");
}

/// Tiles of 128, and more positions than the gradient of a weight adds up at once.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_in_large_tiles() {
    check_products("Conv2d(129, 1)", 2, |graph| {
        let input = graph.input(numbers(&[3, 64, 65])).unwrap();
        layer(graph, input, "Conv2d(129, 1)")
    });
}
