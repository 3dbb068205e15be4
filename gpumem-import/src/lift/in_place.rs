//! Changes in place: whoever reads the changed memory afterwards reads the result.

use super::parts::joined;
use super::{Arguments, Layer, Lift, Result, refuse, shapes};
use crate::memory::{self, changes_first};
use crate::model::ValueId;

/// The most values that share memory which is changed in place.
const MOST_RELATIVES: usize = 4096;

/// Returns the value that `value` is a view of, and the node that makes the view. `None` if it has memory of its own.
fn base(lift: &Lift<'_>, value: ValueId) -> Option<(ValueId, usize)> {
    let maker = lift.makers[value]?;
    let node = &lift.model.nodes[maker];
    let input = node.tensors().next()?;
    memory::is_view(node).then_some((input, maker))
}

/// True if a node after `index` reads the value, or the network returns it.
fn is_read_after(lift: &Lift<'_>, value: ValueId, index: usize) -> bool {
    lift.readers[value].last().is_some_and(|&reader| reader > index) || lift.model.outputs.contains(&value)
}

/// Returns all values that share memory with `value` and are made before `index`.
fn relatives(lift: &Lift<'_>, value: ValueId, index: usize) -> Vec<ValueId> {
    let root = lift.roots[value];
    let is_before = |value: ValueId| lift.makers[value].is_none_or(|maker| maker < index);
    let mut found: Vec<ValueId> = lift.families.get(&root).map_or(&[][..], |family| family).to_vec();
    found.retain(|&value| is_before(value));
    found
}

/// Makes the first argument of a node stand for its result, and writes the result into what the argument is a view of.
pub(super) fn change(lift: &mut Lift<'_>, index: usize) -> Result {
    let node = &lift.model.nodes[index];
    let (Some(changed), Some(&output)) = (node.tensors().next(), node.outputs.first()) else { return Ok(()) };
    let relatives = relatives(lift, changed, index);
    if relatives.len() > MOST_RELATIVES {
        return refuse(format!("more than {MOST_RELATIVES} values share the memory that it changes"));
    }
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
        if !memory::is_whole_view(&lift.model.nodes[maker]) {
            return refuse("it changes a value in place that is read through another view");
        }
        shapes::reshape_lifted(lift, index, source, view)?;
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
    if memory::is_whole_view(node) {
        shapes::reshape_lifted(lift, index, part, whole)?;
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
    let start = if start < 0 { start.saturating_add(size) } else { start }.clamp(0, size);
    let length = length.min(size - start);
    let mut middle = part;
    if op == "select" {
        let mut wide = lift.sample(part);
        shapes::insert_size(&mut wide, dim, 1)?;
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
            shapes::set_size(&mut piece, dim, (to - from) as u64)?;
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
