//! LayerNorm in pieces, and GroupNorm as InstanceNorm of another shape.

use super::Composer;
use crate::model::{Argument, Node, ValueId};

/// Finds a pattern that ends at a node.
pub(super) fn find(composer: &mut Composer<'_>, index: usize) -> Option<Node> {
    match &composer.node(index).op[..] {
        "div" | "mul" => layer_norm(composer, index).or_else(|| scaled(composer, index)),
        "add" => moved(composer, index),
        "reshape" => group_norm(composer, index),
        _ => None,
    }
}

fn ints(node: &Node, name: &str) -> Option<Vec<i64>> {
    match node.argument(name)? {
        Argument::Ints(numbers) => Some(numbers.clone()),
        Argument::Int(number) => Some(vec![*number]),
        _ => None,
    }
}

/// Returns what is averaged over its last axes, and how many those are.
fn mean(composer: &Composer<'_>, value: ValueId) -> Option<(ValueId, usize)> {
    let node = composer.made(value, &["mean"])?;
    let source = node.tensor("self")?;
    let rank = composer.shape(source).len();
    let dims = ints(node, "dim")?;
    let keeps = matches!(node.argument("keepdim"), Some(Argument::Bool(true)));
    let is_last = dims.iter().rev().enumerate().all(|(at, &dim)| dim == (rank - 1 - at.min(rank - 1)) as i64);
    (keeps && is_last && !dims.is_empty()).then_some((source, dims.len()))
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)`.
fn layer_norm(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let (centred, root) = (node.tensor("self")?, node.tensor("other")?);
    let sum = match &node.op[..] {
        "div" => composer.made(root, &["sqrt"])?.tensor("self")?,
        _ => composer.made(root, &["rsqrt"])?.tensor("self")?,
    };
    let sum = composer.made(sum, &["add"])?;
    let eps = composer.number(sum, "other")?;
    let (square, axes) = mean(composer, sum.tensor("self")?)?;
    let square = composer.made(square, &["pow", "mul"])?;
    let is_square = match &square.op[..] {
        "pow" => composer.number(square, "exponent") == Some(2.0),
        _ => square.tensor("other") == Some(centred),
    };
    let difference = composer.made(centred, &["sub"])?;
    let x = difference.tensor("self")?;
    let (averaged, others) = mean(composer, difference.tensor("other")?)?;
    if !is_square || square.tensor("self") != Some(centred) || averaged != x || axes != others {
        return None;
    }
    let shape = composer.shape(x);
    let normalized = shape[shape.len() - axes..].iter().map(|&size| size as i64).collect();
    let arguments = vec![
        ("input", Argument::Tensor(x)),
        ("normalized_shape", Argument::Ints(normalized)),
        ("weight", Argument::None),
        ("bias", Argument::None),
        ("eps", Argument::Float(eps)),
    ];
    Some(composer.replaced(index, "layer_norm", arguments))
}

/// Returns the parameter of so many elements that a factor is, whatever axes of one element it was given.
fn parameter(composer: &Composer<'_>, mut value: ValueId, elements: u64) -> Option<ValueId> {
    while let Some(node) = composer.made(value, &["unsqueeze", "reshape"]) {
        value = node.tensor("self")?;
    }
    (composer.is_parameter(value) && composer.shape(value) == [elements]).then_some(value)
}

/// Returns the shape of the parameters of a normalisation.
fn parameters(composer: &Composer<'_>, norm: &Node) -> Option<Vec<u64>> {
    match &norm.op[..] {
        "layer_norm" => ints(norm, "normalized_shape")?.into_iter().map(|size| u64::try_from(size).ok()).collect(),
        _ => Some(vec![*composer.shape(norm.tensor("input")?).get(1)?]),
    }
}

/// Finds the normalisation that an operation multiplies or adds to, and the parameter that it does this with.
fn operand(composer: &Composer<'_>, node: &Node) -> Option<(Node, ValueId)> {
    for (value, other) in composer.orders(node) {
        let Some(norm) = composer.made(value, &["layer_norm", "group_norm"]) else { continue };
        let shape = parameters(composer, norm)?;
        let found = match (&norm.op[..], &shape[..]) {
            ("layer_norm", _) => (composer.is_parameter(other) && composer.shape(other) == shape).then_some(other),
            (_, [channels]) => {
                // A factor of channels has an axis of one element for each axis of the image.
                let axes = composer.shape(value).len() - 2;
                let is_wide = composer.shape(other).iter().rev().take(axes).all(|&size| size == 1);
                parameter(composer, other, *channels).filter(|_| is_wide)
            }
            _ => None,
        };
        if let (Some(found), true) = (found, composer.is_read_once(value)) {
            return Some((norm.clone(), found));
        }
    }
    None
}

fn with(composer: &Composer<'_>, index: usize, norm: Node, name: &str, value: ValueId) -> Node {
    let mut node =
        Node { outputs: composer.node(index).outputs.clone(), name: composer.node(index).name.clone(), ..norm };
    for (other, argument) in &mut node.arguments {
        if other == name {
            *argument = Argument::Tensor(value);
        }
    }
    node
}

fn scaled(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let (norm, weight) = operand(composer, node).filter(|_| node.op == "mul")?;
    let is_bare = norm.tensor("weight").is_none() && norm.tensor("bias").is_none();
    is_bare.then(|| with(composer, index, norm, "weight", weight))
}

fn moved(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let (norm, bias) = operand(composer, composer.node(index))?;
    let lacks_bias = norm.tensor("weight").is_some() && norm.tensor("bias").is_none();
    lacks_bias.then(|| with(composer, index, norm, "bias", bias))
}

/// InstanceNorm of groups as channels, between two changes of shape.
fn group_norm(composer: &Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    let norm = composer.made(node.tensor("self")?, &["instance_norm"])?;
    let grouped = norm.tensor("input")?;
    let x = composer.made(grouped, &["reshape"])?.tensor("self")?;
    let (whole, groups) = (composer.shape(x), composer.shape(grouped));
    let is_plain =
        norm.tensor("weight").is_none() && norm.tensor("bias").is_none() && norm.tensor("running_mean").is_none();
    let is_split = whole.len() > 2
        && groups.len() > 2
        && whole[0] == groups[0]
        && groups[1] > 0
        && whole[1].is_multiple_of(groups[1]);
    if !is_plain || !is_split || composer.shape(node.outputs[0]) != whole {
        return None;
    }
    let arguments = vec![
        ("input", Argument::Tensor(x)),
        ("num_groups", Argument::Int(groups[1] as i64)),
        ("weight", Argument::None),
        ("bias", Argument::None),
        ("eps", norm.argument("eps").cloned().unwrap_or(Argument::Float(1e-5))),
        ("cudnn_enabled", Argument::Bool(true)),
    ];
    Some(composer.replaced(index, "group_norm", arguments))
}
