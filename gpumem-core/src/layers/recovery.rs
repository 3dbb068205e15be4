//! Assumptions about a layer after a mistake.
//!
//! After a mistake, checks go on with the most probable reading. If another reading is possible, the network is resolved again under it.
//! Only mistakes that occur under all readings are reported.

/// The reading of a layer that a mistake leaves open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// True for the less probable one of two readings.
    pub second: bool,
    /// True for another number wherever any number could be meant.
    pub other_number: bool,
}

impl Guess {
    /// Returns a number for an unknown one: `first`, or another number.
    pub(crate) fn number(self, first: u64) -> u64 {
        if self.other_number { first.saturating_add(5) } else { first }
    }
}

/// The kinds of assumptions that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guessed {
    /// True if one of two readings was chosen.
    pub reading: bool,
    /// True if a number or a shape was chosen that could be any.
    pub number: bool,
}

impl Guessed {
    /// Returns the assumptions of both.
    #[must_use]
    pub fn and(self, other: Guessed) -> Guessed {
        Guessed { reading: self.reading || other.reading, number: self.number || other.number }
    }
}
