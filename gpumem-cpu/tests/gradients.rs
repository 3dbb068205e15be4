//! Every layer's backward pass against differences of its forward pass: overwriting and accumulating, in place and not.

mod common;

use common::graphs::layer_of;
use common::{Input, OneLayer, Options, Single};
use gpumem_core::program::Op;
use gpumem_core::program::functions::Function;

/// Checks a layer, which is written as in a network, in every way in which it can be run.
fn check(layer: &str, inputs: &[Input]) {
    check_at(layer, inputs, 1.0);
}

/// The same with inputs of up to `1.5 * scale`.
fn check_at(layer: &str, inputs: &[Input], scale: f32) {
    let base = Options { scale, ..Options::default() };
    check_single(layer, &Single::new(layer, inputs, base.batch), inputs, base);
}

fn check_single(layer: &str, single: &Single, inputs: &[Input], base: Options) {
    let results = |options| OneLayer::of(single, inputs, options).results();
    OneLayer::of(single, inputs, base).check_gradients(layer);
    OneLayer::of(single, inputs, Options { accumulate: true, ..base })
        .check_gradients(&format!("accumulating {layer}"));
    // Where the backward pass needs the input, a network lets the forward pass overwrite it in inference only.
    let (backward_in_place, keeps_input) = match single.gradient() {
        Some((of, in_place)) => (in_place, of.iter().any(|(_, reads)| reads.inputs.contains(0))),
        None => (false, true),
    };
    let apart = results(base);
    if backward_in_place {
        let found = results(Options { backward_in_place, ..base });
        assert_eq!(apart, found, "{layer} with its gradient in place");
    }
    if single.in_place() {
        let found = results(Options { forward_in_place: true, ..base });
        if keeps_input {
            assert_eq!(apart.last(), found.last(), "{layer} in place");
        } else {
            assert_eq!(apart, found, "{layer} in place");
        }
    }
    let (alone, many) = (results(Options { threads: 1, ..base }), results(Options { threads: 3, ..base }));
    assert_eq!(alone, many, "{layer} with another number of threads");
}

fn map(channels: u64) -> [Input; 1] {
    [Input::Numbers(vec![channels, 5, 6])]
}

