//! Running a network: the device that it runs on, and its state there.

mod coded;
pub mod device;
mod divisors;
pub mod generate;
mod merged;
pub mod net;
pub mod tensor;
mod transfer;
