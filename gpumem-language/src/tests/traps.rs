//! What compiles elsewhere and is not what was meant.

use super::{assert_mistakes, forward, sound};

/// A network of a map of three channels.
fn of_maps(body: &str) -> String {
    forward("Image<3, 8, 8>", "Map<3, 8, 8>", body, "")
}

#[test]
fn layers_of_one_branch_without_their_list() {
    for (join, layers) in [
        ("Add", "Conv2d(3, 3, padding = 1), BatchNorm2d"),
        ("Add", "BatchNorm2d, Relu, Conv2d(3, 1)"),
        ("Mul", "Conv2d(3, 1), Sigmoid"),
        ("Add", "Conv2d(3, 1), Dropout(0.1), Conv2d(3, 1)"),
    ] {
        let said = format!(" branches here; put the layers of one branch into a list: `{join}([], [{layers}])`");
        let found = super::mistakes(&of_maps(&format!("[{join}([], {layers})]")));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].0, layers);
        assert!(found[0].1.ends_with(&said), "{found:#?}");
    }
    let text = forward("Sequence<4, 8>", "Sequence<4, 8>", "[Add([], LayerNorm, CausalSelfAttention(2))]", "");
    assert_mistakes(
        &text,
        &[(
            "LayerNorm, CausalSelfAttention(2)",
            "layer 0 `Add` joins 3 branches here; put the layers of one branch into a list: \
             `Add([], [LayerNorm, CausalSelfAttention(2)])`",
        )],
    );
}

/// Joins that mean what they say.
#[test]
fn joins_of_bare_layers() {
    for join in [
        "Add([], Conv2d(3, 1))",
        "Add([], Conv2d(3, 3, padding = 1), Conv2d(3, 1))",
        "Add([], Relu, Tanh)",
        "Mul([], Sigmoid)",
        "Add([], [], Relu)",
        "Add([], [Conv2d(3, 1)], BatchNorm2d)",
        "Add(Conv2d(3, 1), BatchNorm2d)",
        "Add([], MaxPool2d(3, 1, padding = 1), AvgPool2d(3, stride = 1, padding = 1))",
        "Add(block(), BatchNorm2d, [])",
    ] {
        sound(&forward(
            "Image<3, 8, 8>",
            "Map<3, 8, 8>",
            &format!("[{join}, block()]"),
            "fn block() -> Block { [Relu] }",
        ));
    }
}

#[test]
fn a_training_without_a_batch() {
    let train = |fields: &str| {
        forward("Features<8>", "Logits<4>", "[Linear(4)]", &format!("const TRAIN: Train = Train {{ {fields} }};"))
    };
    let missing = "`TRAIN` has no `batch`; write how many samples a step has, as `batch: 32`";
    assert_mistakes(&train("optimizer: Adam { lr: 0.1 }"), &[("TRAIN", missing)]);
    assert_mistakes(&train(""), &[("TRAIN", missing)]);
    assert_mistakes(
        &train("batch_size: 8"),
        &[("batch_size", "`TRAIN` has no field `batch_size`; did you mean `batch`?")],
    );
    sound(&forward("Features<8>", "Logits<4>", "[Linear(4)]", "const INFER: Infer = Infer { precision: F16 };"));
}