/// The smallest case of an operation: a layer of it, and its inputs.
fn case_of(operation: &str) -> (&'static str, Vec<Input>) {
    let numbers = |dims: &[u64]| vec![Input::Numbers(dims.to_vec())];
    let two = |left: &[u64], right: &[u64]| vec![Input::Numbers(left.to_vec()), Input::Numbers(right.to_vec())];
    match operation {
        "Product" => ("Linear(4)", numbers(&[5])),
        "MatMul" => ("MatMul", two(&[3, 5], &[5, 4])),
        "Convolution" => ("Conv2d(2, 2)", numbers(&[2, 3, 3])),
        "Pointwise" => ("Tanh", numbers(&[5])),
        "Sum" => ("Add", two(&[5], &[5])),
        "Binary" => ("Mul", two(&[2, 3], &[3])),
        "Normalize" => ("LayerNorm", numbers(&[2, 6])),
        "BatchNorm" => ("BatchNorm2d", numbers(&[2, 3, 3])),
        "InplaceNorm" => ("InplaceAbn(activation_param = 0.25)", numbers(&[2, 3, 3])),
        "MaxPool" => ("MaxPool2d(2)", numbers(&[2, 4, 4])),
        "AveragePool" => ("AvgPool2d(2)", numbers(&[2, 4, 4])),
        "Resize" => ("Upsample(2)", numbers(&[2, 2, 3])),
        "Softmax" => ("Softmax", numbers(&[2, 5])),
        "Attention" => ("CausalAttention(1)", numbers(&[3, 6])),
        "Sinusoid" => ("SinusoidalEmbedding(6, base = 3.0)", numbers(&[3, 1])),
        "RelativeBias" => ("RelativePositionBias(2)", numbers(&[3, 2])),
        "Gather" => ("Embedding(5, 3)", vec![Input::Tokens(vec![0, 3, 3, 1])]),
        "Concat" => ("Concat", two(&[2, 3], &[2, 2])),
        "Slice" => ("PositionEmbedding(5, 3)", vec![Input::Tokens(vec![0; 4])]),
        "Mask" => ("Dropout(0.4)", numbers(&[9])),
        "Formula" => ("Everything", numbers(&[9])),
        "Declared" => ("Fold", numbers(&[2, 4])),
        "Standardize" => ("Normalize([0.5; -1.25], [2; 0.75])", numbers(&[2, 3, 3])),
        "Permute" => ("Transpose(1, 2)", numbers(&[3, 4])),
        "Reduce" => ("Mean(1)", numbers(&[4, 3])),
        "Interpolate" => ("Upsample(1.5, mode = \"bilinear\")", numbers(&[2, 2, 3])),
        "Pad" => ("Pad(1)", numbers(&[2, 2, 3])),
        "Recurrence" => ("Lstm(3)", numbers(&[4, 2])),
        "L2Norm" => ("L2Norm(2)", numbers(&[2, 5])),
        "VectorNorm" => ("Norm(2, 1)", numbers(&[4, 3])),
        "Take" => ("Take", vec![Input::Numbers(vec![4, 3]), Input::Tokens(vec![2, 0, 2, 1, 3, 3])]),
        "TakeAlong" => ("Gather(dim = 2)", vec![Input::Numbers(vec![2, 4, 3]), along()]),
        "ScatterAdd" => {
            let numbers = |length| Input::Numbers(vec![2, length, 3]);
            ("ScatterAdd(dim = 2)", vec![numbers(4), along(), numbers(5)])
        }
        "Rotary" => ("Rotary(2)", numbers(&[3, 8])),
        "Convolution3d" => ("Conv3d(2, 2)", numbers(&[2, 3, 3, 2])),
        "MaxPool3d" => ("MaxPool3d(2)", numbers(&[2, 2, 4, 4])),
        "AveragePool3d" => ("AvgPool3d(2)", numbers(&[2, 4, 2, 4])),
        "SelectiveScan" => ("SelectiveScan", scanned(3, 2, 2)),
        other => panic!("no case of {other}"),
    }
}

/// Places along an axis of four, of which some come several times: for two samples five along the second axis of two by five by three.
fn along() -> Input {
    let places = (0..60u32).map(|at| at * at % 7 % 4).collect();
    Input::Indices(vec![2, 5, 3], places)
}

/// The branches of a scan: so many steps, channels and states.
fn scanned(steps: u64, channels: u64, states: u64) -> Vec<Input> {
    let rows = |width| Input::Numbers(vec![steps, width]);
    vec![rows(channels), rows(channels), rows(states), rows(states)]
}

/// Steps that are not positive make states grow, until a difference says nothing of the slope.
fn check_scan(inputs: &[Input]) {
    let single = Single::new("SelectiveScan", inputs, Options::default().batch);
    check_single("SelectiveScan", &single, inputs, Options { positive: true, ..Options::default() });
}

