//! Limits of the user's indices, such as tokens and labels, by which operations look something up.

use super::Slot;
use crate::error::Error;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Indices at or above the limit that are valid all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// None.
    Nothing,
    /// This index.
    One(u32),
    /// Any index that is negative as an `i32`.
    Negative,
}

impl Allowed {
    /// True if `index` is one of them.
    pub fn allows(self, index: u32) -> bool {
        match self {
            Allowed::Nothing => false,
            Allowed::One(allowed) => index == allowed,
            Allowed::Negative => index.cast_signed() < 0,
        }
    }
}

/// A group of the user's indices, all of which must be below a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indices {
    /// The name of such an index in messages.
    pub what: &'static str,
    /// The slot of the tensor that holds them.
    pub slot: Slot,
    /// Number of indices in a sample.
    pub each: u64,
    /// The lowest index that is too large.
    pub limit: u64,
    /// Indices from the limit on that are valid all the same.
    pub allowed: Allowed,
    /// True if the indices of a sample must not decrease.
    pub ordered: bool,
    /// Places in a sample of those that are looked at, in order. `None` if all are.
    pub places: Option<Arc<[u64]>>,
}

impl Indices {
    /// Returns `each` indices a sample, all below `limit`.
    pub fn below(limit: u64, what: &'static str, slot: Slot, each: u64) -> Indices {
        Indices { what, slot, each, limit, allowed: Allowed::Nothing, ordered: false, places: None }
    }

    /// Returns `each` indices a sample, of any value, which must not decrease.
    pub fn ordered(what: &'static str, slot: Slot, each: u64) -> Indices {
        Indices { ordered: true, ..Indices::below(u64::MAX, what, slot, each) }
    }

    /// True if `index` is invalid.
    pub fn refuses(&self, index: u32) -> bool {
        u64::from(index) >= self.limit && !self.allowed.allows(index)
    }

    /// Checks all of them.
    ///
    /// # Errors
    /// [`Error::Index`] with the first invalid index and its position. If they must not decrease, [`Error::Order`] with the first index that
    /// is less than the one before it in its sample.
    pub fn check(&self, indices: impl IntoIterator<Item = u32>) -> Result<(), Error> {
        let Some(places) = &self.places else {
            let is_first = |position: u64| position.checked_rem(self.each).is_none_or(|place| place == 0);
            return self
                .check_each((0u64..).zip(indices).map(|(position, value)| (position, value, is_first(position))));
        };
        let mut sample = Vec::new();
        let mut first = 0;
        for index in indices {
            sample.push(index);
            if sample.len() as u64 == self.each {
                let looked_at = places.iter().filter_map(|&place| Some((place, *sample.get(place as usize)?)));
                let looked_at = looked_at.enumerate().map(|(at, (place, value))| (first + place, value, at == 0));
                self.check_each(looked_at)?;
                first += self.each;
                sample.clear();
            }
        }
        Ok(())
    }

    /// Looks at indices with their positions. The flag is true for the first of a sample.
    fn check_each(&self, indices: impl Iterator<Item = (u64, u32, bool)>) -> Result<(), Error> {
        let mut before = 0;
        for (position, value, is_first) in indices {
            if self.refuses(value) {
                return Err(Error::Index { what: self.what, position, value, limit: self.limit });
            }
            if self.ordered && !is_first && value < before {
                return Err(Error::Order { what: self.what, position, value, before });
            }
            before = value;
        }
        Ok(())
    }

    /// Checks indices that are given as little-endian bytes. Otherwise like [`Indices::check`].
    ///
    /// # Errors
    /// As for [`Indices::check`].
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        self.check(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
    }
}