#[test]
fn what_cross_entropy_measures() {
    let with = |loss: &str, body: &str| {
        forward("Features<8>", "Logits<4>", body, &format!("const TRAIN: Train = Train {{ batch: 4, loss: {loss} }};"))
    };
    let instead = |layer: &str| {
        format!(
            "remove `{layer}`, or let the loss measure what arrives, with `tap(logits)` before `{layer}` and \
             `CrossEntropy(from = logits)`"
        )
    };
    for (layer, does) in [
        ("Softmax", "and makes their softmax itself"),
        ("LogSoftmax", "and makes their softmax itself"),
        ("Relu", "also negative ones, which are cut off here"),
        ("Sigmoid", "of any size, which are pressed between 0 and 1 here"),
    ] {
        let said = format!("`CrossEntropy` takes logits, {does}; {}", instead(layer));
        assert_mistakes(&with("CrossEntropy", &format!("[Linear(4), {layer}]")), &[(layer, &said)]);
        let tapped = format!("[Linear(4), {layer}, tap(aux), from(x), Linear(4)]");
        assert_mistakes(&with("CrossEntropy + CrossEntropy(from = aux)", &tapped), &[(layer, &said)]);
        sound(&with("CrossEntropy(from = logits)", &format!("[Linear(4), tap(logits), {layer}]")));
        sound(&with("Mse", &format!("[Linear(4), {layer}]")).replace("Logits", "Features"));
        sound(&with("CrossEntropy", &format!("[Linear(4), {layer}, Linear(4)]")));
    }
    for (layer, does) in [
        ("Sigmoid", "and makes their sigmoid itself"),
        ("Relu", "also negative ones, which are cut off here"),
        ("Softmax", "of any size, which are pressed between 0 and 1 here"),
    ] {
        let said = format!(
            "`BceWithLogits` takes logits, {does}; {}",
            instead(layer).replace("CrossEntropy", "BceWithLogits")
        );
        assert_mistakes(&with("BceWithLogits", &format!("[Linear(4), {layer}]")), &[(layer, &said)]);
    }
    for (loss, instead) in [("Nll", "CrossEntropy"), ("KlDiv", "CrossEntropy { targets: Probabilities }")] {
        let said = format!(
            "`{loss}` takes logarithms of probabilities, and `Softmax` gives probabilities; remove `Softmax` and use \
             `{instead}`, which takes logits"
        );
        assert_mistakes(&with(loss, "[Linear(4), Softmax]"), &[("Softmax", &said)]);
        sound(&with(loss, "[Linear(4)]"));
    }
    sound(&with("Nll", "[Linear(4), LogSoftmax]"));
}

#[test]
fn taps_that_nobody_reads() {
    let unread = |name: &str| format!("nothing reads the tap `{name}`; read it with `from({name})`, or remove it");
    let text = |body: &str, items: &str| forward("Features<8>", "Features<8>", body, items);
    assert_mistakes(&text("[Linear(8), tap(skip), Relu]", ""), &[("skip", &unread("skip"))]);
    let block = "fn block() -> Block { [tap(inner), Linear(8)] }";
    assert_mistakes(&text("[block()]", block), &[("inner", &unread("inner"))]);
    assert_mistakes(
        &text("[tap(a), Linear(8), tap(a), Add([], from(a))]", ""),
        &[("a", "`a` is tapped twice; choose another name for one of the two")],
    );
    assert_mistakes(
        &text("[Linear(8), tap(x), Add([], from(x))]", ""),
        &[("x", "`x` is an input, which is read by its name; choose another name for the tap")],
    );
    // A loss reads, a block that is called reads, and so does what an `if` leaves out; repetitions tap again.
    let train = "const TRAIN: Train = Train { batch: 4, loss: Mse + Mean(from = aux) };";
    sound(&text("[Linear(8), tap(aux), Relu]", train));
    sound(&text("[tap(a), Linear(8), head()]", "fn head() -> Block { [Add([], from(a))] }"));
    sound(&text("[tap(a), Linear(8), if false { Add([], from(a)) }]", ""));
    sound(&text("[repeat(3, [tap(a), Linear(8), Add([], from(a))])]", ""));
    sound(&text("[if true { [tap(a), Relu] } else { [Relu, tap(a)] }, Add([], from(a)), Linear(8)]", ""));
}

