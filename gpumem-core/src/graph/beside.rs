//! Facts on which all programs of a network with several training steps agree.

use alloc::string::String;
use alloc::vec::Vec;

/// The steps that train a network, as far as each of their programs has to know of the others.
///
/// Every program declares the lasting tensors of all steps, in one order, so that they have the same places in the arena. What another
/// step keeps is a tensor without an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beside {
    /// True for each parameter that a step or the forward pass reads.
    pub(crate) parameters: Vec<bool>,
    /// True for each running statistic that some step reads.
    pub(crate) buffers: Vec<bool>,
    /// The steps, in order.
    pub(crate) steps: Vec<StepStates>,
    /// The number of the step that is lowered; `None` for a forward pass.
    pub(crate) at: Option<usize>,
}

/// The optimizer states that a step keeps of the parameters that it trains.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepStates {
    /// The name of its constant, such as `CRITIC`.
    pub(crate) name: String,
    /// Optimizer state tensors for each parameter: see [`with_state`](crate::train::optim::with_state).
    pub(crate) moments: u64,
    /// True for each parameter that it trains.
    pub(crate) trained: Vec<bool>,
}

#[cfg(feature = "lower")]
impl Beside {
    /// True if a step trains this parameter.
    pub(crate) fn is_trained(&self, parameter: usize) -> bool {
        self.steps.iter().any(|step| step.trained.get(parameter).copied().unwrap_or(false))
    }

    /// The name of the step that is lowered.
    pub(crate) fn name(&self) -> Option<&str> {
        Some(self.steps.get(self.at?)?.name.as_str())
    }
}
