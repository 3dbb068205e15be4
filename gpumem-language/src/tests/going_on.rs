//! Checks go on after a mistake, and what only follows from it is not reported.

use super::{assert_mistakes, forward, mistakes};

/// The mistakes of a body between these types.
#[track_caller]
fn assert_found(input: &str, output: &str, body: &str, expected: &[(&str, &str)]) {
    assert_mistakes(&forward(input, output, body, ""), expected);
}

#[test]
fn many_mistakes_in_one_list() {
    assert_found(
        "Image<3, 32, 32>",
        "Logits<10>",
        "[
            Conv2d(16, 3, dilate = 2), Rleu, Add([Conv2d(16, 3, padding = 1)], [Conv2d(24, 3, padding = 1)]),
            Conv2d(20, 3, groups = 7), Flatten, Linear(4096, 10), Linear(11),
        ]",
        &[
            ("dilate = 2", "layer 0 `Conv2d` has no option `dilate`; did you mean `dilation`?"),
            ("Rleu", "no layer or block is called `Rleu`; did you mean `Relu`?"),
            (
                "[Conv2d(24, 3, padding = 1)]",
                "layer 4 `Add` joins branches of one shape, but branch 0 produces [16, 28, 28] and branch 1 produces \
                 [24, 28, 28]",
            ),
            (
                "groups = 7",
                "layer 5 `Conv2d` has groups = 7, which does not divide its 16 input channels; use a number of groups that \
                 divides both 16 and 20",
            ),
            (
                "Linear(4096, 10)",
                "layer 7 `Linear` expects 4096 input features, but the previous layer produces [13520]",
            ),
            ("Logits<10>", "forward promises Logits<10> = [10], but the last layer produces [11]"),
        ],
    );
}

const DILATE: (&str, &str) = ("dilate = 2", "layer 0 `Conv2d` has no option `dilate`; did you mean `dilation`?");

/// What fits under one of two readings is no mistake.
#[test]
fn options_that_were_meant_or_not() {
    for features in [16 * 28 * 28, 16 * 30 * 30] {
        let body = format!("[Conv2d(16, 3, dilate = 2), Flatten, Linear({features}, 10)]");
        assert_found("Image<3, 32, 32>", "Logits<10>", &body, &[DILATE]);
    }
    let body = "[Conv2d(16, 3, dilate = 2), Flatten, Linear(4096, 10)]";
    let wrong = "layer 2 `Linear` expects 4096 input features, but the previous layer produces [12544]";
    assert_found("Image<3, 32, 32>", "Logits<10>", body, &[DILATE, ("Linear(4096, 10)", wrong)]);
    // A value that does not fit the option that was probably meant is not a second mistake.
    let body = "[Conv2d(16, 3, dilate = \"x\"), Flatten, Linear(14400, 10)]";
    assert_found("Image<3, 32, 32>", "Logits<10>", body, &[("dilate = \"x\"", DILATE.1)]);
}

/// Three places with two readings each: one combination of eight fits.
#[test]
fn every_combination_of_three_readings() {
    let sizes = [1, 2].into_iter().flat_map(|a| [1, 2].map(|b| (a, b))).flat_map(|(a, b)| [1, 2].map(|c| (a, b, c)));
    for (a, b, c) in sizes {
        let side = 32 - 2 * a - 2 * b - 4 * c;
        let body = format!(
            "[Conv2d(4, 3, dilate = 2), Conv2d(4, 3, dilate = 2), Conv2d(4, 5, dilate = 2), Flatten, Linear({}, 10)]",
            4 * side * side
        );
        let found = mistakes(&forward("Image<3, 32, 32>", "Logits<10>", &body, ""));
        assert!(found.len() == 3 && found.iter().all(|(_, said)| said.contains("`dilation`")), "{side}: {found:#?}");
    }
}

