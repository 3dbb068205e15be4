//! Chooses the program that fits: recompute levels, largest batches, and the alternatives that a refusal names.

pub(in crate::lower) mod alternatives;
pub(in crate::lower) mod blueprint;
pub(in crate::lower) mod candidates;
pub(in crate::lower) mod largest_batch;
pub(in crate::lower) mod level;
pub(in crate::lower) mod named_steps;
