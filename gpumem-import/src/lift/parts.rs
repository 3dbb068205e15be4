//! Parts of values, and joins of values along an axis.

use super::inputs::tensor;
use super::{Arguments, Layer, Lift, Result, refuse, shapes};
use crate::model::{Argument, Node, ValueId};

/// Lifts an operation that takes values apart or puts them together. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    match op {
        "select" | "unbind" => selected(lift, index, node, op)?,
        "slice" | "narrow" => slice(lift, index, node, op)?,
        "split" | "split_with_sizes" | "chunk" | "tensor_split" | "unsafe_split" | "unsafe_chunk" => {
            split(lift, index, node)?;
        }
        "cat" | "concat" | "concatenate" => concat(lift, index, node)?,
        "stack" => stack(lift, index, node)?,
        "repeat" | "tile" => repeat(lift, index, node)?,
        "repeat_interleave" => repeat_elements(lift, index, node)?,
        "flip" => flip(lift, index, node)?,
        "unfold" => windows(lift, index, node)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn selected(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let value = tensor(node, "self")?;
    let Some(dim) = lift.dim(value, node.int("dim").unwrap_or(0)) else { return refuse("it picks samples") };
    let input = lift.operand(value)?;
    let is_vector = lift.sample(input).len() == 1;
    for (place, &output) in node.outputs.iter().enumerate() {
        if !lift.is_read(output) {
            continue;
        }
        let at = if op == "select" { node.int("index").unwrap_or(0) } else { place as i64 };
        // The only axis of a sample stays, since a value has at least one.
        if is_vector {
            let layer = Layer::new("Slice", input, output).with(at);
            lift.add(index, if at == -1 { layer } else { layer.with(at + 1) });
        } else {
            lift.add(index, Layer::new("Select", input, output).with(at).option("dim", dim, 1i64));
        }
    }
    Ok(())
}

/// Adds a slice from `start` to `end` along a dimension of the language.
pub(super) fn sliced(
    lift: &mut Lift<'_>,
    index: usize,
    [input, output]: [ValueId; 2],
    [start, end]: [u64; 2],
    dim: i64,
) -> Result {
    let Some(size) = usize::try_from(dim - 1).ok().and_then(|dim| lift.sample(input).get(dim).copied()) else {
        return refuse("it has no such axis");
    };
    if [start, end] == [0, size] {
        lift.same(output, input);
        return Ok(());
    }
    if start >= end || end > size {
        return refuse("its result has no elements");
    }
    let layer = Layer::new("Slice", input, output).with(start);
    let layer = if end == size { layer } else { layer.with(end) };
    lift.add(index, layer.option("dim", dim, 1i64));
    Ok(())
}

fn slice(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let shape = &lift.model.values[value].shape;
    let whole = crate::batch::index(node.int("dim").unwrap_or(0), shape.len());
    let (Some(&size), Some(&length)) = (shape.get(whole), lift.model.values[output].shape.get(whole)) else {
        return refuse("it has no such axis");
    };
    let step = node.int("step").filter(|_| op == "slice").and_then(|step| u64::try_from(step).ok()).unwrap_or(1).max(1);
    let start = node.int("start").unwrap_or(0);
    let start = if start < 0 { start.saturating_add_unsigned(size) } else { start }.clamp(0, size as i64) as u64;
    let input = lift.operand(value)?;
    let Some(dim) = lift.dim(value, whole as i64) else {
        if length != size {
            return refuse("it picks samples");
        }
        lift.same(output, input);
        return Ok(());
    };
    if length == 0 {
        return refuse("its result has no elements");
    }
    if step == 1 || length == 1 {
        return sliced(lift, index, [input, output], [start, start.saturating_add(length)], dim);
    }
    every_other(lift, index, [input, output], [start, step, length], dim)
}

/// Adds a slice with steps: rows of `step` elements, of which one is taken.
fn every_other(
    lift: &mut Lift<'_>,
    index: usize,
    [input, output]: [ValueId; 2],
    [start, step, length]: [u64; 3],
    dim: i64,
) -> Result {
    let (shape, place) = (lift.sample(input), usize::try_from(dim - 1).unwrap_or(usize::MAX));
    let (Some(&size), Some(taken)) = (shape.get(place), length.checked_mul(step).filter(|all| *all < 1 << 62)) else {
        return refuse("it has no such axis, or its steps are too long");
    };
    // Rows begin at the start of the axis if all of them fit so.
    let (first, chosen) = if start < step && taken <= size { (0, start) } else { (start, 0) };
    // The last row may be shorter than the others: its element is taken by itself.
    let rows = if first.saturating_add(taken) <= size { length } else { length.saturating_sub(1) };
    let mut cut = shape;
    cut[place] = rows * step;
    let whole = lift.between(&cut);
    sliced(lift, index, [input, whole], [first, first + rows * step], dim)?;
    let whole = lift.resolve(whole);
    let mut apart = cut.clone();
    apart[place] = rows;
    let narrow = apart.clone();
    apart.insert(place + 1, step);
    let pairs = lift.between(&apart);
    shapes::reshape_lifted(lift, index, whole, pairs)?;
    let pairs = lift.resolve(pairs);
    let taken = if rows == length { output } else { lift.between(&narrow) };
    lift.add(index, Layer::new("Select", pairs, taken).with(chosen).option("dim", dim + 1, 1i64));
    if rows < length {
        cut[place] = 1;
        let last = lift.between(&cut);
        let at = first + rows * step;
        sliced(lift, index, [input, last], [at, at + 1], dim)?;
        joined(lift, index, vec![taken, last], output, dim);
    }
    Ok(())
}

