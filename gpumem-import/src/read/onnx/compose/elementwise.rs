//! Linear layers, and functions of one number that are written as arithmetic.

use super::Composer;
use crate::model::{Argument, Node, ValueId};

/// Finds a pattern that ends at a node.
pub(super) fn find(composer: &mut Composer<'_>, index: usize) -> Option<Node> {
    match &composer.node(index).op[..] {
        "matmul" => linear(composer, index),
        "add" => bias(composer, index),
        "mul" => gelu(composer, index).or_else(|| gated(composer, index)),
        "div" => hardswish(composer, index),
        "reciprocal" => {
            let root = composer.made(composer.node(index).tensor("self")?, &["sqrt"])?;
            Some(composer.replaced(index, "rsqrt", vec![("self", Argument::Tensor(root.tensor("self")?))]))
        }
        "where" => softplus(composer, index),
        "logical_not" => {
            let equal = composer.made(composer.node(index).tensor("self")?, &["eq"])?;
            Some(Node { op: "ne".into(), arguments: equal.arguments.clone(), ..composer.node(index).clone() })
        }
        "cat" => stacked(composer, index),
        "squeeze" => selected(composer, index),
        _ => None,
    }
}

/// Returns the value that an operation leaves as it is: times one, plus zero, a shape that was changed and changed back.
pub(super) fn same(composer: &Composer<'_>, index: usize) -> Option<ValueId> {
    let node = composer.node(index);
    let (source, output) = (node.tensor("self")?, *node.outputs.first()?);
    let neutral = match &node.op[..] {
        "mul" | "div" => 1.0,
        "add" | "sub" => 0.0,
        "reshape" => {
            let first = composer.made(source, &["reshape"])?.tensor("self")?;
            return (composer.shape(first) == composer.shape(output)).then_some(first);
        }
        _ => return None,
    };
    let keeps = composer.shape(source) == composer.shape(output) && composer.is_float(output);
    (keeps && composer.number(node, "other") == Some(neutral)).then_some(source)
}

/// `x @ w.t()` with a parameter is a linear layer.
fn linear(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let turned = composer.made(node.tensor("other")?, &["t", "permute"])?;
    let weight = turned.tensor("self")?;
    let is_turned = match turned.argument("dims") {
        Some(Argument::Ints(dims)) => dims[..] == [1, 0],
        _ => true,
    };
    if !is_turned || !composer.is_parameter(weight) || composer.shape(weight).len() != 2 {
        return None;
    }
    let arguments = vec![
        ("input", Argument::Tensor(node.tensor("self")?)),
        ("weight", Argument::Tensor(weight)),
        ("bias", Argument::None),
    ];
    Some(composer.replaced(index, "linear", arguments))
}

/// A parameter that is added to a linear layer is its bias.
fn bias(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    if node.argument("alpha").is_some() {
        return None;
    }
    for (product, bias) in composer.orders(node) {
        let Some(linear) = composer.made(product, &["linear"]) else { continue };
        let features = composer.shape(product).last()?;
        let is_free = linear.tensor("bias").is_none() && composer.is_read_once(product);
        if is_free && composer.is_parameter(bias) && composer.shape(bias) == [*features] {
            let arguments = vec![
                ("input", Argument::Tensor(linear.tensor("input")?)),
                ("weight", Argument::Tensor(linear.tensor("weight")?)),
                ("bias", Argument::Tensor(bias)),
            ];
            return Some(Node { modules: linear.modules.clone(), ..composer.replaced(index, "linear", arguments) });
        }
    }
    None
}

/// The factors of a product: numbers multiplied, and values.
fn factors(composer: &Composer<'_>, node: &Node, depth: u32, number: &mut f64, values: &mut Vec<ValueId>) {
    for name in ["self", "other"] {
        if let Some(factor) = composer.number(node, name) {
            *number *= factor;
            continue;
        }
        let Some(value) = node.tensor(name) else { continue };
        match composer.made(value, &["mul"]) {
            Some(inner) if depth > 0 && composer.is_read_once(value) => {
                factors(composer, inner, depth - 1, number, values)
            }
            _ => values.push(value),
        }
    }
}

/// `0.5 x (1 + erf(x / sqrt(2)))`, in whatever order.
fn gelu(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let (mut number, mut values) = (1.0, Vec::new());
    factors(composer, composer.node(index), 2, &mut number, &mut values);
    let &[a, b] = &values[..] else { return None };
    if (number - 0.5).abs() > 1e-6 {
        return None;
    }
    for (x, gate) in [(a, b), (b, a)] {
        let Some(sum) = composer.made(gate, &["add"]) else { continue };
        let (Some(one), Some(erf)) = (composer.number(sum, "other"), sum.tensor("self")) else { continue };
        let Some(erf) = composer.made(erf, &["erf"]) else { continue };
        let Some(scaled) = composer.made(erf.tensor("self")?, &["div", "mul"]) else { continue };
        let root = composer.number(scaled, "other")?;
        let root = if scaled.op == "div" { root } else { 1.0 / root };
        if one == 1.0 && (root - std::f64::consts::SQRT_2).abs() < 1e-5 && scaled.tensor("self") == Some(x) {
            let form = Argument::Text("none".into());
            return Some(composer.replaced(index, "gelu", vec![("self", Argument::Tensor(x)), ("approximate", form)]));
        }
    }
    None
}

