//! The CUDA backend of gpumem.
//!
//! | part | what it is |
//! | --- | --- |
//! | `kernels/*.cu` | one operation a file, forward and backward side by side, shapes as constants |
//! | [`compile`], [`cache`] | kernels to machine code with NVRTC, kept on disk |
//! | [`progress`] | a line on the terminal while kernels are compiled |
//! | [`preflight`] | which libraries are there, before anything is called |
//! | [`Cuda`], [`Session`] | the card; one allocation, and each program as one replayed graph |
//! | [`operations`] | what each operation of a program launches: kernels, grids, arguments. Plain data, no device needed |
//! | [`product`], `cublaslt` | matrix products as plain data, and how cuBLASLt is asked for them |
//! | [`convolution`], `cudnn` | convolutions as plain data, and how cuDNN is asked for them |
//!
//! The kernels have not run on a device yet: the tests compile the same files as C++ and compare them with the CPU backend.

pub mod cache;
pub mod compile;
pub mod convolution;
mod cublaslt;
mod cudnn;
mod device;
pub mod launch;
mod library;
mod nvml;
mod nvrtc;
pub mod operations;
mod plans;
pub mod preflight;
pub mod product;
pub mod progress;
mod session;

pub use convolution::Convolution;
pub use device::Cuda;
pub use launch::{Argument, Call, Kernel, Launch, SOURCES};
pub use product::Product;
pub use session::Session;
