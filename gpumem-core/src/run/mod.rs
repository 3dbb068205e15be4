//! Running a network: the device that it runs on, and its state there.

pub mod absent;
mod check;
mod coded;
pub mod device;
mod display;
mod divisors;
pub mod generate;
mod merged;
pub mod net;
mod shared;
mod states;
pub mod tensor;
mod transfer;
