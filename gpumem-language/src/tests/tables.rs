//! Numbers in brackets, and names of blocks and of what is repeated.

use super::{assert_mistakes, forward, sound};
use gpumem_core::graph::Source;
use gpumem_core::program::Op;

/// Dimensions and numbers of all constants of a network.
fn constants(text: &str) -> Vec<(Vec<u64>, Vec<f64>)> {
    let nodes = sound(text).graph.nodes.into_iter();
    let constants = nodes.filter_map(|node| match node.source {
        Source::Op { op: Op::Constant(op), .. } => Some((op.shape.dims().to_vec(), op.numbers)),
        _ => None,
    });
    constants.collect()
}

#[test]
fn constants_are_nested_brackets_or_named() {
    let text = forward(
        "Sequence<2, 3>",
        "Sequence<2, 3>",
        "[
            Add([], Constant([[0.5, -1, 2], [WIDTH, 1.5 * 2.0, -0.25]])), Mul([], Constant([1, 2, 3])), Add([], Constant(MASK)),
            Add([], Constant(0.5, shape = (2, 3))), Add([], Constant((1.5, 2.5, 3.5))), Add([], Constant([ROW, [4, 5, 6]])),
        ]",
        "const WIDTH: usize = 7; const MASK: [[f64; 1]; 2] = [[0.0], [-1e9]]; const ROW: [f64; 3] = [0.5, 0.25, 0.125];",
    );
    let expected: [(&[u64], &[f64]); 6] = [
        (&[2, 3], &[0.5, -1.0, 2.0, 7.0, 3.0, -0.25]),
        (&[3], &[1.0, 2.0, 3.0]),
        (&[2, 1], &[0.0, -1e9]),
        (&[2, 3], &[0.5]),
        (&[3], &[1.5, 2.5, 3.5]),
        (&[2, 3], &[0.5, 0.25, 0.125, 4.0, 5.0, 6.0]),
    ];
    assert_eq!(constants(&text), expected.map(|(dims, numbers)| (dims.to_vec(), numbers.to_vec())));
}

#[test]
fn mistakes_in_brackets() {
    let body = |constant: &str| forward("Sequence<2, 3>", "Sequence<2, 3>", &format!("[Add([], {constant})]"), "");
    for (constant, place, message) in [
        ("Constant([[1, 2, 3], [4, 5]])", "[4, 5]", "has 2, but the first of these brackets has 3"),
        ("Constant([1, [2], 3])", "[2]", "has 1, but the first of these brackets has one number"),
        ("Constant([true, 2, 3])", "true", "expected a number, found `true`"),
        ("Constant([[[[[[[1, 2, 3]]]]]]])", "[[[[[[[1, 2, 3]]]]]]]", "is nested deeper than the 6 axes of a tensor"),
        ("Constant([[], []])", "[]", "has no numbers; write one at least"),
    ] {
        assert_mistakes(&body(constant), &[(place, message)]);
    }
    let many = format!("Constant([{}])", vec!["1"; 4097].join(","));
    let message = "layer 0 `Constant` has 4097 numbers, but no more than 4096 can be written; use a layer that computes them, as \
                   `SinusoidalPositions`, or an input of the network";
    let written = format!("[{}]", vec!["1"; 4097].join(","));
    assert_mistakes(&forward("Features<3>", "Features<3>", &format!("[Add([], {many})]"), ""), &[(&written, message)]);
    // Elsewhere brackets are no numbers.
    let text =
        forward("Image<3, 8, 8>", "Map<4, 8, 8>", "[Conv2d(4, K, padding = 1)]", "const K: [usize; 2] = [3, 3];");
    let message = "layer 0 `Conv2d` needs a whole number or a pair (height, width) for `kernel_size`, not a table of 2";
    assert_mistakes(&text, &[("K", message)]);
}

#[test]
fn blocks_and_repetitions_have_names() {
    let text = forward(
        "Features<4>",
        "Features<4>",
        "[
            inner(4, name = \"first\"), inner(4), repeat(2, inner(4), name = \"layer1\"), repeat(2, Linear(4), name = \"fc\"),
            repeat(2, [Linear(4), Relu], name = \"block\"), inner(name = \"last\", width = 4), repeat(2, inner(4, name = \"own\")),
        ]",
        "fn inner(width: usize) -> Block { [Linear(width)] }",
    );
    let resolved = sound(&text);
    let paths: Vec<&str> = resolved.graph.rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "first.linear",
            "inner.linear",
            "layer1[0].linear",
            "layer1[1].linear",
            "fc[0]",
            "fc[1]",
            "block[0].linear",
            "block[0].relu",
            "block[1].linear",
            "block[1].relu",
            "last.linear",
            "own[0].linear",
            "own[1].linear",
        ]
    );
    // A parameter of the block that is called so is that.
    let items = "fn inner(name: usize) -> Block { [Linear(name)] }";
    let resolved = sound(&forward("Features<4>", "Features<4>", "[inner(name = 4)]", items));
    assert_eq!(resolved.graph.rows[0].path, "inner.linear");
    let items = "fn inner(width: usize) -> Block { [Linear(width)] }";
    assert_mistakes(
        &forward("Features<4>", "Features<4>", "[inner(4, name = 3), repeat(2, Relu, name = \"a b\")]", items),
        &[
            ("3", "a layer's name is a text, as `name = \"fc1\"`"),
            (
                "\"a b\"",
                "a block's name consists of letters, digits, `_` and inner `-`, with `.` between modules; \"\" adds nothing to paths, and \
                 \"[]\" a number alone",
            ),
        ],
    );
}
