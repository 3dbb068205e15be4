//! Sizes at another batch, where the axis of the batch is not known.

use super::layout::elements;

/// Returns the shape after a view at another batch. `before` is the input's shape at the exported batch, `now` the one that it has, and
/// `after` the output's shape at the exported batch.
///
/// Runs of dimensions with equal products correspond. In each run the factor by which an input dimension changed goes to the output
/// dimension at its place. `None` if there is no run for a changed dimension.
pub(super) fn follow(before: &[u64], now: &[u64], after: &[u64]) -> Option<Vec<u64>> {
    if before.len() != now.len() || elements(before) != elements(after) || before.contains(&0) {
        return None;
    }
    let mut result = after.to_vec();
    // The product of the dimensions inside of `dim`, before the change.
    let mut inside = 1u64;
    for dim in (0..before.len()).rev() {
        let (old, new) = (before[dim], now[dim]);
        if old != new {
            let position = place(after, inside, old)?;
            result[position] = scale(result[position], old, new)?;
        }
        inside = inside.saturating_mul(old);
    }
    Some(result)
}

/// Returns the outermost output dimension that covers the outer end of a dimension of `size` elements with `inside` elements in it, and
/// that a factor of `size` divides.
fn place(after: &[u64], inside: u64, size: u64) -> Option<usize> {
    let mut below = 1u64;
    let mut found = None;
    for (position, &dim) in after.iter().enumerate().rev() {
        let above = below.saturating_mul(dim);
        let overlaps = above > inside && below < inside.saturating_mul(size);
        if (overlaps && dim > 1) || (size == 1 && below >= inside && found.is_none()) {
            found = Some(position);
        }
        below = above;
    }
    found
}

/// Returns `size * new / old`. `None` if that is no whole number.
fn scale(size: u64, old: u64, new: u64) -> Option<u64> {
    let product = size.checked_mul(new)?;
    (old != 0 && product % old == 0).then(|| product / old)
}

#[cfg(test)]
mod tests {
    use super::follow;

    #[test]
    fn factors_of_the_batch_are_followed_through_views() {
        // Windows: [2, 8, 8, 3] as [2, 2, 4, 2, 4, 3], and back as [8, 16, 3].
        assert_eq!(follow(&[2, 8, 8, 3], &[5, 8, 8, 3], &[2, 2, 4, 2, 4, 3]), Some(vec![5, 2, 4, 2, 4, 3]));
        assert_eq!(follow(&[2, 2, 2, 4, 4, 3], &[5, 2, 2, 4, 4, 3], &[8, 16, 3]), Some(vec![20, 16, 3]));
        assert_eq!(follow(&[8, 16, 3], &[20, 16, 3], &[2, 2, 2, 4, 4, 3]), Some(vec![5, 2, 2, 4, 4, 3]));
        // Tokens of all samples, and a sequence before the batch.
        assert_eq!(follow(&[2, 7, 3], &[32, 7, 3], &[14, 3]), Some(vec![224, 3]));
        assert_eq!(follow(&[7, 2, 3], &[7, 32, 3], &[14, 3]), Some(vec![224, 3]));
        assert_eq!(follow(&[2, 3], &[32, 3], &[7, 1]), None);
        assert_eq!(follow(&[2, 0], &[32, 0], &[0]), None);
    }
}
