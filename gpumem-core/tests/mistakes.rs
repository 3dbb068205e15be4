//! Every message of a layer's shape rule and arguments.
#![cfg(feature = "lower")]

mod common;

use common::{inputs, try_join};
use gpumem_core::graph::Graph;

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
            "has no option `units`; its options are `bias`, `transposed`, `standardized`, `gamma`, `eps`, `weight_norm` and `weight_norm_names`, after (out_features) or (in_features, out_features)",
        ),
        (
            "5x8",
            "CausalSelfAttention(4, vdim = 2)",
            "has no option `vdim`; its options are `kv_heads`, `dropout`, `bias`, `window`, `rotary`, `rotary_dims`, `interleaved`, `rotary_size`, `rotary_before`, `qk_norm` and `qk_norm_eps`, after (heads)",
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
            "5x8, 9x6, 9x8",
            "Attention(heads = 2)",
            "needs keys [M, 8], 2 heads of 4, for queries [5, 8], but branch 1 produces [9, 6]",
        ),
        (
            "2x5x8, 9x8, 9x8",
            "Attention",
            "needs keys [2, M, 8], a head of 8, for queries [2, 5, 8], but branch 1 produces [9, 8]",
        ),
        ("5x8, 9x8, 8x8", "Attention", "needs values [9, V] for keys [9, 8], but branch 2 produces [8, 8]"),
        (
            "5x8, 9x8, 9x7",
            "Attention(heads = 2)",
            "needs values [9, 2 * V] for keys [9, 8], but branch 2 produces [9, 7]",
        ),
        (
            "5x8, 9x8, 9x8",
            "Attention(heads = 3)",
            "has 3 heads, which do not divide its width of 8; use a number of heads that divides 8",
        ),
        (
            "5x8",
            "Attention(heads = 2)",
            "takes queries, keys and values side by side, but a width of 8 is no multiple of 2 heads of queries and twice 2 of keys \
             and values; use three branches, or a width that is a multiple of 6",
        ),
        (
            "5x12, 4x4",
            "Attention(heads = 2)",
            "adds [5, 5], or what is repeated to [2, 5, 5], but branch 1 produces [4, 4]",
        ),
        ("5x8, 8, 9x8", "Attention", "works on keys [.., T, D], but branch 1 produces [8]"),
        (
            "2x5x8, 2x9x8, 2x9x8, 4x5x9",
            "Attention(heads = 2)",
            "adds [5, 9], or what is repeated to [2, 2, 5, 9], but branch 3 produces [4, 5, 9]",
        ),
        ("5x8, 9x8, 9x8, 9x5", "Attention", "adds [5, 9], or what is repeated to [5, 9], but branch 3 produces [9, 5]"),
        (
            "9x8, 5x8, 5x8",
            "Attention(window = 3)",
            "has a window of 3 keys, but of its 9 queries the last see none of 5 keys; use more than 4",
        ),
        ("5x8, 9x8, 9x8", "Attention(scale = 0.0)", "needs `scale` to be above 0, not 0.0"),
        ("6x8, 6x7, 6x3, 6x3", "SelectiveScan", "needs step sizes [6, 8] for x [6, 8], but branch 1 produces [6, 7]"),
        ("6x8, 6x8, 5x3, 6x3", "SelectiveScan", "needs b [6, N] for x [6, 8], but branch 2 produces [5, 3]"),
        ("6x8, 6x8, 6x3, 6x4", "SelectiveScan", "needs c [6, 3], like b, for x [6, 8], but branch 3 produces [6, 4]"),
        ("6x8, 6x8, 6x3, 3", "SelectiveScan", "works on sequences [T, D], but branch 3 produces [3]"),
        (
            "6x8, 6x8, 6x129, 6x129",
            "SelectiveScan",
            "has 129 states for each channel, but there are at most 128; use narrower b and c",
        ),
        ("6x8", "StepSizes(4, min = 0.2)", "has min = 0.2, which is above max = 0.1; write the smaller one as `min`"),
        (
            "6",
            "RelativePositionBias(2)",
            "works on tokens or a sequence [.., T, D], but the previous layer produces [6]",
        ),
        ("6x8", "RelativePositionBias(2, size = [2; 4])", "has a window of 2 x 4 positions, but its input has 6 steps"),
        ("6x8", "RelativePositionBias(2, buckets = 6)", "has buckets = 6; use a multiple of 4 up to 1024"),
        (
            "6x8",
            "RelativePositionBias(2, buckets = 8, absolute = true)",
            "has buckets, which are for distances along one axis, with their signs; leave out `buckets`, or `size` and `absolute`",
        ),
        (
            "6x8",
            "RelativePositionBias(2, buckets = 8, max_distance = 4, bidirectional = false)",
            "has max_distance = 4, but 4 of its 8 buckets have one distance each; use more than 4, up to 2^30",
        ),
        ("2097152x1", "RelativePositionBias(2)", "has 1 x 2097152 positions; use no more than 2^20 along an axis"),
        (
            "6x8",
            "SinusoidalEmbedding(8)",
            "works on tokens or on numbers [.., 1], but the previous layer produces [6, 8]",
        ),
        (
            "6x4x8",
            "ShiftedWindowMask([5; 6], 2, 1)",
            "cuts a map of 5 x 6 into windows of 2 x 2, which are no whole parts of it; use a multiple of them, up to 2^20",
        ),
        ("6x4x8", "ShiftedWindowMask([4; 6], 2, 2)", "rolls by 2 x 2, but a window has 2 x 2; use less"),
        (
            "5x4x8",
            "ShiftedWindowMask([4; 6], 2, 1)",
            "works on 6 windows of 4 positions, but the previous layer produces [5, 4, 8]",
        ),
        ("1", "SinusoidalEmbedding(7)", "makes 7 sines and cosines; use a multiple of 2 up to 2^20"),
        ("1", "SinusoidalEmbedding(8, shift = 4.0)", "has shift = 4, but 4 frequencies; use less than 4"),
        (
            "3x4x4x1",
            "SinusoidalPositions",
            "works on tokens, a sequence [T, D] or a map [C, H, W], but the previous layer produces [3, 4, 4, 1]",
        ),
        (
            "4x4x5",
            "SinusoidalPositions(size = [5; 4])",
            "has a map of 5 x 4 positions, but its input is a map of 4 x 5",
        ),
        ("6x6", "SinusoidalPositions(parts = true)", "makes 6 sines and cosines; use a multiple of 4 up to 2^20"),
        (
            "6x8",
            "PositionEmbedding(9, padding_idx = 1)",
            "has `padding_idx`, which is one of tokens [T], but the previous layer produces [6, 8]",
        ),
        (
            "tokens 6",
            "PositionEmbedding(7, 8, padding_idx = 1)",
            "has 7 positions, but 6 steps behind row 1 of padding need 8; write so many",
        ),
        (
            "tokens 6",
            "PositionEmbedding(9000000000, 8, padding_idx = 8999999990)",
            "has padding_idx = 8999999990 and 6 steps; use no more than 2^31 positions",
        ),
        (
            "7x12",
            "Rotary(3, size = [2; 3])",
            "has a map of 2 x 3 positions behind 0 others, but its input has 7 steps; use `size` and `before` that make 7",
        ),
        (
            "7x12",
            "Rotary(2, dims = 6, size = [2; 3], before = 1)",
            "turns 6 elements by rows and columns; use a multiple of 4 for `dims`",
        ),
        (
            "7x12",
            "Rotary(3, before = 1)",
            "has `before`, which says where a map begins; add `size = (14, 14)`, or leave it out",
        ),
        (
            "7x12",
            "CausalSelfAttention(3, rotary_size = [2; 3])",
            "has `rotary_size`, which only a rotary embedding has; add `rotary = 10000.0`, or leave it out",
        ),
        ("3x4x4", "L2Norm(4)", "has `dim = 4`, but [3, 4, 4] has axes 1 to 3, or -3 to -1"),
        ("3x4x4", "L2Norm(eps = 0.0)", "needs `eps` to be above 0, not 0.0"),
        ("3x4x4", "L2Norm(eps = 1e-60)", "has eps = 1e-60, which f32 has not; use 1e-12"),
        (
            "8",
            "Constant([0.5; 1; 2], shape = [2; 2])",
            "has 3 numbers, but [2, 2] has 4 elements; write as many, or one",
        ),
        ("8", "Constant(-1e40)", "has -1e40 among its numbers; a mask hides with -1e9"),
        ("8", "Constant(1, shape = [1; 1; 1; 1; 1; 1; 1])", "has 7 axes; a tensor has no more than 6"),
        (
            "6x8",
            "ArgMax",
            "works on tokens, but the previous layer produces [6, 8]; a network ends with its logits, and `logits.argmax()` is for the \
             tensor that `forward` returns",
        ),
        (
            "6x8, 8",
            "Take",
            "takes the steps that tokens name, but its second branch produces [8]; put `from(tokens)` or `ArgMax` in that branch",
        ),
        ("tokens 6", "SinusoidalPositions", "needs `embedding_dim`"),
        ("6x8", "SinusoidalPositions(size = [2; 4])", "has a map of 2 x 4 positions, but its input has 6 steps"),
        ("6x6", "SinusoidalPositions(size = [2; 3])", "makes 6 sines and cosines; use a multiple of 4 up to 2^20"),
        (
            "bytes 5x8, 9x8, 9x8",
            "Attention",
            "works on numbers, but branch 0 carries bytes; put `Normalize` in that branch",
        ),
        (
            "5x8, 9x8, 9x8, bytes 5x9",
            "Attention",
            "works on numbers, but branch 3 carries bytes; put `Normalize` in that branch",
        ),
        (
            "3x4x4, 3x2x1",
            "Mul",
            "joins branches of one shape, but branch 0 produces [3, 4, 4] and branch 1 produces [3, 2, 1]",
        ),
        ("3x4x6", "LayerNorm([6; 4])", "expects [6, 4] as the last axes, but the previous layer produces [3, 4, 6]"),
        ("3x4x6", "LayerNorm(4)", "expects 4 input features, but the previous layer produces [3, 4, 6]"),
        ("3x4x6", "Conv1d(2, 3)", "works on a signal [C, L], but the previous layer produces [3, 4, 6]"),
        (
            "3x4x6",
            "Conv3d(2, 3)",
            "works on a volume [C, D, H, W], but the previous layer produces [3, 4, 6]; layers of maps end in `2d`",
        ),
        ("3x4", "MaxPool3d(2)", "works on a volume [C, D, H, W], but the previous layer produces [3, 4]"),
        (
            "3x4x5x6",
            "BatchNorm2d",
            "works on a feature map [C, H, W], but the previous layer produces [3, 4, 5, 6]; layers of volumes end in `3d`",
        ),
        (
            "tokens 4",
            "MaxPool3d(2)",
            "works on a volume [C, D, H, W], but it is given tokens; put `Embedding` before it",
        ),
        (
            "3x4x5x6",
            "Conv3d(2, 8, 3)",
            "expects 2 input channels, but the previous layer produces [3, 4, 5, 6], which has 3",
        ),
        (
            "3x4x5x6",
            "Conv3d(8, [3; 5])",
            "needs a whole number or three (depth, height, width) for `kernel_size`, not (3, 5)",
        ),
        ("3x4x5x6", "MaxPool3d([2; 0; 2])", "needs `kernel_size` to be at least 1, not (2, 0, 2)"),
        (
            "3x4x5x6",
            "Conv3d(8, [5; 3; 3], dilation = [2; 1; 1])",
            "has a 5x3x3 kernel with dilation (2, 1, 1), which is larger than its 4x5x6 input; use a smaller kernel, \
             more padding, or fewer strides before it",
        ),
        (
            "3x4x5x6",
            "AvgPool3d(2, padding = [1; 2; 1])",
            "has padding 2, more than half its kernel size 2; use at most 1",
        ),
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
        // One argument or several, but not both, and no list among them.
        ("3x4x5", "Permute(0, 2, 3, dims = 1)", "takes (dims), but 3 are given"),
        ("3x4x5", "Permute([0; 2], 3, 1)", "needs an axis, or several as `(1, 2)` for `dims`, not (0, 2)"),
        ("3x4x5", "Reshape(60, \"a\")", "needs a whole number, or one for each axis as `(4, 6)` for `size`, not \"a\""),
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
            "makes 2 x 2 pixels of 2 * 2 channels, but 3 channels are no multiple of that; put `Conv2d(channels * 2 * 2, 1)` before \
             it",
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
            "10x4x8",
            "Scale(shape = [3; 1])",
            "has factors of shape (3, 1), which are not repeated to [10, 4, 8]; counted from the last axis, write its lengths, or 1",
        ),
        (
            "10x4x8",
            "Scale(shape = [2; 10; 4; 1])",
            "has factors of shape (2, 10, 4, 1), which are not repeated to [10, 4, 8]; counted from the last axis, write its lengths, or 1",
        ),
        (
            "10x4x8",
            "Scale(scalar = true, shape = 8)",
            "has `scalar`, one factor for all, and a `shape`; remove one of them",
        ),
        (
            "10x48",
            "CausalSelfAttention(4, qk_norm = \"rms\")",
            "needs \"none\" or \"RmsNorm\" or \"LayerNorm\" for `qk_norm`, not \"rms\"",
        ),
        (
            "10x48",
            "MultiHeadAttention(4, qk_norm_eps = 0.001)",
            "has `qk_norm_eps`, but its heads are not normalised; add `qk_norm = \"RmsNorm\"`, or leave it out",
        ),
        ("8", "Linear(4, weight_norm = 2)", "has weight_norm = 2, but its weight has 2 axes; use a number below 2"),
        (
            "8",
            "Linear(4, weight_norm = 0.5)",
            "needs `true`, or the axis of the weight along which lengths differ for `weight_norm`, not 0.5",
        ),
        (
            "8",
            "Linear(4, weight_norm = true, standardized = true)",
            "has `standardized` and `weight_norm`, but a weight is made of its parameters in one way; remove one of them",
        ),
        (
            "3x8x8",
            "Conv2d(4, 3, gamma = 1.5)",
            "has `gamma`, but its weight is not standardised; write `standardized` too",
        ),
        (
            "3x8x8",
            "Conv2d(4, 3, eps = 1e-5)",
            "has `eps`, but its weight is not standardised; write `standardized` too",
        ),
        ("3x8x8", "Conv2d(4, 3, standardized = true, gamma = 0.0)", "needs `gamma` to be above 0, not 0.0"),
        (
            "8x9",
            "Conv1d(4, 3, weight_norm_names = \"weight_g\")",
            "has `weight_norm_names`, but no weight norm; write `weight_norm` too",
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
