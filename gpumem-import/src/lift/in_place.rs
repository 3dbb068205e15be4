//! Changes in place: whoever reads the changed memory afterwards reads the result.

use super::parts::joined;
use super::{Arguments, Layer, Lift, Result, movement, refuse};
use crate::model::{Node, ValueId};

/// Views that have all elements of their input, in the same order.
const WHOLE: [&str; 10] =
    ["view", "squeeze", "unsqueeze", "flatten", "unflatten", "view_as", "detach", "alias", "contiguous", "to"];
/// Views of a part of their input, or in another order.
const PARTIAL: [&str; 6] = ["slice", "select", "narrow", "transpose", "permute", "t"];
/// Views of several parts, and others that nothing is written through.
const OTHER: [&str; 8] =
    ["split", "chunk", "unbind", "split_with_sizes", "expand", "expand_as", "tensor_split", "diagonal"];

/// True if an operation changes its first argument.
pub(super) fn changes_first(node: &Node) -> bool {
    node.op.ends_with('_') && !node.op.ends_with("__") && node.tensors().next().is_some()
}

/// Returns the value that `value` is a view of, and the node that makes the view. `None` if it has memory of its own.
fn base(lift: &Lift<'_>, value: ValueId) -> Option<(ValueId, usize)> {
    let maker = lift.makers[value]?;
    let node = &lift.model.nodes[maker];
    let op = &node.op[..];
    let is_view = WHOLE.contains(&op) || PARTIAL.contains(&op) || OTHER.contains(&op) || changes_first(node);
    let input = node.tensors().next()?;
    // A reshape is a view if it can be one; both have the same elements.
    (is_view || op == "reshape").then_some((input, maker))
}

/// True if a node after `index` reads the value, or the network returns it.
fn is_read_after(lift: &Lift<'_>, value: ValueId, index: usize) -> bool {
    lift.readers[value].iter().any(|&reader| reader > index) || lift.model.outputs.contains(&value)
}

/// Returns all values that share memory with `value` and are made before `index`.
fn relatives(lift: &Lift<'_>, value: ValueId, index: usize) -> Vec<ValueId> {
    let mut root = value;
    // A view is made after what it is a view of, in sound files.
    while let Some((input, _)) = base(lift, root).filter(|(input, _)| lift.makers[*input] < lift.makers[root]) {
        root = input;
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&one) = found.get(at).filter(|_| found.len() <= lift.model.values.len()) {
        for &reader in lift.readers[one].iter().filter(|&&reader| reader < index) {
            let outputs = lift.model.nodes[reader].outputs.iter();
            found.extend(outputs.copied().filter(|&output| base(lift, output).is_some_and(|(input, _)| input == one)));
        }
        at += 1;
    }
    found
}

/// Makes the first argument of a node stand for its result, and writes the result into what the argument is a view of.
pub(super) fn change(lift: &mut Lift<'_>, index: usize) -> Result {
    let node = &lift.model.nodes[index];
    let (Some(changed), Some(&output)) = (node.tensors().next(), node.outputs.first()) else { return Ok(()) };
    let relatives = relatives(lift, changed, index);
    let result = lift.resolve(output);
    let mut updated = vec![changed];
    // The values that it is a view of, from the nearest one outwards, as long as one of them or of their views is read.
    let is_read = |lift: &Lift<'_>, updated: &[ValueId]| {
        relatives.iter().any(|&value| !updated.contains(&value) && is_read_after(lift, value, index))
    };
    let (mut part, mut whole) = (changed, result);
    while is_read(lift, &updated)
        && let Some((input, maker)) = base(lift, part)
        && !updated.contains(&input)
    {
        if !changes_first(&lift.model.nodes[maker]) {
            whole = written_back(lift, index, maker, whole)?;
        }
        updated.push(input);
        lift.stand_for(input, whole);
        part = input;
    }
    lift.stand_for(changed, result);
    // Views that were made before, of the same elements.
    for &value in &relatives {
        if updated.contains(&value) || !is_read_after(lift, value, index) {
            continue;
        }
        let Some((input, maker)) = base(lift, value).filter(|(input, _)| updated.contains(input)) else {
            return refuse("it changes a value in place that is read through another view");
        };
        let source = lift.resolve(input);
        let view = lift.between(&lift.sample(value));
        match WHOLE.contains(&&lift.model.nodes[maker].op[..]) {
            true => movement::reshape(lift, index, source, view)?,
            false => return refuse("it changes a value in place that is read through another view"),
        }
        let view = lift.resolve(view);
        lift.stand_for(value, view);
        updated.push(value);
    }
    Ok(())
}

/// Adds the layers that put `part` in the place of the view that `maker` makes, and returns the whole.
fn written_back(lift: &mut Lift<'_>, index: usize, maker: usize, part: ValueId) -> Result<ValueId> {
    let node = &lift.model.nodes[maker];
    let (Some(input), op) = (node.tensors().next(), &node.op[..]) else {
        return refuse("it changes a view of nothing");
    };
    let shape = lift.sample(input);
    let whole = lift.between(&shape);
    if WHOLE.contains(&op) || op == "reshape" {
        movement::reshape(lift, index, part, whole)?;
        return Ok(lift.resolve(whole));
    }
    let (start, length, dim) = match op {
        "select" => {
            let at = node.int("index").unwrap_or(0);
            (at, 1, node.int("dim").unwrap_or(0))
        }
        "slice" if node.int("step").unwrap_or(1) == 1 => {
            let dim = node.int("dim").unwrap_or(0);
            let place = crate::batch::index(dim, lift.model.values[input].shape.len());
            let length = lift.model.values[node.outputs[0]].shape.get(place).copied().unwrap_or(0);
            (node.int("start").unwrap_or(0), length as i64, dim)
        }
        _ => return refuse("it changes a view in place that is no slice"),
    };
    let place = crate::batch::index(dim, lift.model.values[input].shape.len());
    let size = lift.model.values[input].shape.get(place).copied().unwrap_or(0) as i64;
    let Some(dim) = lift.dim(input, dim) else {
        return if length == size { Ok(part) } else { refuse("it changes some samples of a batch") };
    };
    let start = if start < 0 { start + size } else { start }.clamp(0, size);
    let mut middle = part;
    if op == "select" {
        let mut wide = lift.sample(part);
        wide.insert(dim as usize - 1, 1);
        middle = lift.between(&wide);
        lift.add(index, Layer::new("Unsqueeze", part, middle).with(dim));
    }
    let source = lift.operand(input)?;
    let mut parts = Vec::new();
    for (from, to) in [(0, start), (start, start + length), (start + length, size)] {
        if from == start && to == start + length {
            parts.push(middle);
        } else if from < to {
            let mut piece = shape.clone();
            piece[dim as usize - 1] = (to - from) as u64;
            let piece = lift.between(&piece);
            let layer = Layer::new("Slice", source, piece).with(from);
            let layer = if to == size { layer } else { layer.with(to) };
            lift.add(index, layer.option("dim", dim, 1i64));
            parts.push(piece);
        }
    }
    joined(lift, index, parts, whole, dim);
    Ok(lift.resolve(whole))
}
