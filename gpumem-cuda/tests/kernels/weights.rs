//! Convolutions whose weights lie channels last, between maps in any layout: operands that are carried in pieces along channels,
//! and those that cannot be.

use crate::host::harness::graphs::{chain, numbers};
use crate::host::harness::layouts::WAYS;
use crate::host::{CAPABILITY, Format};
use crate::layouts::{compare_ways, program, ways_in_turn};
use gpumem_core::Precision;

/// Input and layers of a network.
type Case = ([u64; 3], &'static str);

/// Channels that are multiples of 8.
const WHOLE: [Case; 6] = [
    ([3, 9, 7], "Conv2d(16, 3, padding = 1, bias = false) | Conv2d(24, 3, stride = 2, padding = 1) | Conv2d(5, 1)"),
    ([8, 7, 6], "Conv2d(32, 1, bias = false) | Conv2d(16, [3; 2], groups = 2, dilation = [2; 1]) | Conv2d(8, 1)"),
    ([8, 8, 7], "Conv2d(16, 1, bias = false) | Conv2d(24, 1, stride = 2) | Conv2d(8, 3, stride = 3, padding = 2)"),
    ([8, 5, 4], "Conv2d(16, 1) | ConvTranspose2d(24, 3, stride = 2, padding = 1, output_padding = 1) | Conv2d(8, 1)"),
    ([8, 5, 4], "Conv2d(16, 1) | ConvTranspose2d(32, [2; 3], groups = 2, bias = false) | Conv2d(8, 1)"),
    ([8, 7, 5], "Conv2d(16, 1) | Conv2d(16, 3, groups = 16, padding = 1) | Conv2d(32, 3, groups = 16) | Conv2d(8, 1)"),
];

/// Some that are multiples of 4, of 2 and of nothing.
const ODD: [Case; 4] = [
    ([3, 7, 6], "Conv2d(12, 3, padding = 1, bias = false) | Conv2d(20, 3, stride = 2, padding = 1) | Conv2d(5, 1)"),
    ([5, 7, 6], "Conv2d(10, 2, bias = false) | Conv2d(6, [3; 2], groups = 2, stride = [1; 2]) | Conv2d(7, 1)"),
    ([5, 5, 4], "Conv2d(6, 1) | ConvTranspose2d(9, 3, groups = 3, stride = 2, dilation = 2) | Conv2d(3, 1)"),
    ([4, 4, 5], "Conv2d(6, 2) | ConvTranspose2d(35, 2, stride = 2) | Conv2d(33, 3) | Conv2d(3, 1)"),
];

/// Tiles of which there are several along every side.
const LARGE: [Case; 2] = [
    ([8, 31, 29], "Conv2d(136, 3, padding = 1, bias = false) | Conv2d(40, 1) | Conv2d(8, 1)"),
    ([3, 29, 27], "Conv2d(64, 7, stride = 2, padding = 3, bias = false) | Conv2d(40, 3) | Conv2d(8, 1)"),
];

fn check((input, text): Case, format: Format, ways: &[usize]) {
    let plain = program(|graph| {
        let input = graph.input(numbers(&input)).unwrap();
        chain(graph, input, text)
    });
    let tolerance = if format.0 == Precision::F32 { 1e-5 } else { 1e-2 };
    compare_ways(text, &plain, format, ways, tolerance);
}

const F32: Format = (Precision::F32, CAPABILITY);
const BF16: Format = (Precision::Bf16, CAPABILITY);
/// On the tensor cores of Turing, and without any.
const TURING: [Format; 2] = [(Precision::F16, (7, 5)), (Precision::Bf16, (7, 5))];

/// All channels last, and weights without maps.
#[test]
fn weights_channels_last() {
    check(WHOLE[0], BF16, &[0]);
    check(WHOLE[3], F32, &[0]);
    check(ODD[1], BF16, &[WAYS - 1]);
}

/// Biases, and the kernels of single channels, whose gradients are summed for many channels at once, in parts: whole pieces of
/// channels and others, more than a block has.
const SUMS: [Case; 3] = [
    ([3, 47, 45], "Conv2d(40, 1) | Conv2d(40, [2; 3], groups = 40, padding = 1) | Conv2d(3, 1)"),
    ([3, 41, 37], "Conv2d(70, 1) | Conv2d(70, 3, groups = 70, stride = 2, bias = false) | Conv2d(3, 1)"),
    ([2, 31, 29], "Conv2d(5, 1) | ConvTranspose2d(36, 2, stride = 2) | Conv2d(36, 1, groups = 36) | Conv2d(3, 1)"),
];

#[test]
fn sums_of_channels_in_parts() {
    check(SUMS[0], BF16, &[0]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sums_of_channels_in_several_ways() {
    for case in SUMS {
        check(case, F32, &[0, 2]);
        check(case, BF16, &[0, 5]);
    }
}

fn in_every_way(format: Format, cases: &[Case]) {
    let ways: Vec<usize> = (0..WAYS).collect();
    cases.iter().for_each(|case| check(*case, format, &ways));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn whole_pieces_in_every_way() {
    in_every_way(BF16, &WHOLE);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn no_pieces_in_every_way() {
    in_every_way(BF16, &ODD);
}

/// In 16 bits each case is in all ways.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn floats_in_ways_by_turns() {
    for (index, case) in WHOLE.iter().chain(&ODD).enumerate() {
        check(*case, F32, &ways_in_turn(index));
    }
}

fn in_several_ways(case: Case) {
    check(case, F32, &[0]);
    check(case, BF16, &[0, 4]);
    check(case, (Precision::F16, CAPABILITY), &[WAYS - 1]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn many_channels_in_several_ways() {
    in_several_ways(LARGE[0]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn large_maps_in_several_ways() {
    in_several_ways(LARGE[1]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn on_other_tensor_cores_and_without() {
    for case in [WHOLE[0], WHOLE[1], WHOLE[3], ODD[0]] {
        TURING.into_iter().for_each(|format| check(case, format, &[0, WAYS - 1]));
    }
}
