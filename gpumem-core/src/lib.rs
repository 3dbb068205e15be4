//! What a network *is*: layers and their memory rules, programs, plans, budgets, cards and messages.
#![no_std]

extern crate alloc;

pub mod budget;
pub mod cards;
pub mod message;
pub mod optim;
pub mod plan;
pub mod record;
pub mod refusal;
pub mod step;

pub mod device;
mod display;
pub mod error;
#[cfg(feature = "lower")]
pub mod graph;
pub mod layers;
pub mod layout;
#[cfg(feature = "lower")]
pub mod lower;
pub mod net;
pub mod network;
pub mod program;
pub mod random;
pub mod report;
pub mod shape;
pub mod suggest;
pub mod tensor;
pub mod typed;
pub mod wire;

pub mod role;
mod train;

pub use role::{Half, Precision, Role};
pub use train::{Infer, Loss, Train, Update};
