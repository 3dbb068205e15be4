//! Attention, tables, recurrence, scans, and what joins branches.

use super::check;

#[test]
fn sequences_and_joins() {
    check(&[
        ("bytes 3x4x4", "Embedding(4, 3)", "works on tokens; make the network's input `Tokens<T>` and put it first"),
        (
            "5x8",
            "CausalSelfAttention(4, vdim = 2)",
            "has no option `vdim`; its options are `kv_heads`, `dropout`, `bias`, `window`, `rotary`, `rotary_dims`, `interleaved`, `rotary_size`, `rotary_before`, `qk_norm` and `qk_norm_eps`, after (heads)",
        ),
        (
            "7x3",
            "Lstm(5, batch_first = true)",
            "has no option `batch_first`; the batch is always first, so leave it out",
        ),
        ("7x8", "MultiHeadAttention(6, 2)", "expects 6 input features, but the previous layer produces [7, 8]"),
        ("5000x8", "AlibiBias(4)", "has 5000 steps; use no more than 4096, or make the bias an input of the network"),
        ("3", "AlibiBias(4)", "works on tokens or a sequence [.., T, D], but the previous layer produces [3]"),
        ("tokens 8", "Embedding(5, 3, 5)", "is 5, but there are 5 rows; use one from 0 to 4, or -1 for the last"),
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
        (
            "7x3",
            "Lstm(64, proj_size = 64)",
            "has proj_size = 64, which is not below its `hidden` of 64; use `proj_size` from 1 to 63, or leave it out",
        ),
        ("7x3", "Lstm(1, proj_size = 2)", "has proj_size = 2, which is not below its `hidden` of 1; leave it out"),
        ("7x3", "Lstm(64, cudnn = 9)", "needs `true` or `false` for `cudnn`, not 9"),
        (
            "7x3",
            "Gru(64, proj_size = 32)",
            "has no option `proj_size`; its options are `bias`, `dropout`, `bidirectional` and `cudnn`, after (hidden) or (hidden, layers)",
        ),
        (
            "7x3",
            "Rnn(64, proj_size = 32)",
            "has no option `proj_size`; its options are `bias`, `dropout`, `bidirectional`, `cudnn` and `nonlinearity`, after (hidden) or (hidden, layers)",
        ),
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
        ("8, 9", "Add", "joins branches of one shape, but branch 0 produces [8] and branch 1 produces [9]"),
        ("8, tokens 8", "Add", "joins numbers, but a branch carries tokens; put `Embedding` in that branch"),
        ("3x4x4, bytes 3x4x4", "Mul", "joins numbers, but a branch carries bytes; put `Normalize` in that branch"),
        ("3x4x4, bytes 3x4x4", "Concat", "joins numbers, but a branch carries bytes; put `Normalize` in that branch"),
        ("8, 8, 8", "Maximum", "joins exactly 2 branches, but 3 are given; nest it: `Maximum(Maximum(x, y), z)`"),
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
            "adds [5] or [5, 5], or what is repeated to [2, 5, 5], but branch 1 produces [4, 4]",
        ),
        ("5x8, 8, 9x8", "Attention", "works on keys [.., T, D], but branch 1 produces [8]"),
        (
            "2x5x8, 2x9x8, 2x9x8, 4x5x9",
            "Attention(heads = 2)",
            "adds [9] or [5, 9], or what is repeated to [2, 2, 5, 9], but branch 3 produces [4, 5, 9]",
        ),
        (
            "5x8, 9x8, 9x8, 9x5",
            "Attention",
            "adds [9] or [5, 9], or what is repeated to [5, 9], but branch 3 produces [9, 5]",
        ),
        (
            "5x8, 9x8, 9x8, 5",
            "Attention",
            "adds [9] or [5, 9], or what is repeated to [5, 9], but branch 3 produces [5]",
        ),
        (
            "2x5x8, 2x9x8, 2x9x8, 4x1x9",
            "Attention(heads = 2)",
            "adds [9] or [5, 9], or what is repeated to [2, 2, 5, 9], but branch 3 produces [4, 1, 9]",
        ),
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
            "has 7 positions, but 6 steps after row 1 of padding need 8; write so many",
        ),
        (
            "tokens 6",
            "PositionEmbedding(9000000000, 8, padding_idx = 8999999990)",
            "has padding_idx = 8999999990 and 6 steps; use no more than 2^31 positions",
        ),
        (
            "7x12",
            "Rotary(3, size = [2; 3])",
            "has a map of 2 x 3 positions after 0 others, but its input has 7 steps; use `size` and `before` that make 7",
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
            "needs `dim`, the axis along which it looks, as `ArgMax(-1)`: the previous layer produces [6, 8]. A network ends with its logits, \
             and `logits.argmax()` is for the tensor that `forward` returns",
        ),
        ("6x8", "ArgMax(0)", "cannot work along the batch, which is axis 0; the axes of a sample begin at 1"),
        ("tokens 2x3", "ArgMax", "works on tokens [T], but the previous layer produces [2, 3]; flatten them"),
        ("bytes 3x4x4", "ArgMax(1)", "works on numbers, but it is given bytes; put `Normalize` before it"),
        ("6x8", "TopK(9)", "finds 9 elements along an axis of [6, 8], which has 8; use `k` up to 8"),
        ("6x8", "TopK(0)", "needs `k` to be at least 1, not 0"),
        ("6x8", "TopK(2, 3)", "has `dim = 3`, but [6, 8] has axes 1 to 2, or -2 to -1"),
        ("tokens 6", "TopK(2)", "works on numbers, but it is given tokens; put `Embedding` before it"),
        (
            "4294967295",
            "TopK(1)",
            "finds places along an axis of [4294967295]; use one of fewer than 2^32 - 1 elements",
        ),
        (
            "6x8, 8",
            "Gather",
            "looks elements up by tokens, but its second branch produces [8]; put `from(tokens)`, `TopK(k, indices)` or `ArgMax` in that branch",
        ),
        (
            "6x8, tokens 4",
            "Gather",
            "has an index for each element that it gives, with the axes of [6, 8], but its second branch produces [4]; put `Unsqueeze` or \
             `Expand` after the tokens, or use `Take` for whole rows",
        ),
        (
            "6x8, tokens 4x9",
            "Gather",
            "looks elements of [6, 8] up along axis 1, but its second branch produces [4, 9], which has 9 along axis 2; use up to 8",
        ),
        (
            "6x8, tokens 4x7, 4x7",
            "ScatterAdd",
            "adds to elements of [6, 8] along axis 1, but its second branch produces [4, 7]; use [4, 8]",
        ),
        (
            "6x8, tokens 4x8, 3x8",
            "ScatterAdd",
            "adds an element for each index of [4, 8], but its third branch produces [3, 8]; use as many or more",
        ),
        (
            "6x8, tokens 4x8, 32",
            "ScatterAdd",
            "adds an element for each index of [4, 8], but its third branch produces [32]; use as many or more",
        ),
        (
            "6x8, tokens 4x8, tokens 4x8",
            "ScatterAdd",
            "joins numbers, but a branch carries tokens; put `Embedding` in that branch",
        ),
        ("tokens 6, tokens 4", "Gather", "joins numbers, but a branch carries tokens; put `Embedding` in that branch"),
        ("6x8, tokens 4x8", "Gather(dim = 3)", "has `dim = 3`, but [6, 8] has axes 1 to 2, or -2 to -1"),
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
            "CausalSelfAttention(4, qk_norm = \"rms\")",
            "needs \"none\" or \"RmsNorm\" or \"LayerNorm\" for `qk_norm`, not \"rms\"",
        ),
        (
            "10x48",
            "MultiHeadAttention(4, qk_norm_eps = 0.001)",
            "has `qk_norm_eps`, but its heads are not normalised; add `qk_norm = \"RmsNorm\"`, or leave it out",
        ),
        (
            "10x48",
            "MultiHeadAttention(4, interleaved = true)",
            "has `interleaved`, which only a rotary embedding has; add `rotary = 10000.0`, or leave it out",
        ),
        (
            "10x48",
            "MultiHeadAttention(5)",
            "has 5 heads, which do not divide its width of 48; use a number of heads that divides 48",
        ),
        ("8, tokens 8", "Concat", "joins numbers; embed tokens first"),
        (
            "tokens 1x1x1x1x1x2",
            "Embedding(7, 4)",
            "has a row for each of [1, 1, 1, 1, 1, 2], and a value has up to 6 axes; flatten the tokens",
        ),
        ("tokens 6", "Slice(7)", "takes elements 7 up to 6 of an axis that has 6; use 0 <= start < end <= 6"),
        ("tokens 6", "Slice(0, 2, dim = 2)", "has `dim = 2`, but [6] has axes 1 to 1, or -1 to -1"),
        ("tokens 6", "Select(0)", "works on two axes or more, but the previous layer produces [6]; use `Slice`"),
        ("tokens 6", "Roll(1, 1)", "works on numbers, but it is given tokens; put `Embedding` before it"),
    ]);
}