#[test]
fn every_operation() {
    // No layer is an expansion alone, and its gradient is passed on. A mask and a constant have no input, and indices no gradient. What keeps
    // a sequence is not trained. What makes a weight of parameters has a test of its own, and so have products with codes: `coded.rs`. What
    // keeps bits is compared with what keeps outputs.
    let others = [
        "Expand",
        "WindowMask",
        "CachedAttention",
        "CachedScan",
        "CachedConvolution",
        "CachedRecurrence",
        "Positions",
        "Constant",
        "PaddedPositions",
        "ArgMax",
        "AsStrided",
        "TopK",
        "Reparametrize",
        // Its singular vectors count as constants, and move: `tests/spectral_norm` compares it with PyTorch.
        "SpectralNorm",
        "CodedProduct",
        // What several others are in training: `recurrent.rs` compares it with them.
        "WholeRecurrence",
        "Rectifier",
        // Two layers in training, below and in `normalized.rs`.
        "NormalizedConvolution",
        // What `lengths` and `segments` put in: `lengths.rs`.
        "SequenceMask",
        "SegmentPositions",
    ];
    for name in Op::NAMES.iter().filter(|name| !others.contains(name)) {
        let (layer, inputs) = case_of(name);
        assert_eq!(Single::new(layer, &inputs, Options::default().batch).op.name(), *name);
        // Gradients that are passed on have no operation: sums are compared below.
        match *name {
            "Sum" => {}
            "SelectiveScan" => check_scan(&inputs),
            _ => check(layer, &inputs),
        }
    }
}

#[test]
fn normalised_convolutions() {
    for text in ["BatchNorm2d", "BatchNorm2d(affine = false, eps = 0.01)"] {
        let single = Single::normalized(text, [3, 7], [2, 3], Options::default().batch);
        assert_eq!(single.op.name(), "NormalizedConvolution");
        check_single(text, &single, &[Input::Numbers(vec![3, 2, 3])], Options::default());
    }
}

#[test]
fn weights_made_of_parameters() {
    for (text, dims) in [
        ("Linear(4, weight_norm = true)", &[5u64][..]),
        ("Linear(4, weight_norm = 1)", &[5]),
        ("Linear(3, standardized = true)", &[6]),
        ("Conv2d(3, [2; 3], standardized = true, gamma = 1.5, eps = 0.01)", &[2, 3, 3]),
        ("Conv1d(3, 4, weight_norm = 2)", &[2, 5]),
        ("ConvTranspose2d(3, 2, weight_norm = true)", &[2, 3, 3]),
    ] {
        check_single(text, &Single::of_weight(text, dims), &[], Options::default());
    }
}

#[test]
fn every_function() {
    let input = [Input::Numbers(vec![2, 9])];
    for function in Function::ALL {
        let Some(layer) = layer_of(*function) else { continue };
        if matches!(function, Function::Sqrt | Function::Log) {
            check_single(
                layer,
                &Single::new(layer, &input, 2),
                &input,
                Options { positive: true, ..Options::default() },
            );
            continue;
        }
        check_at(layer, &input, 1.0);
        if matches!(function, Function::Relu6 | Function::Hardswish | Function::Hardsigmoid) {
            // On both sides of their kinks, and not near them.
            check_at(layer, &input, 5.5);
        }
    }
}

#[test]
fn formulas() {
    // More elements than are computed at once, and a rest.
    check("Everything", &[Input::Numbers(vec![3, 37])]);
    check("Swish", &[Input::Numbers(vec![2, 9])]);
    check("Squash", &[Input::Numbers(vec![7])]);
}

#[test]
fn operations_of_the_users() {
    check("Fold", &[Input::Numbers(vec![3, 5])]);
}

#[test]
fn convolutions() {
    check("Conv2d(3, 3, padding = 1)", &map(2));
    check("Conv2d(4, [3; 2], stride = [2; 1], padding = [0; 1], dilation = [1; 2], groups = 2)", &map(2));
    check("Conv2d(2, 1)", &map(3));
    check("Conv2d(2, 1, stride = 2)", &map(3));
    check("Conv2d(3, 3, padding = 1, groups = 3)", &map(3));
    check("Conv2d(2, 3, stride = 2, padding = 2, dilation = [2; 1], groups = 2)", &map(2));
    check("Conv2d(4, 3, stride = [1; 2], padding = 1, groups = 2)", &map(2));
    // More padding at the end than in front.
    check("Conv2d(3, [2; 4], padding = \"same\")", &map(2));
    check("Conv2d(4, [4; 2], padding = \"same\", dilation = [1; 3], groups = 2)", &map(2));
    // Padding that makes whole windows empty.
    check("Conv2d(2, 2, padding = 3)", &map(1));
}

