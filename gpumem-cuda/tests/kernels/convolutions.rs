use crate::host::harness::graphs::{join, layer, layer_of, numbers};
use crate::{check, check_products};

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
        let again = layer_of(graph, first).clone();
        let second = graph.layer(again, &[first], "again".into(), Some(0)).unwrap();
        let third = layer(graph, input, text);
        join(graph, &[second, third], "Add")
    });
}

/// Windows that overlap, leave gaps, hang over the edges; maps whose sizes are multiples of nothing, and of 4.
#[test]
fn conv2d() {
    one(3, [3, 7, 5], "Conv2d(4, 3)");
    one(2, [4, 9, 8], "Conv2d(5, [3; 2], stride = [2; 1], padding = [1; 2], dilation = [2; 3], bias = false)");
    one(2, [8, 6, 6], "Conv2d(37, 1)");
    one(3, [7, 5, 7], "Conv2d(6, 1)");
    one(2, [12, 6, 8], "Conv2d(20, 1, groups = 2)");
    one(2, [9, 7, 6], "Conv2d(5, 1, stride = 2)");
    one(2, [9, 7, 6], "Conv2d(5, 1, padding = 1)");
    one(2, [34, 5, 7], "Conv2d(33, 5, stride = 3, padding = 4)");
}

/// Tiles of 128, several along each dimension, and more positions than the gradient of a weight adds up at once.
#[test]
fn conv2d_in_large_tiles() {
    one(2, [3, 64, 65], "Conv2d(129, 1)");
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
    twice(2, [4, 64, 65], "Conv2d(4, [1; 3], padding = [0; 1])");
    twice(2, [3, 5, 7], "Conv2d(3, 3, padding = 1, groups = 3)");
}

#[test]
fn conv_transpose2d() {
    one(3, [3, 5, 4], "ConvTranspose2d(4, 3, stride = 2, padding = 1, output_padding = 1)");
    one(2, [4, 5, 7], "ConvTranspose2d(6, [3; 2], stride = [2; 3], dilation = [2; 1], groups = 2, bias = false)");
    one(2, [33, 4, 5], "ConvTranspose2d(35, 2, stride = 2)");
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
    narrow(1, [8, 19, 17], "Conv2d(40, 3, padding = 1)");
    narrow(3, [34, 5, 7], "Conv2d(33, 3, stride = 3, padding = 4)");
    narrow(2, [6, 6, 8], "Conv2d(9, [3; 2], groups = 3, dilation = [2; 1])");
    narrow(2, [40, 8, 8], "Conv2d(36, 1)");
    narrow(2, [16, 6, 8], "Conv2d(16, 1, groups = 2)");
    narrow(3, [7, 5, 7], "Conv2d(6, 1)");
    narrow(2, [3, 7, 9], "Conv2d(6, 3, groups = 3, padding = 1)");
}

#[test]
fn sixteen_bits_transposed() {
    narrow(2, [5, 5, 4], "ConvTranspose2d(4, 3, stride = 2, padding = 1, output_padding = 1)");
    narrow(2, [33, 4, 5], "ConvTranspose2d(35, 2, stride = 2)");
}

/// Tiles of 128, and more positions than the gradient of a weight adds up at once.
#[test]
fn sixteen_bits_in_large_tiles() {
    check_products("Conv2d(129, 1)", 2, |graph| {
        let input = graph.input(numbers(&[3, 64, 65])).unwrap();
        layer(graph, input, "Conv2d(129, 1)")
    });
}
