//! `operation!`: what formulas become, and what is said of mistakes.

use super::{assert_mistakes, forward, mistakes, mistakes_with, sound};
use gpumem_core::graph::Source;
use gpumem_core::program::formula::{BinaryOperator, Formula, Term, UnaryOperator};
use gpumem_core::program::{Init, Op};

/// A network whose layer is this operation.
fn with(operation: &str, call: &str) -> String {
    forward("Sequence<4, 6>", "Sequence<4, 6>", &format!("[{call}]"), &format!("operation! {{ {operation} }}"))
}

/// What is underlined and said of each of these networks, under what is written of it.
fn said(cases: impl IntoIterator<Item = (String, String)>) -> String {
    let mut text = String::new();
    for (written, network) in cases {
        text += &format!("{written}\n");
        let found = mistakes(&network);
        text.extend(found.iter().map(|(place, message)| format!("    `{place}`: {message}\n")));
        if found.is_empty() {
            text += "    nothing\n";
        }
    }
    text
}

/// The operation of a network's only layer.
fn op_of(text: &str) -> Op {
    let resolved = sound(text);
    let mut ops = resolved.graph.nodes.iter().rev().filter_map(|node| match &node.source {
        Source::Op { op, .. } => Some(op.clone()),
        _ => None,
    });
    ops.next().expect("an operation")
}

/// Formula and derivative of an operation that is one.
fn formula_of(operation: &str, call: &str) -> [Formula; 2] {
    match op_of(&with(operation, call)) {
        Op::Formula(op) => [op.value, op.slope],
        other => panic!("{}", other.name()),
    }
}

#[test]
fn formulas_and_their_derivatives() {
    let [value, slope] = formula_of("fn Own(x, by: f64 = 2.0) { let half = by / 4.0; half * x * x }", "Own");
    let product = |a, b| Term::Binary(BinaryOperator::Multiply, a, b);
    assert_eq!(value.terms, [Term::X, Term::Number(0.5), product(1, 0), product(2, 0)]);
    // 0.5 * x + x * 0.5
    // Both parts of the sum are one term.
    let sum = Term::Binary(BinaryOperator::Add, 2, 2);
    assert_eq!(slope.terms, [Term::X, Term::Number(0.5), product(1, 0), sum]);

    let [_, slope] = formula_of("fn Own(x) { value: tanh(x), derivative: 1.0 - y * y }", "Own");
    assert!(slope.reads_y() && !slope.reads_x());
    let [_, straight_through] = formula_of("fn Own(x) { value: round(x), derivative: 1 }", "Own");
    assert_eq!(straight_through.terms, [Term::Number(1.0)]);
    let [_, steps] = formula_of("fn Own(x) { round(x) }", "Own");
    assert_eq!(steps.terms, [Term::Number(0.0)]);
    let [value, _] =
        formula_of("fn Own(x, n: usize) { if x >= 0.0 && x != 1 { relu(x) } else { -n * expm1(x) } }", "Own(3)");
    assert!(value.terms.contains(&Term::Unary(UnaryOperator::Expm1, 0)) && value.terms.contains(&Term::Number(-3.0)));
}

#[test]
fn shapes_and_parameters() {
    let text = forward(
        "Image<6, 4, 5>",
        "Map<3, 4, 9>",
        "[Own(groups = 2, 4)]",
        "const TWO: usize = 2;
         operation! {
             fn Own(x: [channels, rest.., width], extra: usize, groups: usize = 1, scale: f64 = 1, on: bool = true) -> [channels / groups, rest.., width + extra] {
                 requires: [channels % groups == 0, on],
                 parameters: { weight: [groups, width] = Kaiming(TWO * groups), bias: [rest] = Normal(0.5) },
                 saves: { means: [rest.., 1] },
                 keeps: [bias, y],
                 workspace: (channels, 2 * rest),
                 threads: 7,
                 macs: channels * rest,
             }
         }",
    );
    let resolved = sound(&text);
    let Op::Declared(op) = op_of(&text) else { panic!("another operation") };
    let dims =
        |shapes: &[gpumem_core::shape::Shape]| shapes.iter().map(|shape| shape.dims().to_vec()).collect::<Vec<_>>();
    assert_eq!((op.name.as_str(), op.route.as_slice()), ("Own", &[0][..]));
    assert_eq!((op.input.dims(), op.output.dims()), (&[6, 4, 5][..], &[3, 4, 9][..]));
    assert_eq!((dims(&op.parameters), dims(&op.saves)), (vec![vec![2, 5], vec![4]], vec![vec![4, 1]]));
    assert_eq!((op.keeps.clone(), op.keeps_output), (vec![2], true));
    assert_eq!((op.workspace, op.threads, op.macs), ([6, 8], [7, 7], 24));
    let size = |name: &str| op.sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    assert_eq!(["channels", "rest", "width", "extra", "groups", "on"].map(size), [6, 4, 5, 4, 2, 1].map(Some));
    assert_eq!(op.numbers, [("scale".to_string(), 1.0)]);
    let parameters = &resolved.graph.parameters;
    assert_eq!(parameters[0].init, Init::Uniform(0.5));
    assert_eq!((parameters[1].name.as_str(), parameters[1].init), ("own.bias", Init::Normal(0.5)));
}