#[test]
fn axes() {
    let input = [Input::Numbers(vec![3, 4, 5])];
    check("Permute([0; 2; 3; 1])", &input);
    check("Permute([0; 3; 2; 1])", &input);
    check("Permute([0; 2; 1; 3])", &input);
    // Several tiles, and parts of them.
    check("Transpose(1, 2)", &[Input::Numbers(vec![35, 67])]);
    check("Permute([0; 3; 1; 4; 2])", &[Input::Numbers(vec![2, 3, 4, 5])]);
    check("Permute(0, 5, 2, 4, 1, 3)", &[Input::Numbers(vec![2, 3, 2, 3, 2])]);
    check("Permute(0, 6, 3, 1, 4, 2, 5)", &[Input::Numbers(vec![2, 3, 2, 3, 2, 2])]);
    for text in [
        "Rotary(2, base = 7.0)",
        "Rotary(3, base = 7.0, dims = 2)",
        "Rotary(2, base = 5.0, dims = 4, interleaved = true)",
        "Rotary(3, base = 3.0, size = [2; 2], before = 1)",
    ] {
        check(text, &[Input::Numbers(vec![5, 12])]);
    }
    check("Slice(1, 3, dim = 2)", &input);
    check("Slice(-2)", &input);
    check("Select(2, dim = -1)", &input);
    for reduction in ["Sum", "Mean", "Max"] {
        for dim in ["1", "2", "-1", "[1; 2]", "[1; 2; 3]"] {
            check(&format!("{reduction}({dim})"), &input);
        }
    }
}

#[test]
fn layers_of_signals() {
    let input = [Input::Numbers(vec![4, 9])];
    check("Conv1d(6, 3, stride = 2, padding = 1, groups = 2)", &input);
    check("Conv1d(2, 4, padding = \"same\", dilation = 2)", &input);
    check("ConvTranspose1d(6, 3, stride = 2, padding = 1, output_padding = 1, groups = 2)", &input);
    check("MaxPool1d(3, 2, padding = 1)", &input);
    check("AvgPool1d(4, stride = 3, padding = 2, count_include_pad = false)", &input);
    check("AdaptiveAvgPool1d(5)", &input);
    check("AdaptiveMaxPool1d(5)", &input);
    check("BatchNorm1d", &input);
    check("BatchNorm1d(affine = false)", &[Input::Numbers(vec![7])]);
    check("InstanceNorm1d(affine = true)", &input);
    check("InstanceNorm2d", &map(3));
}

#[test]
fn layers_of_volumes() {
    let volume = |channels: u64| [Input::Numbers(vec![channels, 4, 5, 3])];
    check("Conv3d(3, 3, padding = 1)", &volume(2));
    check("Conv3d(2, 1, stride = [2; 1; 1])", &volume(3));
    check(
        "Conv3d(4, [2; 3; 1], stride = [1; 2; 1], padding = [1; 0; 1], dilation = [2; 1; 1], groups = 2)",
        &volume(2),
    );
    check("Conv3d(3, [3; 2; 2], padding = \"same\", groups = 3)", &volume(3));
    // Padding that makes whole windows empty.
    check("Conv3d(1, 2, padding = 3)", &[Input::Numbers(vec![1, 2, 3, 2])]);
    check("ConvTranspose3d(3, 2, stride = 2)", &volume(2));
    // Planes that no window meets.
    check(
        "ConvTranspose3d(4, [1; 3; 2], stride = [3; 1; 2], padding = [0; 1; 0], output_padding = [2; 0; 1], groups = 2)",
        &[Input::Numbers(vec![2, 2, 3, 2])],
    );
    check("MaxPool3d([2; 3; 2], [1; 2; 1], padding = [0; 1; 1], dilation = [2; 1; 1])", &volume(2));
    check("MaxPool3d(3, 2, padding = 1, ceil_mode = true)", &volume(2));
    for count_include_pad in [true, false] {
        let text =
            format!("AvgPool3d([3; 2; 2], 2, padding = 1, ceil_mode = true, count_include_pad = {count_include_pad})");
        check(&text, &volume(2));
    }
    check("AdaptiveAvgPool3d([3; 2; 4])", &volume(2));
    check("AdaptiveMaxPool3d([3; 2; 2])", &volume(2));
    check("BatchNorm3d", &volume(2));
    check("InstanceNorm3d(affine = true)", &volume(2));
    check("Dropout3d(0.4)", &volume(3));
}

