//! Operations along axes: softmax, sums, means, norms, the largest elements.

use super::inputs::{of_one, tensor};
use super::shapes::{reshape_lifted, set_size};
use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::model::{Node, ValueId};

/// The longest axis along which sums so far are a product with a triangle of ones, which is a `Constant`.
const LONGEST_SUM: u64 = 64;

/// Lifts an operation along axes. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    match op {
        "softmax" | "_softmax" | "log_softmax" | "_log_softmax" => {
            let kind = if op.contains("log") { "LogSoftmax" } else { "Softmax" };
            let layer = softmax(lift, node, kind)?;
            lift.add(index, layer);
        }
        "softmin" => return refuse("the language has no Softmin"),
        "linalg_vector_norm" | "norm" => {
            let value = tensor(node, "self")?;
            let order = node.float("ord").or(node.float("p")).unwrap_or(2.0);
            let dims = dims(lift, node, value)?;
            let layer = of_one(lift, node, "Norm", "self")?;
            let layer = match order {
                order if order == f64::INFINITY => layer.with("inf"),
                order if order > 0.0 => layer.with(order),
                _ => return refuse("the order of its norm is not above 0"),
            };
            lift.add(index, layer.with(Literal::dims(&dims)).flag("keepdim", node.is("keepdim", false)));
        }
        "mean" | "sum" | "amax" | "amin" | "max" | "min" if node.tensor("other").is_none() => {
            reduction(lift, index, node, op)?
        }
        "cosine_similarity" => cosine(lift, index, node)?,
        "argmax" | "argmin" => argmax(lift, index, node, op)?,
        "topk" | "sort" => largest(lift, index, node, op)?,
        "var" | "std" | "var_mean" | "std_mean" => variance(lift, index, node, op)?,
        "logsumexp" => {
            let dims = dims(lift, node, tensor(node, "self")?)?;
            let input = lift.operand(tensor(node, "self")?)?;
            let output = node.outputs[0];
            let (powers, sums) = (lift.between(&lift.sample(input)), lift.between(&lift.sample(output)));
            lift.add(index, Layer::new("Exp", input, powers));
            let layer = Layer::new("Sum", powers, sums).with(Literal::dims(&dims));
            lift.add(index, layer.flag("keepdim", node.is("keepdim", false)));
            lift.add(index, Layer::new("Log", sums, output));
        }
        "cumsum" => sums_so_far(lift, index, node)?,
        "roll" => {
            let input = tensor(node, "self")?;
            let dims = node.ints("dims").unwrap_or_default();
            let dims: Option<Vec<i64>> = dims.into_iter().map(|dim| lift.dim(input, dim)).collect();
            let Some(dims) = dims.filter(|dims| !dims.is_empty()) else { return refuse("it rolls the batch") };
            let shifts = node.ints("shifts").unwrap_or_default();
            let layer = of_one(lift, node, "Roll", "self")?.with(Literal::dims(&shifts)).with(Literal::dims(&dims));
            lift.add(index, layer);
        }
        "glu" => {
            let input = tensor(node, "self")?;
            let Some(dim) = lift.dim(input, node.int("dim").unwrap_or(-1)) else {
                return refuse("it halves the batch");
            };
            let rank = lift.sample(input).len() as i64;
            let layer = of_one(lift, node, "Glu", "self")?.option("dim", dim, rank);
            lift.add(index, layer);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn softmax(lift: &mut Lift<'_>, node: &Node, kind: &'static str) -> Result<Layer> {
    let value = tensor(node, "self")?;
    let Some(dim) = lift.dim(value, node.int("dim").unwrap_or(-1)) else { return refuse("it runs along the batch") };
    let rank = lift.sample(value).len() as i64;
    let layer = of_one(lift, node, kind, "self")?;
    Ok(layer.option("dim", dim, if rank == 3 { 1 } else { rank }))
}

/// Returns the dimensions of an operation along axes, as the language counts them.
fn dims(lift: &Lift<'_>, node: &Node, value: ValueId) -> Result<Vec<i64>> {
    let rank = lift.model.values[value].shape.len() as i64;
    let dims = node.ints("dim").filter(|dims| !dims.is_empty()).unwrap_or_else(|| (0..rank).collect());
    let dims: Option<Vec<i64>> = dims.into_iter().map(|dim| lift.dim(value, dim)).collect();
    let Some(mut dims) = dims else { return refuse("it runs along the batch") };
    dims.sort_unstable();
    Ok(dims)
}

fn reduction(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let kind = match op {
        "mean" => "Mean",
        "sum" => "Sum",
        "amax" | "max" => "Max",
        _ => return least(lift, index, node),
    };
    let value = tensor(node, "self")?;
    if !lift.model.values[value].dtype.is_float() {
        return refuse("it counts tokens");
    }
    if node.outputs.get(1).is_some_and(|&indices| lift.is_read(indices)) {
        return refuse("its indices are read");
    }
    let dims = dims(lift, node, value)?;
    let keeps = node.is("keepdim", false);
    let layer = match (kind, &dims[..], keeps, lift.sample(value).len()) {
        ("Mean", [2, 3], false, 3) => of_one(lift, node, "GlobalAvgPool", "self")?,
        ("Mean", [2, 3], true, 3) => of_one(lift, node, "AdaptiveAvgPool2d", "self")?.with(1i64),
        _ => of_one(lift, node, kind, "self")?.with(Literal::dims(&dims)).flag("keepdim", keeps),
    };
    lift.add(index, layer);
    Ok(())
}

/// Lifts the least elements: the largest ones of the negated value, negated.
fn least(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let dims = dims(lift, node, value)?;
    let input = lift.operand(value)?;
    let (negated, largest) = (lift.between(&lift.sample(input)), lift.between(&lift.sample(output)));
    lift.add(index, Layer::new("Affine", input, negated).with(-1.0).with(0.0));
    let layer = Layer::new("Max", negated, largest).with(Literal::dims(&dims));
    lift.add(index, layer.flag("keepdim", node.is("keepdim", false)));
    lift.add(index, Layer::new("Affine", largest, output).with(-1.0).with(0.0));
    Ok(())
}

/// Lifts the cosine between vectors: the sum of products of normalised ones.
fn cosine(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (a, b, output) = (tensor(node, "x1")?, tensor(node, "x2")?, node.outputs[0]);
    if lift.model.values[a].shape != lift.model.values[b].shape {
        return refuse("it compares values of different shapes");
    }
    let Some(dim) = lift.dim(a, node.int("dim").unwrap_or(1)) else { return refuse("it runs along the batch") };
    let eps = node.float("eps").unwrap_or(1e-8);
    let mut inputs = Vec::new();
    for value in [a, b] {
        let (input, normalised) = (lift.operand(value)?, lift.between(&lift.sample(value)));
        lift.add(index, Layer::new("L2Norm", input, normalised).with(dim).set("eps", eps));
        inputs.push(normalised);
    }
    let products = lift.between(&lift.sample(a));
    lift.add(index, Layer::join("Mul", inputs, products));
    lift.add(index, Layer::new("Sum", products, output).with(dim));
    Ok(())
}

/// Lifts the place of the largest element, or of the least: that is the largest of the negated value.
fn argmax(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let value = tensor(node, "self")?;
    let Some(dim) = node.int("dim") else { return refuse("it compares all samples") };
    let Some(dim) = lift.dim(value, dim) else { return refuse("it runs along the batch") };
    let keeps = node.is("keepdim", false);
    let mut layer = of_one(lift, node, "ArgMax", "self")?;
    if op == "argmin" {
        if !lift.model.values[value].dtype.is_float() {
            return refuse("it compares tokens");
        }
        let negated = lift.between(&lift.sample(layer.inputs[0]));
        lift.add(index, Layer::new("Affine", layer.inputs[0], negated).with(-1.0).with(0.0));
        layer.inputs = vec![negated];
    }
    let is_text = !lift.model.values[value].dtype.is_float() && lift.sample(value).len() == 1;
    let layer = if is_text { layer } else { layer.with(dim).flag("keepdim", keeps) };
    lift.add(index, layer);
    Ok(())
}

fn largest(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let value = tensor(node, "self")?;
    let Some(dim) = lift.dim(value, node.int("dim").unwrap_or(-1)) else { return refuse("it runs along the batch") };
    let sample = lift.sample(value);
    let count = match op {
        "topk" => node.int("k").unwrap_or(1),
        _ => usize::try_from(dim - 1).ok().and_then(|dim| sample.get(dim)).map_or(1, |&size| size as i64),
    };
    let is_largest = if op == "topk" { node.is("largest", true) } else { node.is("descending", false) };
    let input = lift.operand(value)?;
    for (place, &output) in node.outputs.iter().enumerate().take(2) {
        if lift.is_read(output) {
            let layer = Layer::new("TopK", input, output).with(count);
            let layer = if dim == sample.len() as i64 { layer } else { layer.with(dim) };
            lift.add(index, layer.option("largest", is_largest, true).flag("indices", place == 1));
        }
    }
    Ok(())
}

/// Lifts variances and deviations: the mean of the squares of differences to the mean.
fn variance(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let value = tensor(node, "self")?;
    let (sample, dims) = (lift.sample(value), dims(lift, node, value)?);
    let input = lift.operand(value)?;
    let count: u64 = dims
        .iter()
        .filter_map(|&dim| sample.get(usize::try_from(dim - 1).ok()?))
        .fold(1, |count, &size| count.saturating_mul(size));
    let correction = match node.float("correction") {
        Some(correction) => correction,
        None if node.is("unbiased", true) => 1.0,
        None => 0.0,
    };
    let keeps = node.is("keepdim", false);
    let mut narrow = sample.clone();
    for &dim in &dims {
        set_size(&mut narrow, dim, 1)?;
    }
    let along = Literal::dims(&dims);
    let means = lift.between(&narrow);
    lift.add(index, Layer::new("Mean", input, means).with(along.clone()).flag("keepdim", true));
    let (centred, squares) = (lift.between(&sample), lift.between(&sample));
    lift.add(index, Layer::join("Sub", vec![input, means], centred));
    lift.add(index, Layer::new("Pow", centred, squares).with(2.0));
    let output = node.outputs[0];
    let is_root = op.starts_with("std");
    let factor = count as f64 / (count as f64 - correction);
    let mut last = if factor == 1.0 && !is_root { output } else { lift.between(&lift.sample(output)) };
    lift.add(index, Layer::new("Mean", squares, last).with(along).flag("keepdim", keeps));
    if factor != 1.0 {
        let next = if is_root { lift.between(&lift.sample(output)) } else { output };
        lift.add(index, Layer::new("Affine", last, next).with(factor).with(0.0));
        last = next;
    }
    if is_root {
        lift.add(index, Layer::new("Sqrt", last, output));
    }
    match node.outputs.get(1).filter(|&&mean| lift.is_read(mean)) {
        Some(&mean) if lift.sample(mean) == narrow => {
            lift.same(mean, means);
            Ok(())
        }
        Some(&mean) => reshape_lifted(lift, index, means, mean),
        None => Ok(()),
    }
}

/// Lifts sums of all elements so far: a product with a triangle of ones.
fn sums_so_far(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let value = tensor(node, "self")?;
    let sample = lift.sample(value);
    let Some(dim) = lift.dim(value, node.int("dim").unwrap_or(-1)) else { return refuse("it runs along the batch") };
    let length = usize::try_from(dim - 1).ok().and_then(|dim| sample.get(dim)).copied().unwrap_or(0);
    if !lift.model.values[value].dtype.is_float() {
        return refuse("it counts tokens");
    }
    if dim != sample.len() as i64 || length > LONGEST_SUM {
        return refuse(format!(
            "it sums {length} elements so far; that is lifted for at most {LONGEST_SUM} of the last axis"
        ));
    }
    let input = lift.operand(value)?;
    let numbers = (0..length * length).map(|at| f64::from(u8::from(at / length <= at % length)));
    let triangle = lift.between(&[length, length]);
    let layer = lift.constant(index, triangle, vec![length, length], numbers.collect())?;
    lift.add(index, layer);
    lift.add(index, Layer::join("MatMul", vec![input, triangle], node.outputs[0]));
    Ok(())
}
