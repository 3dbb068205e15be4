//! Values of more axes than the language has, such as an image in windows. They are moved in several steps, each of few axes.

use super::shapes::{MOST_AXES, reshape_lifted, reshaped};
use super::{Layer, Lift, Result, refuse};
use crate::model::ValueId;

/// The most axes of a value that is moved in steps.
const MOST_WIDE: usize = 16;

/// A value that is not made: another one under a shape of many axes, in another order.
#[derive(Clone)]
pub(crate) struct Wide {
    source: ValueId,
    /// The sizes of the axes of the source.
    sizes: Vec<u64>,
    /// The axis of the source that each axis is.
    order: Vec<usize>,
}

/// Gives a value a shape of many axes.
pub(super) fn begin(lift: &mut Lift<'_>, source: ValueId, output: ValueId) -> Result {
    let sizes = lift.sample(output);
    if sizes.len() > MOST_WIDE {
        return refuse(format!("a sample of its result has more than {MOST_WIDE} axes"));
    }
    let order = (0..sizes.len()).collect();
    lift.wide.insert(output, Wide { source, sizes, order });
    Ok(())
}

/// Changes the order of axes, which count from 1. False if the input has few axes.
pub(super) fn permuted(lift: &mut Lift<'_>, input: ValueId, order: &[i64], output: ValueId) -> Result<bool> {
    let Some(wide) = lift.wide.get(&input).cloned() else { return Ok(false) };
    let axis = |&dim: &i64| usize::try_from(dim - 1).ok().and_then(|dim| wide.order.get(dim)).copied();
    match order.iter().map(axis).collect::<Option<Vec<usize>>>() {
        Some(order) if order.len() == wide.order.len() => {
            lift.wide.insert(output, Wide { order, ..wide });
            Ok(true)
        }
        _ => refuse("its order of axes is none"),
    }
}

/// Gives a value of many axes another shape. False if it has few.
pub(super) fn reshape(lift: &mut Lift<'_>, index: usize, input: ValueId, output: ValueId) -> Result<bool> {
    let Some(Wide { source, sizes, order }) = lift.wide.get(&input).cloned() else { return Ok(false) };
    if lift.sample(output).len() > MOST_AXES {
        let is_same = lift.sample(output).iter().eq(order.iter().map(|&axis| &sizes[axis]));
        if is_same {
            lift.wide.insert(output, Wide { source, sizes, order });
            return Ok(true);
        }
        if !order.is_sorted() {
            return refuse(format!("a sample of its result has more than {MOST_AXES} axes"));
        }
        return begin(lift, source, output).map(|()| true);
    }
    let (mut value, mut current) = (source, (0..sizes.len()).collect::<Vec<usize>>());
    let length = |axes: &[usize]| axes.iter().fold(1u64, |product, &axis| product.saturating_mul(sizes[axis]));
    while current != order {
        // As many axes as follow one another on both sides are moved to the place where the first of them belongs.
        let place = (0..order.len()).find(|&place| current[place] != order[place]).unwrap_or(0);
        let from = current.iter().position(|&axis| axis == order[place]).unwrap_or(place);
        let run = (0..order.len() - from.max(place)).take_while(|&at| current[from + at] == order[place + at]).count();
        let parts = [&current[..place], &current[place..from], &current[from..from + run], &current[from + run..]];
        let [before, passed, moved, after] = parts.map(length);
        let apart = reshaped(lift, index, value, &[before, passed, moved, after])?;
        let turned = lift.between(&[before, moved, passed, after]);
        lift.add(index, Layer::new("Transpose", apart, turned).with(2i64).with(3i64));
        current = [parts[0], parts[2], parts[1], parts[3]].concat();
        value = turned;
    }
    reshape_lifted(lift, index, value, output)?;
    Ok(true)
}
