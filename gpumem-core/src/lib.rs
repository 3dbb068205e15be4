//! The description of a network, from layers to operations, programs, memory plans, budgets, cards and messages.
//!
//! | part | contents |
//! | --- | --- |
//! | [`layers`] | what users write |
//! | [`graph`] | a network as operations on values, every shape known |
//! | `lower` | from a graph to a program: forward, backward, updates |
//! | [`program`] | operations on tensors, in order: what the plan and the backends see |
//! | [`memory`] | tables, plan, budget, the check and its message |
//! | [`network`], [`report`] | a network's description as the macro writes it, and the reports printed from it |
//! | [`train`], [`cards`], [`number`] | settings, cards, number formats |
//! | [`run`] | running a network on a device |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

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
