//! Options of losses, and losses with their options, as programs are encoded.

use super::{Chunks, LossOptions};
use crate::program::encoding::{Reader, Wire};
use crate::program::losses::Measure;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The number that stands for [`Chunks::Auto`]. No value has no chunks at all.
const AUTO: u64 = 0;

/// The bit that tells [`Chunks::Twice`] from [`Chunks::Count`].
const TWICE: u64 = 1 << 32;

impl Wire for Chunks {
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Chunks::Count(count) => count,
            Chunks::Auto => AUTO,
            Chunks::Twice(count) => count | TWICE,
        }
        .put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Chunks> {
        Some(match u64::take(from)? {
            AUTO => Chunks::Auto,
            count if count & TWICE != 0 => Chunks::Twice(count & !TWICE),
            count => Chunks::Count(count),
        })
    }
}

impl Wire for LossOptions {
    fn put(&self, out: &mut Vec<u8>) {
        self.reduction.put(out);
        self.number.put(out);
        self.second.put(out);
        self.weights.to_vec().put(out);
        self.ignored.put(out);
        self.probabilities.put(out);
        self.log_target.put(out);
        self.blank.put(out);
        self.target_length.put(out);
        self.zero_infinity.put(out);
        self.chunks.put(out);
        self.swap.put(out);
        self.mining.put(out);
        self.weighting.put(out);
        self.counted.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<LossOptions> {
        Some(LossOptions {
            reduction: Wire::take(from)?,
            number: Wire::take(from)?,
            second: Wire::take(from)?,
            weights: Cow::Owned(Wire::take(from)?),
            ignored: Wire::take(from)?,
            probabilities: Wire::take(from)?,
            log_target: Wire::take(from)?,
            blank: Wire::take(from)?,
            target_length: Wire::take(from)?,
            zero_infinity: Wire::take(from)?,
            chunks: Wire::take(from)?,
            swap: Wire::take(from)?,
            mining: Wire::take(from)?,
            weighting: Wire::take(from)?,
            counted: Wire::take(from)?,
        })
    }
}

/// A bit in a loss's number that says that its options follow. Default options are not written.
const WITH_OPTIONS: u64 = 32;

/// A loss with its options, in the form in which programs are encoded.
pub(crate) struct Written {
    /// The loss.
    pub(crate) kind: Measure,
    /// Its options.
    pub(crate) options: LossOptions,
}

impl Wire for Written {
    fn put(&self, out: &mut Vec<u8>) {
        let is_plain = self.options == LossOptions::DEFAULT;
        (self.kind as u64 | if is_plain { 0 } else { WITH_OPTIONS }).put(out);
        if !is_plain {
            self.options.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Written> {
        let number = u64::take(from)?;
        let mut kind = Vec::new();
        (number & !WITH_OPTIONS).put(&mut kind);
        let kind = Measure::take(&mut Reader::new(&kind))?;
        let options = if number & WITH_OPTIONS == 0 { LossOptions::DEFAULT } else { Wire::take(from)? };
        Some(Written { kind, options })
    }
}
