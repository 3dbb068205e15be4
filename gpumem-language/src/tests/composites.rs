//! Composites: blocks of the language itself.

use super::{assert_mistakes, forward, sound};
use crate::errors::Errors;
use crate::parse;
use gpumem_core::layers::composite::COMPOSITES;

/// The text of every composite is read without a mistake, and each of its names is one of its text's function.
#[test]
fn texts_are_sound() {
    let mut errors = Errors::default();
    let named = "fn all() -> Block { [SwiGlu(8, 16)] }".parse().expect("balanced tokens");
    let (module, _) = parse::module(named, &[], &mut errors);
    let composites = module.composites.expect("composites");
    assert!(errors.is_empty() && composites.is_of_composites && composites.composites.is_none());
    let names: Vec<String> = composites.blocks.iter().map(|block| block.name.to_string()).collect();
    assert_eq!(names, COMPOSITES.iter().map(|composite| composite.name).collect::<Vec<_>>());
}

#[test]
fn paths_begin_with_the_name_as_that_of_a_layer() {
    let resolved = sound(&forward(
        "Image<8, 6, 6>",
        "Map<8, 6, 6>",
        "[repeat(2, InvertedResidual(8, 8, 1, 6, excite = SqueezeExcite(48, 4))), outer()]",
        "fn outer() -> Block { [SqueezeExcite(8, 2)] }",
    ));
    let paths: Vec<&str> = resolved.graph.rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(paths[0], "inverted_residual[0].conv_pw");
    assert!(paths.contains(&"inverted_residual[1].squeeze_excite.fc1"), "{paths:#?}");
    assert!(paths.contains(&"outer.squeeze_excite.fc2"), "{paths:#?}");
}

/// What a network declares by the name of a composite is what the name means there.
#[test]
fn own_blocks_come_first() {
    let items = "fn SwiGlu(width: usize) -> Block { [Linear(width), Silu] }";
    let resolved = sound(&forward("Features<8>", "Features<4>", "[SwiGlu(4)]", items));
    assert_eq!(resolved.graph.rows[0].path, "SwiGlu.linear");
}

#[test]
fn flags_and_defaults() {
    let body = "[TransformerBlock(16, 4, causal), TransformerBlock(16, 2, causal = false, norm_first)]";
    let resolved = sound(&forward("Sequence<6, 16>", "Sequence<6, 16>", body, ""));
    let kinds: Vec<&str> = resolved.graph.rows.iter().map(|row| row.kind.as_str()).collect();
    assert_eq!(kinds[0], "MultiHeadAttention");
    assert!(kinds.iter().filter(|kind| **kind == "LayerNorm").count() == 4, "{kinds:?}");
    // Blocks of a network read flags, too; what has the name of a flag is meant where there is such.
    let items = "fn own(deep: bool) -> Block { [if deep { Linear(3) } else { Linear(4) }] }";
    sound(&forward("Features<8>", "Features<3>", "[own(deep)]", items));
    let items = "const deep: bool = false; fn own(deep: bool) -> Block { [if deep { Linear(3) } else { Linear(4) }] }";
    sound(&forward("Features<8>", "Features<4>", "[own(deep)]", items));
}

/// The text of a composite is in no file: its mistakes are shown at the call.
#[test]
fn mistakes_are_shown_at_the_call() {
    assert_mistakes(
        &forward("Image<8, 6, 6>", "Map<8, 6, 6>", "[SqueezeExcite(12, 3)]", ""),
        &[
            (
                "SqueezeExcite(12, 3)",
                "layer 1 `Conv2d` expects 12 input channels, but the previous layer produces [8, 1, 1], which has 8 (in \
                 `SqueezeExcite(12, 3, Relu, Sigmoid)`)",
            ),
            (
                "SqueezeExcite(12, 3)",
                "layer 5 `Mul` joins branches of one shape, but branch 0 produces [8, 6, 6] and branch 1 produces [12, 1, 1] (in \
                 `SqueezeExcite(12, 3, Relu, Sigmoid)`)",
            ),
        ],
    );
    assert_mistakes(
        &forward("Sequence<6, 16>", "Sequence<6, 16>", "[TransformerBlock(16, heads = 3)]", ""),
        &[(
            "TransformerBlock(16, heads = 3)",
            "layer 0 `MultiHeadAttention` has 3 heads, which do not divide its width of 16; use a number of heads that divides 16 (in \
             `TransformerBlock(16, 3, 2048, 0.1, Relu, false, false)`)",
        )],
    );
}

#[test]
fn what_is_missing_is_said_with_its_defaults() {
    assert_mistakes(
        &forward("Sequence<6, 16>", "Sequence<6, 16>", "[SwiGlu(16)]", ""),
        &[(
            "SwiGlu(16)",
            "block `SwiGlu` takes (width: usize, hidden: usize, bias: bool = false), but `SwiGlu(16)` is given",
        )],
    );
    assert_mistakes(
        &forward("Sequence<6, 16>", "Sequence<6, 16>", "[SwiGlu(16, 24, bias = 3)]", ""),
        &[("3", "`bias` is a `bool`, but a whole number is given")],
    );
}

#[test]
fn names_that_are_nearly_those() {
    assert_mistakes(
        &forward("Sequence<6, 16>", "Sequence<6, 16>", "[SwiGLU(16, 24)]", ""),
        &[("SwiGLU", "no layer or block is called `SwiGLU`; did you mean `SwiGlu`?")],
    );
    // Blocks of users have no defaults.
    let items = "fn own(width: usize = 3) -> Block { [Linear(width)] }";
    assert_mistakes(
        &forward("Features<8>", "Features<3>", "[own(3)]", items),
        &[("=", "expected `,` after `width: usize`, found `=`")],
    );
}
