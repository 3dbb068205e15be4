//! Names of modules, and paths that are PyTorch's.

use super::{assert_mistakes, forward, sound};

pub(super) const LAYER_NAME: &str =
    "a layer's name consists of letters, digits, `_` and inner `-`, with `.` between modules, as `name = \"fc1\"`";

/// Paths as PyTorch has them: dots, blocks that add nothing or a number alone, and layers that are a parameter.
#[test]
fn names_of_modules() {
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[
            Linear(4, name = \"layer1.0.conv1\"), plain(), item(Linear(4)), repeat(2, item([Scale(init = 1.0), Linear(4, name = \"\")])),
            other(name = \"block1-0\"), other(), Scale(init = 1.0, parameter = \"gamma\"), other(name = \"[]\"),
        ]",
        "#[name = \"\"] fn plain() -> Block { [Linear(4, name = \"0\")] }
         #[name = \"[]\"] fn item(inside: Block) -> Block { [inside] }
         #[name = \"SelfAttention\"] fn other() -> Block { [plain(), Scale(init = 1.0, parameter = \"scale\")] }",
    );
    let resolved = sound(&text);
    let names: Vec<&str> = resolved.graph.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "layer1.0.conv1.weight",
            "layer1.0.conv1.bias",
            "0.weight",
            "0.bias",
            "[0].linear.weight",
            "[0].linear.bias",
            "[1].scale.weight",
            "[1].weight",
            "[1].bias",
            "[2].scale.weight",
            "[2].weight",
            "[2].bias",
            "block1-0.0.weight",
            "block1-0.0.bias",
            "block1-0.scale",
            "SelfAttention.0.weight",
            "SelfAttention.0.bias",
            "SelfAttention.scale",
            "gamma",
            "[3].0.weight",
            "[3].0.bias",
            "[3].scale",
        ]
    );
    let alone = sound(&forward("Features<4>", "Features<4>", "[Linear(4, name = \"\")]", ""));
    let names: Vec<&str> = alone.graph.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["weight", "bias"]);
}

/// A block with a written name keeps it where it is called again, since all calls have the parameters of the first.
#[test]
fn names_of_blocks_that_are_called_again() {
    let inside =
        "fn inside() -> Block { [Linear(4), twice()] } fn twice() -> Block { let w = Linear(4, name = \"w\"); [w, w] }";
    for body in ["let x = inside(name = \"a.0\"); [x, Tanh, x, x]", "let x = inside(name = \"a.0\"); [x, repeat(3, x)]"]
    {
        let resolved = sound(&forward("Features<4>", "Features<4>", body, inside));
        let names: Vec<&str> = resolved.graph.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(names, ["a.0.linear.weight", "a.0.linear.bias", "a.0.twice.w.weight", "a.0.twice.w.bias"], "{body}");
    }
    let numbered = sound(&forward("Features<4>", "Features<4>", "let x = inside(); [x, x]", inside));
    assert_eq!(numbered.graph.parameters[0].name, "x[0].linear.weight");
}

#[test]
fn wrong_names_of_modules() {
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[
            Linear(4, parameter = \"w\"), Scale(init = 1.0, name = \"a\", parameter = \"b\"), Relu(name = \"[]\"),
            repeat(2, Linear(4), name = \"a.\"), inside(name = \"-\"), Scale(init = 1.0, parameter = \"a b\"),
        ]",
        "fn inside() -> Block { [Relu] }",
    );
    let block = "a block's name consists of letters, digits, `_` and inner `-`, with `.` between modules; \"\" adds nothing to paths, \
                 and \"[]\" a number alone";
    assert_mistakes(
        &text,
        &[
            (
                "Linear(4, parameter = \"w\")",
                "layer 0 `Linear` has 2 parameters, and `parameter = \"..\"` is for a layer of one; write `name = \"..\"`",
            ),
            (
                "Scale(init = 1.0, name = \"a\", parameter = \"b\")",
                "layer 1 `Scale` has a `name` and is a `parameter`; keep one of them",
            ),
            ("\"[]\"", LAYER_NAME),
            ("\"a.\"", block),
            ("\"-\"", block),
            ("\"a b\"", LAYER_NAME),
        ],
    );
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[a(), Linear(4, name = \"a.0\"), b(), c(), d()]",
        "fn a() -> Block { [Linear(4, name = \"0\")] }
         #[name = \"b c\"] fn b() -> Block { [Relu] }
         #[name] fn c() -> Block { [Relu] }
         #[name(\"d\")] fn d() -> Block { [Relu] }",
    );
    let takes = "`#[name]` takes a text, as `#[name = \"layer1\"]`";
    assert_mistakes(
        &text,
        &[
            ("#[name = \"b c\"]", block),
            ("#[name]", takes),
            ("#[name(\"d\")]", takes),
            ("Linear(4, name = \"a.0\")", "another layer has the path `a.0` too; choose another name"),
        ],
    );
    let text = forward("Features<4>", "Features<4>", "[Relu]", "").replace("fn forward", "#[name = \"a\"] fn forward");
    assert_mistakes(&text, &[("#[name = \"a\"]", "paths begin inside `forward`, so it has no name; remove `#[name]`")]);
}
