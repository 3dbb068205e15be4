//! **If it compiles, it fits.** A network declared with [`network!`] compiles only if one training step fits the memory of every target
//! card. It then runs in one arena of exactly the computed size.
//!
//! ```
//! use gpumem::prelude::*;
//!
//! network! {
//!     pub struct Mlp;
//!
//!     const TRAIN: Train = Train {
//!         batch: 32,
//!         optimizer: Sgd { lr: 0.1, momentum: 0.9 },
//!         loss: CrossEntropy,
//!         cards: [RTX_3060],
//!     };
//!
//!     fn forward(features: Features<64>) -> Logits<10> {
//!         [Linear(32), Relu, Linear(10)]
//!     }
//! }
//!
//! # fn main() -> Result<(), gpumem::Error> {
//! let device = gpumem::default_device()?;
//! let mut net = Mlp::on(&device)?;
//! let features = Tensor::from_fn(|index| (index % 7) as f32);
//! let labels = Tensor::from_fn(|index| index as u32 % 10);
//! let before = net.train_step(&features, &labels)?;
//! let after = net.train_step(&features, &labels)?;
//! assert!(after < before);
//! # Ok(())
//! # }
//! ```
//!
//! Choose a card in `cards:`, by a Cargo feature (`cargo check --features gpumem/rtx3060`) or by its size
//! (`GPUMEM_VRAM=11.5GiB cargo check`). With several, the network must fit all of them; with none, nothing is checked.
//! `GPUMEM_CARDS=t4,l4 cargo check` checks other cards instead, and `GPUMEM_HEADROOM=1GiB` leaves more of each card to other processes.
//!
//! | to | look at |
//! | --- | --- |
//! | write a network | [`network!`], [`layers`] |
//! | write a layer of your own | [`operation!`], [`operation`](mod@operation) |
//! | say how it is trained | [`Train`], [`optim`] |
//! | read what it needs | [`report::table`], [`report::json`](fn@report::json), [`Network::BUDGET`] |
//! | run it | `on`, which every network has, and [`Net`] |
//! | load and save weights | [`weights`] |
//! | interrupt a training and go on exactly | [`state`] |
//! | load data, and train with validation, metrics, logs and checkpoints | `data` and `train`, with the features of these names |
//! | port a PyTorch module, train on data of your own, save, serve, check in CI | the [`guide`] |

#[cfg(any(feature = "cpu", feature = "cuda"))]
mod device;
#[cfg(doc)]
pub mod guide;

#[cfg(any(feature = "cpu", feature = "cuda"))]
pub use device::{AnyDevice, AnyRunner, default_device};
pub use gpumem_core::error::Error;
pub use gpumem_core::memory::budget::{Budget, Line};
pub use gpumem_core::memory::tables::Tables;
pub use gpumem_core::memory::{Compiled, record};
pub use gpumem_core::network::{
    Caches, Generate, LayerInfo, Learns, NamedStep, Network, Serve, Serving, StepInfo, Trains,
};
pub use gpumem_core::run::averages::Averaged;
pub use gpumem_core::run::device::Device;
pub use gpumem_core::run::generate::{Generated, Generation, greedy};
pub use gpumem_core::run::net::{Given, Kind, Named, Net};
pub use gpumem_core::run::non_finite::NonFinite;
pub use gpumem_core::run::ranks::Ranks;
pub use gpumem_core::run::state::{Snapshot, StateNumbers, StateTensor};
pub use gpumem_core::run::steps::Step;
pub use gpumem_core::run::tensor::{Compared, Give, Host, HostShape, Hosts, Learned, NamedSteps, NoConstTrain, Tensor};
pub use gpumem_core::train::{Clip, Ema, Schedule, Shard, gib, mib, optim};
pub use gpumem_core::typed::D;
pub use gpumem_core::{
    Checkpoint, ConvNorm, Half, Infer, Loss, LossOptions, LossTerm, Measurement, Offload, Precision, Reduction, Skip,
    Train, Update, cards, layers, operation, report,
};
#[cfg(feature = "cpu")]
pub use gpumem_cpu::Cpu;
#[cfg(feature = "cuda")]
pub use gpumem_cuda::{Calibration, Cuda, RankId, Stages, calibrate};
#[cfg(feature = "data")]
pub use gpumem_data as data;
pub use gpumem_macros::{blocks, blocks_mod, fits, max_batch, network, network_mod, operation};
#[cfg(feature = "safetensors")]
pub use gpumem_state as state;
#[cfg(feature = "train")]
pub use gpumem_train as train;
#[cfg(any(feature = "safetensors", feature = "pickle"))]
pub use gpumem_weights as weights;

/// The cards whose Cargo feature is on, in the order of the table: every network must fit all of them.
pub const SELECTED: &[cards::Card] = gpumem_core::selected_cards!();

/// Names that generated code uses.
#[doc(hidden)]
pub use gpumem_core as __private;
#[doc(hidden)]
pub use gpumem_core::__environment;
#[doc(hidden)]
pub use gpumem_macros::__needs;

/// The items that a program needs to declare and run networks.
pub mod prelude {
    #[cfg(any(feature = "cpu", feature = "cuda"))]
    pub use crate::AnyDevice;
    #[cfg(feature = "safetensors")]
    pub use crate::state::NetState;
    #[cfg(any(feature = "safetensors", feature = "pickle"))]
    pub use crate::weights::NetWeights;
    pub use crate::{
        D, Net, Network, Ranks, Tensor, Train, Trains, blocks, blocks_mod, fits, gib, max_batch, mib, network,
        network_mod, operation,
    };
}
