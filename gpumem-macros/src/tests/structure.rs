//! One test for each message about inputs, outputs, terms of a loss and freezing.

use super::{assert_mistakes, forward, sound};

/// A network that taps `wide` `[T, D]`, `aux` and `words`, and is trained with this loss.
fn with_loss(loss: &str) -> String {
    format!(
        "struct Net; const TRAIN: Train = Train {{ batch: 2, loss: {loss} }};
         fn forward(image: Values<2, 3, 4, 5>, tokens: Tokens<7>) -> Logits<4> {{
             [tap(cube), Flatten, Linear(6), tap(aux), from(tokens), tap(words), PositionEmbedding(7, 5), tap(places),
              from(words), Embedding(9, 5), Add([], from(places)), tap(wide), Flatten,
              Concat([], from(aux), [from(cube), Flatten], [from(wide), Flatten]), Linear(4)]
         }}"
    )
}

#[test]
fn losses_of_several_terms() {
    let sound_losses = [
        "CrossEntropy + 0.3 * Mse(from = aux, target = aux) + Mean(from = wide)",
        "0.5 * (CrossEntropy + CrossEntropy(from = aux, target = other)) * 2",
        "Mse + Mse(target = second)",
    ];
    for loss in sound_losses {
        sound(&with_loss(loss));
    }
    for (loss, place, message) in [
        (
            "CrossEntropy + W * Mse",
            "W * Mse",
            "a term's weight changes the program, so it must be a literal: `0.3 * CrossEntropy`",
        ),
        (
            "CrossEntropy + 0.0 * Mean(from = aux)",
            "0.0 * Mean(from = aux)",
            "a term's weight must be above 0 and finite",
        ),
        ("-0.5 * CrossEntropy", "-0.5 * CrossEntropy", "a term's weight must be above 0 and finite"),
        (
            "CrossEntropy - Mse",
            "CrossEntropy - Mse",
            "a loss is a sum of terms, each with a weight: `CrossEntropy + 0.3 * CrossEntropy(from = aux)`",
        ),
        (
            "\"mse\"",
            "\"mse\"",
            "the loss is read by the macro as it stands; write `CrossEntropy`, `Mse`, `Mean`, `L1`, `SmoothL1`, `Huber`, `BceWithLogits`, `Nll` or `KlDiv`",
        ),
        ("Mse(aux)", "aux", "expected `from = name` or `target = name`, as `Mse(from = aux)`"),
        (
            "CrossEntropy + Mean(from = aux, target = aux)",
            "target = aux",
            "`Mean` compares with nothing; remove `target`",
        ),
        ("Mse(form = aux)", "form", "`Mse` has no option `form`; did you mean `from`?"),
        ("Mse(reduction = Sum)", "reduction = Sum", "options stand in braces; write `Mse { reduction: Sum }`"),
        (
            "Huber(gamma = a)",
            "gamma",
            "`Huber` has no option `gamma`; `from` and `target` stand here, and in braces behind the name `reduction` and `delta`",
        ),
        ("Mse(from = aux, from = wide)", "from", "`from` is given twice; remove one"),
        ("Mse(from = axu)", "axu", "`forward` taps no value as `axu`; did you mean `aux`?"),
        (
            "Mse(from = hidden)",
            "hidden",
            "`forward` taps no value as `hidden`; put `tap(hidden)` into `forward` where the value is",
        ),
        (
            "CrossEntropy + Mse(from = words, target = w)",
            "Mse(from = words, target = w)",
            "a loss measures numbers, but `words` is tokens",
        ),
        (
            "CrossEntropy + Mean(from = places)",
            "Mean(from = places)",
            "a loss measures each sample, but `places` is the same for every sample",
        ),
        (
            "CrossEntropy + CrossEntropy(from = cube, target = cube)",
            "CrossEntropy(from = cube, target = cube)",
            "`CrossEntropy` compares classes of vectors, sequences and maps, but `cube` is [2, 3, 4, 5]; flatten it first",
        ),
        (
            "CrossEntropy + Mse(from = aux)",
            "Mse(from = aux)",
            "this term compares with numbers of shape [6], but the target is class indices of shape []; give it one of its \
             own, as `target = name`",
        ),
    ] {
        assert_mistakes(&with_loss(loss), &[(place, message)]);
    }
}

/// A loss that stands alone, with the place of its mistake and the message.
fn refuse(cases: &[(&str, &str, &str)]) {
    for &(loss, place, message) in cases {
        assert_mistakes(&with_loss(loss), &[(place, message)]);
    }
}

