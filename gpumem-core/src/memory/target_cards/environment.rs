//! Environment variables that are read when a network is compiled.

use crate::message::same;

/// The value of [`Environment::unchecked`] that leaves the check out.
pub const UNCHECKED: &str = "by cargo-gpumem";

/// The variables that the check reads, as they were when the user's crate was compiled. Each is `None` if it is not set, and an empty one counts
/// as not set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment<'a> {
    /// `GPUMEM_VRAM`: the memory of cards that are in no table, such as `8GiB,11.5GiB`.
    pub vram: Option<&'a str>,
    /// `GPUMEM_CARDS`: cards to check instead of those of `cards:` and of Cargo features, such as `t4,l4`.
    pub cards: Option<&'a str>,
    /// `GPUMEM_HEADROOM`: the bytes of each card that are left to others at least, such as `1GiB`.
    pub headroom: Option<&'a str>,
    /// `__GPUMEM_CHECK`: [`UNCHECKED`] if a tool builds networks to read their records, and checks itself what they fit.
    pub unchecked: Option<&'a str>,
}

impl Environment<'_> {
    /// True if the check is left out.
    pub(in crate::memory) const fn is_unchecked(&self) -> bool {
        matches!(self.unchecked, Some(tool) if same(tool, UNCHECKED))
    }

    /// No variables.
    pub const NONE: Environment<'static> = Environment { vram: None, cards: None, headroom: None, unchecked: None };
}

/// The variables, read while the user's crate is compiled, so that it is compiled again when one of them changes.
#[doc(hidden)]
#[macro_export]
macro_rules! __environment {
    () => {
        $crate::memory::target_cards::Environment {
            vram: ::core::option_env!("GPUMEM_VRAM"),
            cards: ::core::option_env!("GPUMEM_CARDS"),
            headroom: ::core::option_env!("GPUMEM_HEADROOM"),
            unchecked: ::core::option_env!("__GPUMEM_CHECK"),
        }
    };
}
