//! Folds encoded bytes: a repeated block becomes one copy and a count.
//!
//! The bytes of [`encoding`](super::encoding) are nearly all LEB128 numbers. From one repetition of a block to the next, each number changes by
//! the same step, or not at all: tensors and operations are numbered, and live ranges move. So a number that follows the two at a fixed distance
//! before it in a straight line need not be written. A network that repeats a layer a thousand times is as long as one that repeats it thrice,
//! except for names.
//!
//! Loops over numbers are written out: a macro runs them unoptimised, where iterators take several times as long.

use super::encoding::{Reader, Wire};
use alloc::vec::Vec;

/// The first byte of bytes that are not folded, and of those that are.
const PLAIN: u8 = 0;
const FOLDED: u8 = 1;

/// The most numbers that are folded or unfolded, so that damaged bytes cannot ask for more memory than there is.
const MOST: usize = 1 << 24;

/// The longest block that is recognised, in numbers.
const LONGEST: usize = 256;

/// The fewest numbers that are worth a stretch.
const LEAST: usize = 64;

/// The number of numbers from one place where a stretch is looked for to the next.
const STRIDE: usize = 1024;

/// The fewest bytes that are folded. Fewer cost a compiler less than the search for stretches does: those of a ResNet-50 took an eighth of its
/// macro's time.
const SHORT: usize = 1 << 18;

/// The numbers of which the largest is compared first. It is seldom where it is expected by chance.
const WINDOW: usize = 32;

/// Returns the folded form of encoded bytes. Few bytes stay as they are.
pub(super) fn fold(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() < SHORT { plain(bytes) } else { fold_all(bytes) }
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    [&[PLAIN], bytes].concat()
}

/// Returns the folded form of any number of encoded bytes.
fn fold_all(bytes: &[u8]) -> Vec<u8> {
    let folded = numbers(bytes).and_then(|numbers| folded(&numbers));
    folded.filter(|folded| folded.len() <= bytes.len()).unwrap_or_else(|| plain(bytes))
}

/// Returns the bytes that [`fold`] folded; `None` if they are damaged.
pub(super) fn unfold(bytes: &[u8]) -> Option<Vec<u8>> {
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        PLAIN => Some(rest.to_vec()),
        FOLDED => {
            let mut bytes = Vec::new();
            unfolded(&mut Reader::new(rest))?.iter().for_each(|number| number.put(&mut bytes));
            Some(bytes)
        }
        _ => None,
    }
}

/// Returns the numbers of LEB128 bytes. `None` if they would be written otherwise, or are too many.
fn numbers(bytes: &[u8]) -> Option<Vec<u64>> {
    let (mut numbers, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            if at == bytes.len() {
                return None;
            }
            let byte = bytes[at];
            at += 1;
            // The tenth byte has one bit, and the last one of several is not 0.
            if shift == 63 && byte > 1 || shift > 0 && byte == 0 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
        numbers.push(value);
    }
    (numbers.len() <= MOST).then_some(numbers)
}

/// Writes numbers as stretches: `2 * n` and then n numbers as they are, or `2 * period + 1` and how many numbers follow those before them.
///
/// `None` if there is no stretch.
fn folded(numbers: &[u64]) -> Option<Vec<u8>> {
    let mut out = Vec::from([FOLDED]);
    numbers.len().put(&mut out);
    let (mut at, mut written) = (0, 0);
    while at < numbers.len() {
        let Some((period, length)) = stretch(numbers, at) else {
            at += STRIDE;
            continue;
        };
        put_plain(&numbers[written..at], &mut out);
        (2 * period + 1).put(&mut out);
        length.put(&mut out);
        at += length;
        written = at;
    }
    put_plain(&numbers[written..], &mut out);
    (written > 0).then_some(out)
}

fn put_plain(numbers: &[u64], out: &mut Vec<u8>) {
    if !numbers.is_empty() {
        (2 * numbers.len()).put(out);
        numbers.iter().for_each(|number| number.put(out));
    }
}

/// Returns the period and the length of a stretch from `at` on; `None` if there is none that is long enough.
fn stretch(numbers: &[u64], at: usize) -> Option<(usize, usize)> {
    let pivot = (at..numbers.len().min(at + WINDOW)).max_by_key(|&pivot| numbers[pivot])?;
    let mut best = (0, 0);
    let mut period = 1;
    while period <= LONGEST && 2 * period <= at {
        if numbers[pivot] == expected(numbers, pivot, period) {
            let mut end = at;
            while end < numbers.len() && numbers[end] == expected(numbers, end, period) {
                end += 1;
            }
            if end - at > best.1 {
                best = (period, end - at);
            }
        }
        period += 1;
    }
    (best.1 >= LEAST).then_some(best)
}