#[test]
fn branches_of_two_shapes() {
    let wrong = |branch: &'static str| {
        let message = "layer 2 `Add` joins branches of one shape, but branch 0 produces [16, 8, 8] and branch 1 produces \
                       [24, 8, 8]";
        (branch, message)
    };
    for channels in [16, 24] {
        let body = format!("[Add(Conv2d(16, 1), Conv2d(24, 1)), Conv2d({channels}, 8, 1), BatchNorm2d({channels})]");
        let last =
            "layer 4 `BatchNorm2d` expects 16 input channels, but the previous layer produces [8, 8, 8], which has 8";
        let last = last.replace("16", &channels.to_string());
        assert_found(
            "Image<3, 8, 8>",
            "Map<8, 8, 8>",
            &body,
            &[wrong("Conv2d(24, 1)"), (&format!("BatchNorm2d({channels})"), &last)],
        );
    }
    let neither =
        "layer 3 `Conv2d` expects 20 input channels, but the previous layer produces [16, 8, 8], which has 16";
    let body = "[Add(Conv2d(16, 1), Conv2d(24, 1)), Conv2d(20, 8, 1)]";
    assert_found("Image<3, 8, 8>", "Map<8, 8, 8>", body, &[wrong("Conv2d(24, 1)"), ("Conv2d(20, 8, 1)", neither)]);
}

/// A mistake in a block is one mistake, however often the block is called, and is taken in one way everywhere.
#[test]
fn one_guess_for_all_calls_of_a_block() {
    let block = "fn block() -> Block { [Conv2d(16, 3, dilate = 2)] }";
    for side in [28, 24] {
        let text = forward("Image<3, 32, 32>", &format!("Map<16, {side}, {side}>"), "[block(), block()]", block);
        assert_eq!(mistakes(&text).len(), 1, "{side}");
    }
    // 26 would be one in each way.
    let found = mistakes(&forward("Image<3, 32, 32>", "Map<16, 26, 26>", "[block(), block()]", block));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(found[1].1, "forward promises Map<16, 26, 26> = [16, 26, 26], but the last layer produces [16, 24, 24]");
}

/// What quotes a number that nobody wrote follows from the mistake before it.
#[test]
fn numbers_that_could_be_any() {
    let at_least = "needs `out_channels` to be at least 1, not 0";
    let first = format!("layer 0 `Conv2d` {at_least}");
    for follows in ["Conv2d(7, 8, 1)", "BatchNorm2d(9)", "Linear(77, 10)", "Conv2d(8, 1, groups = 3)"] {
        let body = format!("[Conv2d(0, 3), {follows}, GlobalAvgPool, Linear(10)]");
        let found = mistakes(&forward("Image<3, 8, 8>", "Logits<10>", &body, ""));
        assert_eq!(found[0], ("0".to_string(), first.clone()));
        assert!(found.len() == 1 || follows.starts_with("Linear"), "{found:#?}");
    }
    // From the next layer on everything is known again.
    assert_found(
        "Image<3, 8, 8>",
        "Logits<10>",
        "[Conv2d(0, 3), GlobalAvgPool, Linear(12), Linear(13, 10), Linear(11)]",
        &[
            ("0", &first),
            ("Linear(13, 10)", "layer 3 `Linear` expects 13 input features, but the previous layer produces [12]"),
            ("Logits<10>", "forward promises Logits<10> = [10], but the last layer produces [11]"),
        ],
    );
    for (layer, place, said) in [
        ("Conv2d(8, 0)", "0", "needs `kernel_size` to be at least 1, not 0"),
        ("Conv2d(8, 3, stride = 0)", "stride = 0", "needs `stride` to be at least 1, not 0"),
        (
            "Conv2d(8, 3, padding = \"x\")",
            "padding = \"x\"",
            "needs a whole number or a pair (height, width), \"same\" or \"valid\" for `padding`, not \"x\"",
        ),
        ("Conv2d(8, 3, dilation = 0)", "dilation = 0", "needs `dilation` to be at least 1, not 0"),
        (
            "Conv2d(8, 31)",
            "Conv2d(8, 31)",
            "has a 31x31 kernel, which is larger than its 16x16 input; use a smaller kernel, more padding, or fewer strides before it",
        ),
        (
            "Conv2d(8)",
            "Conv2d(8)",
            "takes (out_channels, kernel_size) or (in_channels, out_channels, kernel_size), but 1 is given",
        ),
    ] {
        let message = format!("layer 0 `Conv2d` {said}");
        let body = format!("[{layer}, Relu, MaxPool2d(2), Flatten, Linear(100, 10)]");
        assert_found("Image<3, 16, 16>", "Logits<10>", &body, &[(place, &message)]);
        // The channels are known all the same.
        let body = format!("[{layer}, Conv2d(9, 8, 1), GlobalAvgPool, Linear(8, 11)]");
        let found = mistakes(&forward("Image<3, 16, 16>", "Logits<10>", &body, ""));
        let promised = "forward promises Logits<10> = [10], but the last layer produces [11]";
        assert_eq!(found.last().map(|(_, said)| said.as_str()), Some(promised), "{layer}: {found:#?}");
    }
    for option in ["groups = 0", "bias = 3", "groups = 7"] {
        let body = format!("[Conv2d(8, 3, {option}), Flatten, Linear(100, 10)]");
        let found = mistakes(&forward("Image<3, 16, 16>", "Logits<10>", &body, ""));
        let wrong = "layer 2 `Linear` expects 100 input features, but the previous layer produces [1568]";
        let said: Vec<&str> = found.iter().map(|(_, said)| said.as_str()).collect();
        assert!(said.len() == 2 && said[1] == wrong, "{said:#?}");
    }
}

