//! The place of the batch in recorded tensors. In a network it is outermost.

use gpumem_import::batch::{Axis, Batch};
use gpumem_import::model::{Model, ValueId};

/// Returns the shape that a value has for a number of samples. `None` if that has 2^64 elements or more.
pub fn shape(model: &Model, batch: &Batch, value: ValueId, samples: u64) -> Option<Vec<u64>> {
    let mut shape = model.values[value].shape.clone();
    if let Some(axis) = batch.axes[value] {
        shape[axis.dim] = axis.before.checked_mul(samples)?.checked_mul(axis.after)?;
    }
    shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size))?;
    Some(shape)
}

/// Returns the numbers of a tensor with the batch outermost. A tensor that all samples share is repeated for each of them.
pub fn batch_first<T: Copy>(numbers: &[T], shape: &[u64], axis: Option<Axis>, samples: u64) -> Vec<T> {
    let product = |sizes: &[u64]| sizes.iter().product::<u64>() as usize;
    let Some(axis) = axis else { return numbers.repeat(samples as usize) };
    let outer = product(&shape[..axis.dim]) * axis.before as usize;
    let inner = product(&shape[axis.dim + 1..]) * axis.after as usize;
    let samples = samples as usize;
    let mut turned = Vec::with_capacity(numbers.len());
    for sample in 0..samples {
        for place in 0..outer {
            let first = (place * samples + sample) * inner;
            turned.extend_from_slice(&numbers[first..first + inner]);
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_one_after_the_other() {
        let numbers: Vec<u32> = (0..12).collect();
        let axis = |dim, before, after| Some(Axis { dim, before, after });
        assert_eq!(batch_first(&numbers, &[2, 6], axis(0, 1, 1), 2), numbers);
        // A sequence whose time steps are outermost.
        assert_eq!(batch_first(&numbers, &[3, 2, 2], axis(1, 1, 1), 2), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
        // Two heads outside of two samples in one dimension, and three numbers inside of them.
        assert_eq!(batch_first(&numbers, &[12], axis(0, 2, 3), 2), [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]);
        assert_eq!(batch_first(&[1, 2], &[2], None, 2), [1, 2, 1, 2]);
    }
}
