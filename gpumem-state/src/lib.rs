//! Training state of networks: saved atomically, resumed bit for bit.
//!
//! ```no_run
//! use gpumem::prelude::*;
//! use gpumem_state::NetState;
//!
//! network! {
//!     pub struct Small;
//!
//!     const TRAIN: Train = Train { batch: 4, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy };
//!
//!     fn forward(features: Features<8>) -> Logits<3> {
//!         [Linear(16), Relu, Dropout(0.1), Linear(3)]
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = gpumem::default_device()?;
//! let mut net = Small::on(&device)?;
//! if let Some(resumed) = net.resume_if_any("run")? {
//!     println!("goes on after step {}", resumed.steps);
//! }
//! let (features, labels) = (Tensor::zeros(), Tensor::zeros());
//! for _ in net.steps()?..1000 {
//!     net.train_step(&features, &labels)?;
//! }
//! net.save_state("run")?;
//! # Ok(())
//! # }
//! ```
//!
//! **What is saved.** Parameters (master copies under mixed precision, codes and scales of quantized weights), running statistics, the
//! optimizer's state in its own format, and the numbers of [`StateNumbers`]: steps, seed, learning rate, loss scale. In addition
//! [`Progress`]: the loader's position, and values that the program adds.
//!
//! **Exact.** A resumed training equals an uninterrupted one bit for bit: on the CPU always, on a card with `deterministic: true`.
//!
//! **Files.** Each state is a folder, `run/step-00001000`, with `state.safetensors`, which any reader of safetensors opens, and
//! `state.json`. `run/latest` names the newest one, as do further marks of [`Saver::save_marked`].
//!
//! **Atomic.** A state is written to a temporary folder, flushed to the disk, and renamed. A crash or a full disk leaves earlier states
//! intact. One process at a time saves to a folder.
//!
//! **Checked.** All bytes have checksums. A file that is truncated, changed, or of another network is an error, and the network is not
//! changed.
//!
//! **Memory.** Saving copies the state once to host memory: the bytes of its tensors. [`Saver`] writes that copy in a thread during
//! training. Resuming maps the file, and copies tensor by tensor.

mod error;
mod folder;
mod format;
mod lock;
mod open;
mod saver;
mod write;

pub use error::{Differences, Error};
pub use gpumem_core::run::state::StateNumbers;
pub use open::{Resumed, SavedState};
pub use saver::{NetState, Saver, has_state};

use serde::{Deserialize, Serialize};

/// A position in a training, in addition to the number of steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch; the first is 0.
    pub epoch: u64,
    /// Samples of the epoch that the loader has returned.
    pub sample: u64,
    /// Values of the program's own.
    #[serde(default)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}
