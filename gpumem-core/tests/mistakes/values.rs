//! Affine maps, functions, and what changes shapes.

use super::check;

#[test]
fn functions_and_shapes() {
    check(&[
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
        ("8x2x2", "Flatten(2)", "takes no arguments, but 1 is given"),
        (
            "8",
            "Relu(true)",
            "takes no arguments in front of its options, but 1 is given; options are given by name: `inplace = true`",
        ),
        (
            "8",
            "Linear(units = 4)",
            "has no option `units`; its options are `bias`, `transposed`, `standardized`, `gamma`, `eps`, `weight_norm`, `weight_norm_names` and `spectral_norm`, after (out_features) or (in_features, out_features)",
        ),
        ("8", "Linear(out_feature = 4)", "has no option `out_feature`; did you mean `out_features`?"),
        ("8", "Relu(1)", "takes no arguments in front of its options, but 1 is given"),
        ("8", "Relu(inplace = true, inplace = true)", "is given `inplace` twice; remove one"),
        ("8", "Tanh(inplace = true)", "has no option `inplace`; it has no options"),
        ("8", "Gelu(exact = true)", "has no option `exact`; its only option is `approximate`"),
        ("8", "Gelu(approximate = \"fast\")", "needs \"none\" or \"tanh\" for `approximate`, not \"fast\""),
        ("8", "LeakyRelu(-0.1)", "needs `negative_slope` to be at least 0, not -0.1"),
        ("8x5", "Prelu(5)", "is 5, but there is one slope for all or one for each of the 8 channels; use 1 or 8"),
        ("8", "LogSoftmax(2)", "needs `dim` to be an axis from 1 to 1 (0 is the batch), or -1 for the last"),
        ("8", "Softmax(2)", "needs `dim` to be an axis from 1 to 1 (0 is the batch), or -1 for the last"),
        ("8", "Tied(w)", "takes the name of a layer: `let w = Embedding(..);`, then `Tied(w)`"),
        ("3x4", "Celu(0)", "needs `alpha` to be above 0, not 0"),
        (
            "3x4x5",
            "Permute([0; 2; 1])",
            "needs each axis of [3, 4, 5] once, after the batch, which is axis 0: as `(0, 1, 2, 3)`, in the order that you want",
        ),
        (
            "3x4x5",
            "Permute(0, 2, 1)",
            "needs each axis of [3, 4, 5] once, after the batch, which is axis 0: as `(0, 1, 2, 3)`, in the order that you want",
        ),
        ("3x4x5", "Permute(0, 2, 1.5, 1)", "needs an axis, or several as `(1, 2)` for `dims`, not (0, 2, 1.5, 1)"),
        // One argument or several, but not both, and no list among them.
        ("3x4x5", "Permute(0, 2, 3, dims = 1)", "takes (dims), but 3 are given"),
        ("3x4x5", "Permute([0; 2], 3, 1)", "needs an axis, or several as `(1, 2)` for `dims`, not (0, 2)"),
        ("3x4x5", "Reshape(60, \"a\")", "needs a whole number, or one for each axis as `(4, 6)` for `size`, not \"a\""),
        ("3x4x5", "Transpose(0, 1)", "cannot work along the batch, which is axis 0; the axes of a sample begin at 1"),
        ("3x4x5", "Transpose(1, 4)", "has `dim1 = 4`, but [3, 4, 5] has axes 1 to 3, or -3 to -1"),
        ("3x4x5", "Reshape([7; -1])", "makes a multiple of 7 elements of [3, 4, 5], which has 60"),
        ("3x1x5", "Expand(3, 4, 6)", "repeats an axis of length 5 of [3, 1, 5] to 6; only axes of length 1 are"),
        ("3x1x5", "Expand(4, 5)", "has 2 sizes, but [3, 1, 5] has 3 axes; write as many or more"),
        ("3x1x5", "Expand(-1, 3, 4, 5)", "has -1; a size is at least 1, or -1 for an axis that is there"),
        ("3x1x5", "Expand(3, 0, 5)", "has 0; a size is at least 1, or -1 for an axis that is there"),
        ("1", "Expand([1; 1; 1; 1; 1; 1; 1])", "has 7 axes, more than the 6 that a value can have"),
        ("3x4x5", "Reshape([4; 16])", "makes 64 elements of [3, 4, 5], which has 60"),
        (
            "3x4x5",
            "Reshape([-1; -1])",
            "needs sizes of at least 1, and at most one of -1, which is what the others leave",
        ),
        ("3x4x5", "Reshape([1; 3; 1; 4; 1; 5; 1])", "has 7 axes, more than the 6 that a value can have"),
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
        ("10x47", "Glu", "halves an axis, but that has 47 elements; make it even"),
    ]);
}
