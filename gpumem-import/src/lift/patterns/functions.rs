//! Functions of one number that are written out, such as `0.5 * x * (1 + tanh(..))`.
//!
//! They are written in many ways, so they are recognised by what they compute: the operations from the value that they all read to their
//! result are evaluated at some points.

use super::matching::{Side, next, number, output, parts, plain};
use crate::lift::view::op;
use crate::lift::{Arguments, Layer, Lift};
use crate::model::{Node, ValueId};
use std::collections::{BTreeSet, HashMap};

/// The most operations of a function.
const MOST: usize = 24;

/// Points at which functions are compared.
const POINTS: [f64; 14] = [-7.3, -4.1, -3.2, -2.6, -1.7, -0.9, -0.3, 0.0, 0.2, 0.7, 1.6, 2.8, 3.4, 6.5];

/// A function of the language, with its options.
type Known = (fn(f64) -> f64, fn(ValueId, ValueId) -> Layer);

const KNOWN: [Known; 6] = [
    (|x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt())), |x, y| Layer::new("Gelu", x, y)),
    (
        |x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        |x, y| Layer::new("Gelu", x, y).set("approximate", "tanh"),
    ),
    (|x| x / (1.0 + (-1.702 * x).exp()), |x, y| Layer::new("QuickGelu", x, y)),
    (|x| x / (1.0 + (-x).exp()), |x, y| Layer::new("Silu", x, y)),
    (|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0, |x, y| Layer::new("Hardswish", x, y)),
    (|x| x * x.exp().ln_1p().tanh(), |x, y| Layer::new("Mish", x, y)),
];

/// Looks for a function whose operations join here, or whose last factor is here.
pub(super) fn find(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let node = &lift.model.nodes[index];
    if !matches!(op(node), "mul" | "div") {
        return None;
    }
    let mut ends = vec![(index, output(node)?)];
    // A last factor belongs to the function.
    while let Some((reader, node)) = next(lift, ends[ends.len() - 1].1).filter(|_| ends.len() < 3) {
        match (op(node), parts(lift, node)) {
            ("mul" | "div", Some([Side::Value(_), Side::Number(_)] | [Side::Number(_), Side::Value(_)])) => {
                ends.push((reader, output(node)?))
            }
            _ => break,
        }
    }
    let source = source(lift, ends[0].1)?;
    ends.into_iter().rev().find_map(|(index, result)| {
        let shape = &lift.model.values[source].shape;
        let layer = known(lift, source, result).filter(|_| lift.model.values[result].shape == *shape)?;
        lift.plan(index, vec![layer]);
        Some(())
    })
}

/// Returns the value that all paths to a value pass through, if there are several paths.
fn source(lift: &Lift<'_>, value: ValueId) -> Option<ValueId> {
    let mut front = BTreeSet::from([(lift.makers[value]?, value)]);
    for step in 0..MOST {
        let (_, last) = front.pop_last()?;
        if front.is_empty() && step > 0 {
            // With a single operand there is nothing that joins.
            return (step > 1).then_some(last);
        }
        let (_, node) = lift.maker(last)?;
        if !is_function(node) {
            return None;
        }
        for input in node.tensors().filter(|&input| lift.is_sample(input)) {
            let input = plain(lift, input);
            front.insert((lift.makers[input].map_or(0, |maker| maker + 1), input));
        }
    }
    None
}

fn is_function(node: &Node) -> bool {
    const FUNCTIONS: [&str; 23] = [
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "rsub",
        "neg",
        "tanh",
        "erf",
        "sigmoid",
        "exp",
        "log",
        "log1p",
        "sqrt",
        "square",
        "softplus",
        "relu",
        "relu6",
        "hardtanh",
        "clamp",
        "hardsigmoid",
        "clamp_min",
        "clamp_max",
    ];
    FUNCTIONS.contains(&op(node))
}

