//! Shape rules: outputs, and how layers share parameters. Their messages are in `mistakes.rs`.
#![cfg(feature = "lower")]

mod common;

use common::{
    again, built, chain, counted, inputs, join, layer, numbers, op_of, parse, sound, try_join, try_within, within,
};
use gpumem_core::graph::Graph;
use gpumem_core::layers::recovery::Guess;
use gpumem_core::layers::{Entry, Use};
use gpumem_core::program::ops::Seen;
use gpumem_core::program::{Op, Program};
use proptest::prelude::*;

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
        // The only window reaches over the end, by less than its stride.
        ("8x2x3", "MaxPool2d(3, stride = 2, ceil_mode = true)", "[8, 1, 1]"),
        ("8x1x4", "AvgPool2d([4; 2], stride = 3, padding = 1, ceil_mode = true)", "[8, 1, 2]"),
        ("8x7x7", "AvgPool2d(3, stride = 2, padding = 1)", "[8, 4, 4]"),
        ("8x13x11", "AdaptiveAvgPool2d([6; 5])", "[8, 6, 5]"),
        ("8x13x11", "AdaptiveMaxPool2d([6; 5])", "[8, 6, 5]"),
        ("8x13x11", "GlobalAvgPool", "[8]"),
        ("8x3x5x7", "GlobalAvgPool", "[8]"),
        ("8x2x3", "Flatten", "[48]"),
        ("5x3", "Flatten", "[15]"),
        ("8x2x3", "Upsample([2; 3])", "[8, 4, 9]"),
        ("10x64", "Linear(32)", "[10, 32]"),
        ("64", "Linear(64, 32)", "[32]"),
        ("10x64", "Linear(32, transposed = true)", "[10, 32]"),
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
        ("7x3", "Lstm(5, 2, bidirectional = true, proj_size = 3)", "[7, 6]"),
        ("7x3", "Lstm(5, 2, dropout = 0.5, cudnn = true)", "[7, 5]"),
        ("7x3", "Lstm(5, 2, bidirectional = true, proj_size = 2, cudnn = true)", "[7, 4]"),
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
        ("3x8x9x10", "Conv3d(5, 3)", "[5, 6, 7, 8]"),
        ("4x8x9x10", "Conv3d(4, 6, [1; 2; 3], stride = [1; 2; 3], padding = 1, groups = 2)", "[6, 10, 5, 4]"),
        ("3x8x9x10", "Conv3d(5, [2; 3; 4], padding = \"same\", dilation = 2)", "[5, 8, 9, 10]"),
        ("3x8x9x10", "ConvTranspose3d(5, 2, stride = [1; 2; 3], output_padding = [0; 1; 2])", "[5, 9, 19, 31]"),
        ("3x8x9x10", "MaxPool3d(2)", "[3, 4, 4, 5]"),
        ("3x8x9x10", "MaxPool3d([1; 3; 2], 2, padding = [0; 1; 1], ceil_mode = true)", "[3, 4, 5, 6]"),
        ("3x8x9x10", "AvgPool3d(3, [2; 1; 1])", "[3, 3, 7, 8]"),
        ("3x8x9x10", "AdaptiveAvgPool3d([3; 9; 1])", "[3, 3, 9, 1]"),
        ("3x8x9x10", "AdaptiveMaxPool3d(4)", "[3, 4, 4, 4]"),
        ("3x8x9x10", "BatchNorm3d(3)", "[3, 8, 9, 10]"),
        ("3x8x9x10", "InstanceNorm3d(affine = true)", "[3, 8, 9, 10]"),
        ("3x8x9x10", "Dropout3d(0.2)", "[3, 8, 9, 10]"),
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
        ("3x1x5", "Expand(3, 4, -1)", "[3, 4, 5]"),
        ("3x1x5", "Expand(2, 3, 1, 5)", "[2, 3, 1, 5]"),
        ("3x4", "Expand(3, 4)", "[3, 4]"),
        ("3x4x5", "Reshape([-1; 4; 1; 5])", "[3, 4, 1, 5]"),
        ("3x4x5", "Slice(1, 3, dim = 2)", "[3, 2, 5]"),
        ("3x4x5", "Slice(-2, dim = -1)", "[3, 4, 2]"),
        ("3x4x5", "Select(-1)", "[4, 5]"),
        ("3x4x5", "Mean([2; 3])", "[3]"),
        ("3x4x5", "Sum([1; 3], keepdim = true)", "[1, 4, 1]"),
        ("3x4x5", "Max([1; 2; 3])", "[1]"),
        ("3x4x5", "Max(-2)", "[3, 5]"),
        ("3x4x5", "Norm(2, 2)", "[3, 5]"),
        ("3x4x5", "Norm(\"inf\", [1; 3])", "[4]"),
        ("3x4x5", "Norm(1.5, [1; 3], keepdim = true)", "[1, 4, 1]"),
        ("3x4x5", "Norm(p = 1, dim = [1; 2; 3])", "[1]"),
        ("10x48", "Glu", "[10, 24]"),
        ("8x5x6", "Glu(1)", "[4, 5, 6]"),
        ("8x5x6", "Scale(init = 0.1, bias = true)", "[8, 5, 6]"),
        ("8x5x6", "Prelu(8, init = 0.1)", "[8, 5, 6]"),
        ("8x5", "Prelu", "[8, 5]"),
        ("10x48", "ClassToken", "[11, 48]"),
        ("3x4x4, 3x1x1", "Mul", "[3, 4, 4]"),
        ("1x4, 3x1", "Sub", "[3, 4]"),
        ("3x4x4, 4", "Div", "[3, 4, 4]"),
        ("3x4x4, 4", "Maximum", "[3, 4, 4]"),
        ("4x1, 3", "Minimum", "[4, 3]"),
        ("3x4x4, 3x4x1, 4", "Add", "[3, 4, 4]"),
        ("2x3, 3x5", "MatMul", "[2, 5]"),
        ("3x6x8, 3x6x8, 3x6x8", "Attention", "[3, 6, 8]"),
        ("5x8, 9x4, 9x6", "Attention(heads = 4, kv_heads = 2)", "[5, 12]"),
        ("2x5x8, 2x9x8, 2x9x8, 4x5x9", "Attention(heads = 4, causal = true, scale = 0.5)", "[2, 5, 8]"),
        ("2x5x8, 2x9x8, 2x9x8, 2x5x9", "Attention", "[2, 5, 8]"),
        // The axis of one head may be there.
        ("5x8, 9x8, 9x8, 1x5x9", "Attention", "[5, 8]"),
        ("2x5x8, 2x9x8, 2x9x8, 2x1x5x9", "Attention", "[2, 5, 8]"),
        // A row that all queries share.
        ("5x8, 9x8, 9x8, 9", "Attention(heads = 2)", "[5, 8]"),
        ("5x8, 9x8, 9x8, 1x9", "Attention", "[5, 8]"),
        ("5x8, 9x8, 9x8, 1x1x9", "Attention", "[5, 8]"),
        ("2x5x8, 2x9x8, 2x9x8, 2x1x1x9", "Attention(heads = 4)", "[2, 5, 8]"),
        ("2x5x8, 2x9x8, 2x9x8, 4x1x9", "Attention(heads = 4)", "[2, 5, 8]"),
        ("7x5x12, 5", "Attention(heads = 2)", "[7, 5, 4]"),
        ("7x5x16", "Attention(heads = 2, kv_heads = 1, window = 2)", "[7, 5, 8]"),
        ("7x5x12, 7x1x5x5", "Attention(heads = 2)", "[7, 5, 4]"),
        ("2x5x8, 2x9x8, 2x9x8, 2x1x5x9", "Attention(heads = 2)", "[2, 5, 8]"),
        ("6x4", "RelativePositionBias(2)", "[2, 6, 6]"),
        ("6x4", "AlibiBias(3)", "[3, 6, 6]"),
        ("tokens 5", "AlibiBias(2)", "[2, 5, 5]"),
        ("3x6x4", "RelativePositionBias(2, size = [2; 3], absolute = true)", "[2, 6, 6]"),
        ("tokens 6", "RelativePositionBias(2, buckets = 8, max_distance = 5, bidirectional = false)", "[2, 6, 6]"),
        ("6x4x8", "ShiftedWindowMask([4; 6], 2, 1)", "[6, 1, 4, 4]"),
        // A map that was rolled along one axis.
        ("6x4x8", "ShiftedWindowMask([4; 6], 2, [0; 1])", "[6, 1, 4, 4]"),
        // Half of the five elements that it covers.
        ("3x8x8", "MaxPool2d(3, 1, padding = 2, dilation = 2)", "[3, 8, 8]"),
        ("1", "SinusoidalEmbedding(8)", "[8]"),
        ("3x1", "SinusoidalEmbedding(8, shift = 1.0)", "[3, 8]"),
        ("tokens 3", "SinusoidalEmbedding(6, cosines_first = true)", "[3, 6]"),
        ("6x8", "SinusoidalPositions", "[6, 8]"),
        ("tokens 6", "SinusoidalPositions(12, size = [2; 3])", "[6, 12]"),
        ("3x4x5", "SinusoidalPositions(8, parts = true)", "[8, 4, 5]"),
        ("tokens 6", "PositionEmbedding(9, 4, padding_idx = 2)", "[6, 4]"),
        ("7x12", "Rotary(3, size = [2; 3], before = 1)", "[7, 12]"),
        ("3x4x5", "L2Norm", "[3, 4, 5]"),
        ("8", "Constant([0.5; 1; 2; 3; 4; 5], shape = [1; 2; 3; 1; 1; 1])", "[1, 2, 3, 1, 1, 1]"),
        ("tokens 6", "Constant(0.5, shape = [4; 9])", "[4, 9]"),
        ("8", "Constant([1; 2])", "[2]"),
        ("tokens 6", "ArgMax", "[1]"),
        ("6x8", "ArgMax(-1)", "[6]"),
        ("3x4x5", "ArgMax(1)", "[4, 5]"),
        ("3x4x5", "ArgMax(2, keepdim = true)", "[3, 1, 5]"),
        ("8", "ArgMax", "[1]"),
        ("tokens 6", "ArgMax(-1)", "[1]"),
        ("6x8", "TopK(2)", "[6, 2]"),
        ("6x8", "TopK(6, 1)", "[6, 8]"),
        ("3x4x5", "TopK(2, dim = 2, largest = false, indices = true)", "[3, 2, 5]"),
        ("7x3, tokens 4x3", "Gather", "[4, 3]"),
        ("7x3, tokens 5x2", "Gather", "[5, 2]"),
        ("7x3, tokens 7x1", "Gather(dim = -1)", "[7, 1]"),
        ("3x4x5, tokens 3x9x5", "Gather(dim = 2)", "[3, 9, 5]"),
        ("7, tokens 4", "Gather", "[4]"),
        ("7x3, tokens 4x3, 4x3", "ScatterAdd", "[7, 3]"),
        ("7x3, tokens 7x9, 8x9", "ScatterAdd(dim = -1)", "[7, 3]"),
        ("tokens 6", "Slice(1)", "[5]"),
        ("tokens 6", "Slice(-2, -1)", "[1]"),
        ("tokens 2x3", "Slice(1, dim = 2)", "[2, 2]"),
        ("tokens 2x3", "Select(-1)", "[3]"),
        ("tokens 2x3x4", "Permute(0, 3, 1, 2)", "[4, 2, 3]"),
        ("tokens 2x3", "Transpose(1, 2)", "[3, 2]"),
        ("tokens 6", "Reshape([2; 3])", "[2, 3]"),
        ("tokens 2x3", "Flatten", "[6]"),
        ("tokens 2x3", "Unsqueeze(-1)", "[2, 3, 1]"),
        ("tokens 2x1", "Squeeze(-1)", "[2]"),
        ("tokens 2x1", "Expand([4; 2; 3])", "[4, 2, 3]"),
        ("tokens 2x3", "Embedding(7, 4)", "[2, 3, 4]"),
        ("7x3, tokens 4", "Take", "[4, 3]"),
        ("6x8, 6x8, 6x3, 6x3", "SelectiveScan", "[6, 8]"),
        ("6x3", "StepSizes(8, min = 0.01)", "[6, 8]"),
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
            let built = graph.layer_as(guess, Use::default(), &entry, &written, &nodes, String::new());
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

