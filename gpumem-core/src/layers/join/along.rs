//! Checks that `Gather` and `ScatterAdd` share: an axis, and indices with as many axes as the value.

use super::super::shape::part;
use super::check_numbers;
use crate::graph::Elements;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;

/// Returns the axis along which the second branch has indices of the first.
///
/// # Errors
/// Branches that are no numbers and no indices, or whose axes do not fit.
pub(super) fn indexed(b: &Builder<'_>, x: &[Value], dim: i64) -> Result<usize, Mistake> {
    check_numbers(&x[..1])?;
    let (value, index) = (x[0].shape, x[1].shape);
    if x[1].elements != Elements::Indices {
        let text = format!(
            "looks elements up by tokens, but its second branch produces {index}; put `from(tokens)`, `TopK(k, indices)` or `ArgMax` in that branch"
        );
        return Err(Mistake::of_input(1, text));
    }
    let axis = x[0].axis(dim)?;
    if index.rank() != value.rank() {
        let text = format!(
            "has an index for each element that it gives, with the axes of {value}, but its second branch produces {index}; put `Unsqueeze` \
             or `Expand` after the tokens, or use `Take` for whole rows"
        );
        return Err(Mistake::of_input(1, text));
    }
    let is_longer = |&other: &usize| other != axis && index.dims()[other] > value.dims()[other];
    if let Some(other) = (0..value.rank()).find(is_longer) {
        let text = format!(
            "looks elements of {value} up along axis {}, but its second branch produces {index}, which has {} along axis {}; use up to {}",
            axis + 1,
            index.dims()[other],
            other + 1,
            value.dims()[other]
        );
        return Err(Mistake::of_input(1, text));
    }
    if !x[1].batched && x.iter().any(|value| value.batched) {
        return Err(Mistake::of_input(
            1,
            "has indices that are the same for all samples; what is the same for all is a `Slice`",
        ));
    }
    b.check_branch_of_indices(1, &x[1], value.dims()[axis])?;
    Ok(axis)
}

/// Returns the first elements of a value along each axis but `axis`, as many as `like` has.
///
/// # Errors
/// As for [`Builder::op`].
pub(super) fn of_first(b: &mut Builder<'_>, x: Value, like: Shape, axis: Option<usize>) -> Result<Value, Mistake> {
    let others = (0..like.rank()).filter(|&other| Some(other) != axis);
    others.into_iter().try_fold(x, |x, other| part(b, x, other, [0, like.dims()[other]]))
}