/// Returns the layer of the function that leads from one value to another.
fn known(lift: &Lift<'_>, source: ValueId, result: ValueId) -> Option<Layer> {
    let mut fits = [true; KNOWN.len()];
    for point in POINTS {
        let mut known = HashMap::from([(source, point)]);
        let found = evaluated(lift, result, &mut known, 0)?;
        for (fits, (function, _)) in fits.iter_mut().zip(KNOWN) {
            let expected = function(point);
            *fits &= (found - expected).abs() <= 2e-7 * (1.0 + expected.abs());
        }
        if !fits.contains(&true) {
            return None;
        }
    }
    let place = fits.iter().position(|fits| *fits)?;
    Some(KNOWN[place].1(source, result))
}

/// Returns the number of a value at a point. `None` if something else than the source is needed for it.
fn evaluated(lift: &Lift<'_>, value: ValueId, known: &mut HashMap<ValueId, f64>, depth: usize) -> Option<f64> {
    let value = plain(lift, value);
    if let Some(number) = known.get(&value) {
        return Some(*number);
    }
    let (_, node) = lift.maker(value).filter(|_| depth < MOST)?;
    if !is_function(node) {
        return None;
    }
    let mut of = |part: Side| match part {
        Side::Value(value) => evaluated(lift, value, known, depth + 1),
        Side::Number(number) => Some(number),
    };
    let bound =
        |name: &str, default: f64| node.argument(name).and_then(|argument| number(lift, argument)).unwrap_or(default);
    let found = match op(node) {
        "add" | "sub" | "mul" | "div" | "pow" | "rsub" => {
            let [left, right] = parts(lift, node)?;
            let (left, right) = (of(left)?, of(right)?);
            match op(node) {
                "add" => left + right,
                "sub" => left - right,
                "rsub" => right - left,
                "mul" => left * right,
                "div" => left / right,
                _ => left.powf(right),
            }
        }
        name => {
            let x = of(Side::Value(node.tensors().next()?))?;
            match name {
                "neg" => -x,
                "tanh" => x.tanh(),
                "erf" => erf(x),
                "sigmoid" => 1.0 / (1.0 + (-x).exp()),
                "exp" => x.exp(),
                "log" => x.ln(),
                "log1p" => x.ln_1p(),
                "sqrt" => x.sqrt(),
                "square" => x * x,
                "softplus" if node.float("beta").is_none_or(|beta| beta == 1.0) => x.exp().ln_1p(),
                "relu" => x.max(0.0),
                "relu6" => x.clamp(0.0, 6.0),
                "hardsigmoid" => (x + 3.0).clamp(0.0, 6.0) / 6.0,
                "hardtanh" => x.max(bound("min_val", -1.0)).min(bound("max_val", 1.0)),
                "clamp" | "clamp_min" | "clamp_max" => {
                    x.max(bound("min", f64::NEG_INFINITY)).min(bound("max", f64::INFINITY))
                }
                _ => return None,
            }
        }
    };
    known.insert(value, found);
    Some(found)
}

/// Returns the error function, to some 1e-12: its series near 0, and a continued fraction of its complement farther away.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size < 2.5 {
        let mut term = size;
        let mut sum = size;
        for n in 1..100 {
            term *= -size * size / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum.copysign(x) * 2.0 / std::f64::consts::PI.sqrt();
    }
    let fraction = (1..=60).rev().fold(0.0, |below, n| f64::from(n) / 2.0 / (size + below));
    let complement = (-size * size).exp() / (size + fraction) / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::erf;

    /// Compares with a table of twelve digits.
    #[test]
    fn the_error_function_is_exact() {
        let table = [
            (0.1, 0.112462916018),
            (0.5, 0.520499877813),
            (1.0, 0.842700792950),
            (2.0, 0.995322265019),
            (3.0, 0.999977909503),
        ];
        for (x, expected) in table {
            assert!((erf(x) - expected).abs() < 2e-12, "{x}");
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erf(2.5) - 0.999593047982555).abs() < 1e-12);
    }
}