/// Layers that nobody knows, and values that are not what a layer works on.
#[test]
fn values_that_could_be_any() {
    let unknown = "no layer or block is called `Foo`; see `gpumem::layers` for what there is; what those can build is a block, as \
                   `fn foo() -> Block { [..] }`, and what they cannot is an `operation!`";
    for body in [
        "[Foo, Conv2d(9, 8, 3), BatchNorm2d(8), Flatten, Linear(99, 10)]",
        "[Foo, Linear(99, 10)]",
        "[Foo, LayerNorm, CausalSelfAttention(7)]",
        "[Foo, Embedding(5, 7), Linear(10)]",
        "[Add(Foo, []), Flatten, Linear(10)]",
        "[Foo, Concat([], []), MaxPool2d(9)]",
    ] {
        assert_found("Image<3, 8, 8>", "Logits<10>", body, &[("Foo", unknown)]);
    }
    assert_found(
        "Image<3, 8, 8>",
        "Logits<10>",
        "[Foo, Conv2d(8, 3, stride = 0), BatchNorm2d(3, 4), GlobalAvgPool, Linear(9), Linear(8, 10)]",
        &[
            ("Foo", unknown),
            ("stride = 0", "layer 1 `Conv2d` needs `stride` to be at least 1, not 0"),
            (
                "BatchNorm2d(3, 4)",
                "layer 2 `BatchNorm2d` takes () or (num_features), but 2 are given; options are given by name: `eps = 4`",
            ),
            ("Linear(8, 10)", "layer 5 `Linear` expects 8 input features, but the previous layer produces [9]"),
        ],
    );
    assert_found(
        "Features<8>",
        "Logits<10>",
        "[Conv2d(8, 3), BatchNorm2d(8), GlobalAvgPool, Linear(9, 11)]",
        &[
            ("Conv2d(8, 3)", "layer 0 `Conv2d` works on a feature map [C, H, W], but the previous layer produces [8]"),
            ("Linear(9, 11)", "layer 3 `Linear` expects 9 input features, but the previous layer produces [8]"),
            ("Logits<10>", "forward promises Logits<10> = [10], but the last layer produces [11]"),
        ],
    );
}

