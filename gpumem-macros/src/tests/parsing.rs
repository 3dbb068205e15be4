//! What the parser says of broken text, and that it goes on.

use super::{assert_mistakes, forward};

#[test]
fn a_missing_comma_is_one_mistake() {
    let text = forward("Image<3, 8, 8>", "Logits<10>", "[Conv2d(8, 3) Relu, Flatten, Linear(10)]", "");
    assert_mistakes(&text, &[("Relu", "expected `,` after `Conv2d(8, 3)`")]);
    let text =
        forward("Image<3, 8, 8>", "Logits<10>", "[Add([Conv2d(3 3 padding = 1) Relu], []) Flatten, Linear(10)]", "");
    assert_mistakes(
        &text,
        &[
            ("3", "expected `,` after `3`"),
            ("padding = 1", "expected `,` after `3`"),
            ("Relu", "expected `,` after `Conv2d(3, 3, padding = 1)`"),
            ("Flatten", "expected `,` after `Add([..], [])`"),
        ],
    );
}

#[test]
fn a_missing_comma_does_not_hide_other_mistakes() {
    let text = forward("Image<3, 8, 8>", "Logits<10>", "[Conv2d(8, 3) Rellu, Flatten, Linear(99, 10)]", "");
    assert_mistakes(
        &text,
        &[
            ("Rellu", "expected `,` after `Conv2d(8, 3)`"),
            ("Rellu", "no layer or block is called `Rellu`; did you mean `Relu`?"),
            ("Linear(99, 10)", "layer 3 `Linear` expects 99 input features, but the previous layer produces [288]"),
        ],
    );
}

#[test]
fn junk_is_skipped_up_to_the_next_comma() {
    let text = forward("Features<4>", "Features<4>", "[Linear(4), @what 3 4, Relu; Relu,, Linear::new(3), Relu]", "");
    assert_mistakes(
        &text,
        &[
            ("@", "expected a layer, a block, a list `[..]` or a number, found `@`"),
            (";", "expected `,` after `Relu`, found `;`"),
            (",", "expected a layer, found `,`; remove one comma"),
            (":", "expected `,` after `Linear`, found `:`"),
            ("Linear", "layer 3 `Linear` takes (out_features) or (in_features, out_features), but none is given"),
        ],
    );
}

#[test]
fn statements() {
    let text = forward("Features<4>", "Features<4>", "let w = Linear(4) [w];", "");
    assert_mistakes(
        &text,
        &[
            ("[", "expected `;` after `let w = Linear(4)`"),
            (";", "remove this `;`: the list is what the body stands for"),
        ],
    );
    let text = forward("Features<4>", "Features<4>", "[Relu] [Linear(4)]", "");
    assert_mistakes(
        &text,
        &[("[Linear(4)]", "a body ends with one list, and `[..]` is already it; put both into one list")],
    );
    let text = forward("Features<4>", "Features<4>", "", "");
    assert_mistakes(&text, &[("{  }", "the body has no layers; write `[]` for one that passes its input on")]);
}

#[test]
fn items() {
    assert_mistakes("", &[("", "the network has no struct; start with `pub struct Name;`")]);
    assert_mistakes(
        "pub struct Net;",
        &[(
            "Net",
            "network `Net` has no `forward`; add `fn forward(image: Image<3, 224, 224>) -> Logits<1000> { [..] }`",
        )],
    );
    assert_mistakes(
        "struct A; struct B; struct C { x: u8 }
         const X: usize = 1; const X: usize = 2; static Y: u8 = 0;
         fn forward(x: Features<2>) -> Features<2> { [Relu] }
         fn forward(x: Features<3>) -> Features<2> { [Relu] }",
        &[
            ("B", "a `network!` declares one struct, and `A` is already it; use a second `network!`"),
            ("{", "expected `;` after `struct C`: a network's struct has no fields"),
            ("X", "`X` is defined twice; rename or remove one"),
            (
                "static",
                "expected `pub struct Name;`, `const TRAIN: Train = Train { .. };`, `fn forward(..)`, a block \
                 `fn name(..) -> Block`, a `const` or a `use`",
            ),
            ("forward", "`forward` is defined twice; rename or remove one"),
        ],
    );
}

#[test]
fn settings() {
    let text = forward(
        "Features<4>",
        "Logits<4>",
        "[Linear(4)]",
        "const TRAIN: Train = Train { batch: 64 optimizer: Sgd { lr: 0.1 }, ..Default::default() }",
    );
    assert_mistakes(
        &text,
        &[
            ("optimizer: Sgd { lr: 0.1 }", "expected `,` after `batch: ..`"),
            ("..", "fields left out take PyTorch's defaults; remove the `..`"),
            ("", "expected `;` after `Train { .. }`"),
        ],
    );
}

#[test]
fn a_function_without_an_output_type() {
    let text = "struct Net; fn forward(x: Features<4>) { [Linear(4)] }";
    assert_mistakes(
        text,
        &[(
            "fn forward(x: Features<4>)",
            "`forward` has no output type; write `-> Logits<1000>` after its parentheses",
        )],
    );
}
