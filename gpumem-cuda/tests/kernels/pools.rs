//! Poolings and upsampling.

use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::{check, check_narrow};

/// A layer on the network's input.
fn pool(input: [u64; 3], text: &str) {
    check(text, 3, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        layer(graph, input, text)
    });
}

/// Two layers on one value, so that the second gradient is added to the first.
fn pool_twice(input: [u64; 3], first: &str, second: &str) {
    check(&format!("{first} and {second}"), 2, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        let x = layer(graph, input, "Sigmoid");
        let branches = [layer(graph, x, first), layer(graph, x, second)];
        join(graph, &branches, "Add")
    });
}

#[test]
fn maxima() {
    pool([3, 7, 5], "MaxPool2d(2)");
    pool([2, 9, 13], "MaxPool2d([3; 2], stride = [2; 3], padding = [1; 0], dilation = [2; 1], ceil_mode = true)");
    pool([2, 7, 8], "MaxPool2d(3, 2, padding = 1)");
    pool([2, 8, 11], "MaxPool2d([2; 3], 1, padding = [1; 1], dilation = [3; 2])");
    // The only window reaches over the end.
    pool([2, 2, 3], "MaxPool2d(3, 2, ceil_mode = true)");
    // More elements in a window than a byte counts.
    pool([2, 17, 33], "MaxPool2d(16, [1; 3], padding = 8)");
    pool_twice([5, 11, 14], "MaxPool2d(3, 1, padding = 1)", "MaxPool2d(3, 1, padding = 1)");
}

#[test]
fn maxima_over_a_number_of_windows() {
    // Windows that overlap; more windows than elements; those of one size; more elements in a window than a byte counts.
    pool([3, 7, 5], "AdaptiveMaxPool2d([3; 2])");
    pool([2, 3, 4], "AdaptiveMaxPool2d([5; 6])");
    pool([2, 6, 8], "AdaptiveMaxPool2d([3; 2])");
    pool([2, 37, 33], "AdaptiveMaxPool2d(2)");
    pool_twice([5, 11, 14], "AdaptiveMaxPool2d([11; 3])", "AdaptiveMaxPool2d([11; 3])");
}

#[test]
fn means() {
    pool([3, 7, 5], "AvgPool2d(2, ceil_mode = true)");
    pool([2, 9, 12], "AvgPool2d([3; 4], [2; 3], padding = [1; 2], ceil_mode = true, count_include_pad = false)");
    pool([2, 8, 8], "AvgPool2d(3, 2, padding = 1, ceil_mode = true)");
    pool([2, 1, 4], "AvgPool2d([4; 2], 3, padding = 1, ceil_mode = true)");
    pool_twice([5, 11, 14], "AvgPool2d(3, 1, padding = 1)", "AvgPool2d(3, 1, padding = 1, count_include_pad = false)");
}

#[test]
fn means_over_a_number_of_windows() {
    pool([3, 7, 5], "AdaptiveAvgPool2d([3; 2])");
    // Windows of a warp each, more of them than a block has; windows that overlap; more windows than elements.
    pool([5, 17, 11], "AdaptiveAvgPool2d(2)");
    pool([2, 3, 4], "AdaptiveAvgPool2d([5; 6])");
    pool([13, 3, 5], "GlobalAvgPool");
    pool([11, 6, 6], "GlobalAvgPool");
    check("a mean over the plane as a gate", 3, |graph| {
        let input = graph.input(numbers(&[5, 7, 9])).unwrap();
        let x = layer(graph, input, "Tanh");
        let mean = chain(graph, x, "AdaptiveAvgPool2d(1) | Upsample([7; 9])");
        join(graph, &[x, mean], "Mul")
    });
}

#[test]
fn repetition() {
    pool([3, 7, 5], "Upsample(3)");
    pool([3, 5, 6], "Upsample([3; 2])");
    pool_twice([2, 9, 7], "Upsample(2)", "Upsample(2)");
}

#[test]
fn sixteen_bits() {
    check_narrow("MaxPool2d", 2, |graph| {
        let input = graph.input(numbers(&[3, 7, 6])).unwrap();
        layer(graph, input, "MaxPool2d(3, 2, padding = 1)")
    });
}
