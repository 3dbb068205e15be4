//! Functions of one number, arithmetic of two values, choices by a mask, and random zeros.

use super::inputs::{of_one, tensor};
use super::shapes::elements;
use super::{Arguments, HIDDEN, Layer, Lift, Literal, Result, refuse};
use crate::fold::Origin;
use crate::model::{Argument, Node, ValueId};

/// Functions of one number without arguments, by their names in ATen.
const FUNCTIONS: [(&str, &str); 18] = [
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
    ("softsign", "Softsign"),
    ("tanhshrink", "Tanhshrink"),
    ("exp", "Exp"),
    ("log", "Log"),
    ("abs", "Abs"),
    ("sin", "Sin"),
    ("cos", "Cos"),
    ("sqrt", "Sqrt"),
];

/// Functions that take `inplace`.
const IN_PLACE: [&str; 8] = ["Relu", "Relu6", "LeakyRelu", "Hardsigmoid", "Elu", "Celu", "Selu", "Hardtanh"];

/// Lifts an elementwise operation. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    if op.contains("dropout") {
        return dropout(lift, index, node, op).map(|()| true);
    }
    let op = match op {
        "multiply" => "mul",
        "divide" | "true_divide" => "div",
        "subtract" => "sub",
        op => op,
    };
    let is_number = node.outputs.first().is_some_and(|&output| lift.model.values[output].dtype.is_float());
    match op {
        "add" | "sub" | "rsub" | "mul" | "div" | "maximum" | "minimum" | "addcmul" | "addcdiv" | "lerp" | "where"
        | "masked_fill" | "clamp_min" | "clamp_max" | "max" | "min"
            if !is_number =>
        {
            return if let Some(value) = unchanged(lift, node, op) {
                lift.shaped(index, value, lift.sample(node.outputs[0])).map(|value| {
                    lift.same(node.outputs[0], value);
                    true
                })
            } else if node.tensor("other").is_some() || !matches!(op, "max" | "min") {
                refuse("it computes with whole numbers")
            } else {
                Ok(false)
            };
        }
        "add" | "sub" | "rsub" | "mul" | "div" | "maximum" | "minimum" => arithmetic(lift, index, node, op)?,
        "max" | "min" if node.tensor("other").is_some() => {
            arithmetic(lift, index, node, if op == "max" { "maximum" } else { "minimum" })?;
        }
        "addcmul" | "addcdiv" => sum_with_product(lift, index, node, op)?,
        "lerp" => between(lift, index, node)?,
        "where" | "masked_fill" => chosen(lift, index, node, op)?,
        "clamp" | "clip" | "hardtanh" | "clamp_min" | "clamp_max" => bounded(lift, index, node, op)?,
        "log1p" | "expm1" | "log2" | "log10" | "exp2" => two_functions(lift, index, node, op)?,
        _ => {
            let Some(layer) = function(lift, node, op)? else { return Ok(false) };
            let is_in_place =
                node.op.ends_with('_') && IN_PLACE.contains(&layer.kind) && is_only_reader(lift, index, node);
            lift.add(index, layer.flag("inplace", is_in_place));
        }
    }
    Ok(true)
}

/// Returns the operand that arithmetic leaves as it is: a factor of 1, or a summand of 0. `None` if it changes it.
fn unchanged(lift: &Lift<'_>, node: &Node, op: &str) -> Option<ValueId> {
    let neutral = match op {
        "mul" | "div" if node.text("rounding_mode").is_none() => 1.0,
        "add" | "sub" => 0.0,
        _ => return None,
    };
    let is_neutral = |name: &str| match node.argument(name) {
        Some(Argument::Tensor(value)) => {
            let numbers = lift.origins[*value].numbers().map(crate::fold::Tensor::numbers);
            numbers.is_some_and(|numbers| numbers.iter().all(|&number| number == neutral))
        }
        argument => number(lift, argument) == Some(neutral),
    };
    let elements = |value: ValueId| lift.model.values[value].elements();
    let left = node.tensor("self").filter(|_| is_neutral("other"));
    let right = node.tensor("other").filter(|_| matches!(op, "mul" | "add") && is_neutral("self"));
    left.or(right).filter(|&value| elements(value) == elements(node.outputs[0]) && lift.is_sample(value))
}

/// True if nothing reads what the node changes in place before it does.
fn is_only_reader(lift: &Lift<'_>, index: usize, node: &Node) -> bool {
    let is_earlier = |value: ValueId| lift.readers[value].iter().any(|&reader| reader < index);
    node.tensors().next().is_some_and(|value| lift.resolve(value) != value || !is_earlier(value))
}

