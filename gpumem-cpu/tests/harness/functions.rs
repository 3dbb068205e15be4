//! Every function of one number against its definition in double precision: at kinks, near 0, and in tails to where f32 underflows.

use super::given::{Everyone, Given, STAY, forward, step};
use gpumem_core::graph::{Graph, Node, NodeId, Source};
use gpumem_core::lower::Term;
use gpumem_core::program::functions::Function;
use gpumem_core::program::ops::Pointwise;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// A function with its arguments.
pub type Case = (Function, Vec<f64>);

/// Every function with the arguments that it has by default, and those with arguments with others.
pub fn cases() -> Vec<Case> {
    let defaults = Function::ALL.iter().map(|function| {
        let arguments = function.row().arguments.iter().map(|argument| argument.default);
        (*function, arguments.collect())
    });
    let others: [(Function, &[f64]); 12] = [
        (Function::LeakyRelu, &[0.25]),
        (Function::Affine, &[2.0, -1.0]),
        (Function::Elu, &[1.5]),
        (Function::Celu, &[0.5]),
        (Function::EluInPlace, &[1.5]),
        (Function::CeluInPlace, &[0.5]),
        (Function::Softplus, &[4.0, 16.0]),
        (Function::Pow, &[3.0]),
        (Function::Pow, &[0.5]),
        (Function::Hardtanh, &[-0.75, 1.25]),
        (Function::Hardshrink, &[0.25]),
        (Function::Softshrink, &[0.25]),
    ];
    defaults.chain(others.map(|(function, arguments)| (function, arguments.to_vec()))).collect()
}

/// Kinks of all functions, numbers next to 0, and tails.
fn points((function, arguments): &Case) -> Vec<f32> {
    let kinks = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 3.0, 4.0, 6.0, 20.0];
    let others =
        [1e-38, 1e-30, 1e-8, 1e-4, 0.09, 0.11, 2.9, 3.1, 10.0, 15.0, 17.0, 30.0, 50.0, 86.0, 90.0, 100.0, 1e10, 1e20];
    let grid = (0..24).map(|index| 0.013 + 0.41 * index as f32);
    let all = kinks.into_iter().chain(others).chain(grid).flat_map(|x| [x, -x]);
    let is_meant = |x: &f32| match function {
        Function::Log => *x > 0.0,
        Function::Sqrt => *x > 0.0,
        Function::Pow if arguments[0] < 1.0 => *x > 0.0,
        _ => true,
    };
    all.filter(is_meant).collect()
}