/// A value times a gate of itself, or of its other half.
fn gated(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    for (x, gate) in composer.orders(node) {
        let Some(made) = composer.made(gate, &["sigmoid", "hardsigmoid", "tanh"]) else { continue };
        let Some(source) = made.tensor("self") else { continue };
        let of = |op: &str| composer.replaced(index, op, vec![("self", Argument::Tensor(x))]);
        match &made.op[..] {
            "sigmoid" if source == x => return Some(of("silu")),
            "hardsigmoid" if source == x => return Some(of("hardswish")),
            "tanh" => {
                let soft = composer.made(source, &["softplus"]).filter(|soft| soft.tensor("self") == Some(x));
                if soft.is_some() {
                    return Some(of("mish"));
                }
            }
            "sigmoid" => {
                let halves = composer.made(x, &["split_with_sizes"]).filter(|halves| halves.outputs == [x, source]);
                let is_even = composer.shape(x) == composer.shape(source)
                    && composer.is_read_once(x)
                    && composer.is_read_once(gate);
                if let (Some(halves), true) = (halves, is_even) {
                    let dim = halves.argument("dim").cloned().unwrap_or(Argument::Int(0));
                    let arguments = vec![("self", Argument::Tensor(halves.tensor("self")?)), ("dim", dim)];
                    return Some(composer.replaced(index, "glu", arguments));
                }
            }
            _ => {}
        }
    }
    None
}

/// `x * clamp(x + 3, 0, 6) / 6`.
fn hardswish(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    if composer.number(node, "other") != Some(6.0) {
        return None;
    }
    let product = composer.made(node.tensor("self")?, &["mul"])?;
    for (x, gate) in composer.orders(product) {
        let Some(clamp) = composer.made(gate, &["clamp"]) else { continue };
        let bounds = (composer.number(clamp, "min"), composer.number(clamp, "max"));
        let Some(sum) = composer.made(clamp.tensor("self")?, &["add"]) else { continue };
        let is_moved = composer.number(sum, "other") == Some(3.0) && sum.tensor("self") == Some(x);
        if is_moved && bounds == (Some(0.0), Some(6.0)) {
            return Some(composer.replaced(index, "hardswish", vec![("self", Argument::Tensor(x))]));
        }
    }
    None
}

/// A part of one element without its axis is an element of that axis.
fn selected(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let part = node.tensor("self")?;
    let split = composer.made(part, &["split_with_sizes", "slice"])?;
    let (Some(Argument::Int(dim)), Some(Argument::Int(axis))) = (split.argument("dim"), node.argument("dim")) else {
        return None;
    };
    let start = match (&split.op[..], split.argument("split_sizes"), split.argument("start")) {
        ("slice", _, Some(Argument::Int(start))) if split.argument("step").is_none() => *start,
        (_, Some(Argument::Ints(sizes)), _) => {
            let place = split.outputs.iter().position(|&output| output == part)?;
            sizes.get(..place)?.iter().sum()
        }
        _ => return None,
    };
    if dim != axis || composer.shape(part).get(usize::try_from(*dim).ok()?) != Some(&1) {
        return None;
    }
    let arguments = vec![
        ("self", Argument::Tensor(split.tensor("self")?)),
        ("dim", Argument::Int(*dim)),
        ("index", Argument::Int(start)),
    ];
    Some(composer.replaced(index, "select", arguments))
}

/// Values that are joined along an axis which each of them was just given.
fn stacked(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let (Some(Argument::Tensors(parts)), Some(Argument::Int(dim))) = (node.argument("tensors"), node.argument("dim"))
    else {
        return None;
    };
    let mut sources = Vec::new();
    for part in parts {
        let wide = composer.made((*part)?, &["unsqueeze"])?;
        if wide.argument("dim") != Some(&Argument::Int(*dim)) {
            return None;
        }
        sources.push(Some(wide.tensor("self")?));
    }
    Some(composer.replaced(index, "stack", vec![("tensors", Argument::Tensors(sources)), ("dim", Argument::Int(*dim))]))
}

/// `softplus(x)` that is `x` itself where `x` is large.
fn softplus(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let (x, soft) = (node.tensor("self")?, composer.made(node.tensor("other")?, &["softplus"])?);
    let large = composer.made(node.tensor("condition")?, &["gt"])?;
    let is_large = composer.number(large, "other").is_some_and(|bound| bound >= 20.0);
    if soft.tensor("self") != Some(x) || large.tensor("self") != Some(x) || !is_large {
        return None;
    }
    Some(composer.replaced(index, "softplus", vec![("self", Argument::Tensor(x))]))
}