/// The channels of a value that layers have moved are where they moved them, which `Scale` asks for.
#[test]
fn factors_of_moved_channels() {
    let of = |input: &str, output: &str, body: &str| forward(input, output, body, "");
    let moved = |row: usize, others: u64, axis: usize, shape: &str, channels: usize, dims: [i64; 2], factors: u64| {
        format!(
            "layer {row} `Scale` would have a factor for each of the {others} along axis {axis} of {shape}, but the layers before it have \
             the channels on axis {channels}; write `dim = {}` for {factors} factors, one for each channel, or `dim = {}` for {others}",
            dims[0], dims[1]
        )
    };
    let convnext = |scale: &str| {
        format!(
            "[Add([], [Conv2d(8, 7, padding = 3, groups = 8), Permute(0, 2, 3, 1), LayerNorm(8), Linear(8, 32), Gelu, Linear(32, 8),
              {scale}, Permute(0, 3, 1, 2)])]"
        )
    };
    let [image, map] = ["Image<8, 6, 6>", "Map<8, 6, 6>"];
    assert_mistakes(
        &of(image, map, &convnext("Scale(init = 1e-6)")),
        &[("Scale(init = 1e-6)", &moved(6, 6, 1, "[6, 6, 8]", 3, [-1, 1], 8))],
    );
    let resolved = sound(&of(image, map, &convnext("Scale(init = 1e-6, dim = -1)")));
    let scale =
        resolved.graph.parameters.iter().find(|parameter| parameter.name.starts_with("scale")).expect("it is there");
    assert_eq!(scale.shape.dims(), [8]);
    for (input, output, body, said) in [
        (image, map, "[Transpose(1, 2), Scale, Transpose(1, 2)]", moved(1, 6, 1, "[6, 8, 6]", 2, [2, 1], 8)),
        (
            image,
            map,
            "[MaxPool2d(3, 1, padding = 1), Permute(0, 2, 3, 1), Relu, Scale, Permute(0, 3, 1, 2)]",
            moved(3, 6, 1, "[6, 6, 8]", 3, [-1, 1], 8),
        ),
        ("Signal<8, 6>", "Signal<4, 6>", "[Conv1d(4, 1), Relu, Scale]", moved(2, 6, 2, "[4, 6]", 1, [1, -1], 4)),
        (
            "Volume<2, 3, 4, 5>",
            "Volume<2, 3, 4, 5>",
            "[Conv3d(2, 1), Scale]",
            moved(1, 5, 4, "[2, 3, 4, 5]", 1, [1, -1], 2),
        ),
        (
            "Sequence<9, 8>",
            "Values<3, 3, 8>",
            "[Linear(8), Reshape(3, 3, 8), Scale]",
            moved(2, 3, 1, "[3, 3, 8]", 3, [-1, 1], 8),
        ),
    ] {
        assert_mistakes(&of(input, output, body), &[("Scale", &said)]);
    }
    // Channels on an axis that `dim` or `shape` gives, or on the usual one.
    for (input, output, body) in [
        (image, map, "[Scale]"),
        (image, map, "[Permute(0, 2, 3, 1), Relu, Permute(0, 3, 1, 2), Scale]"),
        (image, map, "[Permute(0, 2, 3, 1), Scale(shape = 8), Scale(dim = 1), Permute(0, 3, 1, 2)]"),
        (image, "Sequence<36, 8>", "[Conv2d(8, 1), Reshape(8, 36), Transpose(1, 2), Scale]"),
        ("Signal<8, 6>", "Signal<4, 6>", "[Conv1d(4, 1), Scale(dim = 1)]"),
        ("Sequence<9, 8>", "Sequence<9, 8>", "[Scale, Transpose(1, 2), Linear(9), Transpose(1, 2), Scale]"),
        ("Sequence<9, 8>", "Values<2, 9, 4>", "[Reshape(9, 2, 4), Transpose(1, 2), Scale]"),
        ("Features<8>", "Features<8>", "[Scale]"),
    ] {
        sound(&of(input, output, body));
    }
    assert_mistakes(
        &of("Features<8>", "Features<8>", "[Scale(8)]"),
        &[(
            "Scale(8)",
            "layer 0 `Scale` takes no arguments in front of its options, but 1 is given; options are given by name: `init = 8`",
        )],
    );
    for (scale, place, said) in [
        ("Scale(dim = 2)", "dim = 2", "has `dim = 2`, but [8] has axes 1 to 1, or -1 to -1"),
        ("Scale(scalar, dim = 1)", "dim = 1", "has `scalar`, one factor for all, and a `dim`; remove one of them"),
        (
            "Scale(shape = 8, dim = 1)",
            "dim = 1",
            "has a `shape`, which says what each factor is for, and a `dim`; remove one of them",
        ),
    ] {
        assert_mistakes(
            &of("Features<8>", "Features<8>", &format!("[{scale}]")),
            &[(place, &format!("layer 0 `Scale` {said}"))],
        );
    }
}

