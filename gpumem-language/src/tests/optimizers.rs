//! Optimizers: their groups of parameters, and the states that their hyperparameters ask for.

use super::{assert_mistakes, forward};
use gpumem_core::train::optim::{AdamW8bit, Muon, Optimizer};

/// Groups of parameters: what they say, and which parameters they are.
#[test]
fn groups_of_parameters() {
    let net = |optimizer: &str| {
        forward(
            "Features<4>",
            "Logits<4>",
            "[freeze(Linear(4)), LayerNorm, Linear(4, name = \"head\")]",
            &format!("const TRAIN: Train = Train {{ batch: 4, optimizer: {optimizer} }};"),
        )
    };
    let groups = |groups: &str| net(&format!("AdamW {{ groups: {groups} }}"));
    for sound in [
        "[]",
        "[Group { paths: \"*.bias, *norm*\", weight_decay: 0.0 }]",
        "&[Group { paths: \"head.*\", lr: LR / 2.0 }, Group { paths: \"*\", weight_decay: 0.1, lr: 1e-2 },]",
    ] {
        assert_mistakes(&groups(sound), &[]);
    }
    let list = "the groups are read by the macro as they stand; write a list, as `[Group { paths: \"*.bias\", weight_decay: 0.0 }]`";
    let nothing = "this group changes nothing; give it an `lr` or a `weight_decay`, or remove it";
    for (written, place, message) in [
        ("GROUPS", "GROUPS", list),
        ("[head()]", "head()", "expected a group, as `Group { paths: \"*.bias\", weight_decay: 0.0 }`"),
        (
            "[Group { weight_decay: 0.0 }]",
            "Group { weight_decay: 0.0 }",
            "a group needs the names of its parameters, as `paths: \"*.bias\"`",
        ),
        ("[Group { paths: \"*\" }]", "Group { paths: \"*\" }", nothing),
        ("[Group { paths: \"*\", lr: 0.1, lr: 0.2 }]", "lr", "`lr` is given twice; remove one"),
        (
            "[Group { paths: \"*\", lr: 0.1, .. }]",
            "..",
            "what a group leaves out is as the optimizer has it; remove this",
        ),
        (
            "[Group { paths: \"*\", amsgrad: true }]",
            "amsgrad",
            "a group has no `amsgrad`; `amsgrad` is the same for all parameters",
        ),
        (
            "[Group { paths: \"*\", layer_decay: 0.75 }]",
            "0.75",
            "`layer_decay` counts layers by the number in their paths; write `[*]` where it stands, as `Group { paths: \"blocks[*].*\", \
             layer_decay: 0.75 }`",
        ),
        (
            "[Group { paths: \"*\", layer_decay: 1.5 }]",
            "1.5",
            "`layer_decay` is what a layer's rate is multiplied with for each layer after it; it must be above 0 and at most 1",
        ),
        ("[Group { path: \"*\", paths: \"*\" }]", "path", "a group has no `path`; did you mean `paths`?"),
        (
            "[Group { paths: \"*\", toaster: 1 }]",
            "toaster",
            "a group has no `toaster`; it has `paths`, `lr`, `weight_decay`, `layer_decay`, `betas` and `eps`",
        ),
        (
            "[Group { 0: 0.1, paths: \"*\", lr: 1.0 }]",
            "0",
            "expected `paths`, `lr`, `weight_decay`, `layer_decay`, `betas` or `eps`",
        ),
        (
            "[Group { paths: PATHS, lr: 1.0 }]",
            "PATHS",
            "the paths are read by the macro as they stand; write them out, as `\"*.bias, *norm*\"`",
        ),
        (
            "[Group { paths: \"*.bias, tail.*\", lr: 1.0 }]",
            "\"*.bias, tail.*\"",
            "no parameter that is trained is called `tail.*`; their names are those from `layer_norm.weight` to `head.bias`",
        ),
        (
            "[Group { paths: \"head.wieght\", lr: 1.0 }]",
            "\"head.wieght\"",
            "no parameter that is trained is called `head.wieght`; did you mean `head.weight`?",
        ),
        // It is frozen.
        (
            "[Group { paths: \"linear.*\", lr: 1.0 }]",
            "\"linear.*\"",
            "no parameter that is trained is called `linear.*`; their names are those from `layer_norm.weight` to `head.bias`",
        ),
    ] {
        assert_mistakes(&groups(written), &[(place, message)]);
    }
    assert_mistakes(
        &net("Sgd { group: [] }"),
        &[("group", "`Sgd` has no hyperparameter `group`; did you mean `groups`?")],
    );
    assert_mistakes(&net("Sgd { groups: [], groups: [] }"), &[("groups", "`groups` is given twice; remove one")]);
}

/// A state is counted where a hyperparameter asks for it: a literal 0 or `false` does not.
#[test]
fn optimizers_have_the_states_that_are_asked_for() {
    for (optimizer, moments) in [
        ("Sgd { momentum: 0.0 }", 0),
        ("RmsProp", 1),
        ("RmsProp { centered: false, momentum: 0.0 }", 1),
        ("RmsProp { centered: true }", 2),
        ("Adam { amsgrad: true }", 3),
        ("AdamW { amsgrad: false }", 2),
        ("RmsProp { momentum: 0.9, centered: CENTERED }", 3),
        ("NAdam { decoupled_weight_decay: true }", 2),
        ("Adagrad { initial_accumulator_value: 0.1 }", 1),
        // Two, of rows and of columns.
        ("Adafactor { eps: (None, 0.0), d: 2.0 }", 2 | 1 << 8 | 2 << 10),
        // Codes of two means, and their scales.
        ("AdamW8bit { lr: 0.1 }", Optimizer::AdamW8bit(AdamW8bit::DEFAULT).moments()),
        // Two, of which matrices lack the second.
        ("Muon { adamw_lr: 1e-3, ns_steps: 4, nesterov: false }", Optimizer::Muon(Muon::DEFAULT).moments()),
    ] {
        let text = forward(
            "Features<4>",
            "Features<4>",
            "[Linear(4)]",
            &format!("const TRAIN: Train = Train {{ batch: 4, optimizer: {optimizer}, loss: Mse }};"),
        );
        let tokens = crate::network(text.parse().expect("balanced tokens")).to_string();
        let checked = format!("& < Net > :: TRAIN . optimizer , {moments})");
        // Spaces between tokens are nobody's promise.
        let tight = |text: &str| text.replace(' ', "");
        assert!(tight(&tokens).contains(&tight(&checked)), "{optimizer}: no `{checked}` in {tokens}");
    }
    assert_mistakes(
        &forward(
            "Features<4>",
            "Features<4>",
            "[Linear(4)]",
            "const TRAIN: Train = Train { batch: 4, optimizer: RMSprop, loss: Mse };",
        ),
        &[("RMSprop", "no optimizer is called `RMSprop`; did you mean `RmsProp`?")],
    );
}