fn split(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let value = tensor(node, "self")?;
    let whole = crate::batch::index(node.int("dim").unwrap_or(0), lift.model.values[value].shape.len());
    let input = lift.operand(value)?;
    let dim = lift.dim(value, whole as i64);
    let mut start = 0;
    for &output in &node.outputs {
        let Some(&length) = lift.model.values[output].shape.get(whole) else { return refuse("it has no such axis") };
        if lift.is_read(output) {
            match dim {
                Some(dim) => sliced(lift, index, [input, output], [start, start + length], dim)?,
                None if node.outputs.len() == 1 => lift.same(output, input),
                None => return refuse("it picks samples"),
            }
        }
        start += length;
    }
    Ok(())
}

fn tensors(node: &Node) -> Result<Vec<ValueId>> {
    match node.argument("tensors") {
        Some(Argument::Tensors(values)) => Ok(values.iter().copied().flatten().collect()),
        _ => refuse("it has no list of tensors"),
    }
}

/// Adds a join along a dimension of the language.
pub(super) fn joined(lift: &mut Lift<'_>, index: usize, inputs: Vec<ValueId>, output: ValueId, dim: i64) {
    let rank = lift.sample(output).len() as i64;
    match inputs[..] {
        [only] => lift.same(output, only),
        _ => {
            // Sequences grow in width, and others in their first axis.
            let usual: i64 = if rank == 2 { 2 } else { 1 };
            lift.add(index, Layer::join("Concat", inputs, output).option("dim", dim, usual));
        }
    }
}

fn concat(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (values, output) = (tensors(node)?, node.outputs[0]);
    let whole = crate::batch::index(node.int("dim").unwrap_or(0), lift.model.values[output].shape.len());
    let Some(dim) = lift.dim(output, whole as i64) else { return refuse("it joins samples") };
    // An empty tensor of one axis is ignored, as in PyTorch.
    let is_empty = |value: &ValueId| lift.model.values[*value].elements() == Some(0);
    let values: Vec<ValueId> = values.into_iter().filter(|value| !is_empty(value)).collect();
    let inputs = values.into_iter().map(|value| lift.aligned(index, value, output)).collect::<Result<Vec<_>>>()?;
    if inputs.is_empty() {
        return refuse("it joins nothing");
    }
    joined(lift, index, inputs, output, dim);
    Ok(())
}

fn stack(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (values, output) = (tensors(node)?, node.outputs[0]);
    let whole = crate::batch::index(node.int("dim").unwrap_or(0), lift.model.values[output].shape.len());
    let Some(dim) = lift.dim(output, whole as i64) else { return refuse("it joins samples") };
    let mut wide = lift.sample(output);
    shapes::set_size(&mut wide, dim, 1)?;
    let mut inputs = Vec::new();
    for value in values {
        let (input, part) = (lift.operand(value)?, lift.between(&wide));
        if lift.sample(input) == wide || shapes::elements(&lift.sample(input)) != shapes::elements(&wide) {
            shapes::reshape_lifted(lift, index, input, part)?;
        } else {
            lift.add(index, Layer::new("Unsqueeze", input, part).with(dim));
        }
        inputs.push(lift.resolve(part));
    }
    joined(lift, index, inputs, output, dim);
    Ok(())
}

/// Lifts a repetition of whole values: a join with itself, or an expansion of axes of one element.
fn repeat(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let input = lift.aligned(index, value, output)?;
    let (from, to) = (lift.sample(input), lift.sample(output));
    let shift = to.len().saturating_sub(from.len());
    let size = |dim: usize| dim.checked_sub(shift).and_then(|dim| from.get(dim)).copied().unwrap_or(1);
    if from.len() <= to.len() && (0..to.len()).all(|dim| size(dim) == to[dim] || size(dim) == 1) {
        return shapes::expand(lift, index, input, output);
    }
    // A new axis before each repeated one is expanded, and merged with it.
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    for (dim, &whole) in to.iter().enumerate() {
        let size = size(dim);
        if size == 0 || whole % size != 0 || from.len() > to.len() {
            return refuse("it repeats samples");
        }
        if whole != size {
            narrow.push(1);
            wide.push(whole / size);
        }
        narrow.push(size);
        wide.push(size);
    }
    let (narrow, wide) = (lift.between(&narrow), lift.between(&wide));
    shapes::reshape_lifted(lift, index, input, narrow)?;
    let narrow = lift.resolve(narrow);
    shapes::expand(lift, index, narrow, wide)?;
    shapes::reshape_lifted(lift, index, wide, output)
}

