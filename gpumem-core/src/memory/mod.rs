//! Memory: the bytes of each tensor of a step, its offset, the sums, and the check that they fit.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`tables`] | the numbers of a program that const evaluation needs |
//! | [`live_ranges`] | live ranges, as far as no batch changes them |
//! | [`levels`] | the choice among several programs of a step |
//! | [`plan`] | offsets for tensors by live range |
//! | [`budget`] | bytes by purpose, and their sum |
//! | [`place`] | the place of each tensor in the arena or in host memory |
//! | [`layout::channels_last_weights`] | weights with another layout there than the host has |
//! | [`layout::channels_last`] | the choice of tensors that are stored channels last |
//! | [`target_cards`] | the cards that a network is checked against |
//! | [`refusal`] | the message for a step that does not fit |
//! | [`record`] | the budget inside a binary |

pub mod budget;
mod bytes;
mod compiled;
pub mod layout;
pub mod levels;
pub mod live_ranges;
pub mod place;
pub mod plan;
pub mod record;
pub mod refusal;
pub mod tables;
pub mod target_cards;

pub use compiled::Compiled;