/// Blocks are resolved with what is known of their arguments.
#[test]
fn arguments_of_blocks() {
    let items = "fn stage(width: usize, deep: bool) -> Block {
        [Linear(width), if deep { [Linear(4), Linear(5, 6)] } else { [Linear(6, bais = true)] }]
    }";
    assert_mistakes(
        &forward("Features<4>", "Features<6>", "[stage(8)]", items),
        &[("stage(8)", "block `stage` takes (width: usize, deep: bool), but `stage(8)` is given")],
    );
    let text = forward("Features<4>", "Features<7>", "[stage(\"8\", true)]", items);
    assert_mistakes(
        &text,
        &[
            ("\"8\"", "`width` is a `usize`, but a text is given"),
            (
                "Linear(5, 6)",
                "layer 2 `Linear` expects 5 input features, but the previous layer produces [4] (in `stage(.., true)`)",
            ),
            ("Features<7>", "forward promises Features<7> = [7], but the last layer produces [6]"),
        ],
    );
    // A recursion whose end is not known is no recursion without end.
    let items = "fn deep(n: usize) -> Block { [Linear(8), if n > 0 { deep(n - 1) } else { [] }] }";
    assert_mistakes(
        &forward("Features<4>", "Features<8>", "[deep(DEPTH)]", items),
        &[(
            "DEPTH",
            "no parameter or constant is called `DEPTH`; declare it inside the network, as `const DEPTH: usize = ..;`",
        )],
    );
}

#[test]
fn names_that_were_meant() {
    assert_mistakes(
        &forward(
            "Features<8>",
            "Features<9>",
            "[tap(skip), Linear(WIDHT), Add(from(skp), []), Linear(7, 8)]",
            "const WIDTH: usize = 8;",
        ),
        &[
            (
                "WIDHT",
                "layer 0 `Linear` is given `WIDHT`, which is neither an option nor a parameter nor a constant; did you mean \
                 `WIDTH`?",
            ),
            ("from(skp)", "no value was tapped as `skp` before this; did you mean `skip`?"),
            ("Linear(7, 8)", "layer 2 `Linear` expects 7 input features, but the previous layer produces [8]"),
            ("Features<9>", "forward promises Features<9> = [9], but the last layer produces [8]"),
        ],
    );
    assert_mistakes(
        &forward("Imag<3, 8, 8>", "Logit<9>", "[Flatten, Linear(8)]", ""),
        &[
            ("Imag", "no type of an input is called `Imag`; did you mean `Image`?"),
            ("Logit", "no type of an output is called `Logit`; did you mean `Logits`?"),
            ("Logit<9>", "forward promises Logits<9> = [9], but the last layer produces [8]"),
        ],
    );
    assert_mistakes(
        &forward("Features<8>", "Features<9>", "[repeat([Linear(8)], 3), Linear(7, 8)]", ""),
        &[
            ("repeat([Linear(8)], 3)", "`repeat` takes how often and what; write `repeat(3, [..])`"),
            ("Linear(7, 8)", "layer 3 `Linear` expects 7 input features, but the previous layer produces [8]"),
            ("Features<9>", "forward promises Features<9> = [9], but the last layer produces [8]"),
        ],
    );
}

/// A loss is not judged by a value that is only a guess.
#[test]
fn losses_of_what_was_guessed() {
    let text = "
        pub struct Net;
        const TRAIN: Train = Train { batch: 4, loss: CrossEntropy(target = a) + CrossEntropy(from = aux, target = a) };
        fn forward(image: Image<3, 8, 8>) -> Map<4, 6, 6> { [Conv2d(4, 3, dilate = 2), tap(aux), Relu] }
    ";
    assert_mistakes(text, &[DILATE]);
}

/// Many places with two readings, in a network that unrolls to much: fewer guesses are made, but some.
#[test]
fn many_readings() {
    let layers = "Conv2d(4, 3, padding = 1, dilate = 2), ".repeat(40);
    let text = forward("Image<3, 32, 32>", "Logits<10>", &format!("[{layers} Flatten, Linear(4096, 10)]"), "");
    let found = mistakes(&text);
    assert!(found.iter().filter(|(place, _)| place == "dilate = 2").count() == 40, "{found:#?}");
    let text =
        forward("Features<8>", "Features<9>", "[repeat(60000, Relu), repeat(9000, [Relu(inplce)]), Linear(8)]", "");
    let found = mistakes(&text);
    assert!(found.iter().any(|(place, _)| place == "inplce"), "{found:#?}");
}
