//! Shape rules: outputs, and every message.
#![cfg(feature = "lower")]

mod common;

use common::{again, built, images, join, numbers, op_of, parse, sound, tokens, try_join};
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::layers::Entry;
use gpumem_core::layers::guess::Guess;
use gpumem_core::program::{Op, Program};
use proptest::prelude::*;

fn value(input: &str) -> Type {
    let dims = |text: &str| text.split('x').map(|dim| dim.parse().unwrap()).collect::<Vec<u64>>();
    match input.split_once(' ') {
        Some(("tokens", steps)) => tokens(steps.parse().unwrap()),
        Some((_, image)) => images(&dims(image)),
        None => numbers(&dims(input)),
    }
}

fn inputs(graph: &mut Graph, shapes: &str) -> Vec<NodeId> {
    shapes.split(',').map(|shape| graph.input(value(shape.trim())).unwrap()).collect()
}

#[test]
fn outputs() {
    for (input, layer, expected) in [
        ("3x224x224", "Conv2d(64, 7, stride = 2, padding = 3)", "[64, 112, 112]"),
        ("3x32x48", "Conv2d(8, [3; 5], stride = [2; 1], padding = [1; 0], dilation = [1; 2])", "[8, 16, 40]"),
        ("3x7x8", "Conv2d(4, [2; 4], padding = \"same\", dilation = [3; 1])", "[4, 7, 8]"),
        ("3x7x8", "Conv2d(4, 9, padding = \"same\")", "[4, 7, 8]"),
        ("3x7x8", "Conv2d(4, 2, padding = \"valid\")", "[4, 6, 7]"),
        ("4x7x7", "ConvTranspose2d(3, 3, stride = 2, padding = 1, output_padding = 1)", "[3, 14, 14]"),
        ("4x5x6", "ConvTranspose2d(3, [2; 4], stride = [2; 3], dilation = [1; 2])", "[3, 10, 22]"),
        ("8x7x7", "MaxPool2d(2)", "[8, 3, 3]"),
        ("8x7x7", "MaxPool2d(2, ceil_mode = true)", "[8, 4, 4]"),
        ("8x7x7", "MaxPool2d(3, 2)", "[8, 3, 3]"),
        // The last window would start in the right padding: PyTorch drops it.
        ("8x4x4", "MaxPool2d(2, stride = 3, padding = 1, ceil_mode = true)", "[8, 2, 2]"),
        ("8x5x5", "MaxPool2d(1, stride = 2, ceil_mode = true)", "[8, 3, 3]"),
        ("8x7x7", "AvgPool2d(3, stride = 2, padding = 1)", "[8, 4, 4]"),
        ("8x13x11", "AdaptiveAvgPool2d([6; 5])", "[8, 6, 5]"),
        ("8x13x11", "AdaptiveMaxPool2d([6; 5])", "[8, 6, 5]"),
        ("8x13x11", "GlobalAvgPool", "[8]"),
        ("8x2x3", "Flatten", "[48]"),
        ("5x3", "Flatten", "[15]"),
        ("8x2x3", "Upsample([2; 3])", "[8, 4, 9]"),
        ("10x64", "Linear(32)", "[10, 32]"),
        ("64", "Linear(64, 32)", "[32]"),
        ("tokens 10", "Embedding(100, 16)", "[10, 16]"),
        ("tokens 10", "Embedding(100, 16, padding_idx = -1)", "[10, 16]"),
        ("tokens 10", "PositionEmbedding(12, 16)", "[10, 16]"),
        ("10x16", "PositionEmbedding(12)", "[10, 16]"),
        ("10x48", "MultiHeadAttention(4, causal = true, bias = false)", "[10, 48]"),
        ("10x48", "CausalAttention(4)", "[10, 16]"),
        ("10x48", "CausalAttention(4, kv_heads = 1)", "[10, 32]"),
        ("10x48", "CausalSelfAttention(4)", "[10, 48]"),
        ("10x48", "CausalSelfAttention(4, kv_heads = 2)", "[10, 48]"),
        ("8x2x3", "GroupNorm(4)", "[8, 2, 3]"),
        ("bytes 3x2x4", "Normalize", "[3, 2, 4]"),
        ("bytes 3x2x4", "Normalize([0.5; 0.25; 0.125], 2)", "[3, 2, 4]"),
        ("2x3x4", "Normalize([1; 2], std = [0.5; 0.25])", "[2, 3, 4]"),
        ("8x5", "GroupNorm(2, 8)", "[8, 5]"),
        ("8x5", "RmsNorm(5)", "[8, 5]"),
        ("10x48, 10x48, 10x48", "Add", "[10, 48]"),
        ("3x4x4, 5x4x4", "Concat", "[8, 4, 4]"),
        ("10x3, 10x5", "Concat", "[10, 8]"),
        ("3, 5", "Concat", "[8]"),
        ("10x48", "Softmax", "[10, 48]"),
        ("10x48", "LogSoftmax(1)", "[10, 48]"),
        ("8x5x6", "Dropout2d(0.2)", "[8, 5, 6]"),
        ("8x5", "Dropout1d", "[8, 5]"),
        ("8x5", "DropPath(0.2)", "[8, 5]"),
        ("7x3", "Lstm(5)", "[7, 5]"),
        ("7x3", "Lstm(5, 2, bidirectional = true, dropout = 0.5)", "[7, 10]"),
        ("7x3", "Gru(hidden = 6, layers = 3, bias = false)", "[7, 6]"),
        ("7x3", "Rnn(4, nonlinearity = \"relu\")", "[7, 4]"),
        ("3x20", "Conv1d(5, 3, padding = 1)", "[5, 20]"),
        ("4x20", "Conv1d(4, 6, 5, stride = 2, dilation = 2, groups = 2, bias = false)", "[6, 6]"),
        ("3x20", "Conv1d(5, 4, padding = \"same\")", "[5, 20]"),
        ("3x20", "ConvTranspose1d(5, 4, stride = 2, padding = 1, output_padding = 1)", "[5, 41]"),
        ("3x20", "MaxPool1d(3, 2, ceil_mode = true)", "[3, 10]"),
        ("3x20", "AvgPool1d(2)", "[3, 10]"),
        ("3x20", "AdaptiveAvgPool1d(7)", "[3, 7]"),
        ("3x20", "AdaptiveMaxPool1d(7)", "[3, 7]"),
        ("3x20", "BatchNorm1d(3)", "[3, 20]"),
        ("30", "BatchNorm1d", "[30]"),
        ("3x20", "InstanceNorm1d", "[3, 20]"),
        ("3x4x5", "InstanceNorm2d(3, affine = true)", "[3, 4, 5]"),
        ("3x4x6", "LayerNorm([4; 6])", "[3, 4, 6]"),
        ("3x4x6", "LayerNorm(6)", "[3, 4, 6]"),
        ("3x4x6", "RmsNorm([3; 4; 6])", "[3, 4, 6]"),
        ("3x4x6", "Linear(6, 2)", "[3, 4, 2]"),
        ("3x4x5", "Permute([0; 2; 3; 1])", "[4, 5, 3]"),
        ("3x4x5", "Permute(0, 2, 3, 1)", "[4, 5, 3]"),
        ("3x4x5", "Permute(0, -2, -1, 1)", "[4, 5, 3]"),
        ("3x4x5", "Reshape(1, 4, 3, 1, -1)", "[1, 4, 3, 1, 5]"),
        ("10x48", "Rotary(4, dims = 6)", "[10, 48]"),
        ("10x96", "CausalAttention(4, kv_heads = 2, rotary = 10000.0)", "[10, 48]"),
        ("18x4x5", "PixelShuffle(3)", "[2, 12, 15]"),
        ("2x12x15", "PixelUnshuffle(3)", "[18, 4, 5]"),
        ("6x4x5", "ChannelShuffle(3)", "[6, 4, 5]"),
        ("3x4x5", "Roll([1; 2], [1; -1])", "[3, 4, 5]"),
        ("3x1x5", "Squeeze(2)", "[3, 5]"),
        ("3x4x5", "Unsqueeze(-1)", "[3, 4, 5, 1]"),
        ("3x4x5", "Unsqueeze(1)", "[1, 3, 4, 5]"),
        ("3x4x5", "Transpose(1, -1)", "[5, 4, 3]"),
        ("1x4x5", "Permute([0; 2; 3; 1])", "[4, 5, 1]"),
        ("3x4x5", "Reshape([4; 15])", "[4, 15]"),
        ("3x4x5", "Reshape([-1; 4; 1; 5])", "[3, 4, 1, 5]"),
        ("3x4x5", "Slice(1, 3, dim = 2)", "[3, 2, 5]"),
        ("3x4x5", "Slice(-2, dim = -1)", "[3, 4, 2]"),
        ("3x4x5", "Select(-1)", "[4, 5]"),
        ("3x4x5", "Mean([2; 3])", "[3]"),
        ("3x4x5", "Sum([1; 3], keepdim = true)", "[1, 4, 1]"),
        ("3x4x5", "Max([1; 2; 3])", "[1]"),
        ("3x4x5", "Max(-2)", "[3, 5]"),
        ("10x48", "Glu", "[10, 24]"),
        ("8x5x6", "Glu(1)", "[4, 5, 6]"),
        ("8x5x6", "Scale(0.1, bias = true)", "[8, 5, 6]"),
        ("8x5x6", "Prelu(8, init = 0.1)", "[8, 5, 6]"),
        ("8x5", "Prelu", "[8, 5]"),
        ("10x48", "ClassToken", "[11, 48]"),
        ("3x4x4, 3x1x1", "Mul", "[3, 4, 4]"),
        ("1x4, 3x1", "Sub", "[3, 4]"),
        ("3x4x4, 4", "Div", "[3, 4, 4]"),
        ("3x4x4, 3x4x1, 4", "Add", "[3, 4, 4]"),
        ("2x3, 3x5", "MatMul", "[2, 5]"),
        ("7x2x3, 7x5x3", "MatMul(transpose_b = true)", "[7, 2, 5]"),
        ("8x5x4", "Upsample(size = [8; 9], mode = \"bilinear\", align_corners = true)", "[8, 8, 9]"),
        ("8x5x4", "Upsample(1.5)", "[8, 7, 6]"),
        ("8x5x4", "Upsample([0.5; 3], mode = \"bicubic\")", "[8, 2, 12]"),
        ("8x5x4", "Upsample(scale_factor = 2)", "[8, 10, 8]"),
        // 100 * 1.15 is less than 115 in 64 bits, as in PyTorch.
        ("3x100", "Upsample(1.15, mode = \"linear\")", "[3, 114]"),
        ("3x20", "Upsample(size = 7)", "[3, 7]"),
        ("3x4x5", "Pad(2)", "[3, 8, 9]"),
        ("3x4x5", "Pad([1; 2])", "[3, 4, 8]"),
        ("3x4x5", "Pad([1; 2; 3; 0], mode = \"reflect\")", "[3, 7, 8]"),
        ("3x4x5", "Pad([-1; 2; 3; -2])", "[3, 5, 6]"),
        ("3x4x5", "Pad([5; 5; 4; 4], mode = \"circular\")", "[3, 12, 15]"),
        ("3x20", "Pad(2)", "[3, 24]"),
        ("3x20", "Pad([1; 0; 2; 3])", "[8, 21]"),
        ("20", "Pad([1; 2])", "[23]"),
    ] {
        let mut graph = Graph::default();
        let nodes = inputs(&mut graph, input);
        let node = join(&mut graph, &nodes, layer);
        assert_eq!(graph.value(node).shape.to_string(), expected, "{layer} of {input}");
    }
}

