//! A network on a device. What it does is in the files beside this one.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::number::Precision;
use crate::run::cache_state::CacheState;
use crate::run::device::{Device, Served};
pub use crate::run::named::{Kind, Named};
use crate::run::states::States;
pub use crate::run::tensor::Given;
use crate::run::train_step::TrainStep;
use alloc::vec::Vec;
use core::marker::PhantomData;

/// A function that runs one micro-batch: one before the last by its number, or `None` for the last.
pub(super) type RunPart<'r, R> = dyn FnMut(&mut R, Option<u64>) -> Result<(), Error> + 'r;

/// A network `N` loaded onto a device `D`: `let mut net = Vgg16::on(&device)?`.
///
/// Methods that compute take `&mut self`: one pass runs at a time. Threads share a network as `Arc<Mutex<Net<..>>>`. `gpumem::weights`
/// saves and loads it; [`Net::tensors`], [`Net::get`] and [`Net::set`] are for other file formats. There is no mode to switch:
/// [`Net::train_step`] trains, [`Net::forward`] and [`Net::eval_loss`] use running statistics and no dropout.
pub struct Net<N, D: Device> {
    pub(super) runner: D::Runner,
    /// The current training step: the first, except inside a call for another one.
    pub(super) step: TrainStep,
    /// The other steps of a network with several. While one of them is current, the first one is stored in its slot.
    pub(super) others: Vec<TrainStep>,
    /// The number of the current step.
    pub(super) at: usize,
    /// True inside a call for one of several steps, rather than for that of `TRAIN`.
    pub(super) in_step: bool,
    /// The number of the step whose batch is in the arena. `None` before the first step, and after an evaluation.
    pub(super) last: Option<usize>,
    /// A further forward pass: that of `INFER` in addition to a training step, or a single time step of a network with a cache.
    pub(super) served: Option<Served>,
    pub(super) infer: Placed,
    /// The state of the sequence cache; empty if `INFER` has no cache.
    pub(super) kept: CacheState,
    /// The number format in which the device runs it.
    pub(super) precision: Precision,
    pub(super) states: States,
    pub(super) buffer: Vec<u8>,
    pub(super) network: PhantomData<fn() -> N>,
}