#[test]
fn operations_of_other_modules() {
    const ACTS: &str = "operation! { fn Half(x) { 0.5 * x } fn Scan(x) { keeps: [x] } }";
    const NESTED: &str = "use blocks acts; fn both() -> Block { [acts::Half, Scan] }";
    let text = |body: &str| forward("Features<6>", "Features<6>", body, "use blocks a::acts; use blocks b::nested;");
    let mut found = mistakes_with(&text("[Half, acts::Scan]"), &[ACTS, "fn none() -> Block { [] }"]);
    assert!(found.is_empty(), "{found:?}");
    // The second module's own module is handed on with it.
    let (resolved, errors) = {
        let mut errors = crate::errors::Errors::default();
        let tokens = text("[nested::both()]").parse().unwrap();
        let nested = format!("[{{ [] {ACTS} }}] {NESTED}").parse().unwrap();
        let acts = format!("[] {ACTS}").parse().unwrap();
        let source = crate::parse::source(tokens, &[acts, nested], &mut errors).unwrap();
        (crate::resolve::resolve(&source, &mut errors), errors)
    };
    assert!(errors.is_empty(), "{:?}", errors.list());
    let routes = resolved.graph.nodes.iter().filter_map(|node| match &node.source {
        Source::Op { op: Op::Declared(op), .. } => Some(op.route.clone()),
        _ => None,
    });
    assert_eq!(routes.collect::<Vec<_>>(), [[1, 0, 0]]);
    found = mistakes_with(&text("[acts::Hal]"), &[ACTS, "fn none() -> Block { [] }"]);
    assert_eq!(found[0].1, "`acts` has no block `Hal`; did you mean `Half`?");
    let twice = mistakes_with(&text("[Half]"), &[ACTS, ACTS]);
    assert_eq!(twice[0].1, "several modules have an operation `Half`; write `acts::Half` or `nested::Half`");
}

#[test]
fn calls() {
    let calls = [
        "Own",
        "Own(1, true, 3)",
        "Own(1.5, on)",
        "Own(1.5, false, m = 3)",
        "Own(1.5, n = 2.5)",
        "Own(true)",
        "Own(1.5, frozen)",
        "Own(beta = 2, freeze, name = \"own\")",
    ];
    let operation = "fn Own(x, beta: f64, on: bool = true, n: usize = 2) { beta * x }";
    insta::assert_snapshot!(said(calls.map(|call| (call.to_string(), with(operation, call)))));
}

#[test]
fn values_that_arrive() {
    let operations = [
        "fn Own(x: [channels, height, width], n: usize) {}",
        "fn Own(x: [a, b, c, rest..], n: usize) {}",
        "fn Own(x: [5, b], n: usize) {}",
        "fn Own(x: [n, b], n: usize) {}",
        "fn Own(x: [a, b], n: usize) { requires: [a % n == 0, b > 3 * n] }",
        "fn Own(x: [a, b], n: usize) { requires: [(a + b) % n == 1] }",
        "fn Own(x: [a, b], n: usize) { parameters: { w: [a - 2 * n] = 0 } }",
        "fn Own(x: [a, b], n: usize) { parameters: { w: [a - 3 * n] = 0 } }",
        "fn Own(x: [a, b], n: usize) { parameters: { w: [a, a, a, a, a, a, a, a, a] = 0 } }",
        "fn Own(x: [a, b], n: usize) { parameters: { w: [a] = Ones(2) } }",
        "fn Own(x: [a, b], n: usize) { parameters: { w: [a] = Normal(-1) } }",
        "fn Own(x: [a, b], n: usize) { macs: m }",
        "fn Own(x: [a, b], n: usize) -> [a, n] {}",
    ];
    let sequences = operations.map(|operation| (operation.to_string(), with(operation, "Own(2)")));
    let operation = "operation! { fn Own(x) { 2 * x } }";
    let tokens = ("tokens".to_string(), forward("Tokens<4>", "Features<4>", "[Own]", operation));
    insta::assert_snapshot!(said(sequences.into_iter().chain([tokens])));
}

