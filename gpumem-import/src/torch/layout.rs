//! Layouts: where the elements of a tensor lie in memory.

/// Returns the number of elements, at most 2^64 - 1.
pub(super) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, &dim| product.saturating_mul(dim))
}

/// Returns the strides of a contiguous tensor.
pub(super) fn dense(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    let mut product = 1u64;
    for (stride, &dim) in strides.iter_mut().zip(shape).rev() {
        *stride = product;
        product = product.saturating_mul(dim.max(1));
    }
    strides
}

/// Returns the strides of a dense tensor whose dimensions lie in memory in the order of `strides`.
pub(super) fn dense_in_order(shape: &[u64], strides: &[u64]) -> Vec<u64> {
    if shape.iter().zip(strides).any(|(&dim, &stride)| stride == 0 && dim > 1) {
        return dense(shape);
    }
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.sort_by_key(|&dim| (std::cmp::Reverse(strides[dim]), dim));
    in_order(shape, &order)
}

/// Returns the strides of a dense tensor whose dimensions lie in memory in this order, the outermost first.
pub(super) fn in_order(shape: &[u64], order: &[usize]) -> Vec<u64> {
    let mut result = vec![0; shape.len()];
    let mut product = 1u64;
    for &dim in order.iter().rev() {
        result[dim] = product;
        product = product.saturating_mul(shape[dim].max(1));
    }
    result
}

/// Returns the strides of an image whose channels lie innermost in memory. `None` if the shape is not one of images.
pub(super) fn channels_last(shape: &[u64]) -> Option<Vec<u64>> {
    match shape.len() {
        4 => Some(in_order(shape, &[0, 2, 3, 1])),
        5 => Some(in_order(shape, &[0, 2, 3, 4, 1])),
        _ => None,
    }
}

/// Returns the strides of a view of shape `new`. `None` if the layout forbids it.
pub(super) fn view_strides(shape: &[u64], strides: &[u64], new: &[u64]) -> Option<Vec<u64>> {
    if elements(shape) == 0 {
        return Some(dense(new));
    }
    // Runs of dimensions that are contiguous in themselves: elements, and the stride of the innermost dimension.
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (&dim, &stride) in shape.iter().zip(strides).filter(|(dim, _)| **dim != 1) {
        match runs.last_mut() {
            Some(last) if last.1 == stride.saturating_mul(dim) => *last = (last.0.saturating_mul(dim), stride),
            _ => runs.push((dim, stride)),
        }
    }
    let mut result = vec![0; new.len()];
    let mut left: Option<(u64, u64)> = None;
    for (stride, &dim) in result.iter_mut().zip(new).rev() {
        let mut run = match left {
            Some(run) if run.0 != 1 => run,
            _ => runs.pop().unwrap_or((1, left.map_or(1, |run| run.1))),
        };
        *stride = run.1;
        if dim != 1 {
            if dim == 0 || run.0 % dim != 0 {
                return None;
            }
            run = (run.0 / dim, run.1.saturating_mul(dim));
        }
        left = Some(run);
    }
    Some(result)
}

/// True if a tensor of this shape and these strides is contiguous.
pub(super) fn is_contiguous(shape: &[u64], strides: &[u64]) -> bool {
    let mut product = 1u64;
    for (&dim, &stride) in shape.iter().zip(strides).rev().filter(|(dim, _)| **dim != 1) {
        if stride != product {
            return false;
        }
        product = product.saturating_mul(dim);
    }
    true
}

/// Returns the index of a dimension that may be counted from the end. `None` if there is none.
pub(super) fn index(dim: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim.checked_add(rank_signed)? } else { dim };
    usize::try_from(dim).ok().filter(|&dim| dim < rank || (rank == 0 && dim == 0))
}