/// A matrix that all samples share multiplies from either side, and needs no axes before its own.
#[test]
fn a_matrix_for_all_samples_is_a_branch() {
    let mut graph = Graph::default();
    let nodes = inputs(&mut graph, "5x3, tokens 3");
    let places = join(&mut graph, &nodes[1..], "PositionEmbedding(3, 4)");
    let product = join(&mut graph, &[nodes[0], places], "MatMul");
    assert_eq!(graph.value(product), numbers(&[5, 4]));
    let square = join(&mut graph, &nodes[1..], "Parameter([5; 5])");
    let product = join(&mut graph, &[square, nodes[0]], "MatMul");
    assert_eq!(graph.value(product), numbers(&[5, 3]));
    let mistake = try_join(&mut graph, &[nodes[0], square], "MatMul").unwrap_err();
    let expected = "multiplies [.., M, K] and [.., K, N], but the branches produce [5, 3] and [5, 5]";
    assert_eq!(mistake.to_string(), expected);
}

/// Learned queries, for which there is one value, are those of each sample; among themselves they are computed once for all.
#[test]
fn attention_takes_shared_values() {
    let mut graph = Graph::default();
    let nodes = inputs(&mut graph, "5x4, tokens 3");
    let queries = join(&mut graph, &nodes[1..], "PositionEmbedding(3, 4)");
    let attended = join(&mut graph, &[queries, nodes[0], nodes[0]], "Attention");
    assert_eq!(graph.value(attended), numbers(&[3, 4]));
    let among = join(&mut graph, &[queries; 3], "Attention");
    assert_eq!(graph.value(among), gpumem_core::graph::Type { batched: false, ..numbers(&[3, 4]) });
}

