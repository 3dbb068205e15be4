//! What a network *is*: layers and the operations they are built of, programs, plans, budgets, cards and messages.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`layers`] | what users write |
//! | [`graph`] | a network as operations on values, every shape known |
//! | `lower` | from a graph to a program: forward, backward, updates |
//! | [`program`] | operations on tensors, in order: what the plan and the backends see |
//! | [`memory`] | tables, plan, budget, the check and its message |
//! | [`network`], [`report`] | what the macro says of a network, and what is printed of it |
//! | [`train`], [`cards`], [`number`] | settings, cards, number formats |
//! | [`run`] | a network on a device |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cards;
pub mod error;
pub mod graph;
pub mod language;
pub mod layers;
#[cfg(feature = "lower")]
pub mod lower;
pub mod memory;
pub mod message;
pub mod network;
pub mod number;
pub mod operation;
pub mod program;
pub mod report;
pub mod run;
pub mod shape;
pub mod suggest;
pub mod train;
pub mod typed;

pub use number::{Format, Half, Precision, Role};
pub use train::{
    Checkpoint, ConvNorm, Infer, Loss, LossOptions, LossTerm, Measurement, Offload, Reduction, Skip, Train, Update,
};
