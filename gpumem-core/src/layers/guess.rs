//! What a layer is taken for after a mistake.
//!
//! Checks go on after a mistake with what was most probably meant. Where something else could be meant as well, a network is
//! resolved again under the other guesses, and what is wrong under all of them is wrong indeed.

/// How a layer is taken where a mistake leaves that open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// Of two readings the less probable one.
    pub second: bool,
    /// Another number wherever any number could be meant.
    pub other_number: bool,
}

impl Guess {
    /// A number that is not known: `first`, or another one.
    pub(crate) fn number(self, first: u64) -> u64 {
        if self.other_number { first.saturating_add(5) } else { first }
    }
}

/// What had to be guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guessed {
    /// Which of two readings was meant.
    pub reading: bool,
    /// A number, or a shape, that could be any.
    pub number: bool,
}

impl Guessed {
    /// What had to be guessed for either.
    #[must_use]
    pub fn and(self, other: Guessed) -> Guessed {
        Guessed { reading: self.reading || other.reading, number: self.number || other.number }
    }
}
