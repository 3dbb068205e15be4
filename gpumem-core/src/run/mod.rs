//! Runs networks: the device that a network runs on, and its state there.

pub mod absent;
pub mod agreement;
pub mod averages;
mod cache_state;
mod check;
mod copy_weights;
pub mod device;
mod display;
pub mod generate;
mod host_copies;
mod in_parts;
mod load;
mod loss_denominators;
mod named;
pub mod net;
pub mod non_finite;
mod quantized;
pub mod ranks;
mod shared;
pub mod state;
mod states;
mod step_numbers;
pub mod steps;
pub mod tensor;
mod train_step;
