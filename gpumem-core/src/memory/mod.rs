//! Memory: how many bytes each tensor of a step takes, where it lies, what it adds up to, and whether that fits.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`tables`] | what const evaluation needs of a program |
//! | [`lives`] | what of its tensors no batch changes |
//! | [`levels`] | which of several programs of a step runs |
//! | [`plan`] | offsets for tensors by lifetime |
//! | [`budget`] | the lines that everything adds up to |
//! | [`place`] | the place of each tensor in the arena |
//! | [`turned`] | weights that lie in another order there than the host has them |
//! | [`order`] | which tensors have their channels innermost there |
//! | [`refusal`] | the message for a step that does not fit |
//! | [`record`] | the budget inside a binary |

pub mod budget;
mod bytes;
mod compiled;
pub mod levels;
pub mod lives;
pub mod order;
mod packed;
pub mod place;
pub mod plan;
pub mod record;
pub mod refusal;
pub mod tables;
pub mod turned;

pub use compiled::Compiled;