#[test]
fn options_of_losses() {
    for loss in [
        "CrossEntropy { label_smoothing: 0.1, weight: [1.0, 2, 0.5, 0.0], ignore_index: -100, reduction: Sum }",
        "CrossEntropy { ignore_index: 4294967295 } + 0.3 * Huber { delta: 0.5 }(from = aux, target = aux)",
        "CrossEntropy { targets: Probabilities, label_smoothing: 1.0 } + Mse",
        "Nll { weight: [0.5; 4], ignore_index: 3 }",
        "BceWithLogits { pos_weight: 3.5 } + SmoothL1 { beta: 0 } + Huber + L1 { reduction: Mean }",
        "BceWithLogits { pos_weight: [1.0, 2.0, 3.0, 4.0] } + BceWithLogits { pos_weight: [2.0] }",
        "BceWithLogits { pos_weight: [1.0, 2.0, 3.0, 4.0, 5.0] }(from = wide, target = w)",
        "KlDiv { log_target: true, reduction: BatchMean }",
    ] {
        sound(&with_loss(loss));
    }
    refuse(&[
        ("Mse { reduction: 1 }", "1", "`reduction` is `Mean` or `Sum`"),
        ("Mse { reduction: BatchMean }", "BatchMean", "`reduction` is `Mean` or `Sum`"),
        ("KlDiv { reduction: None }", "None", "`reduction` is `Mean`, `Sum` or `BatchMean`"),
        ("Mse { beta: 0.5 }", "beta", "`Mse` has no option `beta`; it has `reduction`"),
        ("SmoothL1 { bta: 0.5 }", "bta", "`SmoothL1` has no option `bta`; did you mean `beta`?"),
        (
            "Huber { from: aux }",
            "from",
            "`Huber` has no option `from`; it stands in parentheses behind the options, as `(from = aux)`",
        ),
        (
            "BceWithLogits { ignore_index: 3 }",
            "ignore_index",
            "`BceWithLogits` has no option `ignore_index`; its options are `reduction` and `pos_weight`",
        ),
        ("Huber { delta: 0.5, delta: 1 }", "delta", "`delta` is given twice; remove one"),
        ("Huber { 0: 0.5 }", "0", "expected an option's name"),
        ("Huber { delta: 0.5, .. }", "..", "options left out take PyTorch's defaults; remove this"),
        ("Huber { delta: 0.0 }", "0.0", "`delta` is above 0 and finite"),
        ("Huber { delta: D }", "D", "`delta` changes the program, so it must be a literal, as `delta: 0.5`"),
        ("SmoothL1 { beta: -1 }", "-1", "`beta` is at least 0 and finite"),
        ("CrossEntropy { label_smoothing: 1.5 }", "1.5", "`label_smoothing` is from 0 to 1"),
        ("CrossEntropy { label_smoothing: -0.1 }", "-0.1", "`label_smoothing` is from 0 to 1"),
        (
            "CrossEntropy(label_smoothing = 0.1)",
            "label_smoothing = 0.1",
            "options stand in braces; write `CrossEntropy { label_smoothing: 0.1 }`",
        ),
        (
            "CrossEntropy { ignore_index: N }",
            "N",
            "`ignore_index` changes the program, so it must be a literal, as `-100`",
        ),
        (
            "CrossEntropy { ignore_index: 4294967296 }",
            "4294967296",
            "targets have 32 bits, so `ignore_index` is from -2147483648 to 4294967295",
        ),
        ("CrossEntropy { targets: Soft }", "Soft", "`targets` is `Classes` or `Probabilities`"),
        (
            "CrossEntropy { targets: Probabilities, ignore_index: -100 }",
            "ignore_index",
            "`ignore_index` is a class index, and with `targets: Probabilities` there is none; remove it",
        ),
        ("KlDiv { log_target: 1 }", "1", "`log_target` changes the program, so it must be `true` or `false`"),
        (
            "CrossEntropy { weight: [1.0, 2.0, 3.0] }",
            "[1.0, 2.0, 3.0]",
            "`weight` has 3 numbers, but a value of shape [4] has 4 classes",
        ),
        ("Nll { weight: [1.0] }", "[1.0]", "`weight` has 1 number, but a value of shape [4] has 4 classes"),
        (
            "BceWithLogits { pos_weight: [1.0; 5] }",
            "[1.0; 5]",
            "`pos_weight` has 5 numbers, but a value of shape [4] has 4 classes",
        ),
        ("BceWithLogits { pos_weight: [] }", "[]", "`pos_weight` has no numbers; leave it out, or give each class one"),
        ("BceWithLogits { pos_weight: -1.0 }", "-1.0", "every number of `pos_weight` is at least 0 and finite"),
        (
            "CrossEntropy { weight: 2.0 }",
            "2.0",
            "`weight` changes the program, so it must be a list of literals, as `weight: [1.0, 2.5]`",
        ),
        (
            "CrossEntropy + CrossEntropy { targets: Probabilities }",
            "CrossEntropy { targets: Probabilities }",
            "this term compares with numbers of shape [4], but the target is class indices of shape []; give it one of its \
             own, as `target = name`",
        ),
        (
            "CrossEntropy + Nll(from = cube, target = cube)",
            "Nll(from = cube, target = cube)",
            "`Nll` compares classes of vectors, sequences and maps, but `cube` is [2, 3, 4, 5]; flatten it first",
        ),
    ]);
}

