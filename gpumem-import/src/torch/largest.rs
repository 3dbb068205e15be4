//! The largest batch that PyTorch survives.

use super::report::Report;
use std::borrow::Borrow;

/// The largest batch that is searched. A larger one is as large as anyone needs.
pub const MOST_SAMPLES: u64 = 1 << 20;

/// Returns the largest batch whose step runs where the allocator can have `capacity` bytes. `None` if not even one sample does.
///
/// `predict` predicts a step of a batch. The more samples, the more bytes, so that the search is one of a monotone function.
///
/// # Errors
/// Returns the error of `predict`.
pub fn largest_batch<E, R: Borrow<Report>>(
    capacity: u64,
    expandable_segments: bool,
    mut predict: impl FnMut(u64) -> Result<R, E>,
) -> Result<Option<u64>, E> {
    let mut fits = |batch: u64| Ok(predict(batch)?.borrow().fits(expandable_segments, capacity));
    if !fits(1)? {
        return Ok(None);
    }
    let (mut fitting, mut failing) = (1, 2);
    while failing <= MOST_SAMPLES && fits(failing)? {
        (fitting, failing) = (failing, failing * 2);
    }
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle)? { fitting = middle } else { failing = middle }
    }
    Ok(Some(fitting))
}
