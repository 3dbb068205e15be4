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
        sound(&with("Mse", &format!("[Linear(4), {layer}]")));
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