#[test]
fn several_inputs() {
    let network = |inputs: &str, body: &str| format!("struct Net; fn forward({inputs}) -> Features<4> {{ {body} }}");
    sound(&network("a: Features<4>, b: Signal<2, 2>", "[Add([], [from(b), Flatten])]"));
    assert_mistakes(
        &network("", "[Linear(4)]"),
        &[("()", "`forward` has no input; declare one, as `fn forward(image: Image<3, 224, 224>)`")],
    );
    assert_mistakes(
        &network("a: Features<4>, a: Features<4>", "[Linear(4)]"),
        &[("a", "`a` is declared twice; rename one")],
    );
    assert_mistakes(
        &network("a: Features<4>, b: Features<4>", "[Linear(4)]"),
        &[("b", "nothing reads the input `b`; read it with `from(b)`, or remove it")],
    );
    assert_mistakes(
        &network("a: Values<1, 2, 3, 4, 5, 6, 7>", "[Flatten, Linear(4)]"),
        &[("Values<1, 2, 3, 4, 5, 6, 7>", "`Values` has up to 6 dimensions, `Values<3, 5>`, but 7 are given")],
    );
    let many: Vec<String> = (0..9).map(|index| format!("x{index}: Features<4>")).collect();
    let all: Vec<String> = (1..9).map(|index| format!("from(x{index})")).collect();
    let many = network(&many.join(", "), &format!("[Add([], {})]", all.join(", ")));
    let found = super::mistakes(&many);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].1, "a network has at most 8 inputs and as many outputs, not 9");
}

#[test]
fn several_outputs() {
    let network =
        |outputs: &str, body: &str| format!("struct Net; fn forward(x: Features<8>) -> {outputs} {{ {body} }}");
    sound(&network("(Features<4>, Features<2>)", "[Linear(8), Outputs(Linear(4), Linear(2))]"));
    assert_mistakes(
        &network("(Features<4>, Features<2>)", "[Linear(4)]"),
        &[(
            "Features<4>, Features<2>",
            "forward promises 2 outputs, but its body produces 1 output; end it with `Outputs(x, y)`, a value for each type",
        )],
    );
    assert_mistakes(
        &network("(Features<4>, Features<2>)", "[Outputs(Linear(4), Linear(3))]"),
        &[("Features<2>", "forward promises Features<2> = [2], but output 1 is [3]")],
    );
    assert_mistakes(
        &network("Features<4>", "[Linear(4), Outputs([])]"),
        &[("Outputs([])", "`Outputs` has two outputs or more, as `Outputs(Linear(10), Linear(4))`")],
    );
    assert_mistakes(
        &network("(Features<4>, Features<2>)", "[Outputs(Linear(4), Linear(2), name = \"x\")]"),
        &[("name = \"x\"", "`Outputs` takes values and no options; `tap` a value to name it")],
    );
    assert_mistakes(
        &network("Features<4>", "[repeat(2, Outputs(Linear(4), Linear(4))), Linear(4)]"),
        &[("Outputs(Linear(4), Linear(4))", "`Outputs` stands at the end of `forward`, in no block and no branch")],
    );
    assert_mistakes(
        "struct Net; fn forward(x: Tokens<8>) -> (Features<8>, Features<2>) {
             [tap(x0), Embedding(3, 2), Flatten, Outputs(from(x0), Linear(2))]
         }",
        &[("Features<8>", "forward promises Features<8> = [8], but the network returns its tokens")],
    );
}

#[test]
fn freezing() {
    sound(&forward(
        "Features<8>",
        "Features<8>",
        "[freeze([Linear(8), Relu]), Linear(8, freeze), Linear(8, freeze = true), block()]",
        "#[freeze] fn block() -> Block { [Linear(8)] }",
    ));
    let takes = "`freeze` takes one element, as `freeze([Conv2d(64, 3), Relu])` or `freeze(backbone(50))`";
    for written in ["freeze()", "freeze(Linear(8), Relu)", "freeze(x = 2)"] {
        let text = forward("Features<8>", "Features<8>", &format!("[{written}, Linear(8)]"), "");
        let found = super::mistakes(&text);
        assert_eq!(found, [(written.to_string(), takes.to_string())]);
    }
    let text = forward("Features<8>", "Features<8>", "[block()]", "#[freeze(yes)] fn block() -> Block { [Linear(8)] }");
    assert_mistakes(&text, &[("#[freeze(yes)]", "`#[freeze]` takes no arguments; remove them")]);
}

#[test]
fn axes_of_joins() {
    for (body, place, message) in [
        (
            "Concat([], [], dim = 0)",
            "dim = 0",
            "layer 0 `Concat` cannot work along the batch, which is axis 0; the axes of a sample begin at 1",
        ),
        (
            "Concat([], [], dim = 4)",
            "dim = 4",
            "layer 0 `Concat` has `dim = 4`, but [3, 4, 4] has axes 1 to 3, or -3 to -1",
        ),
        (
            "Concat([], [], dim = 0.5)",
            "dim = 0.5",
            "layer 0 `Concat` needs an axis, as `dim = 1` or `dim = -1` for `dim`, not 0.5",
        ),
    ] {
        let text = forward("Image<3, 4, 4>", "Map<6, 4, 4>", &format!("[{body}]"), "");
        assert_mistakes(&text, &[(place, message)]);
    }
}
