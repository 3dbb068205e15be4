//! The CUDA backend of gpumem.
//!
//! | part | contents |
//! | --- | --- |
//! | `kernels/*.cu` | one operation a file, with its forward and backward pass; shapes are constants |
//! | [`Cuda`], [`Session`] | the card; one allocation, and each program as one replayed graph |
//! | [`calibrate`], [`Stages`] | bytes that loading a network takes of the card outside its arena |
//! | [`operations`] | the calls of each operation of a program |
//! | `fuse` | fusion: consecutive operations that run as one; elementwise ones run in a generated kernel |
//! | [`program_calls`] | the calls of a whole program |
//! | [`traffic`] | the bytes and floating-point operations of each launch |
//! | [`profile`] | the algorithm and the time of each launch on a card |
//! | [`calls`] | kernels, matrix products and convolutions as plain data, no device needed |
//! | [`compile`] | compiles kernels to machine code, and stores it on disk |
//! | `libraries` | NVIDIA's libraries: [`preflight`] checks that they are installed, the rest calls them |
//!
//! Tests compile the kernels' files as C++, too, and compare them with the CPU backend.

mod calibrate;
pub mod calls;
mod card;
pub mod compile;
mod context;
mod device;
mod error;
mod fuse;
mod libraries;
mod memory_log;
pub mod operations;
pub mod profile;
pub mod program_calls;
mod session;
pub mod traffic;
#[doc(hidden)]
pub mod warning;

#[doc(hidden)]
pub use calibrate::probe;
pub use calibrate::{Calibration, calibrate};
pub use calls::{
    Argument, Attention, Call, Convolution, Exchange, Kernel, Launch, Passage, Product, Recurrence, SOURCES, attention,
    convolution, exchange, host_copy, launch, product, recurrence,
};
pub use compile::{cache, progress};
pub use device::Cuda;
pub use libraries::cudnn::graph::absent::{AbsentCard, Answer};
#[doc(hidden)]
pub use libraries::cudnn::recurrence::{absent_pieces, absent_sizes};
pub use libraries::nccl::RankId;
pub use libraries::preflight;
pub use memory_log::Stages;
#[doc(hidden)]
pub use memory_log::reread as reread_measured;
pub use session::Session;
