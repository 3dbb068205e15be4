//! Convolutions of images of few channels in 16 bits, whose positions lie channels last: `narrow.cuh`.

use crate::channels_last::kernels;
use crate::host::harness::graphs::{again, chain, join, layer, numbers};
use crate::host::{CAPABILITY, Format};
use crate::layouts::check;
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use std::collections::BTreeSet;

/// All maps and weights channels last, and maps alone.
const ALL: usize = 0;
const MAPS: usize = 7;

const BF16: Format = (Precision::Bf16, CAPABILITY);

/// The layer on the images, and behind it one that makes its output a map within.
fn first(dims: [u64; 3], text: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(&dims)).unwrap();
        chain(graph, input, &format!("{text} | Conv2d(3, 1)"))
    }
}

/// The passes of a training step that the narrow kernels compute.
fn narrow(build: impl Fn(&mut Graph) -> NodeId, format: Format) -> BTreeSet<&'static str> {
    let is_narrow = |(name, _): &(&'static str, String)| *name == "NARROW";
    let all = kernels(build, format).into_iter().filter(|kernel| kernel.constants.iter().any(is_narrow));
    all.map(|kernel| kernel.entry).collect()
}

const BOTH: [&str; 2] = ["convolution_backward_filter", "convolution_forward"];

/// Windows that overlap and leave gaps, tiles that hang over the edges, channels that are no whole tile or more than one, rows of a kernel of
/// one to nine taps.
const CASES: [([u64; 3], &str); 6] = [
    ([3, 37, 45], "Conv2d(40, 7, stride = 2, padding = 3)"),
    ([3, 17, 18], "Conv2d(24, 3, padding = 1, bias = false) | Relu"),
    ([2, 20, 34], "Conv2d(72, [5; 2], stride = [1; 3], padding = [4; 1], dilation = [2; 1])"),
    ([4, 19, 15], "Conv2d(8, [2; 4], dilation = [3; 2])"),
    ([2, 9, 20], "Conv2d(16, [1; 9], padding = [0; 4])"),
    ([3, 16, 32], "Conv2d(64, [4; 1]) | Relu6"),
];

#[test]
fn convolutions_of_few_channels() {
    for (index, (dims, text)) in CASES.into_iter().enumerate() {
        let build = first(dims, text);
        assert_eq!(narrow(build, BF16), BOTH.into(), "{text}");
        let way = if index % 2 == 0 { MAPS } else { ALL };
        check((text, build), BF16, way..way + 1, 1e-2);
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn convolutions_of_few_channels_in_other_formats() {
    for (index, (dims, text)) in CASES.into_iter().enumerate() {
        let (build, way) = (first(dims, text), if index % 2 == 0 { ALL } else { MAPS });
        check((text, build), BF16, way..way + 1, 1e-2);
        check((text, build), (Precision::F16, CAPABILITY), MAPS..MAPS + 1, 1e-2);
        check((text, build), (Precision::F16, (7, 5)), way..way + 1, 1e-2);
    }
}

/// A block computes several tiles.
#[test]
fn convolutions_of_large_images() {
    check(("many tiles", first([2, 64, 545], "Conv2d(8, [1; 2], bias = false)")), BF16, MAPS..MAPS + 1, 1e-2);
}

/// So many that sums of the weight's gradient are added to the total more than once.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn convolutions_of_larger_images() {
    check(("more tiles", first([2, 128, 1201], "Conv2d(8, [1; 2], bias = false)")), BF16, MAPS..MAPS + 1, 1e-2);
}

/// A convolution that is used twice: gradients are added.
#[test]
fn gradients_are_added() {
    let text = "Conv2d(16, 3)";
    let build = move |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 12, 21])).unwrap();
        let branches = [layer(graph, input, text), again(graph, input, text, 0)];
        let sum = join(graph, &branches, "Add");
        layer(graph, sum, "Conv2d(3, 1)")
    };
    assert_eq!(narrow(build, BF16), BOTH.into());
    check((text, build), BF16, ALL..ALL + 1, 1e-2);
}

/// What they do not know is computed as before: one channel and five, channels that are no eights, few positions, groups, many taps, 32 bits,
/// cards without tensor cores for the format.
#[test]
fn others_are_not_narrow() {
    let none = BTreeSet::new();
    for (dims, text) in [
        ([1, 20, 20], "Conv2d(8, 3)"),
        ([5, 20, 20], "Conv2d(8, 3)"),
        ([3, 20, 20], "Conv2d(12, 3)"),
        ([3, 9, 20], "Conv2d(8, 3)"),
        ([4, 20, 20], "Conv2d(8, 3, groups = 2)"),
        ([4, 20, 20], "Conv2d(8, 7)"),
        ([3, 40, 40], "ConvTranspose2d(8, 3)"),
    ] {
        assert_eq!(narrow(first(dims, text), BF16), none, "{text}");
    }
    let build = first([3, 20, 20], "Conv2d(8, 3)");
    assert_eq!(narrow(build, BF16), BOTH.into());
    assert_eq!(narrow(build, (Precision::F32, CAPABILITY)), none);
    assert_eq!(narrow(build, (Precision::Bf16, (7, 5))), none);
    // The part of the image that a tile sees has no room.
    assert_eq!(narrow(first([3, 200, 200], "Conv2d(8, 3, stride = 9)"), BF16), none);
}
