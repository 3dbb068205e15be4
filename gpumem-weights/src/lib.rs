//! Weights of networks: from files and into files, under the names that PyTorch has for them.
//!
//! ```no_run
//! use gpumem::prelude::*;
//! use gpumem_weights::{NetWeights, Weights};
//!
//! network! {
//!     pub struct Small;
//!
//!     const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };
//!
//!     fn forward(image: Image<1, 8, 8>) -> Logits<10> {
//!         [Conv2d(8, 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu, GlobalAvgPool, Linear(10, name = "fc")]
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = gpumem::default_device()?;
//! let mut net = Small::on(&device)?;
//! // Every tensor must be there, in the right shape, and nothing else.
//! net.load_weights("small.safetensors")?;
//! net.save_weights("saved.safetensors")?;
//! // A checkpoint of another number of classes, of a model inside another one.
//! let report = Weights::open("imagenet.safetensors")?.rename("backbone.", "").skip("fc.*").load_into(&mut net)?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! **Files.** `*.safetensors`; `*.safetensors.index.json` with its files, as Hugging Face writes them; with the feature `pickle` also `.pt`
//! and `.pth`, as `torch.save` writes a state dict since PyTorch 1.6, from which nothing is executed. An index ends in `.json`; the format
//! of other files is detected by their first bytes, not by the name. Numbers may be f32, f16, bf16 or f64, whatever the network's
//! precision.
//!
//! **Hub.** With the feature `hub`, `Weights::from_hub("openai-community/gpt2", "model.safetensors")` fetches files of the Hugging Face hub.
//!
//! **Memory.** Files are mapped, and their numbers are copied to the device 1 MiB at a time, and back when they are saved. No process may
//! truncate a file or write to it while it is loaded. A saved file replaces an older one atomically.
//!
//! **Nothing half loaded.** Names, shapes, types and values are checked before the first tensor is set. An error leaves the network
//! unchanged, unless the device itself fails.
//!
//! **What is saved** is parameters and running statistics. A batch norm's `num_batches_tracked`, which networks do not keep, is saved as the
//! number of training steps, 0 in a network without `TRAIN`, and not needed when a file is loaded. Optimizer states are not saved.

#[cfg(not(any(feature = "safetensors", feature = "pickle")))]
compile_error!("gpumem-weights reads nothing without a format: enable its feature `safetensors` or `pickle`");

mod error;
#[cfg(feature = "hub")]
mod hub;
mod load;
mod mapping;
mod names;
#[cfg(feature = "pickle")]
mod pickle;
#[cfg(feature = "safetensors")]
mod safetensors;
#[cfg(feature = "safetensors")]
mod save;
mod source;
mod weights;

pub use error::{Error, Lone, Mismatch, Shapes};
pub use gpumem_core::network::torch_name;
#[cfg(feature = "hub")]
pub use hub::Hub;
pub use load::Report;
pub use mapping::{Dtype, Mapping};
pub use weights::{NetWeights, Weights};
