//! The CUDA backend of gpumem.
//!
//! | layer | what it is |
//! | --- | --- |
//! | `kernels/*.cu` | one operation a file, forward and backward side by side, shapes as constants |
//! | [`operations`] | what each operation of a program launches: kernels, grids, arguments. Plain data, no device needed |
//!
//! The kernels have not run on a device yet: the tests compile the same files as C++ and compare them with the CPU backend.

pub mod launch;
pub mod operations;

pub use launch::{Kernel, Launch, SOURCES};
