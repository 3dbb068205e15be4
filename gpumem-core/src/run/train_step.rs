//! One training step of a loaded network.

use crate::memory::place::Placed;
use crate::run::loss_denominators::Divisors;
use crate::train::optim::Optimizer;
use crate::train::{Schedule, Train};

/// The data of one training step. A network without training has one that cannot run.
#[derive(Debug)]
pub(super) struct TrainStep {
    /// Its program in the arena. `None` without training.
    pub(super) train: Option<Placed>,
    /// Divisors of the loss that no micro-batch knows.
    pub(super) divisors: Divisors,
    pub(super) seed: u64,
    pub(super) optimizer: Optimizer,
    /// The schedule with the numbers in the state.
    pub(super) schedule: Schedule,
    /// The `total` in the constant, 0 if it is left out. `None` for a schedule without one.
    pub(super) written_total: Option<u64>,
    /// Micro-batches that its batch is split into.
    pub(super) parts: usize,
    /// True if it has run, and so has a loss.
    pub(super) has_stepped: bool,
}

impl TrainStep {
    /// Returns the step of a network without training.
    pub(super) fn none() -> TrainStep {
        let Train { seed, optimizer, .. } = Train::DEFAULT;
        let (divisors, schedule) = (Divisors::default(), Schedule::PLAIN);
        TrainStep {
            train: None,
            divisors,
            seed,
            optimizer,
            schedule,
            written_total: None,
            parts: 1,
            has_stepped: false,
        }
    }
}
