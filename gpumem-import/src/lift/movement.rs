//! Operations that change shapes and the order of axes, and products of two values.

use super::inputs::{of_one, tensor};
use super::shapes::{MOST_AXES, expand, permuted, reshape_lifted, reshaped};
use super::{Arguments, Layer, Lift, Result, einsum, refuse, wide};
use crate::model::{Node, ValueId};

/// Operations that return what they are given.
const SAME: [&str; 14] = [
    "contiguous",
    "clone",
    "alias",
    "detach",
    "lift_fresh_copy",
    "to",
    "type_as",
    "_to_copy",
    "float",
    "double",
    "half",
    "bfloat16",
    "identity",
    "requires_grad",
];
/// Operations that return the same elements under another shape.
const RESHAPES: [&str; 11] = [
    "view",
    "reshape",
    "_unsafe_view",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "reshape_as",
    "view_as",
    "atleast_2d",
    "ravel",
];

/// Lifts an operation that moves elements. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    let Some(&output) = node.outputs.first() else {
        // An assertion, or another operation without a result.
        return Ok(true);
    };
    match op {
        _ if SAME.contains(&op) => {
            let Some(input) = node.tensors().next() else { return Ok(false) };
            let dtypes = [input, output].map(|value| lift.model.values[value].dtype.is_float());
            if dtypes[0] != dtypes[1] {
                return refuse("it turns whole numbers into others, or the other way round");
            }
            if lift.wide.contains_key(&input) {
                // A copy, whose axes are moved when it gets fewer of them.
                return wide::reshape(lift, index, input, output);
            }
            let input = lift.operand(input)?;
            lift.same(output, input);
        }
        _ if RESHAPES.contains(&op) => reshape(lift, index, tensor(node, "self")?, output)?,
        "transpose" | "t" | "permute" | "swapaxes" | "numpy_T" | "movedim" | "moveaxis" | "adjoint" | "swapdims"
        | "mT" | "mH" => {
            permute(lift, index, node)?;
        }
        "expand" | "broadcast_to" | "expand_as" => {
            let input = tensor(node, "self")?;
            let input = lift.aligned(index, input, output)?;
            expand(lift, index, input, output)?;
        }
        "copy" => {
            let source = tensor(node, "src")?;
            let source = lift.aligned(index, source, output)?;
            expand(lift, index, source, output)?;
        }
        "matmul" | "bmm" | "mm" | "mv" | "dot" => {
            let second = if op == "matmul" {
                "other"
            } else if op == "mv" {
                "vec"
            } else {
                "mat2"
            };
            product(lift, index, [tensor(node, "self")?, tensor(node, second)?], output)?;
        }
        "baddbmm" | "addbmm" | "addmm" => sum_of_product(lift, index, node, op)?,
        "einsum" => einsum::lift(lift, index, node)?,
        "pixel_shuffle" | "pixel_unshuffle" => {
            lift.needs_plain_batch(tensor(node, "self")?)?;
            let (kind, factor) = match op {
                "pixel_shuffle" => ("PixelShuffle", node.int("upscale_factor")),
                _ => ("PixelUnshuffle", node.int("downscale_factor")),
            };
            let layer = of_one(lift, node, kind, "self")?.with(factor.unwrap_or(1));
            lift.add(index, layer);
        }
        "channel_shuffle" | "native_channel_shuffle" => {
            lift.needs_plain_batch(tensor(node, "self")?)?;
            let layer = of_one(lift, node, "ChannelShuffle", "self")?.with(node.int("groups").unwrap_or(1));
            lift.add(index, layer);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Adds a change of shape, unless a sample keeps its shape.
pub(super) fn reshape(lift: &mut Lift<'_>, index: usize, input: ValueId, output: ValueId) -> Result {
    if wide::reshape(lift, index, input, output)? {
        return Ok(());
    }
    let input = lift.operand(input)?;
    if lift.sample(output).len() > MOST_AXES {
        return wide::begin(lift, input, output);
    }
    reshape_lifted(lift, index, input, output)
}

fn permute(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (input, output) = (tensor(node, "self")?, node.outputs[0]);
    let order = crate::batch::order(node, lift.model.values[input].shape.len());
    let order: Vec<i64> = order.iter().filter_map(|&dim| lift.dim(input, dim as i64)).collect();
    if wide::permuted(lift, input, &order, output)? {
        return Ok(());
    }
    let input = lift.operand(input)?;
    permuted(lift, index, input, order, output)
}

/// Adds the product of two values: of matrices, of lists of matrices, of a matrix and a vector.
pub(super) fn product(lift: &mut Lift<'_>, index: usize, [a, b]: [ValueId; 2], output: ValueId) -> Result {
    let mut operands = [lift.aligned_product(index, a, output)?, lift.aligned_product(index, b, output)?];
    let ranks = [a, b].map(|value| lift.model.values[value].shape.len());
    let mut shapes = operands.map(|operand| lift.sample(operand));
    // A vector is a matrix of one row, or of one column.
    for (place, at_end) in [(0, false), (1, true)] {
        if ranks[place] == 1 {
            let mut shape = shapes[place].clone();
            shape.insert(if at_end { shape.len() } else { 0 }, 1);
            operands[place] = reshaped(lift, index, operands[place], &shape)?;
            shapes[place] = shape;
        }
    }
    let is_weight = shapes[1].len() == 2 && !lift.is_batched(operands[1]);
    if is_weight && shapes[0].len() == 1 {
        // The features of a sample are a matrix of one row.
        shapes[0].insert(0, 1);
        operands[0] = reshaped(lift, index, operands[0], &shapes[0].clone())?;
    }
    if !is_weight {
        if shapes.iter().any(|shape| shape.len() < 2) {
            return refuse("it multiplies samples with one another");
        }
        let rank = shapes[0].len().max(shapes[1].len());
        for (place, operand) in operands.iter_mut().enumerate() {
            let (own, other) = (&shapes[place], &shapes[1 - place]);
            let size = |shape: &[u64], dim: usize| (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim]);
            let mut wide: Vec<u64> = (0..rank - 2).map(|dim| size(own, dim).max(size(other, dim))).collect();
            wide.extend(&own[own.len() - 2..]);
            if wide != *own {
                let repeated = lift.between(&wide);
                expand(lift, index, *operand, repeated)?;
                *operand = lift.resolve(repeated);
            }
        }
    }
    let whole = operands.map(|operand| lift.sample(operand));
    let mut shape = whole[0].clone();
    let width = *whole[1].last().unwrap_or(&1);
    match shape.last_mut() {
        Some(last) => *last = width,
        None => return refuse("it has no axes"),
    }
    if shape == lift.sample(output) {
        lift.add(index, Layer::join("MatMul", operands.to_vec(), output));
        return Ok(());
    }
    let matrix = lift.between(&shape);
    lift.add(index, Layer::join("MatMul", operands.to_vec(), matrix));
    reshape_lifted(lift, index, matrix, output)
}

/// Lifts `beta * self + alpha * (a @ b)`.
fn sum_of_product(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let names = match op {
        "addmm" => ["mat1", "mat2"],
        _ => ["batch1", "batch2"],
    };
    if op == "addbmm" {
        return refuse("it sums over samples");
    }
    let (summand, output) = (tensor(node, "self")?, node.outputs[0]);
    let shape = lift.sample(output);
    let mut terms = Vec::new();
    for (factor, is_product) in [("beta", false), ("alpha", true)] {
        let value = match is_product {
            true => {
                let value = lift.between(&shape);
                product(lift, index, [tensor(node, names[0])?, tensor(node, names[1])?], value)?;
                lift.resolve(value)
            }
            false => lift.aligned(index, summand, output)?,
        };
        let factor = node.float(factor).unwrap_or(1.0);
        if factor == 0.0 {
            continue;
        }
        if factor == 1.0 {
            terms.push(value);
            continue;
        }
        let scaled = lift.between(&lift.sample(value));
        lift.add(index, Layer::new("Affine", value, scaled).with(factor).with(0.0));
        terms.push(scaled);
    }
    match terms[..] {
        [] => return refuse("it is 0"),
        [only] => lift.same(output, only),
        _ => lift.add(index, Layer::join("Add", terms, output)),
    }
    Ok(())
}
