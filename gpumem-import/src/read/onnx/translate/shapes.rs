//! Rules for shapes that several operations share.

use super::{Fault, Result, Translator, refuse};
use crate::model::{Argument, Dtype, ValueId};

impl Translator<'_> {
    /// Returns the integers of a constant input.
    pub(super) fn integers(&self, value: ValueId) -> Result<Vec<i64>> {
        match self.numbers(value) {
            Some(numbers) => Ok(numbers.into_iter().map(|number| number as i64).collect()),
            None => {
                let name = &self.model.values[value].name;
                refuse(format!("its size `{name}` depends on data, and memory for it is not known before a run"))
            }
        }
    }

    /// Returns the index of a dimension that may be counted from the end.
    pub(super) fn dim(&self, dim: i64, rank: usize) -> Result<usize> {
        let index = if dim < 0 { dim.saturating_add(rank as i64) } else { dim };
        usize::try_from(index).ok().filter(|index| *index < rank).ok_or_else(|| Fault(format!("it has no axis {dim}")))
    }

    /// Returns the shape to which two broadcast.
    pub(super) fn common(&self, a: &[u64], b: &[u64]) -> Result<Vec<u64>> {
        let rank = a.len().max(b.len());
        let at = |shape: &[u64], dim: usize| (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim]);
        let sizes = (0..rank).map(|dim| match (at(a, dim), at(b, dim)) {
            (a, b) if a == b || b == 1 => Ok(a),
            (1, b) => Ok(b),
            _ => refuse(format!("it joins shapes {a:?} and {b:?}")),
        });
        sizes.collect()
    }

    /// Changes the shape of a value, unless it has that shape.
    pub(super) fn reshaped(&mut self, value: ValueId, shape: Vec<u64>) -> Result<ValueId> {
        if self.dims(value) == shape {
            return Ok(value);
        }
        let product = |shape: &[u64]| shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        if product(&shape) != product(&self.dims(value)) {
            return refuse(format!("it makes {shape:?} of {:?}", self.dims(value)));
        }
        let sizes = shape.iter().map(|&size| size as i64).collect();
        let dtype = self.dtype(value);
        self.emit("reshape", &[("self", Argument::Tensor(value)), ("shape", Argument::Ints(sizes))], dtype, shape)
    }

    /// Changes the order of dimensions.
    pub(super) fn permuted(&mut self, value: ValueId, order: &[usize]) -> Result<ValueId> {
        let shape = self.dims(value);
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..shape.len()) {
            return refuse("its order of axes is none");
        }
        let sizes = order.iter().map(|&dim| shape[dim]).collect();
        let dims = order.iter().map(|&dim| dim as i64).collect();
        let dtype = self.dtype(value);
        self.emit("permute", &[("self", Argument::Tensor(value)), ("dims", Argument::Ints(dims))], dtype, sizes)
    }

    /// Converts a value to another type, unless it has that type.
    pub(super) fn cast(&mut self, value: ValueId, dtype: Dtype) -> Result<ValueId> {
        if self.dtype(value) == dtype {
            return Ok(value);
        }
        let shape = self.dims(value);
        self.emit("to", &[("self", Argument::Tensor(value)), ("dtype", Argument::Dtype(dtype))], dtype, shape)
    }

    /// Resolves the shape of a reshape: 0 copies a size, -1 is what is left, and sizes for the file's own batch become those for the
    /// batch that is read.
    pub(super) fn target(&self, input: ValueId, target: &[i64], copies_zero: bool) -> Result<Vec<u64>> {
        let from = self.dims(input);
        let elements = from.iter().product::<u64>();
        let mut shape = Vec::with_capacity(target.len());
        let mut open = None;
        for (dim, &size) in target.iter().enumerate() {
            shape.push(match size {
                -1 if open.is_none() => {
                    open = Some(dim);
                    1
                }
                0 if copies_zero => *from.get(dim).ok_or_else(|| Fault(format!("it copies size {dim} of {from:?}")))?,
                size => u64::try_from(size).map_err(|_| Fault(format!("its shape has a size of {size}")))?,
            });
        }
        let known = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size)).unwrap_or(u64::MAX);
        let axis = self.batch.axes[input].filter(|_| self.is_widened);
        // The batch is a prime: sizes for it differ from those for the file's own batch.
        let has_batch = shape.iter().any(|size| *size > 0 && size % self.batch.size == 0);
        let old = match axis {
            Some(_) if !has_batch => elements / self.batch.size * self.old_batch.max(1),
            _ => elements,
        };
        if let Some(open) = open {
            if known == 0 || !old.is_multiple_of(known) {
                return refuse(format!("it makes {target:?} of {from:?}"));
            }
            shape[open] = old / known;
        }
        let product = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size)).unwrap_or(0);
        if product == elements {
            return Ok(shape);
        }
        match (axis, elements.checked_rem(product)) {
            (Some(axis), Some(0)) => self.widened(&from, axis, shape, elements / product),
            _ => refuse(format!("it makes {target:?} of {from:?}")),
        }
    }

    /// Multiplies the dimension of a shape that holds the batch.
    fn widened(&self, from: &[u64], axis: crate::batch::Axis, shape: Vec<u64>, ratio: u64) -> Result<Vec<u64>> {
        let inner = from[axis.dim + 1..].iter().product::<u64>() * axis.after;
        let size = self.batch.size;
        let mut best: Option<(u8, Vec<u64>)> = None;
        for dim in 0..shape.len() {
            let below = shape[dim + 1..].iter().product::<u64>();
            let Some(wide) = shape[dim].checked_mul(ratio) else { continue };
            let above = below * wide;
            let (Some(outer), true) = (above.checked_div(inner * size), below > 0 && inner > 0) else { continue };
            let holds = below <= inner
                && inner * size <= above
                && inner.is_multiple_of(below)
                && above.is_multiple_of(inner * size);
            if !holds {
                continue;
            }
            // The batch alone is best, then one that is the outer factor of heads. Features are never a multiple of it.
            let rank = match (outer, inner / below) {
                (1, 1) => 0,
                (1, _) if dim + 1 < shape.len() => 1,
                (1, _) => 3,
                _ => 2,
            };
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                let mut sizes = shape.clone();
                sizes[dim] = wide;
                best = Some((rank, sizes));
            }
        }
        best.map(|(_, sizes)| sizes).ok_or_else(|| Fault(format!("its shape {shape:?} is for another batch")))
    }

    /// Returns the target of an expansion, with the batch of the value that it expands.
    pub(super) fn expanded(&self, input: ValueId, target: &[i64]) -> Result<Vec<u64>> {
        let from = self.dims(input);
        let mut sizes: Vec<u64> = Vec::new();
        for &size in target {
            sizes.push(u64::try_from(size).map_err(|_| Fault(format!("it expands to {target:?}")))?);
        }
        // A size of the file's own batch stands for the batch.
        if let (true, Some(axis)) = (self.is_widened, self.batch.axes[input]) {
            let place = (axis.dim + sizes.len()).checked_sub(from.len());
            if let Some(size) = place.and_then(|place| sizes.get_mut(place)) {
                *size = from[axis.dim];
            }
        }
        self.common(&from, &sizes)
    }
}
