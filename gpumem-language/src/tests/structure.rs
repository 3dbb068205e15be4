//! One test for each message about inputs, outputs, terms of a loss and freezing.

use super::{assert_mistakes, forward, sound};
use crate::settings::loss;
use gpumem_core::layers::mistake::either;

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
        "BceWithLogits + BceWithLogits(target = second)",
        // Distillation: both a loss of classes and one of numbers measure the logits.
        "CrossEntropy + 0.5 * Mse(target = teacher)",
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
        ("1e400 * CrossEntropy", "1e400 * CrossEntropy", "a term's weight must be above 0 and finite"),
        (
            "CrossEntropy + 1e200 * (1e200 * CrossEntropy)",
            "1e200 * (1e200 * CrossEntropy)",
            "a term's weight must be above 0 and finite",
        ),
        (
            "CrossEntropy - Mse",
            "CrossEntropy - Mse",
            "a loss is a sum of terms, each with a weight: `CrossEntropy + 0.3 * CrossEntropy(from = aux)`",
        ),
        (
            "\"mse\"",
            "\"mse\"",
            &format!("the loss must be literal, since the macro reads it; write {}", either(&loss::names())),
        ),
        ("Mse(aux)", "aux", "expected `from = name` or `target = name`, as `Mse(from = aux)`"),
        (
            "CrossEntropy + Mean(from = aux, target = aux)",
            "target = aux",
            "`Mean` compares with nothing; remove `target`",
        ),
        ("Mse(form = aux)", "form", "`Mse` has no option `form`; did you mean `from`?"),
        ("Mse(reduction = Sum)", "reduction = Sum", "options stand in braces; write `Mse { reduction: Sum }`"),
        ("Mse(reduction = \"sum\")", "reduction = \"sum\"", "options stand in braces; write `Mse { reduction: Sum }`"),
        (
            "KlDiv(reduction = \"batchmean\")",
            "reduction = \"batchmean\"",
            "options stand in braces; write `KlDiv { reduction: BatchMean }`",
        ),
        (
            "KlDiv(log_target = True)",
            "log_target = True",
            "options stand in braces; write `KlDiv { log_target: true }`",
        ),
        (
            "Huber(gamma = a)",
            "gamma",
            "`Huber` has no option `gamma`; `from`, `target`, `weights`, `mask` and `lengths` stand here, and in braces after the name \
             `reduction` and `delta`",
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
            "`CrossEntropy` compares classes of vectors, sequences and maps, but `cube` is [2, 3, 4, 5]; its voxels are the pixels of \
             `Map<2, 12, 5>` after `Reshape(2, 12, 5)`",
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

/// Numbers are not returned as logits, and what is handed in has no name of a value.
#[test]
fn losses_that_mean_something_else() {
    let net = |output: &str, loss: &str, layers: &str| {
        format!(
            "struct Net; const TRAIN: Train = Train {{ batch: 2, loss: {loss} }};
             fn forward(x: Sequence<3, 4>) -> {output} {{ {layers} }}"
        )
    };
    for (output, loss, layers, place, instead) in [
        ("Logits<5>", "Mse", "[Flatten, Linear(5)]", "Mse", "Features<5>"),
        ("Logits<5>", "2.0 * Huber { delta: 0.5 }", "[Flatten, Linear(5)]", "Huber { delta: 0.5 }", "Features<5>"),
        ("TokenLogits<3, 5>", "L1(target = y) + SmoothL1", "[Linear(5)]", "L1(target = y)", "Sequence<3, 5>"),
    ] {
        let name = place.split([' ', '(']).next().unwrap_or_default();
        let said = format!(
            "`{name}` compares numbers, but `forward` returns `{output}`, which are those of classes; write `-> {instead}` for \
             numbers, or `loss: CrossEntropy` for classes"
        );
        assert_mistakes(&net(output, loss, layers), &[(place, &said)]);
        sound(&net(instead, loss, layers));
    }
    sound(&net(
        "Logits<5>",
        "CrossEntropy + 0.5 * L1(from = deep, target = deep)",
        "[Flatten, Linear(4), tap(deep), Linear(5)]",
    ));
    let two = "[Linear(4), tap(a), Linear(4), tap(b), Linear(4)]";
    for (loss, place, function) in [
        ("Mse(from = a, target = b)", "b", "Pow(2.0), "),
        ("L1(from = a, target = b)", "b", "Abs, "),
        ("Huber(from = b, target = a)", "a", ""),
    ] {
        let name = loss.split('(').next().unwrap_or_default();
        let from = if place == "a" { "b" } else { "a" };
        let said = format!(
            "`target` names what `train_step` is given, but `{place}` is a value of `forward`; to compare two values of the network write \
             `Mean(from = loss)` for `{name}`, and `Sub(from({from}), from({place})), {function}tap(loss)` in `forward`; otherwise choose \
             another name"
        );
        assert_mistakes(&net("Sequence<3, 4>", &format!("Mse + {loss}"), two), &[(place, &said)]);
    }
    let said = "`target` names what `train_step` is given, but `x` is a value of `forward`; to compare two values of the network write \
                `Mean(from = loss)` for `Mse`, and `Sub([], from(x)), Pow(2.0), tap(loss)` in `forward`; otherwise choose another name";
    assert_mistakes(&net("Sequence<3, 4>", "Mse(target = x)", "[Linear(4)]"), &[("x", said)]);
    // A network that does what the messages advise.
    sound(&net(
        "Sequence<3, 4>",
        "Mse + Mean(from = loss)",
        "[Linear(4), tap(a), Linear(4), tap(b), Sub(from(a), from(b)), Pow(2.0), tap(loss), from(b), Linear(4)]",
    ));
    let steps =
        "struct Net; const TRAIN: Train = Train { batch: 2, loss: Ctc { target_length: 2 }(input_lengths = x) };
                 fn forward(x: Sequence<9, 3>) -> TokenLogits<9, 5> { [Linear(5), LogSoftmax] }";
    let said = "`input_lengths` names what `train_step` is given, but `x` is a value of `forward`; choose another name";
    assert_mistakes(steps, &[("x", said)]);
}

/// A loss that stands alone, with the place of its mistake and the message.
fn refuse(cases: &[(&str, &str, &str)]) {
    for &(loss, place, message) in cases {
        assert_mistakes(&with_loss(loss), &[(place, message)]);
    }
}

/// A loss of two values: the first two outputs, or two taps.
#[test]
fn losses_of_pairs() {
    for loss in [
        "CrossEntropy + CosineEmbedding { margin: 0.5 }(from = (aux, other), target = same)",
        "CrossEntropy + CosineEmbedding { margin: -1, reduction: Sum }(from = (wide, long), target = same)",
    ] {
        sound(&with_pairs(loss));
    }
    sound(
        "struct Net; const TRAIN: Train = Train { batch: 2, loss: CosineEmbedding };
         fn forward(x: Features<3>, y: Features<3>) -> (Features<4>, Features<4>) {
             let encoder = Linear(4); Outputs([from(x), encoder], [from(y), encoder])
         }",
    );
    let whole = |loss: &'static str| loss.split(" + ").nth(1).unwrap_or(loss);
    for (loss, place, message) in [
        (
            "CosineEmbedding",
            None,
            "`CosineEmbedding` compares two values, but `forward` returns one; return both, or name both, as \
             `CosineEmbedding(from = (x, y))` with `tap(x)` and `tap(y)` in `forward`",
        ),
        (
            "CrossEntropy + CosineEmbedding(from = aux, target = same)",
            Some("from = aux"),
            "`CosineEmbedding` compares two values; write `from = (x, y)`",
        ),
        (
            "CrossEntropy + CosineEmbedding(aux, other)",
            Some("aux"),
            "expected `from = (x, y)` or `target = name`, as `CosineEmbedding(from = (x, y))`",
        ),
        (
            "CrossEntropy + CosineEmbedding(from = (aux, wide), target = same)",
            None,
            "`CosineEmbedding` compares two values of one shape, but `aux` is [6] and `wide` is [7, 5]",
        ),
        (
            "CrossEntropy + CosineEmbedding(from = (aux, aux), target = same)",
            None,
            "`CosineEmbedding` compares `aux` with itself; name another value",
        ),
        (
            "CrossEntropy + CosineEmbedding(from = (cube, cubes), target = same)",
            None,
            "`CosineEmbedding` compares vectors, but `cube` is [2, 3, 4, 5]; flatten it first",
        ),
        (
            "CrossEntropy + Mse(from = (aux, other), target = same)",
            Some("from = (aux, other)"),
            "`from` is one name here; write `Mse(from = aux)`",
        ),
        (
            "CrossEntropy + CosineEmbedding { margin: 1.5 }(from = (aux, other), target = same)",
            Some("1.5"),
            "`margin` is from -1 to 1",
        ),
    ] {
        let place = place.unwrap_or_else(|| whole(loss));
        let found = super::mistakes(&with_pairs(loss));
        assert!(found.contains(&(place.to_string(), message.to_string())), "{found:#?}");
    }
}

/// As [`with_loss`], with a second value of each shape.
fn with_pairs(loss: &str) -> String {
    format!(
        "struct Net; const TRAIN: Train = Train {{ batch: 2, loss: {loss} }};
         fn forward(image: Values<2, 3, 4, 5>, tokens: Tokens<7>) -> Logits<4> {{
             [tap(cube), Relu, tap(cubes), Flatten, Linear(6), tap(aux), Tanh, tap(other), from(tokens), Embedding(9, 5), tap(wide),
              Tanh, tap(long), Flatten,
              Concat([], from(other), from(aux), [from(cube), Flatten], [from(cubes), Flatten], [from(wide), Flatten],
                     [from(long), Flatten]), Linear(4)]
         }}"
    )
}

/// A network that maps steps to classes.
fn with_steps(loss: &str, last: &str) -> String {
    format!(
        "struct Net; const TRAIN: Train = Train {{ batch: 2, loss: {loss} }};
         fn forward(x: Sequence<9, 3>) -> TokenLogits<9, 5> {{ [Linear(5), {last}] }}"
    )
}

#[test]
fn losses_of_sequences() {
    for loss in [
        "Ctc { target_length: 4 }",
        "Ctc { target_length: 4, blank: 4, zero_infinity: true, reduction: Sum }(input_lengths = steps)",
        "Ctc { target_length: 4 }(target = words, input_lengths = steps) + Mean",
    ] {
        sound(&with_steps(loss, "LogSoftmax"));
    }
    for (loss, place, message) in [
        ("Ctc", "Ctc", "`Ctc` has to know how many labels a target has at most; write `Ctc { target_length: 32 }`"),
        ("Ctc { target_length: 0 }", "0", "`target_length` is at least 1"),
        (
            "Ctc { target_length: N }",
            "N",
            "`target_length` changes the program, so it must be a literal, as `target_length: 32`",
        ),
        ("Ctc { target_length: 4294967296 }", "4294967296", "`target_length` is at most 4294967295"),
        (
            "Ctc { target_length: 4, blank: -1 }",
            "-1",
            "`blank` changes the program, so it must be the number of a class, as `blank: 0`",
        ),
        ("Ctc { target_length: 4, blank: 5 }", "5", "`blank` is class 5, but the output of shape [9, 5] has 5 classes"),
        (
            "Ctc { target_length: 4, zero_infinity: 1 }",
            "1",
            "`zero_infinity` changes the program, so it must be `true` or `false`",
        ),
        (
            "Ctc { target_length: 4, input_lengths: steps }",
            "input_lengths",
            "`Ctc` has no option `input_lengths`; it stands in parentheses after the options, as `(input_lengths = name)`",
        ),
        (
            "Ctc { target_length: 4 }(lengths = steps)",
            "lengths",
            "`Ctc` has no option `lengths`; `from`, `target`, `input_lengths` and `weights` stand here, and in braces after the name \
             `reduction`, `target_length`, `blank` and `zero_infinity`",
        ),
        (
            "Ctc { target_length: 4 }(input_lengths = a, input_lengths = b)",
            "input_lengths",
            "`input_lengths` is given twice; remove one",
        ),
        (
            "Ctc { target_length: 4 }(input_lengths = (a, b))",
            "input_lengths = (a, b)",
            "`input_lengths` is one name here; write `Ctc(input_lengths = a)`",
        ),
        ("CTCLoss(4)", "CTCLoss(4)", "no loss is called `CTCLoss`; did you mean `Ctc { target_length: 32 }`?"),
        ("ctc_loss", "ctc_loss", "no loss is called `ctc_loss`; did you mean `Ctc { target_length: 32 }`?"),
        (
            "nn::CosineEmbeddingLoss { margin: 0.5 }",
            "nn::CosineEmbeddingLoss { margin: 0.5 }",
            "no loss is called `CosineEmbeddingLoss`; did you mean `CosineEmbedding`?",
        ),
    ] {
        assert_mistakes(&with_steps(loss, "LogSoftmax"), &[(place, message)]);
    }
    for (layer, gives, instead) in
        [("Softmax", "probabilities", "in its place"), ("Linear(5)", "any numbers", "after it")]
    {
        let name = layer.split('(').next().unwrap();
        let said = format!(
            "`Ctc` takes logarithms of probabilities, and `{name}` gives {gives}; write `LogSoftmax` {instead}"
        );
        assert_mistakes(&with_steps("Ctc { target_length: 4 }", layer), &[(layer, &said)]);
    }
    let text = with_loss("Ctc { target_length: 4 }").replace("Linear(4)]", "Linear(4), LogSoftmax]");
    let said = "`Ctc` measures a sequence, at each step a number for each class, [T, C], but the output is [4]";
    assert_mistakes(&text, &[("Ctc { target_length: 4 }", said)]);
}

/// What makes logits of nine steps, and of five classes.
#[test]
fn chunks_of_logits() {
    let with = |chunks: &str, others: &str, head: &str| {
        with_steps(&format!("CrossEntropy {{ chunks: {chunks} }}{others}"), head)
    };
    for (chunks, others, head) in [
        ("1", "", "Linear(5), Tanh"),
        ("4", "", "Linear(5)"),
        ("Auto", "", "Linear(5)"),
        ("9", " + 0.1 * Mean(from = hidden)", "tap(hidden), Linear(5, bias = false)"),
    ] {
        sound(&with(chunks, others, head));
    }
    sound(
        "struct Net; const TRAIN: Train = Train { batch: 2, loss: CrossEntropy { chunks: 3, ignore_index: -100 } };
         fn forward(x: Tokens<9>) -> TokenLogits<9, 5> { let w = Embedding(5, 4); [w, LayerNorm, Tied(w)] }",
    );
    let literal = "`chunks` changes the program, so it must be `Auto` or a literal, as `chunks: 8`";
    let linear = "`chunks` takes logits that `Linear` or `Tied` makes of a sequence, but `LayerNorm` makes them; remove `chunks`";
    for (chunks, others, head, place, message) in [
        ("0", "", "Linear(5)", "0", "`chunks` is at least 1"),
        ("N", "", "Linear(5)", "N", literal),
        ("-2", "", "Linear(5)", "-2", literal),
        ("auto", "", "Linear(5)", "auto", literal),
        ("Auto", "", "Linear(5), LayerNorm", "Auto", linear),
        ("3", "", "Linear(5), LayerNorm", "3", linear),
        ("10", "", "Linear(5)", "10", "9 steps are no 10 chunks; write `chunks: 9` or fewer"),
        (
            "3",
            " + 0.5 * CrossEntropy { label_smoothing: 0.1 }",
            "Linear(5)",
            "3",
            "with `chunks` the logits are never there as a whole, and something else in training reads them; remove `chunks`",
        ),
    ] {
        assert_mistakes(&with(chunks, others, head), &[(place, message)]);
    }
    refuse(&[
        (
            "CrossEntropy { chunks: 2 }",
            "2",
            "`chunks` are parts of the steps of a sequence, and the loss measures a value of shape [4]; remove `chunks`",
        ),
        (
            "Nll { chunks: 2 }",
            "chunks",
            "`Nll` has no option `chunks`; its options are `reduction`, `weight` and `ignore_index`",
        ),
    ]);
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
            "`Huber` has no option `from`; it stands in parentheses after the options, as `(from = aux)`",
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
            "`Nll` compares classes of vectors, sequences and maps, but `cube` is [2, 3, 4, 5]; its voxels are the pixels of \
             `Map<2, 12, 5>` after `Reshape(2, 12, 5)`",
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
