//! The CUDA backend of gpumem.
//!
//! | part | what it is |
//! | --- | --- |
//! | `kernels/*.cu` | one operation a file, forward and backward side by side, shapes as constants |
//! | [`Cuda`], [`Session`] | the card; one allocation, and each program as one replayed graph |
//! | [`calibrate`], [`Stages`] | what loading a network takes of the card beside its arena |
//! | [`operations`] | what each operation of a program calls |
//! | `fuse` | operations that follow each other and run as one; those that are element by element, in a generated kernel |
//! | [`steps`] | what a whole program calls |
//! | [`launches`] | what that moves and multiplies, launch by launch |
//! | [`profile`] | how a card computes it, and how long each launch takes |
//! | [`calls`] | kernels, matrix products and convolutions as plain data, no device needed |
//! | [`compile`] | kernels to machine code, kept on disk |
//! | `libraries` | NVIDIA's libraries: [`preflight`] says which are there, the rest how they are asked |
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
pub mod launches;
mod libraries;
mod measured;
#[doc(hidden)]
pub mod notice;
pub mod operations;
pub mod profile;
mod session;
pub mod steps;

#[doc(hidden)]
pub use calibrate::probe;
pub use calibrate::{Calibration, calibrate};
pub use calls::{
    Argument, Attention, Call, Convolution, Kernel, Launch, Passage, Product, Recurrence, SOURCES, attention,
    convolution, launch, passage, product, recurrence,
};
pub use compile::{cache, progress};
pub use device::Cuda;
pub use libraries::cudnn::graph::absent::{AbsentCard, Answer};
#[doc(hidden)]
pub use libraries::cudnn::recurrence::{absent_pieces, absent_sizes};
pub use libraries::preflight;
pub use measured::Stages;
#[doc(hidden)]
pub use measured::reread as reread_measured;
pub use session::Session;