#[test]
fn declarations() {
    let operations = [
        "fn own(x) { x }",
        "fn _2x(x) { x }",
        "fn __(x) { x }",
        "fn self_(x) { x }",
        "fn r#type(x) { x }",
        "fn 形(x) { x }",
        "pub fn Own(x) { x }",
        "#[inline] fn Own(x) { x }",
        "fn Own() { x }",
        "fn Own(x: usize) { x }",
        "fn Own(x, n: Block) { x }",
        "fn Own(x, n) { x }",
        "fn Own(x, y: f64 = 1.0) { x }",
        "fn Own(x, by: f64 = 1.0, n: usize, plus: f64) { by * x }",
        "fn Own(x, name: f64 = 1.0, freeze: bool = true) { x }",
        "fn Own(x: [a, a]) { x }",
        "fn Own(x: [a.., b..]) { x }",
        "fn Own(x: [rows.., f]) -> [row.., f / 2] { saves: { s: [rows.., r..] } }",
        "fn Own(x: [channels, height]) -> [rows.., channels] { parameters: { w: [rest..] = 0 } }",
        "fn Own(x) -> [4, 3] { x }",
        "fn Own(x) -> 4 { x }",
        "fn Own(x, n: usize = 1.5) { x }",
        "struct Own;",
        "fn Own(x) { x } fn Own(x) { x }",
        "fn Own(x) { keeps: [x, z], saves: { s: [3] } }",
        "fn Own(x) { keeps: [x, x] }",
        "fn Own(x) { keeps: x }",
        "fn Own(x) { keeps: [s], saves: { s: [3] = 1 } }",
        "fn Own(x) { parameters: { w: [3] } }",
        "fn Own(x) { parameters: { w } }",
        "fn Own(x) { parameters: [w] }",
        "fn Own(x) { parameters: { a: [1] = 0, b: [1] = 0, c: [1] = 0, d: [1] = 0, e: [1] = 0, f: [1] = 0, g: [1] = 0, h: [1] = 0, i: [1] = 0 } }",
        "fn Own(x) { parameter: { w: [3] } }",
        "fn Own(x) { colour: 3 }",
        "fn Own(x) { derivative: 1.0 }",
        "fn Own(x) { value: x, keeps: [x] }",
        "fn Own(x) { macs: 3, macs: 4 }",
        "fn Own(x) { macs: 3 keeps: [x] }",
        "fn Own(x) { cuda: own.cu }",
        "fn Relu(x) { x }",
        "fn Own(x) { x } fn Other(x) { x }",
    ];
    insta::assert_snapshot!(said(operations.map(|operation| (operation.to_string(), with(operation, "Own")))));
}

#[test]
fn documentation_stands_inside() {
    let network = |before: &str| {
        forward(
            "Features<4>",
            "Features<4>",
            "[Own]",
            &format!("{before} operation! {{ /// Own.\n fn Own(x) {{ x }} }}"),
        )
    };
    assert_mistakes(&network(""), &[]);
    let moved = "an operation's documentation stands before its `fn`, inside `operation! { .. }`; move it there";
    assert_mistakes(&network("/// My layers.\n /// Both.\n"), &[("/// My layers.", moved)]);
    assert_mistakes(&network("#[cfg(any())]"), &[("#[cfg(any())]", "operations have no such attribute; remove it")]);
}

#[test]
fn mistakes_in_formulas() {
    let formulas = [
        "x.exp()",
        "(x + 1.0).max(0.0)",
        "(2.0 * -(x + 1.0)).exp()",
        "sigmod(x)",
        "ln(x)",
        "gamma(x)",
        "pow(x)",
        "max(x, other = 2)",
        "bet * x",
        "y * x",
        "z * x",
        "x % 2.0",
        "[x, x]",
        "if x > 0 { x }",
        "x * sigmoid(x);",
        "let x = 2.0; x",
        "let a = 2.0 a * x",
        "exp(x) exp(x)",
        "Relu(x)",
        "x * * 2",
        "\"x\"",
    ];
    let network = |formula: &str| with(&format!("fn Own(x, beta: f64 = 1.0) {{ {formula} }}"), "Own");
    insta::assert_snapshot!(said(formulas.map(|formula| (formula.to_string(), network(formula)))));
}

#[test]
fn a_formula_has_an_end() {
    let mut formula = "x".to_string();
    for _ in 0..600 {
        formula = format!("exp({formula})");
        if formula.len() > 500 {
            break;
        }
    }
    let lets: String = (0..600).map(|i| format!("let a{i} = x + {i}.5;")).collect();
    let sum: Vec<String> = (0..600).map(|i| format!("a{i}")).collect();
    let found = mistakes(&with(&format!("fn Own(x) {{ {lets} {} }}", sum[..100].join(" + ")), "Own"));
    assert_eq!(found[0].1, "the formula has more than 512 terms; give the operation functions of its own");
    assert!(mistakes(&with(&format!("fn Own(x) {{ {formula} }}"), "Own")).is_empty());
}