fn function(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Option<Layer>> {
    if let Some((_, kind)) = FUNCTIONS.iter().find(|(name, _)| *name == op) {
        return of_one(lift, node, kind, "self").map(Some);
    }
    let number = |name: &str, default: f64| node.float(name).unwrap_or(default);
    let one = |lift: &mut Lift<'_>, kind: &'static str| of_one(lift, node, kind, "self");
    Ok(Some(match op {
        "leaky_relu" => one(lift, "LeakyRelu")?.with(number("negative_slope", 0.01)),
        "gelu" => {
            let form = node.text("approximate").unwrap_or("none").to_string();
            one(lift, "Gelu")?.option("approximate", &form[..], "none")
        }
        "elu" if number("scale", 1.0) == 1.0 && number("input_scale", 1.0) == 1.0 => {
            one(lift, "Elu")?.option("alpha", number("alpha", 1.0), 1.0)
        }
        "celu" => one(lift, "Celu")?.option("alpha", number("alpha", 1.0), 1.0),
        "softplus" => {
            let layer = one(lift, "Softplus")?.option("beta", number("beta", 1.0), 1.0);
            layer.option("threshold", number("threshold", 20.0), 20.0)
        }
        "hardshrink" => one(lift, "Hardshrink")?.option("lambd", number("lambd", 0.5), 0.5),
        "softshrink" => one(lift, "Softshrink")?.option("lambd", number("lambd", 0.5), 0.5),
        "threshold" if number("threshold", 1.0) == 0.0 && number("value", 1.0) == 0.0 => one(lift, "Relu")?,
        "rsqrt" => one(lift, "Pow")?.with(-0.5),
        "reciprocal" => one(lift, "Pow")?.with(-1.0),
        "square" => one(lift, "Pow")?.with(2.0),
        "neg" | "negative" => one(lift, "Affine")?.with(-1.0).with(0.0),
        "pow" => match (node.float("exponent"), node.tensor("self")) {
            (Some(0.5), Some(_)) => one(lift, "Sqrt")?,
            (Some(exponent), Some(_)) => one(lift, "Pow")?.with(exponent),
            _ => return refuse("its exponent is a value"),
        },
        _ => return Ok(None),
    }))
}

/// Lifts functions that are a function of `factor * x + shift`, or the other way round.
fn two_functions(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (input, output) = (lift.operand(tensor(node, "self")?)?, node.outputs[0]);
    let middle = lift.between(&lift.sample(output));
    let (first, second) = match op {
        "log1p" => (Layer::new("Affine", input, middle).with(1.0).with(1.0), Layer::new("Log", middle, output)),
        "expm1" => (Layer::new("Exp", input, middle), Layer::new("Affine", middle, output).with(1.0).with(-1.0)),
        "exp2" => {
            let scaled = Layer::new("Affine", input, middle).with(std::f64::consts::LN_2).with(0.0);
            (scaled, Layer::new("Exp", middle, output))
        }
        _ => {
            let base: f64 = if op == "log2" { 2.0 } else { 10.0 };
            (Layer::new("Log", input, middle), Layer::new("Affine", middle, output).with(1.0 / base.ln()).with(0.0))
        }
    };
    lift.add(index, first);
    lift.add(index, second);
    Ok(())
}

fn dropout(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let Some(value) = node.tensor("input").or(node.tensor("self")) else { return refuse("it has no `input`") };
    let input = lift.operand(value)?;
    let p = node.float("p").unwrap_or(0.5);
    if p == 0.0 {
        lift.same(node.outputs[0], input);
        return Ok(());
    }
    let kind = match (op, lift.sample(value).len()) {
        ("dropout" | "native_dropout", _) => "Dropout",
        ("feature_dropout", 3) => "Dropout2d",
        ("feature_dropout", 2) => "Dropout1d",
        ("feature_dropout", 4) => "Dropout3d",
        _ => return refuse("the language has no alpha dropout"),
    };
    lift.add(index, Layer::new(kind, input, node.outputs[0]).with(p));
    Ok(())
}

/// Returns a number, or a constant that is one number everywhere.
fn number(lift: &Lift<'_>, argument: Option<&Argument>) -> Option<f64> {
    match argument? {
        Argument::Int(number) => Some(*number as f64),
        Argument::Float(number) => Some(*number),
        Argument::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Argument::Tensor(value) => {
            let tensor = lift.origins[*value].numbers().filter(|_| lift.model.values[*value].elements() == Some(1))?;
            tensor.numbers().first().copied()
        }
        _ => None,
    }
}

/// Adds `factor * value + summand`.
fn affine(lift: &mut Lift<'_>, index: usize, value: ValueId, [factor, summand]: [f64; 2], output: ValueId) -> Result {
    // The other operand may have given the output further axes.
    let shape = lift.sample(output);
    let input = match elements(&lift.sample(value)) == elements(&shape) {
        true => lift.shaped(index, value, shape)?,
        false => lift.operand(value)?,
    };
    if [factor, summand] == [1.0, 0.0] {
        lift.same(output, input);
    } else {
        lift.add(index, Layer::new("Affine", input, output).with(factor).with(summand));
    }
    Ok(())
}

/// Adds a join of two values that are broadcast.
fn join(lift: &mut Lift<'_>, index: usize, kind: &'static str, [a, b]: [ValueId; 2], output: ValueId) -> Result {
    let inputs = vec![lift.aligned(index, a, output)?, lift.aligned(index, b, output)?];
    lift.add(index, Layer::join(kind, inputs, output));
    Ok(())
}

/// Lifts arithmetic of two values, or of a value and a number.
fn arithmetic(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let output = node.outputs[0];
    let alpha = node.float("alpha").unwrap_or(1.0);
    if node.text("rounding_mode").is_some() {
        return refuse("it rounds");
    }
    let (first, second) = (node.tensor("self"), node.tensor("other"));
    let is_shared = |value: Option<ValueId>| value.is_none_or(|value| !lift.is_sample(value));
    let a = number(lift, node.argument("self")).filter(|_| is_shared(first));
    let b = number(lift, node.argument("other")).filter(|_| is_shared(second));
    match (op, a, b, first, second) {
        ("add", _, Some(b), Some(first), _) => return affine(lift, index, first, [1.0, alpha * b], output),
        ("sub", _, Some(b), Some(first), _) => return affine(lift, index, first, [1.0, -alpha * b], output),
        ("rsub", _, Some(b), Some(first), _) => return affine(lift, index, first, [-alpha, b], output),
        ("mul", _, Some(b), Some(first), _) => return affine(lift, index, first, [b, 0.0], output),
        ("div", _, Some(b), Some(first), _) => return affine(lift, index, first, [1.0 / b, 0.0], output),
        ("add", Some(a), _, _, Some(second)) => return affine(lift, index, second, [alpha, a], output),
        ("sub", Some(a), _, _, Some(second)) => return affine(lift, index, second, [-alpha, a], output),
        ("mul", Some(a), _, _, Some(second)) => return affine(lift, index, second, [a, 0.0], output),
        ("div", Some(a), _, _, Some(second)) => {
            let input = lift.operand(second)?;
            let inverse = if a == 1.0 { output } else { lift.between(&lift.sample(output)) };
            lift.add(index, Layer::new("Pow", input, inverse).with(-1.0));
            if a != 1.0 {
                lift.add(index, Layer::new("Affine", inverse, output).with(a).with(0.0));
            }
            return Ok(());
        }
        _ => {}
    }
    let (Some(first), Some(second)) = (first, second) else { return refuse("it has one operand") };
    let (kind, operands) = match op {
        "add" => ("Add", [first, second]),
        "sub" => ("Sub", [first, second]),
        "rsub" => ("Sub", [second, first]),
        "mul" => ("Mul", [first, second]),
        "div" => ("Div", [first, second]),
        "maximum" => ("Maximum", [first, second]),
        _ => ("Minimum", [first, second]),
    };
    // A learned factor for each channel, or for each element of an axis.
    if let ("mul", Some(layer)) = (op, scale(lift, output, first, second)?) {
        lift.add(index, layer);
        return Ok(());
    }
    if alpha == 1.0 {
        return join(lift, index, kind, operands, output);
    }
    // `alpha` is a factor of the second value of a sum, and of the first one of `rsub`.
    let (a, b) = (lift.aligned(index, operands[0], output)?, lift.aligned(index, operands[1], output)?);
    let scaled = lift.between(&lift.sample(b));
    lift.add(index, Layer::new("Affine", b, scaled).with(alpha).with(0.0));
    lift.add(index, Layer::join(kind, vec![a, scaled], output));
    Ok(())
}

/// True for a parameter of the model, which is trained.
fn is_parameter(lift: &Lift<'_>, value: ValueId) -> bool {
    lift.state(value).is_some() && matches!(lift.origins[value], Origin::Parameters)
}

/// Returns `Scale` if one of two factors is a parameter.
fn scale(lift: &mut Lift<'_>, output: ValueId, first: ValueId, second: ValueId) -> Result<Option<Layer>> {
    let (value, factor) = match (is_parameter(lift, first), is_parameter(lift, second)) {
        (false, true) if lift.is_sample(first) => (first, second),
        (true, false) if lift.is_sample(second) => (second, first),
        _ => return Ok(None),
    };
    if lift.model.values[output].shape != lift.model.values[value].shape {
        return Ok(None);
    }
    let key = lift.state(factor).map(|state| state.key.clone());
    let (shape, sample) = (lift.aligned_shape(factor, output), lift.sample(value));
    if shape.len() > sample.len() {
        return Ok(None);
    }
    let input = lift.operand(value)?;
    let layer = Layer::new("Scale", input, output).key("", key.as_deref());
    let is_map = sample.len() == 3;
    let is_scalar = lift.model.values[factor].shape.is_empty();
    Ok(Some(match &shape[..] {
        _ if is_scalar => layer.flag("scalar", true),
        [channels, 1, 1] if is_map && sample[0] == *channels => layer,
        [features] if sample.last() == Some(features) && !is_map => layer,
        [features] if sample.last() == Some(features) => layer.set("dim", -1i64),
        _ => layer.set("shape", Literal::dims(&shape.iter().map(|&size| size as i64).collect::<Vec<_>>())),
    }))
}

/// Lifts `self + value * tensor1 * tensor2`, and the same with a quotient.
fn sum_with_product(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (first, second, summand) = (tensor(node, "tensor1")?, tensor(node, "tensor2")?, tensor(node, "self")?);
    let (output, factor) = (node.outputs[0], node.float("value").unwrap_or(1.0));
    let sample = lift.sample(output);
    if op == "addcmul"
        && factor == 1.0
        && let Some(layer) = scale_and_shift(lift, output, [first, second], summand)?
    {
        lift.add(index, layer);
        return Ok(());
    }
    let product = lift.between(&sample);
    let inputs = vec![lift.aligned(index, first, output)?, lift.aligned(index, second, output)?];
    lift.add(index, Layer::join(if op == "addcmul" { "Mul" } else { "Div" }, inputs, product));
    let mut scaled = product;
    if factor != 1.0 {
        scaled = lift.between(&sample);
        lift.add(index, Layer::new("Affine", product, scaled).with(factor).with(0.0));
    }
    let inputs = vec![lift.aligned(index, summand, output)?, scaled];
    lift.add(index, Layer::join("Add", inputs, output));
    Ok(())
}

/// Returns `Scale` with a bias if a factor and the summand are parameters of equal shapes.
fn scale_and_shift(
    lift: &mut Lift<'_>,
    output: ValueId,
    factors: [ValueId; 2],
    summand: ValueId,
) -> Result<Option<Layer>> {
    if !is_parameter(lift, summand) {
        return Ok(None);
    }
    let Some(layer) = scale(lift, output, factors[0], factors[1])? else { return Ok(None) };
    let factor = factors.into_iter().find(|&factor| is_parameter(lift, factor)).unwrap_or(summand);
    if lift.model.values[factor].shape != lift.model.values[summand].shape {
        return Ok(None);
    }
    let key = layer.keys.first().map(|(_, key)| key.clone());
    let layer = Layer { keys: Vec::new(), ..layer }.flag("bias", true);
    let bias = lift.state(summand).map(|state| &state.key[..]);
    Ok(Some(layer.key("weight", key.as_deref()).key("bias", bias)))
}

/// Lifts `self + weight * (end - self)`.
fn between(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (start, end, output) = (tensor(node, "self")?, tensor(node, "end")?, node.outputs[0]);
    let sample = lift.sample(output);
    let (start, end) = (lift.aligned(index, start, output)?, lift.aligned(index, end, output)?);
    let (difference, part) = (lift.between(&sample), lift.between(&sample));
    lift.add(index, Layer::join("Sub", vec![end, start], difference));
    match number(lift, node.argument("weight")) {
        Some(weight) => lift.add(index, Layer::new("Affine", difference, part).with(weight).with(0.0)),
        None => {
            let weight = lift.aligned(index, tensor(node, "weight")?, output)?;
            lift.add(index, Layer::join("Mul", vec![difference, weight], part));
        }
    }
    lift.add(index, Layer::join("Add", vec![start, part], output));
    Ok(())
}

/// Lifts bounds: `Hardtanh` with two of them, `Maximum` or `Minimum` with one.
fn bounded(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (least, most) = match op {
        "hardtanh" => (Some(node.float("min_val").unwrap_or(-1.0)), Some(node.float("max_val").unwrap_or(1.0))),
        _ => (number(lift, node.argument("min")), number(lift, node.argument("max"))),
    };
    let has = |name: &str| node.argument(name).is_some_and(|argument| *argument != Argument::None);
    if has("min") && least.is_none() || has("max") && most.is_none() {
        return refuse("its bounds are values");
    }
    let output = node.outputs[0];
    let layer = of_one(lift, node, "Relu", "self")?;
    let input = layer.inputs[0];
    let is_in_place = op == "hardtanh" && node.op.ends_with('_') && is_only_reader(lift, index, node);
    let layer = match (least, most) {
        (Some(0.0), Some(6.0)) => Layer { kind: "Relu6", ..layer }.flag("inplace", is_in_place),
        (Some(least), Some(most)) => {
            Layer { kind: "Hardtanh", ..layer }.with(least).with(most).flag("inplace", is_in_place)
        }
        (Some(0.0), None) => layer,
        (Some(bound), None) | (None, Some(bound)) => {
            let constant = lift.between(&[1]);
            lift.add(index, Layer::source("Constant", constant).with(bound));
            Layer::join(if least.is_some() { "Maximum" } else { "Minimum" }, vec![input, constant], output)
        }
        (None, None) => {
            lift.same(output, input);
            return Ok(());
        }
    };
    lift.add(index, layer);
    Ok(())
}

/// Lifts a choice by a constant mask: one value where it is true, another one elsewhere.
fn chosen(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let output = node.outputs[0];
    let (mask, inside, outside) = match op {
        "where" => (tensor(node, "condition")?, node.argument("self"), node.argument("other")),
        _ => (tensor(node, "mask")?, node.argument("value"), node.argument("self")),
    };
    let Some(flags) = lift.origins[mask].numbers().cloned() else {
        return refuse("its mask is computed from the input");
    };
    let (_, flags) = lift.shared_tensor(mask, &flags)?;
    let shape = lift.aligned_shape(mask, output);
    let parts = [(inside, 1.0), (outside, 0.0)];
    // A value that is nowhere chosen is not read.
    for (argument, flag) in parts {
        if flags.iter().all(|&number| (number != 0.0) == (flag != 0.0))
            && let Some(Argument::Tensor(value)) = argument
            && lift.model.values[*value].shape == lift.model.values[output].shape
        {
            let value = lift.operand(*value)?;
            lift.same(output, value);
            return Ok(());
        }
    }
    let is_chosen = |flag: f64, wanted: f64| (flag != 0.0) == (wanted != 0.0);
    let mut numbers = vec![0.0; flags.len()];
    for (argument, wanted) in parts {
        if let Some(number) = number(lift, argument) {
            for (place, _) in flags.iter().enumerate().filter(|(_, flag)| is_chosen(**flag, wanted)) {
                numbers[place] = number;
            }
        }
    }
    // Adding infinity is enough, and a product with 0 must not meet it.
    let is_infinite = numbers.iter().any(|number| number.is_infinite());
    let mut terms = Vec::new();
    for (argument, wanted) in parts {
        let Some(Argument::Tensor(value)) = argument.filter(|_| number(lift, argument).is_none()) else { continue };
        let value = lift.aligned(index, *value, output)?;
        terms.push(match is_infinite {
            true => value,
            false => {
                let ones = flags.iter().map(|&flag| f64::from(u8::from(is_chosen(flag, wanted)))).collect();
                let (factors, product) = (lift.between(&shape), lift.between(&lift.sample(output)));
                let layer = lift.constant(index, factors, shape.clone(), ones)?;
                lift.add(index, Layer { output: factors, ..layer });
                lift.add(index, Layer::join("Mul", vec![value, factors], product));
                product
            }
        });
    }
    if is_infinite {
        // The language hides with a large number.
        numbers.iter_mut().filter(|number| number.is_infinite()).for_each(|number| *number = HIDDEN * number.signum());
    }
    if numbers.iter().any(|&number| number != 0.0) {
        let summand = lift.between(&shape);
        let layer = lift.constant(index, summand, shape, numbers)?;
        lift.add(index, Layer { output: summand, ..layer });
        terms.push(summand);
    }
    match terms[..] {
        [] => return refuse("it has no operand"),
        [only] => lift.same(output, only),
        _ => lift.add(index, Layer::join("Add", terms, output)),
    }
    Ok(())
}