#[test]
fn softmax_finds_its_axis() {
    for (input, layer, expected) in [
        ("3x4x5", "Softmax", [1, 3, 20]),
        ("4x5", "Softmax", [4, 5, 1]),
        ("4x5", "Softmax(1)", [1, 4, 5]),
        ("3x4x5", "Softmax(dim = -1)", [12, 5, 1]),
        ("3x4x5", "Softmax(dim = 2)", [3, 4, 5]),
        ("7", "Softmax(dim = -1)", [1, 7, 1]),
        ("3x4x5", "LogSoftmax", [1, 3, 20]),
    ] {
        let mut graph = Graph::default();
        let nodes = inputs(&mut graph, input);
        let node = join(&mut graph, &nodes, layer);
        let Op::Softmax(softmax) = op_of(&graph, node) else { panic!() };
        assert_eq!([softmax.outer, softmax.classes, softmax.inner], expected, "{layer} of {input}");
    }
}

#[test]
fn mistakes() {
    for (input, layer, expected) in [
        ("8", "Linear(4, bias = 1)", "needs `true` or `false` for `bias`, not 1"),
        ("8", "Linear(4.5)", "needs a whole number for `out_features`, not 4.5"),
        ("8", "Linear(10.0)", "needs a whole number for `out_features`, not 10.0"),
        ("8", "Linear(0)", "needs `out_features` to be at least 1, not 0"),
        ("8", "Linear(9, 4)", "expects 9 input features, but the previous layer produces [8]"),
        (
            "8x2x2",
            "Linear(32, 4)",
            "expects 32 input features, but the previous layer produces [8, 2, 2]; put `Flatten` before it",
        ),
        ("8x2x2", "Linear(30, 4)", "expects 30 input features, but the previous layer produces [8, 2, 2] = 32"),
        (
            "8x2x2",
            "Linear(4)",
            "works on a vector or a sequence, but the previous layer produces [8, 2, 2]; \
             put `Flatten` or `GlobalAvgPool` before it",
        ),
        ("tokens 5", "Linear(4)", "works on numbers, but it is given tokens; put `Embedding` before it"),
        ("tokens 5", "Relu", "works on numbers, but it is given tokens; put `Embedding` before it"),
        ("bytes 3x4x4", "Flatten", "works on numbers, but it is given bytes; put `Normalize` before it"),
        (
            "bytes 3x4x4",
            "Conv2d(4, 3)",
            "works on a feature map [C, H, W], but it is given bytes; put `Normalize` before it",
        ),
        ("bytes 3x4x4", "Embedding(4, 3)", "works on tokens; make the network's input `Tokens<T>` and put it first"),
        (
            "tokens 5",
            "Normalize",
            "works on a feature map [C, H, W], but it is given tokens; put `Embedding` before it",
        ),
        ("8", "Normalize", "works on a feature map [C, H, W], but the previous layer produces [8]"),
        (
            "bytes 3x4x4",
            "Normalize([0.5; 0.25])",
            "has 2 numbers in `mean`, but [3, 4, 4] has 3 channels; write as many, or one for all of them",
        ),
        ("3x4x4", "Normalize(0, [1; 0; 1])", "needs `std` to be above 0, not (1, 0, 1)"),
        ("3x4x4", "Normalize(0, -1)", "needs `std` to be above 0, not -1.0"),
        (
            "3x4x4",
            "Normalize(true)",
            "needs a number, or one for each channel as `(0.5, 0.4, 0.3)` for `mean`, not true",
        ),
        ("8x2x2", "Flatten(2)", "takes no arguments, but 1 is given"),
        (
            "8",
            "Relu(true)",
            "takes no arguments in front of its options, but 1 is given; options are given by name: `inplace = true`",
        ),
        (
            "8",
            "Linear(units = 4)",
            "has no option `units`; its only option is `bias`, after (out_features) or (in_features, out_features)",
        ),
        (
            "5x8",
            "CausalSelfAttention(4, vdim = 2)",
            "has no option `vdim`; its options are `kv_heads`, `dropout`, `bias`, `rotary`, `rotary_dims` and `interleaved`, after (heads)",
        ),
        ("8", "Linear(out_feature = 4)", "has no option `out_feature`; did you mean `out_features`?"),
        ("3x8x8", "Conv2d(8, 3, dilate = 2)", "has no option `dilate`; did you mean `dilation`?"),
        ("3x8x8", "Conv2d(8, kernel = 3)", "has no option `kernel`; did you mean `kernel_size`?"),
        ("3x8x8", "Conv2d(8, 3, stride_ = 2)", "has no option `stride_`; did you mean `stride`?"),
        (
            "3x8x8",
            "Conv2d(in_channels = 3, out_channels = 8)",
            "takes (out_channels, kernel_size) or (in_channels, out_channels, kernel_size), but `kernel_size` is missing",
        ),
        (
            "3x8x8",
            "Conv2d(3, 8, 3, 2, 1)",
            "takes (out_channels, kernel_size) or (in_channels, out_channels, kernel_size), but 5 are given; options are given \
             by name: `stride = 2, padding = 1`",
        ),
        (
            "3x8x8",
            "Conv2d(8, 3, stride = 2, padding = \"same\")",
            "has `padding = \"same\"` with stride 2; PyTorch has that for stride 1 only, so write the padding as a number",
        ),
        ("8", "Relu(1)", "takes no arguments in front of its options, but 1 is given"),
        ("8", "Relu(inplace = true, inplace = true)", "is given `inplace` twice; remove one"),
        ("8", "Tanh(inplace = true)", "has no option `inplace`; it has no options"),
        ("8", "Gelu(exact = true)", "has no option `exact`; its only option is `approximate`"),
        ("8", "Gelu(approximate = \"fast\")", "needs \"none\" or \"tanh\" for `approximate`, not \"fast\""),
        ("8", "Dropout(1)", "needs `p` to be at least 0 and below 1, not 1"),
        ("8", "Dropout(\"half\")", "needs a number for `p`, not \"half\""),
        ("8", "LeakyRelu(-0.1)", "needs `negative_slope` to be at least 0, not -0.1"),
        ("tokens 8", "Embedding(5, 3, 5)", "is 5, but there are 5 rows; use one from 0 to 4, or -1 for the last"),
        ("8x5", "Prelu(5)", "is 5, but there is one slope for all or one for each of the 8 channels; use 1 or 8"),
        ("8", "Lstm(5)", "works on a sequence [T, D], but the previous layer produces [8]"),
        ("3x8x8", "Gru(5)", "works on a sequence [T, D], but the previous layer produces [3, 8, 8]"),
        ("7x3", "Lstm(0)", "needs `hidden` to be at least 1, not 0"),
        ("7x3", "Gru(5, layers = 0)", "needs `layers` to be at least 1, not 0"),
        ("7x3", "Rnn(5, dropout = 1.5)", "needs `dropout` to be at least 0 and below 1, not 1.5"),
        ("7x3", "Rnn(5, nonlinearity = \"gelu\")", "needs \"tanh\" or \"relu\" for `nonlinearity`, not \"gelu\""),
        (
            "7x3",
            "Lstm(3, 650)",
            "has layers = 650, but stacks at most 256; the width of what arrives is known, so only the hidden units are written: \
             `layers` is how many follow each other",
        ),
        ("8", "LogSoftmax(2)", "needs `dim` to be an axis from 1 to 1 (0 is the batch), or -1 for the last"),
        ("8", "Softmax(2)", "needs `dim` to be an axis from 1 to 1 (0 is the batch), or -1 for the last"),
        ("8", "Conv2d(4, 3)", "works on a feature map [C, H, W], but the previous layer produces [8]"),
        (
            "tokens 8",
            "Conv2d(4, 3)",
            "works on a feature map [C, H, W], but it is given tokens; put `Embedding` before it",
        ),
        (
            "3x8x8",
            "Conv2d(4)",
            "takes (out_channels, kernel_size) or (in_channels, out_channels, kernel_size), but 1 is given",
        ),
        ("3x8x8", "Conv2d(4, \"3\")", "needs a whole number or a pair (height, width) for `kernel_size`, not \"3\""),
        ("3x8x8", "Conv2d(4, 3, stride = 0)", "needs `stride` to be at least 1, not 0"),
        (
            "3x8x8",
            "Conv2d(4, 3, 3)",
            "expects 4 input channels, but the previous layer produces [3, 8, 8], which has 3",
        ),
        (
            "3x8x8",
            "Conv2d(4, 3, groups = 2)",
            "has groups = 2, which does not divide its 3 input channels; \
             use a number of groups that divides both 3 and 4",
        ),
        (
            "4x8x8",
            "Conv2d(3, 3, groups = 2)",
            "has groups = 2, which does not divide its 3 output channels; \
             use a number of groups that divides both 4 and 3",
        ),
        (
            "3x8x6",
            "Conv2d(4, 7)",
            "has a 7x7 kernel, which is larger than its 8x6 input; \
             use a smaller kernel, more padding, or fewer strides before it",
        ),
        (
            "3x8x8",
            "Conv2d(4, 5, dilation = 3, padding = 1)",
            "has a 5x5 kernel with dilation 3, which is larger than its 8x8 input with padding 1; \
             use a smaller kernel, more padding, or fewer strides before it",
        ),
        ("3x8x8", "Conv2d(4, 3, padding = 18446744073709551615)", "has a window whose size exceeds 64-bit arithmetic"),
        (
            "3x8x8",
            "ConvTranspose2d(4, 3, stride = 18446744073709551615)",
            "has an output whose size exceeds 64-bit arithmetic",
        ),
        ("3x8x8", "ConvTranspose2d(4, 3, padding = 9)", "has padding 9 that leaves no output; use less padding"),
        (
            "3x8x8",
            "ConvTranspose2d(4, 3, output_padding = 1)",
            "needs `output_padding` to be below its stride or its dilation",
        ),
        (
            "3x8x8",
            "Upsample(mode = \"bilinear\")",
            "needs a factor or a size: `Upsample(2)` or `Upsample(size = (32, 48))`",
        ),
        ("3x8x8", "Upsample(2, size = 16)", "is given a size and a factor; leave one of them out"),
        ("3x8x8", "Upsample(0)", "needs `scale_factor` to be above 0, not 0"),
        ("3x8x8", "Upsample(-1.5)", "needs `scale_factor` to be above 0, not -1.5"),
        ("3x8x8", "Upsample(\"2\")", "needs a number or a pair (height, width) for `scale_factor`, not \"2\""),
        ("3x8x8", "Upsample(size = [8; 0])", "needs `size` to be at least 1, not (8, 0)"),
        ("3x8x8", "Upsample(size = 1.5)", "needs a whole number or a pair (height, width) for `size`, not 1.5"),
        (
            "3x8x8",
            "Upsample(2, mode = \"area\")",
            "needs \"nearest\" or \"bilinear\" or \"bicubic\" or \"linear\" for `mode`, not \"area\"",
        ),
        (
            "3x8x6",
            "Upsample([0.1; 2.5])",
            "leaves nothing of its 8x6 input with `scale_factor = (0.1, 2.5)`; use a larger factor",
        ),
        ("3x8", "Upsample(0.1)", "leaves nothing of its 8 elements with `scale_factor = 0.1`; use a larger factor"),
        (
            "3x8x8",
            "Upsample(2, mode = \"linear\")",
            "has `mode = \"linear\"`, which is for signals; for maps it is \"bilinear\"",
        ),
        (
            "3x8",
            "Upsample(2, mode = \"bicubic\")",
            "has `mode = \"bicubic\"`, which is for maps; for signals there is \"linear\"",
        ),
        (
            "3x8x8",
            "Upsample(2, align_corners = true)",
            "has `align_corners` with the nearest elements, which have none to align; leave it out, or write \
             `mode = \"bilinear\"`",
        ),
        (
            "3x8",
            "Upsample(size = [3; 4])",
            "works on a signal [C, L], which has one length; write one number for `size`",
        ),
        ("3x8x8", "Pad", "takes (padding), but none is given"),
        (
            "3x8x8",
            "Pad([1; 2; 3])",
            "needs a whole number, (left, right) or (left, right, top, bottom) for `padding`, not (1, 2, 3)",
        ),
        ("3x8x8", "Pad(1, value = \"x\")", "needs a number for `value`, not \"x\""),
        ("3x8x8", "Pad(1, value = inf)", "needs `value` to be finite, not inf"),
        (
            "3x8x8",
            "Pad(1, mode = \"reflect\", value = 1)",
            "has a value, which only `mode = \"constant\"` puts there; leave `value` or `mode = \"reflect\"` out",
        ),
        (
            "3x8x6",
            "Pad([1; 6; 2; 2], mode = \"reflect\")",
            "reflects 6 elements of an axis that has 6, whose outermost one is not repeated; use at most 5, or \
             `mode = \"replicate\"`",
        ),
        ("3x8x6", "Pad(7, mode = \"circular\")", "goes on with 7 elements of an axis that has 6; use at most 6"),
        (
            "3x8x6",
            "Pad([-1; 0], mode = \"replicate\")",
            "has padding (-1, 0) with `mode = \"replicate\"`; only `mode = \"constant\"` cuts off",
        ),
        ("3x8x6", "Pad(-3)", "cuts all of an axis of 6 off with padding -3; cut less off"),
        ("8", "Pad([1; 1; 1; 1])", "has padding (1, 1, 1, 1) for a vector, which has one axis; write `(left, right)`"),
        (
            "2x3x4x5",
            "Pad(1)",
            "pads maps, signals, sequences and vectors, but the previous layer produces [2, 3, 4, 5]",
        ),
        ("3x8x8", "MaxPool2d(3, padding = 2)", "has padding 2, more than half its kernel size 3; use at most 1"),
        (
            "3x8x8",
            "Upsample(18446744073709551615)",
            "has an output of shape [3, 18446744073709551615, 18446744073709551615], more than the 281474976710656 \
             elements that one tensor can have; check its numbers",
        ),
        (
            "3x8x8",
            "Conv2d(281474976710656, 8)",
            "has a parameter of shape [281474976710656, 3, 8, 8], more than the 281474976710656 elements that one tensor \
             can have; check its numbers",
        ),
        ("3x8x8", "BatchNorm2d(4)", "expects 4 input channels, but the previous layer produces [3, 8, 8], which has 3"),
        (
            "3x8x8",
            "LayerNorm",
            "works on a vector or a sequence, but the previous layer produces [3, 8, 8]; write which of its last axes make a row, \
             as `normalized_shape = 8`, or put `Flatten` or `GlobalAvgPool` before it",
        ),
        ("6x2x2", "GroupNorm(4)", "has 4 groups, which do not divide its 6 channels; use a divisor of 6"),
        ("6x2", "GroupNorm(2, 8)", "expects 8 input channels, but the previous layer produces [6, 2], which has 6"),
        ("6x2", "RmsNorm(3)", "expects 3 input features, but the previous layer produces [6, 2]"),
        ("8", "Embedding(10, 4)", "works on tokens; make the network's input `Tokens<T>` and put it first"),
        ("tokens 8", "PositionEmbedding(4, 4)", "has 4 positions, but its input has 8 steps"),
        ("tokens 8", "PositionEmbedding(8)", "needs `embedding_dim`"),
        ("8", "PositionEmbedding(8, 4)", "works on tokens or a sequence [T, D], but the previous layer produces [8]"),
        (
            "5x9",
            "CausalSelfAttention(2)",
            "has 2 heads, which do not divide its width of 9; \
                                           use a number of heads that divides 9",
        ),
        ("9", "CausalSelfAttention(3)", "works on a sequence [T, D], but the previous layer produces [9]"),
        (
            "tokens 9",
            "CausalSelfAttention(3)",
            "works on a sequence [T, D], but it is given tokens; put `Embedding` before it",
        ),
        (
            "5x10",
            "CausalAttention(2)",
            "takes queries, keys and values side by side, but a width of 10 is not divisible by 3; \
             put `Linear(3 * D)` before it, or use `CausalSelfAttention`",
        ),
        (
            "5x10",
            "CausalAttention(4, kv_heads = 2)",
            "takes queries, keys and values side by side, but a width of 10 is not divisible by 4; \
             put `Linear(D + 2 * D / 2)` before it, or use `CausalSelfAttention`",
        ),
        (
            "5x8",
            "CausalSelfAttention(4, kv_heads = 3)",
            "has kv_heads = 3, which does not divide its 4 heads; use a divisor of 4",
        ),
        ("8", "Tied(w)", "takes the name of a layer: `let w = Embedding(..);`, then `Tied(w)`"),
        ("8, 9", "Add", "joins branches of one shape, but branch 0 produces [8] and branch 1 produces [9]"),
        ("8, tokens 8", "Add", "joins numbers, but a branch carries tokens; put `Embedding` in that branch"),
        ("3x4x4, bytes 3x4x4", "Mul", "joins numbers, but a branch carries bytes; put `Normalize` in that branch"),
        ("3x4x4, bytes 3x4x4", "Concat", "joins numbers, but a branch carries bytes; put `Normalize` in that branch"),
        ("8, 8, 8", "Mul", "joins exactly 2 branches, but 3 are given; nest it: `Mul(Mul(x, y), z)`"),
        (
            "8x3, 9x3",
            "Concat",
            "joins branches that agree in all but the last dimension, but branch 0 produces [8, 3] and branch 1 \
             produces [9, 3]",
        ),
        ("8, 8", "MatMul", "multiplies matrices [.., M, K] and [.., K, N], but the branches produce [8] and [8]"),
        ("2x3, 2x3", "MatMul", "multiplies [.., M, K] and [.., K, N], but the branches produce [2, 3] and [2, 3]"),
        (
            "2x3, 3x2",
            "MatMul(transpose_b = true)",
            "multiplies [.., M, K] and [.., N, K], but the branches produce [2, 3] and [3, 2]",
        ),
        (
            "4x2x3, 5x3x2",
            "MatMul",
            "multiplies [.., M, K] and [.., K, N], but the branches produce [4, 2, 3] and [5, 3, 2]",
        ),
        (
            "3x4x4, 3x2x1",
            "Mul",
            "joins branches of one shape, but branch 0 produces [3, 4, 4] and branch 1 produces [3, 2, 1]",
        ),
        ("3x4x6", "LayerNorm([6; 4])", "expects [6, 4] as the last axes, but the previous layer produces [3, 4, 6]"),
        ("3x4x6", "LayerNorm(4)", "expects 4 input features, but the previous layer produces [3, 4, 6]"),
        ("3x4x6", "Conv1d(2, 3)", "works on a signal [C, L], but the previous layer produces [3, 4, 6]"),
        ("3x4", "Conv1d(2, 8, 3)", "expects 2 input channels, but the previous layer produces [3, 4], which has 3"),
        ("3x4", "LayerNorm(0)", "needs `normalized_shape` to be at least 1, not 0"),
        ("3x4", "Celu(0)", "needs `alpha` to be above 0, not 0"),
        (
            "3x4x6",
            "BatchNorm1d",
            "works on a vector [C] or a signal [C, L], but the previous layer produces [3, 4, 6]; use `BatchNorm2d`",
        ),
        (
            "3x4x5",
            "Permute([0; 2; 1])",
            "needs each axis of [3, 4, 5] once, behind the batch, which is axis 0: as `(0, 1, 2, 3)`, in the order that you want",
        ),
        (
            "3x4x5",
            "Permute(0, 2, 1)",
            "needs each axis of [3, 4, 5] once, behind the batch, which is axis 0: as `(0, 1, 2, 3)`, in the order that you want",
        ),
        ("3x4x5", "Permute(0, 2, 1.5, 1)", "needs an axis, or several as `(1, 2)` for `dims`, not (0, 2, 1.5, 1)"),
        ("3x4x5", "Transpose(0, 1)", "cannot work along the batch, which is axis 0; the axes of a sample begin at 1"),
        ("3x4x5", "Transpose(1, 4)", "has `dim1 = 4`, but [3, 4, 5] has axes 1 to 3, or -3 to -1"),
        ("3x4x5", "Reshape([7; -1])", "makes a multiple of 7 elements of [3, 4, 5], which has 60"),
        ("3x4x5", "Reshape([4; 16])", "makes 64 elements of [3, 4, 5], which has 60"),
        (
            "3x4x5",
            "Reshape([-1; -1])",
            "needs sizes of at least 1, and at most one of -1, which is what the others leave",
        ),
        ("3x4x5", "Reshape([1; 3; 1; 4; 1; 5; 1])", "has 7 axes, more than the 6 that a value can have"),
        (
            "3x4x5",
            "PixelShuffle(2)",
            "makes pixels of 2 x 2 channels, but 3 are no multiple of that; let what is before it make so many",
        ),
        ("10x48", "Rotary(16)", "turns 3 elements of heads that have 3; use an even number from 2 to 3"),
        ("10x48", "Rotary(12, dims = 6)", "turns 6 elements of heads that have 4; use an even number from 2 to 4"),
        (
            "10x48",
            "Rotary(5)",
            "has 5 heads, which do not divide its width of 48; use a number of heads that divides 48",
        ),
        ("10x48", "Rotary(4, base = 0.5)", "needs `base` to be at least 1, not 0.5"),
        ("10x48", "CausalSelfAttention(4, rotary = 0.0)", "needs `rotary` to be at least 1, not 0.0"),
        (
            "10x48",
            "CausalSelfAttention(4, rotary_dims = 4)",
            "has `rotary_dims`, which only a rotary embedding has; add `rotary = 10000.0`, or leave it out",
        ),
        (
            "10x48",
            "MultiHeadAttention(4, interleaved = true)",
            "has `interleaved`, which only a rotary embedding has; add `rotary = 10000.0`, or leave it out",
        ),
        ("3x4x5", "PixelUnshuffle(2)", "takes 4 x 5 apart by 2, which does not divide both; pad or cut it first"),
        ("3x4x5", "ChannelShuffle(2)", "makes 2 groups of 3 channels, which is no multiple; use a divisor of 3"),
        ("3x4x5", "Roll([1; 2], 1)", "has 2 shifts for 1 axes; write one for each"),
        ("3x4x5", "Roll(1, 4)", "has `dims = 4`, but [3, 4, 5] has axes 1 to 3, or -3 to -1"),
        ("3x4x5", "Squeeze(1)", "leaves out an axis of [3, 4, 5] that has 3 elements; use `Select` or `Reshape`"),
        ("3x4x5", "Unsqueeze(6)", "has `dim = 6`, but what it makes of [3, 4, 5] has axes 1 to 4, or -4 to -1"),
        ("3x4x5", "Unsqueeze(0)", "has `dim = 0`, but what it makes of [3, 4, 5] has axes 1 to 4, or -4 to -1"),
        ("3x4x5", "Slice(2, 2)", "takes elements 2 up to 2 of an axis that has 3; use 0 <= start < end <= 3"),
        ("3x4x5", "Slice(0, 9)", "takes elements 0 up to 9 of an axis that has 3; use 0 <= start < end <= 3"),
        ("3x4x5", "Select(3)", "has index 3, but the axis has 3: 0 to 2, or -3 to -1"),
        ("5", "Select(0)", "works on two axes or more, but the previous layer produces [5]; use `Slice`"),
        ("3x4x5", "Sum([1; -3])", "names an axis twice"),
        (
            "10x48",
            "MultiHeadAttention(5)",
            "has 5 heads, which do not divide its width of 48; use a number of heads that divides 48",
        ),
        ("10x47", "Glu", "halves an axis, but that has 47 elements; make it even"),
        ("8, tokens 8", "Concat", "joins numbers that differ between samples; embed tokens and add positions first"),
    ] {
        let mut graph = Graph::default();
        let nodes = inputs(&mut graph, input);
        let mistake = if layer == "Tied(w)" {
            try_join(&mut graph, &nodes, "Tied").unwrap_err()
        } else {
            match try_join(&mut graph, &nodes, layer) {
                Ok(node) => panic!("{layer} of {input} produces {}", graph.value(node).shape),
                Err(mistake) => mistake,
            }
        };
        assert_eq!(mistake.to_string(), expected, "{layer} of {input}");
    }
}

