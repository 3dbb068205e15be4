//! Convolutions, pools, normalisation, and what else works on maps.

use super::check;

#[test]
fn maps_and_signals() {
    check(&[
        (
            "bytes 3x4x4",
            "Conv2d(4, 3)",
            "works on a feature map [C, H, W], but it is given bytes; put `Normalize` before it",
        ),
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
        ("3x4x4", "Normalize(0, -1)", "needs `std` to be above 0, not -1"),
        (
            "3x4x4",
            "Normalize(true)",
            "needs a number, or one for each channel as `(0.5, 0.4, 0.3)` for `mean`, not true",
        ),
        ("3x8x8", "Conv2d(8, 3, dilate = 2)", "has no option `dilate`; did you mean `dilation`?"),
        (
            "3x8x8",
            "Conv2d(8, 3, padding_mode = \"reflect\")",
            "has no option `padding_mode`; other edges than zeros are those of a layer in front, as `Pad(1, mode = \"reflect\")`",
        ),
        (
            "3x8x8",
            "InstanceNorm2d(track_running_stats = true)",
            "has no option `track_running_stats`; layers called `BatchNorm` have running statistics, and no others have, so \
             leave it out",
        ),
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
        ("8", "Dropout(1)", "needs `p` to be at least 0 and below 1, not 1"),
        ("8", "Dropout(\"half\")", "needs a number for `p`, not \"half\""),
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
        (
            "3x8x8",
            "Conv2d(4, 3, padding = 18446744073709551615)",
            "has a window with the number 18446744073709551615; use numbers below 2^31",
        ),
        (
            "1x1099511627776",
            "ConvTranspose1d(4, 3, stride = 2147483647)",
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
        (
            "3x5",
            "Conv1d(4, 9, padding = 1, dilation = 2)",
            "has a kernel of 9 with dilation 2, which is larger than its input of 5 with padding 1; use a smaller kernel, more padding, \
             or fewer strides before it",
        ),
        (
            "3x8x8",
            "Conv2d(4, 3, stride = -1)",
            "needs a whole number or a pair (height, width) for `stride`, not -1, which is below 0",
        ),
        ("3x8x8", "Upsample(-1.5)", "needs `scale_factor` to be above 0, not -1.5"),
        (
            "3x8x8",
            "Upsample(\"2\")",
            "needs a number, a pair (height, width) or (depth, height, width) for `scale_factor`, not \"2\"",
        ),
        ("3x8x8", "Upsample(size = [8; 0])", "needs `size` to be at least 1, not (8, 0)"),
        (
            "3x8x8",
            "Upsample(size = 1.5)",
            "needs a whole number, a pair (height, width) or (depth, height, width) for `size`, not 1.5",
        ),
        (
            "3x8x8",
            "Upsample(2, mode = \"area\")",
            "needs \"nearest\" or \"nearest-exact\" or \"bilinear\" or \"bicubic\" or \"linear\" or \"trilinear\" for `mode`, not \"area\"",
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
            "has `mode = \"bicubic\"`, which is for maps; for signals it is \"linear\"",
        ),
        (
            "3x4x5x6",
            "Upsample(2, mode = \"bilinear\")",
            "has `mode = \"bilinear\"`, which is for maps; for volumes it is \"trilinear\"",
        ),
        (
            "3x8x8",
            "Upsample([2; 2; 2])",
            "works on a map [C, H, W]; write one number for `scale_factor`, or (height, width)",
        ),
        (
            "3x4x5x6",
            "Upsample(size = [8; 8])",
            "works on a volume [C, D, H, W]; write one number for `size`, or (depth, height, width)",
        ),
        (
            "3x4x5x6",
            "Upsample(0.2)",
            "leaves nothing of its 4x5x6 input with `scale_factor = 0.2`; use a larger factor",
        ),
        (
            "3x8x8",
            "Upsample(2, mode = \"nearest-exact\", align_corners = true)",
            "has `align_corners` with the nearest elements, which have none to align; leave it out, or write \
             `mode = \"bilinear\"`",
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
        (
            "3x8x8",
            "Hardtanh(1.0, -1.0)",
            "has min_val = 1.0 and max_val = -1.0, which leave nothing between; use a larger `max_val`",
        ),
        ("3x8x8", "Softshrink(-0.5)", "needs `lambd` to be at least 0, not -0.5"),
        ("3x8x8", "Pad", "takes (padding), but none is given"),
        (
            "3x8x8",
            "Pad([1; 2; 3])",
            "needs a whole number, (left, right), (left, right, top, bottom) or six numbers that end in front and back for \
             `padding`, not (1, 2, 3)",
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
            "3x8x8",
            "Pad([1; 1; 1; 1; 1; 1])",
            "has padding (1, 1, 1, 1, 1, 1) for [3, 8, 8], which is no volume; write up to four numbers",
        ),
        (
            "2x3x4x5x6",
            "Pad(1)",
            "pads maps, volumes, signals, sequences and vectors, but the previous layer produces [2, 3, 4, 5, 6]",
        ),
        ("3x8x8", "MaxPool2d(3, padding = 2)", "has padding 2, more than half its kernel size 3; use at most 1"),
        (
            "3x8x8",
            "MaxPool2d(3, padding = 3, dilation = 2)",
            "has padding 3, more than half what a kernel of 3 with dilation 2 covers; use at most 2",
        ),
        (
            "3x2x2",
            "MaxPool2d(2, padding = 1, dilation = 3)",
            "has a window that lies in the padding alone: a kernel of 2 with dilation 3 steps over an input of 2; use less dilation \
             or padding",
        ),
        (
            "3x8x8",
            "Conv2d(8, 1, stride = 4294967296)",
            "has a window with the number 4294967296; use numbers below 2^31",
        ),
        (
            "3x8x8",
            "Conv2d(8, 1, dilation = 3000000000, padding = \"same\")",
            "has a window with the number 3000000000; use numbers below 2^31",
        ),
        (
            "3x8x8",
            "ConvTranspose2d(8, 1, stride = 2147483648)",
            "has a window with the number 2147483648; use numbers below 2^31",
        ),
        ("3x8x8", "BatchNorm2d(eps = -0.5)", "needs `eps` to be at least 0, not -0.5"),
        ("3x8x8", "LayerNorm(eps = -0.5)", "needs `eps` to be at least 0, not -0.5"),
        ("3x8x8", "BatchNorm2d(momentum = 1e400)", "needs `momentum` to be finite, not inf"),
        (
            "3x1x1",
            "InstanceNorm2d",
            "normalises each channel of a sample for itself, and here one has a single element, of which 0 is left; normalise before \
             the map is reduced to one, or use `LayerNorm`",
        ),
        (
            "3x1",
            "InstanceNorm1d",
            "normalises each channel of a sample for itself, and here one has a single element, of which 0 is left; normalise before \
             the map is reduced to one, or use `LayerNorm`",
        ),
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
        (
            "10x6",
            "GlobalAvgPool",
            "works on maps and volumes, but the previous layer produces [10, 6]; use `Mean(2)` for each channel of a signal [C, L], or \
             `Mean(1)` for the steps of a sequence [T, D]",
        ),
        (
            "8x2x3",
            "MaxPool2d([5; 3], stride = 2, ceil_mode = true)",
            "has a 5x3 kernel, which is larger than its 2x3 input; use a smaller kernel, more padding, or fewer strides before it",
        ),
        ("6x2x2", "GroupNorm(4)", "has 4 groups, which do not divide its 6 channels; use a divisor of 6"),
        ("6x2", "GroupNorm(2, 8)", "expects 8 input channels, but the previous layer produces [6, 2], which has 6"),
        ("6x2", "RmsNorm(3)", "expects 3 input features, but the previous layer produces [6, 2]"),
        ("3x4x4", "L2Norm(4)", "has `dim = 4`, but [3, 4, 4] has axes 1 to 3, or -3 to -1"),
        ("3x4x4", "Norm(2, 4)", "has `dim = 4`, but [3, 4, 4] has axes 1 to 3, or -3 to -1"),
        ("3x4x4", "Norm(2, [1; 1])", "names an axis twice"),
        ("3x4x4", "Norm(0, 1)", "needs a number above 0 or \"inf\" for `p`, not 0"),
        ("3x4x4", "Norm(\"fro\", 1)", "needs a number above 0 or \"inf\" for `p`, not \"fro\""),
        ("3x4x4", "Norm(2)", "takes (p, dim), but 1 is given"),
        ("3x4x4", "L2Norm(eps = 0.0)", "needs `eps` to be above 0, not 0.0"),
        ("3x4x4", "L2Norm(eps = 1e-60)", "has eps = 1e-60, which f32 has not; use 1e-12"),
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
        (
            "3x4x6",
            "BatchNorm1d",
            "works on a vector [C] or a signal [C, L], but the previous layer produces [3, 4, 6]; use `BatchNorm2d`",
        ),
        (
            "3x4x5",
            "PixelShuffle(2)",
            "makes 2 x 2 pixels of 2 * 2 channels, but 3 channels are no multiple of that; put `Conv2d(channels * 2 * 2, 1)` before \
             it",
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
        ("3x4x5", "PixelUnshuffle(2)", "takes 4 x 5 apart by 2, which does not divide both; pad or cut it first"),
        ("3x4x5", "ChannelShuffle(2)", "makes 2 groups of 3 channels, which is no multiple; use a divisor of 3"),
    ]);
}
