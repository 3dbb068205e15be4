//! NVIDIA's libraries: what is there, how it is opened, and how it is asked.
//!
//! | file | what it is |
//! | --- | --- |
//! | `find` | a library among the folders where it may be |
//! | [`preflight`] | which libraries are there, before anything is called |
//! | `driver` | what of the driver is called by hand |
//! | `nvrtc`, `nvml` | functions that are looked up by hand: the compiler, and who holds memory of a card |
//! | `cublaslt`, `cudnn` | how matrix products and convolutions are asked for |
//! | `plans`, `race`, `owned` | what both have in common: what is made ready once a program, which of several algorithms is taken, and what is to be destroyed |

#[macro_use]
mod owned;

pub(crate) mod cublaslt;
pub(crate) mod cudnn;
pub(crate) mod driver;
mod find;
pub(crate) mod nvml;
pub(crate) mod nvrtc;
pub(crate) mod plans;
pub mod preflight;
mod race;