/// Returns the number on a straight line with the two at this distance before it.
fn expected(numbers: &[u64], at: usize, period: usize) -> u64 {
    numbers[at - period].wrapping_mul(2).wrapping_sub(numbers[at - 2 * period])
}

fn unfolded(from: &mut Reader<'_>) -> Option<Vec<u64>> {
    let count = usize::take(from).filter(|&count| count <= MOST)?;
    let mut numbers: Vec<u64> = Vec::new();
    while numbers.len() < count {
        let header = usize::take(from)?;
        let (is_stretch, size) = (header % 2 == 1, header / 2);
        let length = if is_stretch { usize::take(from)? } else { size };
        if length == 0 || length > count - numbers.len() {
            return None;
        }
        if is_stretch && (size == 0 || size > numbers.len() / 2) {
            return None;
        }
        for _ in 0..length {
            let next = if is_stretch { expected(&numbers, numbers.len(), size) } else { u64::take(from)? };
            numbers.push(next);
        }
    }
    from.is_empty().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        numbers.into_iter().for_each(|number| number.put(&mut bytes));
        bytes
    }

    /// A block of five numbers that move at different speeds, one of them down.
    fn repeated(times: u64) -> Vec<u8> {
        encoded((0..times).flat_map(|at| [7, 2 * at, at + 1000, 1 << 40, (1 << 20) - at]))
    }

    #[test]
    fn a_repetition_takes_the_same_bytes_however_long_it_is() {
        let [short, long] = [1000, 100_000].map(|times| (repeated(times), fold_all(&repeated(times))));
        assert!(short.0.len() > 10_000 && short.1.len() < 4000, "{} of {} bytes", short.1.len(), short.0.len());
        assert!(long.1.len() <= short.1.len() + 4);
        for (bytes, folded) in [short, long] {
            assert_eq!(unfold(&folded), Some(bytes));
        }
    }

    #[test]
    fn few_bytes_stay_and_many_are_folded() {
        let (few, many) = (repeated(10_000), repeated(100_000));
        assert!(few.len() < SHORT && many.len() >= SHORT);
        assert_eq!(fold(&few), [&[PLAIN], &few[..]].concat());
        assert_eq!(fold(&many), fold_all(&many));
        assert_eq!([fold(&few), fold(&many)].map(|folded| unfold(&folded)), [Some(few), Some(many)]);
    }

    #[test]
    fn bytes_that_are_no_numbers_stay() {
        for bytes in [&[0x80][..], &[0x80, 0], &[0xff; 12], &[5, 0xff], &[]] {
            assert_eq!(unfold(&fold_all(bytes)).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn damage_is_refused() {
        let folded = fold_all(&repeated(300));
        assert_eq!(folded[0], FOLDED);
        for end in 0..folded.len() {
            assert_eq!(unfold(&folded[..end]), None, "{end}");
        }
        assert_eq!(unfold(&[&folded[..], &[0]].concat()), None);
        // A count beyond all bounds, a stretch without two blocks before it, of no number, and of too many.
        let head = |rest: &[u64]| [&[FOLDED][..], &encoded(rest.iter().copied())].concat();
        for rest in [&[u64::MAX][..], &[9, 4, 1, 1, 5, 7], &[9, 2, 1, 3, 0], &[9, 4, 1, 1, 3, 8], &[9, 1, 9]] {
            assert_eq!(unfold(&head(rest)), None, "{rest:?}");
        }
        assert_eq!(unfold(&head(&[9, 4, 1, 3, 3, 7])), Some(encoded((0..9).map(|at| 2 * at + 1))));
        assert_eq!(unfold(&[2, 0]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..400), times in 1usize..6) {
            let bytes = bytes.repeat(times);
            prop_assert_eq!(unfold(&fold_all(&bytes)), Some(bytes));
        }

        #[test]
        fn damaged_bytes_never_panic(at in 0usize..60, byte in any::<u8>()) {
            let mut folded = fold_all(&repeated(400));
            let at = at.min(folded.len() - 1);
            folded[at] = byte;
            let _ = unfold(&folded);
        }
    }
}
