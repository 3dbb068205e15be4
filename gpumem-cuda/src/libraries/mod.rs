//! NVIDIA's libraries: finding them, opening them, and calling them.
//!
//! | file | contents |
//! | --- | --- |
//! | `find` | finds a library among the folders where it may be |
//! | [`preflight`] | checks that the libraries are installed, before any is called |
//! | `driver` | functions of the driver that are called directly |
//! | `nvrtc`, `nvml` | the compiler, and the processes that hold memory of a card; their functions are looked up by name |
//! | `nccl` | exchanges between ranks; its functions are looked up by name |
//! | `cublaslt`, `cudnn` | matrix products; convolutions, attention and recurrent layers |
//! | `autotune`, `handle`, `plan_cache` | shared by those two: calls prepared once for a program, autotuning, and types that own what a library makes |

#[macro_use]
mod handle;

pub(crate) mod autotune;
pub(crate) mod cublaslt;
pub(crate) mod cudnn;
pub(crate) mod driver;
mod find;
pub(crate) mod nccl;
pub(crate) mod nvml;
pub(crate) mod nvrtc;
pub(crate) mod plan_cache;
pub mod preflight;