#[test]
fn rows_of_several_axes() {
    check("LayerNorm([5; 6])", &map(2));
    check("LayerNorm(6)", &map(2));
    check("RmsNorm([2; 5; 6])", &map(2));
    check("Linear(6, 4)", &map(2));
}

#[test]
fn transposed_convolutions() {
    let input = |channels| [Input::Numbers(vec![channels, 3, 4])];
    check("ConvTranspose2d(3, 2, stride = 2)", &input(2));
    check("ConvTranspose2d(4, [3; 2], stride = [2; 3], padding = [1; 0], output_padding = 1, groups = 2)", &input(2));
    check("ConvTranspose2d(2, 3, stride = 2, padding = 1, output_padding = 1, groups = 2)", &input(2));
}

#[test]
fn products() {
    check("Linear(4)", &[Input::Numbers(vec![5])]);
    check("Linear(4, bias = false)", &[Input::Numbers(vec![3, 5])]);
    for transposed in [false, true] {
        let input = [Input::Numbers(vec![3, 5])];
        check_single("a tied weight", &Single::tied(transposed), &input, Options::default());
    }
}

#[test]
fn normalisations() {
    for affine in [true, false] {
        check(&format!("BatchNorm2d(affine = {affine})"), &map(2));
        check(&format!("InplaceAbn(affine = {affine}, activation_param = 0.5)"), &map(2));
        for bias in [affine, false] {
            check(&format!("RmsNorm(elementwise_affine = {affine})"), &[Input::Numbers(vec![3, 6])]);
            check(&format!("GroupNorm(2, affine = {affine})"), &map(4));
            check(&format!("GroupNorm(3, affine = {affine})"), &[Input::Numbers(vec![6])]);
            let text = format!("LayerNorm(elementwise_affine = {affine}, bias = {bias})");
            check(&text, &[Input::Numbers(vec![3, 6])]);
        }
    }
}

#[test]
fn norms_along_an_axis() {
    // More positions than are worked on together.
    check("L2Norm(2)", &[Input::Numbers(vec![3, 4, 35])]);
    for p in ["1", "2", "3", "1.5", "\"inf\""] {
        check(&format!("Norm({p}, 2)"), &[Input::Numbers(vec![3, 4, 5])]);
        check(&format!("Norm({p}, -1)"), &[Input::Numbers(vec![3, 6])]);
    }
    // Below 1 the slope grows without bound towards 0, where a difference says nothing of it.
    for (text, dims) in [("Norm(0.5, 2)", vec![3, 4, 5]), ("Norm(0.5, -1)", vec![3, 6])] {
        let input = [Input::Numbers(dims)];
        let options = Options { positive: true, ..Options::default() };
        check_single(text, &Single::new(text, &input, options.batch), &input, options);
    }
    check("L2Norm(-1)", &[Input::Numbers(vec![3, 6])]);
    // Norms on both sides of what is divided by at least.
    check("L2Norm(1, eps = 1.5)", &[Input::Numbers(vec![3, 2, 4])]);
}

