//! Runs networks: the device that a network runs on, and its state there.

pub mod absent;
pub mod averages;
mod check;
mod coded;
pub mod device;
mod display;
mod divisors;
pub mod generate;
mod in_parts;
mod merged;
mod named;
pub mod net;
pub mod non_finite;
mod shared;
pub mod state;
mod states;
mod step_numbers;
pub mod steps;
pub mod tensor;
mod transfer;