/// Lifts a repetition of each element along an axis.
fn repeat_elements(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let Some(dim) = node.int("dim") else { return refuse("it repeats elements of a whole batch") };
    if node.int("repeats").is_none() {
        return refuse("it repeats each element another number of times");
    }
    let input = lift.operand(value)?;
    let Some(dim) = lift.dim(value, dim) else { return shapes::expand(lift, index, input, output) };
    let (mut narrow, to) = (lift.sample(input), lift.sample(output));
    let place = usize::try_from(dim - 1).unwrap_or(usize::MAX);
    let mut wide = narrow.clone();
    let (Some(&whole), Some(&size)) = (to.get(place), narrow.get(place)) else { return refuse("it has no such axis") };
    shapes::insert_size(&mut narrow, dim + 1, 1)?;
    shapes::insert_size(&mut wide, dim + 1, whole / size.max(1))?;
    let (narrow, wide) = (lift.between(&narrow), lift.between(&wide));
    shapes::reshape_lifted(lift, index, input, narrow)?;
    let narrow = lift.resolve(narrow);
    shapes::expand(lift, index, narrow, wide)?;
    shapes::reshape_lifted(lift, index, wide, output)
}

/// Lifts windows along an axis, which may overlap: slices, which are put together. Their elements are the last axis.
fn windows(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let whole = crate::batch::index(node.int("dimension").unwrap_or(0), lift.model.values[value].shape.len());
    let Some(dim) = lift.dim(value, whole as i64) else { return refuse("it takes windows of samples") };
    let (Some(&count), Some(&size)) =
        (lift.model.values[output].shape.get(whole), lift.model.values[output].shape.last())
    else {
        return refuse("it has no such axis");
    };
    let step = node.int("step").and_then(|step| u64::try_from(step).ok()).unwrap_or(1);
    if count > MOST_PARTS {
        return refuse(format!("it takes {count} windows that overlap"));
    }
    let input = lift.operand(value)?;
    let mut shape = lift.sample(input);
    shapes::set_size(&mut shape, dim, size)?;
    let mut wide = shape.clone();
    shapes::insert_size(&mut wide, dim, 1)?;
    let mut parts = Vec::new();
    for at in 0..count {
        let (part, own) = (lift.between(&shape), lift.between(&wide));
        sliced(
            lift,
            index,
            [input, part],
            [at.saturating_mul(step), at.saturating_mul(step).saturating_add(size)],
            dim,
        )?;
        let part = lift.resolve(part);
        lift.add(index, Layer::new("Unsqueeze", part, own).with(dim));
        parts.push(own);
    }
    shapes::set_size(&mut wide, dim, count)?;
    let all = lift.between(&wide);
    joined(lift, index, parts, all, dim);
    let all = lift.resolve(all);
    let mut order: Vec<i64> = (1..=wide.len() as i64).collect();
    order.retain(|&other| other != dim + 1);
    order.push(dim + 1);
    shapes::permuted(lift, index, all, order, output)
}

/// Lifts the other order of a short axis: a join of its elements.
fn flip(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let mut current = lift.operand(value)?;
    let dims = node.ints("dims").unwrap_or_default();
    let sample = lift.sample(current);
    for (place, dim) in dims.iter().enumerate() {
        let Some(dim) = lift.dim(value, *dim) else { return refuse("it turns the batch round") };
        let size = usize::try_from(dim - 1).ok().and_then(|dim| sample.get(dim)).copied().unwrap_or(1);
        if size > MOST_PARTS {
            return refuse(format!("it turns an axis of {size} elements round; the language has no such layer"));
        }
        let mut narrow = sample.clone();
        shapes::set_size(&mut narrow, dim, 1)?;
        let mut parts = Vec::new();
        for at in (0..size).rev() {
            let part = lift.between(&narrow);
            sliced(lift, index, [current, part], [at, at + 1], dim)?;
            parts.push(lift.resolve(part));
        }
        let next = if place + 1 == dims.len() { output } else { lift.between(&sample) };
        joined(lift, index, parts, next, dim);
        current = lift.resolve(next);
    }
    Ok(())
}

/// The most parts that a value is taken into to put them together in another order.
pub(super) const MOST_PARTS: u64 = 16;