#[test]
fn poolings() {
    check("MaxPool2d(2)", &map(2));
    // Windows that overlap, and with `ceil_mode` one that reaches beyond the padding.
    check("MaxPool2d(3, [2; 1], padding = [1; 0], dilation = [1; 2])", &map(2));
    check("MaxPool2d([2; 3], 2, padding = [0; 1], ceil_mode = true)", &map(2));
    check("MaxPool2d(3, 1, padding = 2, dilation = 2)", &map(2));
    for count_include_pad in [true, false] {
        check(&format!("AvgPool2d([3; 2], 2, padding = 1, count_include_pad = {count_include_pad})"), &map(2));
    }
    check("AdaptiveAvgPool2d([3; 4])", &map(2));
    check("AdaptiveMaxPool2d([3; 4])", &map(2));
    check("AdaptiveMaxPool2d([1; 2])", &map(2));
    check("GlobalAvgPool", &map(2));
    check("Upsample([2; 3])", &map(2));
}

#[test]
fn maps_of_other_sizes() {
    let modes = [("nearest", false), ("bilinear", false), ("bilinear", true), ("bicubic", false), ("bicubic", true)];
    for (mode, align_corners) in modes {
        for size in ["size = [7; 9]", "size = [2; 11]", "[0.5; 1.3]", "size = 1", "2"] {
            check(&format!("Upsample({size}, mode = \"{mode}\", align_corners = {align_corners})"), &map(2));
        }
    }
    check("Upsample(size = 7)", &[Input::Numbers(vec![3, 4])]);
    check("Upsample(1.5, mode = \"linear\")", &[Input::Numbers(vec![3, 4])]);
    check("Upsample(size = 3, mode = \"linear\", align_corners = true)", &[Input::Numbers(vec![3, 5])]);
}

#[test]
fn recurrent_layers() {
    let input = [Input::Numbers(vec![4, 2])];
    for layer in ["Lstm(3", "Lstm(4, proj_size = 2", "Gru(3", "Rnn(3", "Rnn(3, nonlinearity = \"relu\""] {
        for options in ["", ", bias = false", ", bidirectional = true", ", bias = false, bidirectional = true"] {
            check(&format!("{layer}{options})"), &input);
        }
        // A sequence of one step.
        check(&format!("{layer}, bidirectional = true)"), &[Input::Numbers(vec![1, 2])]);
    }
}

/// Several groups of channels, and several chunks of steps, the last of each in part.
#[test]
fn state_space_models() {
    check_scan(&scanned(1, 1, 1));
    check_scan(&scanned(5, 3, 4));
    for [steps, channels, states] in [[4, 3, 5], [35, 3, 2], [3, 34, 2]] {
        let options = Options { batch: 1, ..Options::default() };
        let mut net = OneLayer::new("SelectiveScan", &scanned(steps, channels, states), options);
        let sizes: Vec<f32> = net.get(net.inputs[1]).iter().map(|x| x.abs() * 0.5).collect();
        net.set(net.inputs[1], &sizes);
        net.check_gradients("a scan of positive steps");
    }
}

#[test]
fn padding() {
    for mode in ["constant", "reflect", "replicate", "circular"] {
        check(&format!("Pad([3; 0; 1; 4], mode = \"{mode}\")"), &map(2));
        check(&format!("Pad([1; 2], mode = \"{mode}\")"), &[Input::Numbers(vec![3, 4])]);
        check(&format!("Pad(2, mode = \"{mode}\")"), &[Input::Numbers(vec![5])]);
    }
    check("Pad([-1; 2; 3; -2], value = 0.5)", &map(2));
    check("Pad([2; 1], mode = \"replicate\")", &[Input::Numbers(vec![3, 1])]);
}