#[test]
fn a_join_has_at_most_255_branches() {
    for name in ["Add", "Concat"] {
        let mut graph = Graph::default();
        let x = graph.input(numbers(&[6])).unwrap();
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
    // A weight that is made of parameters is what is tied.
    let made = join(&mut graph, &[input], "Linear(5, weight_norm = true)");
    let owner = graph.rows.len() - 1;
    let tied = again(&mut graph, made, "Tied", owner);
    assert_eq!(graph.value(tied).shape.to_string(), "[6]");
    assert!(matches!(op_of(&graph, graph.nodes[tied].inputs()[1]), Op::Reparametrize(_)));
    // A bias is its own, and all that its row has.
    let biased = again(&mut graph, relu, "Tied(bias = true)", 0);
    let parameter = graph.parameters.last().unwrap();
    assert_eq!((parameter.shape.elements(), parameter.row), (Some(6), graph.nodes[biased].row));
    assert_eq!((graph.rows[parameter.row].parameters, graph.value(biased)), (6, numbers(&[6])));
}

proptest! {
    /// Damaged programs are refused, never run and never a panic.
    #[test]
    fn damaged_programs_decode_to_nothing_or_something_sound(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Program::decode(&bytes);
    }
}

/// Indices that operations compute are below the length of their axis. The user's own are checked when a step begins.
#[test]
fn places_along_a_longer_axis_are_mistakes() {
    for (places, layer, expected) in [
        (
            "TopK(2, 1, indices = true) | Reshape([4])",
            "Take",
            "looks something up among 4 by places along an axis of 6",
        ),
        ("ArgMax(1)", "Take", "looks something up among 4 by places along an axis of 6"),
        (
            "ArgMax(1, keepdim = true) | Transpose(1, 2)",
            "Gather",
            "looks something up among 4 by places along an axis of 6",
        ),
        ("TopK(2, 1, indices = true)", "Gather(dim = 2)", "looks something up among 2 by places along an axis of 6"),
        ("ArgMax(1)", "Embedding(5, 3)", "looks something up among 5 by places along an axis of 6"),
    ] {
        let mut graph = Graph::default();
        let nodes = inputs(&mut graph, "6x2, 4x2");
        let index = chain(&mut graph, nodes[0], places);
        let branches = if layer.starts_with("Embedding") { &[index][..] } else { &[nodes[1], index] };
        let found = try_join(&mut graph, branches, layer).unwrap_err().to_string();
        let expected = format!("{expected}; give both the same length, or cut the axis with `Slice`");
        assert_eq!(found, expected, "{layer} by {places}");
        // Cut to four it fits.
        let cut = chain(&mut graph, nodes[0], &format!("Slice(0, 2) | {}", places.replace("Reshape([4])", "Flatten")));
        let branches = if layer.starts_with("Embedding") { &[cut][..] } else { &[nodes[1], cut] };
        assert!(try_join(&mut graph, branches, layer).is_ok(), "{layer} by {places} of two");
    }
}

/// Indices of learned values are the same for all samples.
#[test]
fn shared_indices_look_up_shared_values_alone() {
    let mut graph = Graph::default();
    let x = inputs(&mut graph, "4x3")[0];
    let scores = layer(&mut graph, x, "Parameter([4; 3])");
    let places = layer(&mut graph, scores, "TopK(2, 1, indices = true)");
    let found = try_join(&mut graph, &[x, places], "Gather").unwrap_err().to_string();
    assert_eq!(found, "has indices that are the same for all samples; what is the same for all is a `Slice`");
    let best = join(&mut graph, &[scores, places], "Gather");
    assert!(!graph.value(best).batched);
    let found = try_join(&mut graph, &[scores, places, x], "ScatterAdd").unwrap_err().to_string();
    assert_eq!(found, "has indices that are the same for all samples; what is the same for all is a `Slice`");
    // Each sample takes of what is the same for all.
    let own = layer(&mut graph, x, "TopK(2, 1, indices = true)");
    let taken = join(&mut graph, &[scores, own], "Gather");
    assert!(graph.value(taken).batched);
}

/// Inside `lengths`, places are found within a time step. Along the time steps, padding could be found.
#[test]
fn places_inside_of_lengths() {
    let mut graph = Graph::default();
    let x = inputs(&mut graph, "6x4")[0];
    let (_, steps) = counted(&mut graph, Seen::Lengths, x, 6);
    let steps = [steps];
    let best = within(&mut graph, &steps, &[x], "TopK(2)");
    assert_eq!(graph.value(best).shape.to_string(), "[6, 2]");
    let places = within(&mut graph, &steps, &[x], "TopK(2, indices = true)");
    within(&mut graph, &steps, &[x, places], "Gather(dim = -1)");
    within(&mut graph, &steps, &[x, places, best], "ScatterAdd(dim = -1)");
    within(&mut graph, &steps, &[x], "ArgMax(-1) | Embedding(4, 3)");
    let said = "looks at steps after the end of a sample; put it outside of `lengths(n, ..)`";
    for text in ["TopK(2, 1)", "ArgMax(1)"] {
        assert_eq!(try_within(&mut graph, &steps, &[x], text).unwrap_err().to_string(), said, "{text}");
    }
    let sum = try_within(&mut graph, &steps, &[x, places, best], "ScatterAdd").unwrap_err();
    assert_eq!(
        sum.to_string(),
        "adds to elements of [6, 4] along axis 1, but its second branch produces [6, 2]; use [6, 4]"
    );
    let all = within(&mut graph, &steps, &[x], "TopK(4, indices = true)");
    assert_eq!(try_within(&mut graph, &steps, &[x, all, x], "ScatterAdd").unwrap_err().to_string(), said);
}
