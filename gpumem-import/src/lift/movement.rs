//! Operations that change shapes and the order of axes, and products of two values.

use super::weighted::{of_one, tensor};
use super::{Arguments, Layer, Lift, Literal, Result, einsum, refuse};
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
/// The most axes of a sample in the language.
const MOST_AXES: usize = 6;

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
            let input = lift.operand(input)?;
            lift.same(output, input);
        }
        _ if RESHAPES.contains(&op) => reshape(lift, index, tensor(node, "self")?, output)?,
        "transpose" | "t" | "permute" | "swapaxes" | "numpy_T" | "movedim" | "adjoint" | "swapdims" => {
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
    let input = lift.operand(input)?;
    reshape_lifted(lift, index, input, output)
}

/// Adds a change of shape of a value that has been lifted.
pub(super) fn reshape_lifted(lift: &mut Lift<'_>, index: usize, input: ValueId, output: ValueId) -> Result {
    let (from, to) = (lift.sample(input), lift.sample(output));
    if from == to {
        lift.same(output, input);
        return Ok(());
    }
    let layer = match &to[..] {
        [_] => Layer::new("Flatten", input, output),
        _ if to.len() > MOST_AXES => return refuse(format!("a sample of its result has more than {MOST_AXES} axes")),
        _ => Layer::new("Reshape", input, output).with(sizes(&to)),
    };
    lift.add(index, layer);
    Ok(())
}

fn sizes(shape: &[u64]) -> Literal {
    Literal::dims(&shape.iter().map(|&size| size as i64).collect::<Vec<_>>())
}

/// Returns the order of the axes of a permutation of all dimensions.
fn order_of(node: &Node, rank: usize) -> Vec<usize> {
    let at = |dim: i64| crate::batch::index(dim, rank);
    if let (Some(from), Some(to)) = (node.ints("source"), node.ints("destination")) {
        let (from, to): (Vec<usize>, Vec<usize>) =
            (from.into_iter().map(at).collect(), to.into_iter().map(at).collect());
        let mut rest = (0..rank).filter(|dim| !from.contains(dim));
        let place = |dim: usize| match to.iter().position(|&other| other == dim) {
            Some(place) => from.get(place).copied(),
            None => rest.next(),
        };
        return (0..rank).filter_map(place).collect();
    }
    match node.ints("dims") {
        Some(dims) => dims.into_iter().map(at).collect(),
        None => {
            let first = node.int("dim0").or(node.int("axis0")).unwrap_or(if node.op == "adjoint" { -2 } else { 0 });
            let second = node.int("dim1").or(node.int("axis1")).unwrap_or(-1);
            let (a, b) = (at(first), at(second));
            (0..rank)
                .map(|dim| {
                    if dim == a {
                        b
                    } else if dim == b {
                        a
                    } else {
                        dim
                    }
                })
                .collect()
        }
    }
}

fn permute(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (input, output) = (tensor(node, "self")?, node.outputs[0]);
    let order = order_of(node, lift.model.values[input].shape.len());
    let order: Vec<i64> = order.iter().filter_map(|&dim| lift.dim(input, dim as i64)).collect();
    let input = lift.operand(input)?;
    permuted(lift, index, input, order, output)
}

/// Adds a change of the order of axes, which count from 1.
pub(super) fn permuted(lift: &mut Lift<'_>, index: usize, input: ValueId, order: Vec<i64>, output: ValueId) -> Result {
    if order.is_sorted() {
        return reshape_lifted(lift, index, input, output);
    }
    let sample = lift.sample(input);
    let size = |dim: i64| usize::try_from(dim - 1).ok().and_then(|dim| sample.get(dim));
    let moved: Vec<i64> = order.iter().copied().filter(|&dim| size(dim) != Some(&1)).collect();
    if moved.is_sorted() {
        // Only axes of one element change places.
        return reshape_lifted(lift, index, input, output);
    }
    let places = order.iter().enumerate();
    let swapped: Vec<i64> = places.filter(|(at, dim)| *at as i64 + 1 != **dim).map(|(_, dim)| *dim).collect();
    let layer = match swapped[..] {
        [b, a] => Layer::new("Transpose", input, output).with(a).with(b),
        _ => order.into_iter().fold(Layer::new("Permute", input, output).with(0i64), Layer::with),
    };
    lift.add(index, layer);
    Ok(())
}

/// Repeats axes of one element of a value that has been lifted, and puts new axes before the others.
pub(super) fn expand(lift: &mut Lift<'_>, index: usize, input: ValueId, output: ValueId) -> Result {
    let (from, to) = (lift.sample(input), lift.sample(output));
    if from.iter().product::<u64>() == to.iter().product::<u64>() {
        return reshape_lifted(lift, index, input, output);
    }
    if to.len() > MOST_AXES {
        return refuse(format!("a sample of its result has more than {MOST_AXES} axes"));
    }
    let mut source = input;
    if let Some(extra) = from.len().checked_sub(to.len()).filter(|&extra| extra > 0) {
        // A single number has an axis in the language, or the first axes are those of the batch.
        let shape = from[extra..].to_vec();
        source = lift.between(&shape);
        lift.add(index, Layer::new("Reshape", input, source).with(sizes(&shape)));
    }
    lift.add(index, Layer::new("Expand", source, output).with(sizes(&to)));
    Ok(())
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

fn reshaped(lift: &mut Lift<'_>, index: usize, value: ValueId, shape: &[u64]) -> Result<ValueId> {
    let output = lift.between(shape);
    reshape_lifted(lift, index, value, output)?;
    Ok(lift.resolve(output))
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