#[test]
fn functions_of_one_number() {
    let input = [Input::Numbers(vec![2, 9])];
    check("Relu", &input);
    check_at("Relu6", &input, 5.5);
    check("LeakyRelu(0.2)", &input);
    for smooth in ["Gelu", "Gelu(approximate = \"tanh\")", "Silu", "Sigmoid"] {
        check_at(smooth, &input, 2.0);
    }
    check("Tanh", &input);
    check("Exp", &input);
    check("Affine(-0.5, 2.0)", &input);
    check("Elu(0.25)", &input);
    check("Celu(2.5)", &input);
    check("Softplus(3.0, 1.5)", &input);
    check("Pow(3.0)", &input);
    check("Dropout(0.4)", &input);
    check("DropPath(0.4)", &input);
    check("Dropout1d(0.4)", &input);
    check("Dropout2d(0.4)", &map(3));
    check("Prelu(2, init = 0.4)", &input);
    check("Prelu", &map(3));
    check("Softmax", &input);
    check("Softmax", &[Input::Numbers(vec![3, 2, 35])]);
    check("LogSoftmax", &input);
    check("LogSoftmax", &[Input::Numbers(vec![3, 2, 35])]);
}

#[test]
fn tables() {
    check("Embedding(5, 3)", &[Input::Tokens(vec![0, 3, 3, 1, 4, 3, 0, 1])]);
    check("PositionEmbedding(5, 3)", &[Input::Tokens(vec![0; 8])]);
}

#[test]
fn attention() {
    for dropout in ["0.0", "0.3"] {
        check(&format!("CausalAttention(2, dropout = {dropout})"), &[Input::Numbers(vec![4, 12])]);
        // Four heads of queries and two of keys; three and one.
        check(&format!("CausalAttention(4, kv_heads = 2, dropout = {dropout})"), &[Input::Numbers(vec![4, 16])]);
        check(&format!("CausalAttention(3, kv_heads = 1, dropout = {dropout})"), &[Input::Numbers(vec![4, 10])]);
    }
    // More rows than are worked on together.
    let options = Options { batch: 1, ..Options::default() };
    let long = [Input::Numbers(vec![70, 3])];
    OneLayer::new("CausalAttention(1, dropout = 0.1)", &long, options).check_gradients("long attention");
}

#[test]
fn quotients() {
    // Divisors away from 0, where a difference says nothing of the slope.
    for (left, right) in [(vec![2, 6], vec![2, 6]), (vec![2, 3, 2], vec![2, 1, 1])] {
        let inputs = [Input::Numbers(left), Input::Numbers(right)];
        let mut net = OneLayer::new("Div", &inputs, Options::default());
        let divisors: Vec<f32> = net.get(net.inputs[1]).iter().map(|x| x.signum() * (x.abs() + 1.0)).collect();
        net.set(net.inputs[1], &divisors);
        net.check_gradients("Div");
    }
}

/// Queries apart from keys and values, each of other sizes, in sequences side by side, with numbers that are added to scores.
#[test]
fn attention_to_other_sequences() {
    let inputs = |shapes: &[&[u64]]| shapes.iter().map(|dims| Input::Numbers(dims.to_vec())).collect::<Vec<_>>();
    check("Attention(heads = 2, scale = 0.3)", &inputs(&[&[3, 4], &[5, 4], &[5, 6]]));
    check("Attention(heads = 2, kv_heads = 1, causal = true)", &inputs(&[&[2, 4, 6], &[2, 3, 3], &[2, 3, 2]]));
    check("Attention(heads = 2, dropout = 0.3)", &inputs(&[&[2, 3, 4], &[2, 4, 4], &[2, 4, 4], &[2, 1, 3, 4]]));
    check("Attention(heads = 2, causal = true)", &inputs(&[&[2, 3, 4], &[2, 4, 4], &[2, 4, 4], &[2, 3, 4]]));
    check("Attention", &inputs(&[&[3, 4], &[3, 4], &[3, 2], &[3, 3]]));
    check("Attention(heads = 2, kv_heads = 1)", &inputs(&[&[2, 3, 8], &[2, 2, 3, 3]]));
    check("Attention(window = 2)", &inputs(&[&[4, 4], &[5, 4], &[5, 2], &[4, 5]]));
    check("CausalAttention(2, window = 2, dropout = 0.2)", &[Input::Numbers(vec![5, 12])]);
}

