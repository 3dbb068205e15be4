//! Functions, arithmetic of two values, random zeros, and reductions along axes.

use super::weighted::{of_one, tensor};
use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::model::{Argument, Node};

/// Functions of one number without arguments, by their names in ATen.
const FUNCTIONS: [(&str, &str); 16] = [
    ("relu", "Relu"),
    ("relu6", "Relu6"),
    ("silu", "Silu"),
    ("sigmoid", "Sigmoid"),
    ("tanh", "Tanh"),
    ("hardswish", "Hardswish"),
    ("hardsigmoid", "Hardsigmoid"),
    ("selu", "Selu"),
    ("mish", "Mish"),
    ("log_sigmoid", "LogSigmoid"),
    ("exp", "Exp"),
    ("log", "Log"),
    ("abs", "Abs"),
    ("sin", "Sin"),
    ("cos", "Cos"),
    ("sqrt", "Sqrt"),
];

/// Functions that take `inplace`.
const IN_PLACE: [&str; 3] = ["Relu", "Relu6", "LeakyRelu"];

/// Lifts an elementwise operation or a reduction. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    let Some(layer) = function(lift, node, op)? else { return reduction(lift, index, node, op) };
    lift.add(index, layer);
    Ok(true)
}

fn function(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Option<Layer>> {
    let is_in_place = node.op.ends_with('_');
    if let Some((_, kind)) = FUNCTIONS.iter().find(|(name, _)| *name == op) {
        let layer = of_one(lift, node, kind, "self")?;
        return Ok(Some(layer.flag("inplace", is_in_place && IN_PLACE.contains(kind))));
    }
    let number = |name: &str, default: f64| node.float(name).unwrap_or(default);
    Ok(Some(match op {
        "leaky_relu" => {
            let slope = number("negative_slope", 0.01);
            of_one(lift, node, "LeakyRelu", "self")?.with(slope).flag("inplace", is_in_place)
        }
        "gelu" => {
            let form = node.text("approximate").unwrap_or("none").to_string();
            of_one(lift, node, "Gelu", "self")?.option("approximate", &form[..], "none")
        }
        "elu" => of_one(lift, node, "Elu", "self")?.with(number("alpha", 1.0)),
        "celu" => of_one(lift, node, "Celu", "self")?.with(number("alpha", 1.0)),
        "softplus" => of_one(lift, node, "Softplus", "self")?.option("beta", number("beta", 1.0), 1.0),
        "hardtanh" | "clamp" => {
            let (least, most) = match op {
                "clamp" => (node.float("min"), node.float("max")),
                _ => (Some(number("min_val", -1.0)), Some(number("max_val", 1.0))),
            };
            match (least, most) {
                (Some(0.0), Some(6.0)) => of_one(lift, node, "Relu6", "self")?.flag("inplace", is_in_place && op == "hardtanh"),
                (Some(least), Some(most)) => of_one(lift, node, "Hardtanh", "self")?.with(least).with(most),
                (Some(0.0), None) => of_one(lift, node, "Relu", "self")?,
                _ => return refuse("it has one bound, and `Hardtanh` takes two"),
            }
        }
        "clamp_min" if node.float("min") == Some(0.0) => of_one(lift, node, "Relu", "self")?,
        "rsqrt" => of_one(lift, node, "Pow", "self")?.with(-0.5),
        "reciprocal" => of_one(lift, node, "Pow", "self")?.with(-1.0),
        "square" => of_one(lift, node, "Pow", "self")?.with(2.0),
        "neg" => of_one(lift, node, "Affine", "self")?.with(-1.0).with(0.0),
        "pow" => match node.float("exponent") {
            Some(0.5) => of_one(lift, node, "Sqrt", "self")?,
            Some(exponent) => of_one(lift, node, "Pow", "self")?.with(exponent),
            None => return refuse("its exponent is a value"),
        },
        "softmax" | "_softmax" | "log_softmax" => {
            let kind = if op == "log_softmax" { "LogSoftmax" } else { "Softmax" };
            let value = tensor(node, "self")?;
            let Some(dim) = lift.dim(value, node.int("dim").unwrap_or(-1)) else { return refuse("it runs along the batch") };
            let rank = lift.sample(value).len() as i64;
            let layer = of_one(lift, node, kind, "self")?;
            let usual = if rank == 3 { 1 } else { rank };
            layer.option("dim", dim, usual)
        }
        "dropout" | "feature_dropout" | "alpha_dropout" => {
            let value = tensor(node, "input")?;
            let p = number("p", 0.5);
            if p == 0.0 {
                lift.same(node.outputs[0], value);
                return Ok(None).and_then(|none: Option<Layer>| Ok(none));
            }
            match (op, lift.sample(value).len()) {
                ("dropout", _) => of_one(lift, node, "Dropout", "input")?.with(p),
                ("feature_dropout", 3) => of_one(lift, node, "Dropout2d", "input")?.with(p),
                ("feature_dropout", 2) => of_one(lift, node, "Dropout1d", "input")?.with(p),
                ("feature_dropout", 4) => of_one(lift, node, "Dropout3d", "input")?.with(p),
                _ => return refuse("the language has no alpha dropout"),
            }
        }
        "add" | "sub" | "rsub" | "mul" | "div" | "maximum" | "minimum" => return arithmetic(lift, node, op).map(Some),
        "linalg_vector_norm" | "norm" => {
            let value = tensor(node, "self")?;
            let order = node.float("ord").or(node.float("p")).unwrap_or(2.0);
            let Some(dims) = dims(lift, node, value) else { return refuse("it runs along the batch") };
            let layer = of_one(lift, node, "Norm", "self")?;
            let layer = if order.is_infinite() { layer.with("inf") } else { layer.with(order) };
            layer.with(Literal::dims(&dims)).flag("keepdim", node.is("keepdim", false))
        }
        _ => return Ok(None),
    }))
}

/// Returns the dimensions of an operation along axes, as the language counts them. `None` if the batch is one of them.
fn dims(lift: &Lift<'_>, node: &Node, value: usize) -> Option<Vec<i64>> {
    let rank = lift.model.values[value].shape.len() as i64;
    let dims = node.ints("dim").filter(|dims| !dims.is_empty()).unwrap_or_else(|| (0..rank).collect());
    let mut dims: Vec<i64> = dims.into_iter().map(|dim| lift.dim(value, dim)).collect::<Option<_>>()?;
    dims.sort_unstable();
    Some(dims)
}

fn reduction(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    let kind = match op {
        "mean" => "Mean",
        "sum" => "Sum",
        "amax" | "max" => "Max",
        "amin" | "min" => "Min",
        "dropout" => return Ok(node.float("p") == Some(0.0)),
        _ => return Ok(false),
    };
    let value = tensor(node, "self")?;
    if node.outputs.len() > 1 && !lift.readers[node.outputs[1]].is_empty() {
        return refuse("its indices are read");
    }
    let Some(dims) = dims(lift, node, value) else { return refuse("it runs along the batch") };
    let keeps = node.is("keepdim", false);
    let shape = lift.sample(value);
    let layer = match (kind, &dims[..], keeps, shape.len()) {
        ("Mean", [2, 3], false, 3) => of_one(lift, node, "GlobalAvgPool", "self")?,
        ("Mean", [2, 3], true, 3) => of_one(lift, node, "AdaptiveAvgPool2d", "self")?.with(1i64),
        _ => of_one(lift, node, kind, "self")?.with(Literal::dims(&dims)).flag("keepdim", keeps),
    };
    lift.add(index, layer);
    Ok(true)
}

/// Lifts arithmetic of two values, or of a value and a number.
fn arithmetic(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Layer> {
    let output = node.outputs[0];
    let first = tensor(node, "self")?;
    let alpha = node.float("alpha").unwrap_or(1.0);
    let number = |lift: &Lift<'_>, argument: Option<&Argument>| match argument {
        Some(Argument::Int(number)) => Some(*number as f64),
        Some(Argument::Float(number)) => Some(*number),
        // A constant that is the same number everywhere.
        Some(Argument::Tensor(value)) => {
            let tensor = lift.origins[*value].numbers().filter(|_| lift.model.values[*value].elements() == Some(1))?;
            tensor.numbers().first().copied()
        }
        _ => None,
    };
    let (a, b) = (number(lift, node.argument("self")), number(lift, node.argument("other")));
    let affine = |lift: &mut Lift<'_>, value: usize, factor: f64, summand: f64| -> Result<Layer> {
        let input = lift.operand(value)?;
        Ok(Layer::new("Affine", input, output).with(factor).with(summand))
    };
    let second = node.tensor("other");
    match (op, a, b, second) {
        ("add", None, Some(b), _) => return affine(lift, first, 1.0, alpha * b),
        ("sub", None, Some(b), _) => return affine(lift, first, 1.0, -alpha * b),
        ("rsub", None, Some(b), _) => return affine(lift, first, -alpha, b),
        ("mul", None, Some(b), _) => return affine(lift, first, b, 0.0),
        ("div", None, Some(b), _) if node.text("rounding_mode").is_none() => return affine(lift, first, 1.0 / b, 0.0),
        ("add", Some(a), None, Some(second)) => return affine(lift, second, alpha, a),
        ("sub", Some(a), None, Some(second)) => return affine(lift, second, -alpha, a),
        ("mul", Some(a), None, Some(second)) => return affine(lift, second, a, 0.0),
        _ => {}
    }
    let Some(second) = second else { return refuse("it has one operand") };
    if alpha != 1.0 || node.text("rounding_mode").is_some() {
        return refuse("it has `alpha` or a rounding mode");
    }
    let kind = match op {
        "add" => "Add",
        "sub" => "Sub",
        "mul" => "Mul",
        "div" => "Div",
        "maximum" => "Maximum",
        "minimum" => "Minimum",
        _ => return refuse("it subtracts the first value from the second"),
    };
    // A learned factor for each channel, or for each element of an axis.
    if let ("mul", Some(layer)) = (op, scale(lift, output, first, second)?) {
        return Ok(layer);
    }
    let inputs = vec![lift.operand(first)?, lift.operand(second)?];
    if inputs[0] == inputs[1] {
        return refuse("it joins a value with itself");
    }
    Ok(Layer::join(kind, inputs, output))
}

/// Returns `Scale` if one of two factors is a parameter.
fn scale(lift: &mut Lift<'_>, output: usize, first: usize, second: usize) -> Result<Option<Layer>> {
    let (value, factor) = match (lift.state(first), lift.state(second)) {
        (None, Some(_)) if lift.is_sample(first) => (first, second),
        (Some(_), None) if lift.is_sample(second) => (second, first),
        _ => return Ok(None),
    };
    let (shape, sample) = (lift.model.values[factor].shape.clone(), lift.sample(value));
    if lift.model.values[output].shape != lift.model.values[value].shape {
        return Ok(None);
    }
    let key = lift.state(factor).map(|state| state.key.clone());
    let input = lift.operand(value)?;
    let layer = Layer::new("Scale", input, output).key("", key.as_deref());
    let is_map = sample.len() == 3;
    Ok(Some(match &shape[..] {
        [] => layer.flag("scalar", true),
        [channels, 1, 1] if is_map && sample[0] == *channels => layer,
        [features] if sample.last() == Some(features) && !is_map => layer,
        [features] if sample.last() == Some(features) => layer.set("dim", -1i64),
        _ => layer.set("shape", Literal::Tuple(shape.iter().map(|&size| size.into()).collect())),
    }))
}
