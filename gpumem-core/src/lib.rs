//! What a network *is*: layers and their memory rules, programs, plans, budgets, cards and messages.
#![no_std]

extern crate alloc;

pub mod budget;
pub mod cards;
pub mod device;
pub mod error;
#[cfg(feature = "lower")]
pub mod graph;
pub mod layers;
pub mod layout;
#[cfg(feature = "lower")]
pub mod lower;
pub mod message;
pub mod net;
pub mod network;
pub mod optim;
pub mod plan;
pub mod program;
pub mod random;
pub mod record;
pub mod refusal;
pub mod report;
pub mod shape;
pub mod step;
pub mod suggest;
pub mod tensor;
pub mod typed;
pub mod wire;

mod display;
mod half;
mod role;
mod train;

pub use role::{Half, Precision, Role};
pub use train::{Infer, Loss, Train, Update};