#[test]
fn products_of_values() {
    let inputs = |right: [u64; 2]| [Input::Numbers(vec![3, 5]), Input::Numbers(right.to_vec())];
    check("MatMul", &inputs([5, 4]));
    check("MatMul(transpose_b = true)", &inputs([4, 5]));
    check("MatMul", &[Input::Numbers(vec![2, 3, 5]), Input::Numbers(vec![2, 5, 4])]);
}

#[test]
fn joins() {
    let two = [Input::Numbers(vec![2, 6]), Input::Numbers(vec![2, 6])];
    for join in ["Mul", "Sub"] {
        check(join, &two);
    }
    // Broadcast at the front, in the middle, at the end, over the batch, and both ways at once.
    for [left, right] in [[vec![2, 3, 4], vec![2, 1, 1]], [vec![4], vec![2, 3, 4]], [vec![3, 1], vec![1, 4]]] {
        let (left, right) = (left, right);
        for join in ["Add", "Sub", "Mul"] {
            check(join, &[Input::Numbers(left.clone()), Input::Numbers(right.clone())]);
            check(join, &[Input::Shared(left.clone()), Input::Numbers(right.clone())]);
            check(join, &[Input::Numbers(left.clone()), Input::Shared(right.clone())]);
        }
    }
    let inputs = [Input::Numbers(vec![2, 6]), Input::Shared(vec![2, 6]), Input::Numbers(vec![2, 6])];
    let found = OneLayer::new("Add", &inputs, Options::default()).results();
    let values: Vec<Vec<f32>> =
        [(24, 0), (12, 7), (24, 14)].map(|(length, seed)| common::numbers(length, seed, 1.0)).to_vec();
    let expected: Vec<f64> =
        (0..24).map(|i| f64::from(values[0][i]) + f64::from(values[1][i % 12]) + f64::from(values[2][i])).collect();
    common::assert_close(&found[0], &expected, 1e-6);
    let in_place = OneLayer::new("Add", &inputs, Options { forward_in_place: true, ..Options::default() }).results();
    common::assert_close(&in_place[0], &expected, 1e-6);
    check("Concat", &[Input::Numbers(vec![1, 2, 3]), Input::Numbers(vec![4, 2, 3])]);
    check("Concat", &[Input::Numbers(vec![3, 2]), Input::Numbers(vec![3, 5])]);
}

/// Maps that are unfolded in several blocks, batches that are summed in one part and in many: a convolution without bias is
/// linear in its weight and in its input, so that both products with their gradients are the loss.
#[test]
fn large_convolutions() {
    for batch in [1, 20] {
        for accumulate in [false, true] {
            let options = Options { batch, accumulate, ..Options::default() };
            let input = Input::Numbers(vec![64, 30, 30]);
            let mut net = OneLayer::new("Conv2d(2, 5, padding = 2, bias = false)", &[input], options);
            // Without a mean of 0, for otherwise a constant that is missing from a gradient would not show.
            for id in [net.inputs[0], net.parameters[0]] {
                let shifted: Vec<f32> = net.get(id).iter().map(|x| x + 0.25).collect();
                net.set(id, &shifted);
            }
            let loss = f64::from(net.run().unwrap());
            let scale: f64 = net.get(net.output).iter().map(|&y| f64::from(y).abs()).sum();
            for (id, gradient) in net.gradients.clone() {
                let pairs = net.get(id).into_iter().zip(net.get(gradient));
                let product: f64 = pairs.map(|(x, dx)| f64::from(x) * f64::from(dx - net.before)).sum();
                assert!((product - loss).abs() < 1e-6 * scale, "batch {batch}, tensor {id}: {product} {loss}");
            }
        }
    }
}
