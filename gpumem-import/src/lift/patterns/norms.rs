//! Normalisations that are written out: by the mean of squares, by mean and variance, by the length.

use super::matching::{Side, made_by, next, orders, output, parts, parts_of, plain, with_number};
use crate::lift::view::op;
use crate::lift::{Arguments, Layer, Lift, Literal};
use crate::model::{Node, StateKind, ValueId};

/// Looks for a normalisation of rows that begins with a root, or with a division by one.
pub(super) fn rows(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let node = &lift.model.nodes[index];
    let (input, result, index, eps, kind) = root(lift, index, node)?;
    let (mut result, mut index) = (result, index);
    // The weight, and then the bias, are optional.
    let width = *lift.model.values[input].shape.last()?;
    let parameter = |lift: &Lift<'_>, node: &Node, value: ValueId| -> Option<String> {
        let [left, right] = parts(lift, node)?.map(Side::value);
        let other = if left == Some(plain(lift, value)) { right? } else { left? };
        let state = lift.state(other).filter(|state| matches!(state.kind, StateKind::Parameter { .. }))?;
        (lift.model.values[other].shape == [width]).then(|| state.key.clone())
    };
    let (mut weight, mut bias) = (None, None);
    if let Some((reader, node)) = next(lift, result)
        && op(node) == "mul"
        && let Some(key) = parameter(lift, node, result)
    {
        (weight, index, result) = (Some(key), reader, output(node)?);
        if let Some((reader, node)) = next(lift, result)
            && kind == "LayerNorm"
            && op(node) == "add"
            && let Some(key) = parameter(lift, node, result)
        {
            (bias, index, result) = (Some(key), reader, output(node)?);
        }
    }
    let default = if kind == "RmsNorm" { f64::from(f32::EPSILON) } else { 1e-5 };
    let layer = Layer::new(kind, input, result);
    let layer = if lift.sample(input).len() > 2 { layer.with(Literal::Tuple(vec![width.into()])) } else { layer };
    let layer = layer
        .option("eps", eps, default)
        .option("elementwise_affine", weight.is_some(), true)
        .option("bias", !(kind == "LayerNorm" && weight.is_some() && bias.is_none()), true)
        .key("weight", weight.as_deref())
        .key("bias", bias.as_deref());
    lift.plan(index, vec![layer]);
    Some(())
}

/// Returns what is normalised, the result with its node, `eps`, and the layer.
fn root(lift: &Lift<'_>, index: usize, node: &Node) -> Option<(ValueId, ValueId, usize, f64, &'static str)> {
    let root = output(node)?;
    let is_inverse = match op(node) {
        "rsqrt" => true,
        "sqrt" => false,
        "pow" => match node.float("exponent")? {
            -0.5 => true,
            0.5 => false,
            _ => return None,
        },
        _ => return None,
    };
    let (square, eps) = with_number(lift, node.tensors().next()?, "add")?;
    let (last, node) = next(lift, root).filter(|(last, _)| *last > index)?;
    let numerator = match (op(node), is_inverse, parts(lift, node)?) {
        ("mul", true, both) => {
            orders(both).into_iter().find(|[_, other]| *other == Side::Value(plain(lift, root)))?[0].value()?
        }
        ("div", false, [numerator, other]) if other == Side::Value(plain(lift, root)) => numerator.value()?,
        _ => return None,
    };
    let result = output(node)?;
    if squares(lift, mean_of(lift, square)?) != Some(numerator) {
        return None;
    }
    // A centred value: its mean was taken away before.
    let centred = parts_of(lift, numerator, "sub").and_then(|[value, mean]| {
        let (value, mean) = (value.value()?, mean.value()?);
        (mean_of(lift, mean)? == value).then_some(value)
    });
    Some(match centred {
        Some(input) => (input, result, last, eps, "LayerNorm"),
        None => (numerator, result, last, eps, "RmsNorm"),
    })
}

/// Returns the value whose mean along the last axis a value is.
fn mean_of(lift: &Lift<'_>, value: ValueId) -> Option<ValueId> {
    let (_, node) = made_by(lift, value, "mean")?;
    let input = node.tensor("self")?;
    let rank = lift.model.values[input].shape.len();
    let [dim] = node.ints("dim")?[..] else { return None };
    let is_last = Some(crate::batch::index(dim, rank)) == rank.checked_sub(1) && node.is("keepdim", false);
    is_last.then(|| plain(lift, input))
}

/// Returns the value whose square a value is.
fn squares(lift: &Lift<'_>, value: ValueId) -> Option<ValueId> {
    let (_, node) = lift.maker(plain(lift, value))?;
    match &node.op[..] {
        "pow" => match parts(lift, node)? {
            [Side::Value(value), Side::Number(2.0)] => Some(value),
            _ => None,
        },
        "square" => node.tensor("self").map(|value| plain(lift, value)),
        "mul" => match parts(lift, node)? {
            [Side::Value(left), Side::Value(right)] if left == right => Some(left),
            _ => None,
        },
        _ => None,
    }
}

/// Looks for `x / max(|x|, eps)`, as `torch.nn.functional.normalize` writes it.
pub(super) fn length(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let node = &lift.model.nodes[index];
    let [Side::Value(input), Side::Value(divisor)] = parts(lift, node).filter(|_| node.op == "div")? else {
        return None;
    };
    let divisor = match made_by(lift, divisor, "expand_as").or_else(|| made_by(lift, divisor, "expand")) {
        Some((_, node)) => node.tensors().next()?,
        None => divisor,
    };
    let (_, bounded) = made_by(lift, divisor, "clamp_min").or_else(|| made_by(lift, divisor, "clamp"))?;
    let eps = bounded.float("min").filter(|eps| *eps > 0.0 && bounded.argument("max").is_none())?;
    let (_, norm) = made_by(lift, bounded.tensor("self")?, "linalg_vector_norm")
        .or_else(|| made_by(lift, bounded.tensor("self")?, "norm"))?;
    let order = norm.float("ord").or(norm.float("p")).unwrap_or(2.0);
    let [dim] = norm.ints("dim")?[..] else { return None };
    if plain(lift, norm.tensor("self")?) != input || order != 2.0 || !norm.is("keepdim", false) {
        return None;
    }
    let dim = lift.dim(input, dim)?;
    let layer = Layer::new("L2Norm", input, output(node)?).option("dim", dim, 1i64).option("eps", eps, 1e-12);
    lift.plan(index, vec![layer]);
    Some(())
}
