//! Turns a draft into a program: updates, micro-batches, live ranges, numbered tensors, and the tables that const evaluation reads.

pub(in crate::lower) mod averages;
pub(in crate::lower) mod batch_updates;
pub(in crate::lower) mod extend_lifetimes;
mod finish;
pub(in crate::lower) mod guard;
pub(in crate::lower) mod micro_batches;
pub(in crate::lower) mod pad_logits;
pub(in crate::lower) mod ranks;
pub(in crate::lower) mod tables;

pub(in crate::lower) use finish::finish;
