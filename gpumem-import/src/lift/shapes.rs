//! Changes of shape and of the order of axes of values that have been lifted.

use super::{Layer, Lift, Literal, Result, refuse};
use crate::model::ValueId;

/// Returns the number of elements, at most 2^64 - 1.
pub(super) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, &size| product.saturating_mul(size))
}

/// Sets the size of an axis, which counts from 1. Refuses an axis that is not there.
pub(super) fn set_size(shape: &mut [u64], dim: i64, size: u64) -> Result {
    match usize::try_from(dim - 1).ok().and_then(|dim| shape.get_mut(dim)) {
        Some(old) => {
            *old = size;
            Ok(())
        }
        None => refuse("it has no such axis"),
    }
}

/// Adds an axis before another one or after all, which count from 1. Refuses a place that is not there.
pub(super) fn insert_size(shape: &mut Vec<u64>, dim: i64, size: u64) -> Result {
    match usize::try_from(dim - 1).ok().filter(|&dim| dim <= shape.len()) {
        Some(dim) => {
            shape.insert(dim, size);
            Ok(())
        }
        None => refuse("it has no such axis"),
    }
}

/// The most axes of a sample in the language.
pub(super) const MOST_AXES: usize = 6;

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

pub(super) fn sizes(shape: &[u64]) -> Literal {
    Literal::dims(&shape.iter().map(|&size| size as i64).collect::<Vec<_>>())
}

/// Returns a value that has been lifted under another shape.
pub(super) fn reshaped(lift: &mut Lift<'_>, index: usize, value: ValueId, shape: &[u64]) -> Result<ValueId> {
    let output = lift.between(shape);
    reshape_lifted(lift, index, value, output)?;
    Ok(lift.resolve(output))
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
    if elements(&from) == elements(&to) {
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
