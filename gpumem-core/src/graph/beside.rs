//! Facts that all programs of a network with several training steps share.

use alloc::string::String;
use alloc::vec::Vec;

/// The training steps of a network, as far as each of their programs needs to know the others.
///
/// Every program declares the persistent tensors of all steps, in one order, so that they have the same offsets in the arena. In the
/// program of another step, a step's state is a tensor without an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beside {
    /// True for each parameter that a training step or the forward pass reads.
    pub(crate) parameters: Vec<bool>,
    /// True for each running statistic that a training step reads.
    pub(crate) buffers: Vec<bool>,
    /// The training steps, in order.
    pub(crate) steps: Vec<StepStates>,
    /// Index of the training step that is lowered; `None` for a forward pass.
    pub(crate) at: Option<usize>,
}

/// The optimizer state that a training step keeps of the parameters that it trains.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepStates {
    /// The name of its constant, such as `CRITIC`.
    pub(crate) name: String,
    /// Number of optimizer state tensors of each parameter: see [`with_state`](crate::train::optim::with_state).
    pub(crate) moments: u64,
    /// True for each parameter that it trains.
    pub(crate) trained: Vec<bool>,
}

#[cfg(feature = "lower")]
impl Beside {
    /// True if a training step trains this parameter.
    pub(crate) fn is_trained(&self, parameter: usize) -> bool {
        self.steps.iter().any(|step| step.trained.get(parameter).copied().unwrap_or(false))
    }

    /// Returns the name of the training step that is lowered, or `None` for a forward pass.
    pub(crate) fn name(&self) -> Option<&str> {
        Some(self.steps.get(self.at?)?.name.as_str())
    }
}