/// `1 - erf(z)`, by its series near 0 and by its continued fraction in the tail.
fn erfc(z: f64) -> f64 {
    if z < 0.0 {
        return 2.0 - erfc(-z);
    }
    let bell = (-z * z).exp();
    if z < 2.0 {
        let (mut term, mut sum) = (z, 0.0);
        for n in 0..100 {
            sum += term;
            term *= 2.0 * z * z / f64::from(2 * n + 3);
        }
        return 1.0 - 2.0 / PI.sqrt() * bell * sum;
    }
    let fraction = (1..200).rev().fold(z, |below, n| z + 0.5 * f64::from(n) / below);
    bell / (PI.sqrt() * fraction)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 - tanh(x)^2`.
fn slope_of_tanh(x: f64) -> f64 {
    4.0 * sigmoid(2.0 * x) * sigmoid(-2.0 * x)
}

/// `x * gate`, where the gate has this value and this slope.
fn gated(x: f64, [gate, slope]: [f64; 2]) -> [f64; 2] {
    [x * gate, gate + if slope == 0.0 { 0.0 } else { x * slope }]
}

/// `factor * x` where `x` is positive, else `below * (exp(rate * x) - 1)`.
fn elu(x: f64, [factor, below, rate]: [f64; 3]) -> [f64; 2] {
    if x > 0.0 { [factor * x, factor] } else { [below * (rate * x).exp_m1(), below * rate * (rate * x).exp()] }
}

/// The value and the slope, at kinks those that PyTorch has.
fn right((function, arguments): &Case, x: f64) -> [f64; 2] {
    let flag = |holds: bool| f64::from(u8::from(holds));
    let a = |index: usize| arguments[index];
    match function {
        Function::Relu => [x.max(0.0), flag(x > 0.0)],
        Function::Relu6 => [x.clamp(0.0, 6.0), flag(x > 0.0 && x < 6.0)],
        Function::LeakyRelu => {
            if x > 0.0 {
                [x, 1.0]
            } else {
                [a(0) * x, a(0)]
            }
        }
        Function::Gelu => {
            let bell = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
            gated(x, [0.5 * erfc(-x * FRAC_1_SQRT_2), bell])
        }
        Function::GeluTanh => {
            let scale = 2.0 * (2.0 / PI).sqrt();
            let inner = scale * (x + 0.044_715 * x * x * x);
            let slope = sigmoid(inner) * sigmoid(-inner);
            gated(x, [sigmoid(inner), if slope == 0.0 { 0.0 } else { slope * scale * (1.0 + 3.0 * 0.044_715 * x * x) }])
        }
        Function::Silu => gated(x, [sigmoid(x), sigmoid(x) * sigmoid(-x)]),
        Function::QuickGelu => {
            let inner = 1.702 * x;
            gated(x, [sigmoid(inner), 1.702 * sigmoid(inner) * sigmoid(-inner)])
        }
        Function::Mish => gated(x, [softplus(x).tanh(), slope_of_tanh(softplus(x)) * sigmoid(x)]),
        Function::Sigmoid => [sigmoid(x), sigmoid(x) * sigmoid(-x)],
        Function::Exp => [x.exp(), x.exp()],
        Function::Affine => [a(0) * x + a(1), a(0)],
        Function::Tanh => [x.tanh(), slope_of_tanh(x)],
        Function::Hardswish if x.abs() >= 3.0 => [x.max(0.0), flag(x > 0.0)],
        Function::Hardswish => [x * (x + 3.0) / 6.0, x / 3.0 + 0.5],
        Function::Hardsigmoid => [(x + 3.0).clamp(0.0, 6.0) / 6.0, flag(x.abs() < 3.0) / 6.0],
        Function::Elu | Function::EluInPlace => elu(x, [1.0, a(0), 1.0]),
        Function::Celu | Function::CeluInPlace => elu(x, [1.0, a(0), 1.0 / a(0)]),
        Function::Selu | Function::SeluInPlace => {
            let (scale, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
            elu(x, [scale, scale * alpha, 1.0])
        }
        Function::Softplus if a(0) * x > a(1) => [x, 1.0],
        Function::Softplus => [softplus(a(0) * x) / a(0), sigmoid(a(0) * x)],
        Function::StepSize => [softplus(x), sigmoid(x)],
        Function::Softsign => [x / (1.0 + x.abs()), (1.0 + x.abs()).powi(-2)],
        Function::LogSigmoid => [-softplus(-x), sigmoid(-x)],
        Function::Abs => [x.abs(), flag(x > 0.0) - flag(x < 0.0)],
        Function::Sqrt => [x.sqrt(), 0.5 / x.sqrt()],
        Function::Log => [x.ln(), 1.0 / x],
        Function::Pow => [x.powf(a(0)), a(0) * x.powf(a(0) - 1.0)],
        Function::Hardtanh => [x.clamp(a(0), a(1)), flag(x > a(0) && x < a(1))],
        Function::Hardshrink => [x * flag(x.abs() > a(0)), flag(x.abs() > a(0))],
        Function::Softshrink => [x - x.clamp(-a(0), a(0)), flag(x.abs() > a(0))],
        // The difference has no digits near 0.
        Function::Tanhshrink if x.abs() < 1e-2 => [x.powi(3) * (1.0 / 3.0 - x * x * 2.0 / 15.0), x.tanh().powi(2)],
        Function::Tanhshrink => [x - x.tanh(), x.tanh().powi(2)],
        Function::Sin => [x.sin(), x.cos()],
        Function::Cos => [x.cos(), -x.sin()],
    }
}

/// Returns the absolute error of a slope that is computed from a rounded output. Near a bound of the output it is as large as the slope.
fn of_rounded_output((function, arguments): &Case) -> f64 {
    f64::from(f32::EPSILON)
        * match function {
            Function::Sigmoid | Function::CeluInPlace => 1.0,
            Function::Tanh | Function::SeluInPlace => 2.0,
            Function::EluInPlace => arguments[0],
            _ => 0.0,
        }
}

/// A number that is right to 1e-4 of itself, beyond what f32 has an infinity, and next to nothing where f32 underflows.
fn assert_is(what: &str, found: f32, expected: f64, absolute: f64) {
    let least = f64::from(f32::MIN_POSITIVE);
    if expected.abs() > f64::from(f32::MAX) {
        assert_eq!(f64::from(found), expected.signum() * f64::INFINITY, "{what}");
        return;
    }
    let absolute = if expected.abs() < least { 2.0 * least } else { absolute };
    let error = (f64::from(found) - expected).abs();
    assert!(error <= 1e-4 * expected.abs() + absolute, "{what}: {found:e}, not {expected:e}");
}

/// Each function on an input of its own, side by side.
fn network(cases: &[Case]) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let of = |case: &Case| super::graphs::numbers(&[points(case).len() as u64]);
    let inputs: Vec<NodeId> = cases.iter().map(|case| graph.input(of(case)).unwrap()).collect();
    let apply = |((function, arguments), input): (&Case, NodeId)| {
        let value = graph.value(input);
        let op = Pointwise { function: *function, arguments: arguments.clone(), shape: value.shape };
        let source = Source::Op { op: op.into(), inputs: vec![input], buffers: Vec::new(), in_place: false };
        let row = graph.nodes[input].row;
        graph.nodes.push(Node { value, source, row, detached: false });
        graph.nodes.len() - 1
    };
    let outputs: Vec<NodeId> = cases.iter().zip(inputs).map(apply).collect();
    let output = super::graphs::join(&mut graph, &outputs, "Concat");
    (graph, output)
}

/// The name of an input.
fn name(index: usize) -> String {
    if index == 0 { "input".into() } else { format!("input{index}") }
}

fn give(net: &mut dyn Given, cases: &[Case]) {
    for (index, case) in cases.iter().enumerate() {
        net.set(&name(index), &points(case));
    }
}

/// Compares values and slopes of all functions.
pub fn check(everyone: Everyone) {
    let cases = cases();
    let (graph, output) = network(&cases);
    for (who, mut net) in everyone(&forward(&graph, output), 1, STAY) {
        give(&mut *net, &cases);
        net.run();
        let mut found = net.result().into_iter();
        for case in &cases {
            for (x, value) in points(case).into_iter().zip(&mut found) {
                let what = format!("{who}: the value of {case:?} at {x:e}");
                assert_is(&what, value, right(case, f64::from(x))[0], 0.0);
            }
        }
    }
    for (who, mut net) in everyone(&step(&graph, output, &[Term::DOT]), 1, STAY) {
        give(&mut *net, &cases);
        let ones = vec![1.0; cases.iter().map(|case| points(case).len()).sum()];
        net.set("target", &ones);
        net.run();
        for (index, case) in cases.iter().enumerate() {
            let found = net.get(&format!("{}.gradient", name(index)));
            for (x, slope) in points(case).into_iter().zip(found) {
                let what = format!("{who}: the slope of {case:?} at {x:e}");
                assert_is(&what, slope, right(case, f64::from(x))[1], of_rounded_output(case));
            }
        }
    }
}

/// Slopes at four points, as current PyTorch has them.
pub const KNOWN: [(&str, [f32; 4], [f64; 4]); 4] = [
    ("Hardswish", [3.0, -3.0, 2.0, -2.0], [1.0, 0.0, 7.0 / 6.0, -1.0 / 6.0]),
    ("Elu(1.5)", TAIL, [6.80999e-05, 3.09173e-09, 0.00371813, 1.5]),
    ("Celu(0.5)", TAIL, [2.06115e-09, 4.24835e-18, 6.14421e-06, 1.0]),
    ("Selu", TAIL, [7.98176e-05, 3.62371e-09, 0.00435789, 1.7581]),
];

/// Points where the slope of an exponential linear unit is small, and 0, where it is largest.
const TAIL: [f32; 4] = [-10.0, -20.0, -6.0, 0.0];

/// Gradients of a network of one input at some points, whose output's is 1.
pub fn slopes(everyone: Everyone, layers: &str, x: &[f32]) -> Vec<(String, Vec<f32>)> {
    let mut graph = Graph::default();
    let input = graph.input(super::graphs::numbers(&[x.len() as u64])).unwrap();
    let output = super::graphs::chain(&mut graph, input, layers);
    let all = everyone(&step(&graph, output, &[Term::DOT]), 1, STAY).into_iter();
    let found = all.map(|(who, mut net)| {
        net.set("input", x);
        net.set("target", &vec![1.0; x.len()]);
        net.run();
        (format!("{who}: {layers}"), net.get("input.gradient"))
    });
    found.collect()
}