/// What a layer with one mistake is taken for under each guess.
#[test]
fn guesses() {
    let outputs = |input: &str, layer: &str| {
        [(false, false), (true, false), (false, true)].map(|(second, other_number)| {
            let mut graph = Graph::default();
            let nodes = inputs(&mut graph, input);
            let (name, written) = parse(layer);
            let entry = Entry::find(name).unwrap();
            let guess = Guess { second, other_number };
            let built = graph.layer_as(guess, &entry, &written, &nodes, String::new(), None);
            assert_eq!(built.mistakes.len(), 1, "{layer} of {input}: {:?}", built.mistakes);
            let value = built.value.map(|node| graph.value(node).shape.to_string());
            value.unwrap_or_default()
        })
    };
    for (input, layer, expected) in [
        // Taken as `dilation`, or left out.
        ("3x8x8", "Conv2d(4, 3, dilate = 2)", ["[4, 4, 4]", "[4, 6, 6]", "[4, 4, 4]"]),
        // What does not fit the option that was probably meant is left out.
        ("3x8x8", "Conv2d(4, 3, dilate = true)", ["[4, 6, 6]", "[4, 6, 6]", "[4, 6, 6]"]),
        ("3x8x8", "Conv2d(4, 3, frobs = 2)", ["[4, 6, 6]", "[4, 6, 6]", "[4, 6, 6]"]),
        ("3x8x8", "Conv2d(3, 4, 3, 2, 1)", ["[4, 4, 4]", "[4, 6, 6]", "[4, 4, 4]"]),
        ("4x8x8, 6x8x8", "Add", ["[4, 8, 8]", "[6, 8, 8]", "[4, 8, 8]"]),
        ("4x8x8, 6x3x3", "Concat", ["[10, 8, 8]", "[10, 3, 3]", "[10, 8, 8]"]),
        // Any number.
        ("8", "Linear(0)", ["[1]", "[1]", "[6]"]),
        ("3x8x8", "Conv2d(4, 3, stride = 0)", ["[4, 6, 6]", "[4, 6, 6]", "[4, 1, 1]"]),
        ("3x8x8", "Conv2d(4)", ["[4, 8, 8]", "[4, 8, 8]", "[4, 3, 3]"]),
        // Any map.
        ("3x8x8", "Conv2d(4, 9)", ["[4, 712, 712]", "[4, 712, 712]", "[4, 1432, 1432]"]),
        ("8", "MaxPool2d(2)", ["[5040, 360, 360]", "[5040, 360, 360]", "[10080, 720, 720]"]),
        ("8", "Embedding(10, 4)", ["[720, 4]", "[720, 4]", "[1440, 4]"]),
        // One thing can be meant.
        ("3x8x8", "Conv2d(4, 3, groups = 7)", ["[4, 6, 6]", "[4, 6, 6]", "[4, 6, 6]"]),
        ("8", "Linear(9, 4)", ["[4]", "[4]", "[4]"]),
        ("8", "Dropout(2)", ["[8]", "[8]", "[8]"]),
        ("8", "Add", ["[8]", "[8]", "[8]"]),
    ] {
        assert_eq!(outputs(input, layer), expected, "{layer} of {input}");
    }
}

