//! The check that a batch splits into equal micro-batches.

use crate::message::Message;

/// Returns the message for a batch that does not split into so many micro-batches. It names the nearest numbers that divide the batch.
pub const fn not_split<const N: usize>(batch: u64, parts: u64) -> Message<N> {
    let mut text = Message::<N>::new();
    text.text("a batch of ").number(batch).text(" does not split into ").number(parts);
    text.text(" equal micro-batches; use ").number(divisor_below(batch, parts));
    if let Some(above) = divisor_above(batch, parts) {
        text.text(" or ").number(above);
    }
    text
}

/// Returns the message for a batch that does not split over so many ranks, each with so many micro-batches. It names the nearest batches that do.
pub const fn not_split_over_ranks<const N: usize>(batch: u64, ranks: u64, micro_batches: u64) -> Message<N> {
    let mut text = Message::<N>::new();
    text.text("a batch of ").number(batch).text(" does not split over ").number(ranks).text(" ranks");
    if micro_batches > 1 {
        text.text(" with ").number(micro_batches).text(" micro-batches each");
    }
    let parts = ranks.saturating_mul(micro_batches);
    let below = batch - batch % parts;
    text.text("; use a batch of ");
    if below > 0 {
        text.number(below).text(" or ");
    }
    text.number(below.saturating_add(parts));
    text
}

/// Returns the largest divisor of `batch` up to `parts`.
const fn divisor_below(batch: u64, parts: u64) -> u64 {
    let mut divisor = if parts < batch { parts } else { batch };
    while divisor > 1 && !batch.is_multiple_of(divisor) {
        divisor -= 1;
    }
    divisor
}

/// Returns the smallest divisor of `batch` above `parts`. `None` if there is none.
const fn divisor_above(batch: u64, parts: u64) -> Option<u64> {
    // A divisor above the root of the batch is the batch divided by one below it.
    let mut least = None;
    let mut small = 1;
    while small <= batch / small {
        if batch.is_multiple_of(small) {
            let (large, found) = (batch / small, least);
            if small > parts {
                return Some(match found {
                    Some(least) if least < small => least,
                    _ => small,
                });
            }
            if large > parts {
                least = Some(large);
            }
        }
        small += 1;
    }
    least
}

/// Fails to compile if the batch does not split over so many ranks, each with so many micro-batches.
#[track_caller]
pub const fn assert_splits(batch: u64, ranks: u64, micro_batches: u64) {
    // A batch of 0 has its own message.
    if batch == 0 || batch.is_multiple_of(ranks.saturating_mul(micro_batches)) {
        return;
    }
    if ranks > 1 {
        panic!("{}", not_split_over_ranks::<256>(batch, ranks, micro_batches).as_str())
    }
    panic!("{}", not_split::<128>(batch, micro_batches).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_divisors_are_named() {
        for batch in 1..200 {
            for parts in 1..220 {
                let divisors = || (1..=batch).filter(|divisor| batch % divisor == 0);
                let (below, above) = (divisors().filter(|it| *it <= parts).max(), divisors().find(|it| *it > parts));
                assert_eq!((Some(divisor_below(batch, parts)), divisor_above(batch, parts)), (below, above));
            }
        }
        let said = not_split::<128>(30, 4);
        assert_eq!(said.as_str(), "a batch of 30 does not split into 4 equal micro-batches; use 3 or 5");
        assert!(not_split::<128>(2, 4).as_str().ends_with("use 2"));
    }

    #[test]
    fn the_nearest_batches_for_ranks_are_named() {
        let said = not_split_over_ranks::<256>(30, 4, 1);
        assert_eq!(said.as_str(), "a batch of 30 does not split over 4 ranks; use a batch of 28 or 32");
        let said = not_split_over_ranks::<256>(5, 4, 2);
        assert_eq!(
            said.as_str(),
            "a batch of 5 does not split over 4 ranks with 2 micro-batches each; use a batch of 8"
        );
    }
}
