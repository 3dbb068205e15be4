//! Elements that indices name.

use super::inputs::tensor;
use super::parts::{joined, sliced};
use super::{Arguments, Layer, Lift, Result, refuse, shapes};
use crate::fold::Origin;
use crate::model::{Argument, Node, ValueId};

/// The most slices that a look-up by constant indices is written as, such as the rows of a triangle.
const MOST_RUNS: usize = 64;

/// Lifts an operation that looks something up. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    match op {
        "index" => indexed(lift, index, node)?,
        "index_select" => {
            let (value, chosen) = (tensor(node, "self")?, tensor(node, "index")?);
            let dim = crate::batch::index(node.int("dim").unwrap_or(0), lift.model.values[value].shape.len());
            along(lift, index, [value, node.outputs[0]], dim, chosen)?;
        }
        "gather" | "take_along_dim" => gathered(lift, index, node)?,
        "scatter_add" => {
            let (value, chosen, source) = (tensor(node, "self")?, tensor(node, "index")?, tensor(node, "src")?);
            let Some(dim) = lift.dim(value, node.int("dim").unwrap_or(0)) else { return refuse("it mixes samples") };
            let inputs = [value, chosen, source].map(|value| lift.operand(value));
            let inputs = inputs.into_iter().collect::<Result<Vec<_>>>()?;
            lift.add(index, Layer::join("ScatterAdd", inputs, node.outputs[0]).option("dim", dim, 1i64));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn gathered(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let value = tensor(node, "self")?;
    let chosen = node.tensor("index").or(node.tensor("indices"));
    let Some(chosen) = chosen.filter(|&chosen| lift.is_sample(chosen)) else {
        return refuse("its indices are the same for all samples");
    };
    let Some(dim) = node.int("dim").and_then(|dim| lift.dim(value, dim)) else { return refuse("it picks samples") };
    let inputs = vec![lift.operand(value)?, lift.operand(chosen)?];
    lift.add(index, Layer::join("Gather", inputs, node.outputs[0]).option("dim", dim, 1i64));
    Ok(())
}

/// Lifts `x[..]` with indices for some dimensions.
fn indexed(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let Some(Argument::Tensors(indices)) = node.argument("indices") else { return refuse("it has no indices") };
    let given: Vec<(usize, ValueId)> =
        indices.iter().enumerate().filter_map(|(dim, index)| Some((dim, (*index)?))).collect();
    match given[..] {
        [(dim, chosen)] if lift.is_sample(chosen) => rows_of_table(lift, index, [value, output], dim, chosen),
        [(dim, chosen)] => along(lift, index, [value, output], dim, chosen),
        [(batch, samples), (dim, chosen)] if lift.is_sample(chosen) => {
            step_of_sample(lift, index, [value, output], [(batch, samples), (dim, chosen)])
        }
        [_, _, ..] if given.iter().all(|(_, chosen)| !lift.is_sample(*chosen)) => {
            elements_of_axes(lift, index, [value, output], &given)
        }
        _ => refuse("it looks up several axes at once"),
    }
}

/// Lifts a look-up of rows of a parameter by tokens.
fn rows_of_table(
    lift: &mut Lift<'_>,
    index: usize,
    [value, output]: [ValueId; 2],
    dim: usize,
    chosen: ValueId,
) -> Result {
    let shape = lift.model.values[value].shape.clone();
    let (&[rows, width], Some(state)) = (&shape[..], lift.state(value)) else {
        return refuse("it looks up elements by the numbers of each sample");
    };
    if dim != 0 || !matches!(lift.origins[value], Origin::Parameters) || lift.model.values[chosen].dtype.is_float() {
        return refuse("it looks up elements by the numbers of each sample");
    }
    let tokens = lift.operand(chosen)?;
    let layer = Layer::new("Embedding", tokens, output).with(rows).with(width);
    lift.add(index, layer.key("weight", Some(&state.key)));
    Ok(())
}

/// Lifts `x[arange(batch), positions]`: one step of each sample.
fn step_of_sample(
    lift: &mut Lift<'_>,
    index: usize,
    [value, output]: [ValueId; 2],
    [(batch, samples), (dim, chosen)]: [(usize, ValueId); 2],
) -> Result {
    let count = lift.batch.size;
    let is_each = lift.origins[samples].numbers().is_some_and(|numbers| {
        let numbers = numbers.numbers();
        numbers.len() as u64 == count && numbers.iter().enumerate().all(|(at, &number)| number == at as f64)
    });
    let is_sequence = lift.batch.axes[value] == Some(crate::batch::Axis::of(0)) && lift.sample(value).len() == 2;
    if (batch, dim) != (0, 1) || !is_each || !is_sequence || lift.sample(chosen) != [1] {
        return refuse("it looks up several axes at once");
    }
    let width = shapes::elements(&lift.sample(output));
    let inputs = vec![lift.operand(value)?, lift.operand(chosen)?];
    let row = lift.between(&[1, width]);
    lift.add(index, Layer::join("Take", inputs, row));
    shapes::reshape_lifted(lift, index, row, output)
}

/// Returns constant indices along an axis of this size, and their shape. Negative ones count from the end.
fn places(lift: &Lift<'_>, chosen: ValueId, size: u64) -> Result<(Vec<u64>, Vec<u64>)> {
    let Some(tensor) = lift.origins[chosen].numbers() else { return refuse("its indices are computed") };
    let places: Option<Vec<u64>> = tensor
        .numbers()
        .iter()
        .map(|&at| if at < 0.0 { at + size as f64 } else { at })
        .map(|at| (at >= 0.0 && at < size as f64).then_some(at as u64))
        .collect();
    match places.filter(|places| !places.is_empty()) {
        Some(places) => Ok((places, tensor.shape.clone())),
        None => refuse("its indices are out of range"),
    }
}

/// Lifts a look-up along one axis by constant indices: slices, which are put together.
fn along(lift: &mut Lift<'_>, index: usize, [value, output]: [ValueId; 2], whole: usize, chosen: ValueId) -> Result {
    let Some(dim) = lift.dim(value, whole as i64) else { return refuse("it picks samples") };
    let size = lift.model.values[value].shape.get(whole).copied().unwrap_or(0);
    let (places, _) = places(lift, chosen, size)?;
    let input = lift.operand(value)?;
    in_runs(lift, index, [input, output], dim, places)
}

/// Lifts a look-up of elements of neighbouring axes by constant indices: those of the axes as one.
fn elements_of_axes(
    lift: &mut Lift<'_>,
    index: usize,
    [value, output]: [ValueId; 2],
    given: &[(usize, ValueId)],
) -> Result {
    let first = given[0].0;
    if !given.iter().enumerate().all(|(place, (dim, _))| *dim == first + place) {
        return refuse("it looks up axes that are apart");
    }
    let sizes: Vec<u64> =
        given.iter().map(|(dim, _)| lift.model.values[value].shape.get(*dim).copied().unwrap_or(0)).collect();
    let Some(dim) = lift.dim(value, first as i64) else { return refuse("it picks samples") };
    if given.iter().any(|(other, _)| lift.dim(value, *other as i64).is_none()) {
        return refuse("it picks samples");
    }
    let mut all: Option<(Vec<u64>, Vec<u64>)> = None;
    for ((_, chosen), &size) in given.iter().zip(&sizes) {
        let (places, shape) = self::places(lift, *chosen, size)?;
        all = Some(match all {
            None => (places, shape),
            Some((before, other)) if other == shape => {
                (before.iter().zip(places).map(|(before, place)| before * size + place).collect(), shape)
            }
            Some(_) => return refuse("its indices are broadcast"),
        });
    }
    let Some((places, _)) = all else { return refuse("it has no indices") };
    let input = lift.operand(value)?;
    let mut shape = lift.sample(input);
    let place = usize::try_from(dim - 1).unwrap_or(usize::MAX);
    if shape.get(place..place.saturating_add(sizes.len())) != Some(&sizes[..]) {
        return refuse("it looks up several axes at once");
    }
    shape.splice(place..place + sizes.len(), [shapes::elements(&sizes)]);
    let merged = shapes::reshaped(lift, index, input, &shape)?;
    in_runs(lift, index, [merged, output], dim, places)
}

/// Adds slices of an axis, which are put together.
fn in_runs(lift: &mut Lift<'_>, index: usize, [input, output]: [ValueId; 2], dim: i64, places: Vec<u64>) -> Result {
    // Runs of elements that follow one another.
    let mut runs: Vec<[u64; 2]> = Vec::new();
    for place in places {
        match runs.last_mut() {
            Some(run) if run[1] == place => run[1] += 1,
            _ => runs.push([place, place + 1]),
        }
    }
    if runs.len() > MOST_RUNS {
        return refuse(format!("it puts {} parts of an axis into another order", runs.len()));
    }
    let mut shape = lift.sample(input);
    let mut parts = Vec::new();
    for run in &runs {
        shapes::set_size(&mut shape, dim, run[1] - run[0])?;
        let part = lift.between(&shape);
        sliced(lift, index, [input, part], *run, dim)?;
        parts.push(lift.resolve(part));
    }
    shapes::set_size(&mut shape, dim, runs.iter().map(|run| run[1] - run[0]).sum())?;
    let all = lift.between(&shape);
    joined(lift, index, parts, all, dim);
    let all = lift.resolve(all);
    // Indices of several axes, or of none.
    shapes::reshape_lifted(lift, index, all, output)
}