/// A normalisation of one number leaves nothing of it.
#[test]
fn normalised_alone() {
    let of = |input: &str, output: &str, body: &str| forward(input, output, body, "");
    let row = |rest: &str| {
        format!(
            "normalises rows of a single feature, of which nothing is left but {rest}; normalise before the features are reduced to one, or \
             remove it"
        )
    };
    let group = |groups: u64, rest: &str| {
        format!(
            "normalises {groups} groups of a single element each, of which nothing is left but {rest}; use fewer groups, or normalise where \
             a channel has more elements than one"
        )
    };
    for (input, output, layer, place, said) in [
        ("Features<1>", "Features<1>", "LayerNorm", "LayerNorm", row("the bias")),
        ("Features<1>", "Features<1>", "LayerNorm(bias = false)", "LayerNorm(bias = false)", row("0")),
        ("Sequence<4, 1>", "Sequence<4, 1>", "RmsNorm", "RmsNorm", row("its sign")),
        ("Features<4>", "Features<4>", "GroupNorm(4)", "4", group(4, "the bias")),
        ("Image<4, 1, 1>", "Map<4, 1, 1>", "GroupNorm(4, affine = false)", "4", group(4, "0")),
        (
            "Image<4, 1, 1>",
            "Map<4, 1, 1>",
            "InstanceNorm2d",
            "InstanceNorm2d",
            "normalises each channel of a sample for itself, and here one has a single element, of which 0 is left; normalise before the \
             map is reduced to one, or use `LayerNorm`"
                .to_string(),
        ),
    ] {
        let text = of(input, output, &format!("[{layer}]"));
        let name = layer.split('(').next().unwrap_or_default();
        assert_mistakes(&text, &[(place, &format!("layer 0 `{name}` {said}"))]);
    }
    sound(&of("Features<4>", "Features<4>", "[GroupNorm(2), GroupNorm(1), LayerNorm]"));
    sound(&of("Image<4, 2, 1>", "Map<4, 2, 1>", "[GroupNorm(4), InstanceNorm2d]"));
}

/// What every sample has in common replaces what arrives, unless it is added.
#[test]
fn positions_that_are_not_added() {
    let said = |row: usize, added: &str| {
        format!(
            "layer {row} `PositionEmbedding` gives the same for every sample, so that what arrives is lost here; add it: \
             `Add({added}, PositionEmbedding(6, 4))`"
        )
    };
    for (input, output, body, row, added) in [
        ("Sequence<6, 4>", "Sequence<6, 4>", "[PositionEmbedding(6, 4)]", 0, "[]"),
        ("Sequence<6, 4>", "Sequence<6, 4>", "[LayerNorm, PositionEmbedding(6, 4), Linear(4), Relu]", 1, "[]"),
        ("Tokens<6>", "Sequence<6, 9>", "[PositionEmbedding(6, 4), Linear(9)]", 0, "Embedding(..)"),
    ] {
        let expected = said(row, added);
        assert_mistakes(&forward(input, output, body, ""), &[("PositionEmbedding(6, 4)", &expected)]);
    }
    let train = "const TRAIN: Train = Train { batch: 4, loss: CrossEntropy };";
    let text = forward("Sequence<6, 4>", "Logits<9>", "[PositionEmbedding(6, 4), Flatten, Linear(9)]", train);
    assert_mistakes(&text, &[("PositionEmbedding(6, 4)", &said(0, "[]"))]);
}