#[test]
fn a_matrix_for_all_samples_is_no_branch() {
    let mut graph = Graph::default();
    let nodes = inputs(&mut graph, "5x3, tokens 3");
    let places = join(&mut graph, &nodes[1..], "PositionEmbedding(3, 4)");
    let mistake = try_join(&mut graph, &[nodes[0], places], "MatMul").unwrap_err();
    let expected = "multiplies values that differ between samples; a matrix that all samples share is `Linear`";
    assert_eq!(mistake.to_string(), expected);
}

#[test]
fn a_join_has_at_most_255_branches() {
    for name in ["Add", "Concat"] {
        let mut graph = Graph::default();
        let x = graph.input(value("6")).unwrap();
        try_join(&mut graph, &[x; 255], name).unwrap();
        let mistake = try_join(&mut graph, &[x; 256], name).unwrap_err();
        assert_eq!(mistake.to_string(), "joins at most 255 branches, not 256; nest it");
    }
}

#[test]
fn shared_and_tied_layers_must_match() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[6])).unwrap();
    let first = join(&mut graph, &[input], "Linear(5)");
    // The same layer on another width: five inputs instead of six.
    let mistake = sound(built(&mut graph, &[first], "Linear(5)", Some(0))).unwrap_err();
    assert_eq!(
        mistake.to_string(),
        "shares `weight`, whose shape is [5, 6], but here it needs [5, 5]; use a layer of its own"
    );
    // More parameters, or running statistics, than the owner has.
    let bare = join(&mut graph, &[input], "Linear(6, bias = false)");
    let owner = graph.rows.len() - 1;
    let mistake = sound(built(&mut graph, &[bare], "Linear(6)", Some(owner))).unwrap_err();
    assert_eq!(mistake.to_string(), "shares the parameters of a layer that has fewer; use a layer of its own");
    let image = graph.input(numbers(&[4, 2, 2])).unwrap();
    let grouped = join(&mut graph, &[image], "GroupNorm(2)");
    let owner = graph.rows.len() - 1;
    let mistake = sound(built(&mut graph, &[grouped], "BatchNorm2d", Some(owner))).unwrap_err();
    assert_eq!(mistake.to_string(), "shares the running statistics of a layer that has fewer; use a layer of its own");
    let relu = join(&mut graph, &[first], "Relu");
    let row = graph.rows.len() - 1;
    let mistake = sound(built(&mut graph, &[relu], "Tied", Some(row))).unwrap_err();
    assert_eq!(mistake.to_string(), "transposes the weight of an `Embedding` or a `Linear`, not of a `Relu`");
    let tied = again(&mut graph, relu, "Tied", 0);
    assert_eq!(graph.value(tied).shape.to_string(), "[6]");
}

proptest! {
    /// Damaged programs are refused, never run and never a panic.
    #[test]
    fn damaged_programs_decode_to_nothing_or_something_sound(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Program::decode(&bytes);
    }
}
