//! Optimizers: what they keep of each parameter, and what an update takes for as long as it runs.

use super::Device;
use super::meta::{Eager, Tensor};
use super::trace::{Purpose, Site};
use crate::model::Dtype;

/// The algorithms.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Algorithm {
    /// No update: forward and backward pass only.
    None,
    Sgd {
        momentum: bool,
        nesterov: bool,
    },
    Adam {
        amsgrad: bool,
    },
    AdamW {
        amsgrad: bool,
    },
    NAdam,
    RmsProp,
    Adagrad,
    Adadelta,
}

/// The ways in which PyTorch updates many parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Update {
    /// All parameters at once, an operation after the other: the default on a card.
    ForEach,
    /// One parameter after the other: the default on the CPU.
    ForLoop,
    /// One kernel: `fused=True`.
    Fused,
}

/// An optimizer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Optimizer {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The way in which parameters are updated.
    pub update: Update,
    /// True if weights decay.
    pub weight_decay: bool,
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer { algorithm: Algorithm::AdamW { amsgrad: false }, update: Update::ForEach, weight_decay: true }
    }
}

/// The memory that an algorithm takes, in tensors of a parameter's size.
struct Needs {
    state: usize,
    /// True if a counter of steps is kept for each parameter.
    counts: bool,
    /// The tensors that an update of all parameters at once holds at the same time.
    for_each: usize,
    /// The tensors that an update of one parameter holds at the same time, without the one that it leaves.
    for_loop: usize,
    /// True if the last of them lives until the next parameter has its own.
    leaves_one: bool,
}

impl Optimizer {
    fn needs(&self) -> Needs {
        let decays = usize::from(self.weight_decay);
        let needs = |state, for_each, for_loop| Needs { state, counts: true, for_each, for_loop, leaves_one: false };
        match self.algorithm {
            Algorithm::None => Needs { counts: false, ..needs(0, 0, 0) },
            Algorithm::Sgd { momentum: false, .. } => Needs { counts: false, ..needs(0, decays, decays) },
            Algorithm::Sgd { nesterov, .. } => {
                let temporaries = decays + usize::from(nesterov);
                Needs { counts: false, ..needs(1, temporaries, temporaries.min(1)) }
            }
            // Decayed gradients go before the roots come.
            Algorithm::Adam { amsgrad } => Needs { leaves_one: true, ..needs(2 + usize::from(amsgrad), 1, 1 + decays) },
            Algorithm::AdamW { amsgrad } => Needs { leaves_one: true, ..needs(2 + usize::from(amsgrad), 1, 1) },
            Algorithm::NAdam => Needs { leaves_one: true, ..needs(2, 1, 1 + decays) },
            Algorithm::RmsProp => needs(1, 1, 2),
            Algorithm::Adagrad => needs(1, 2, 2),
            Algorithm::Adadelta => needs(2, 2, 3),
        }
    }
}

impl Eager {
    /// Updates parameters that have a gradient. `states` has what is kept of each; it is made in the first step.
    pub fn update(&self, parameters: &[Tensor], optimizer: &Optimizer, states: &mut Vec<Vec<Tensor>>) {
        self.enter(Site { node: None, label: "optimizer.step" });
        let needs = optimizer.needs();
        states.resize(parameters.len(), Vec::new());
        let trained: Vec<usize> =
            (0..parameters.len()).filter(|&index| parameters[index].gradient().is_some()).collect();
        // A counter of steps is on the CPU, unless the kernel reads it.
        let has_counter = needs.counts && (self.rules.device == Device::Cpu || optimizer.update == Update::Fused);
        for &index in &trained {
            let parameter = &parameters[index];
            if !states[index].is_empty() || needs.state == 0 {
                continue;
            }
            let counter = has_counter.then(|| self.new_tensor(&[], Dtype::F32));
            let state =
                (0..needs.state).map(|_| self.strided(&parameter.shape, parameter.strides.clone(), parameter.dtype));
            states[index] = counter.into_iter().chain(state).collect();
            states[index].iter().for_each(|state| state.mark(Purpose::OptimizerState));
        }
        match optimizer.update {
            Update::Fused => {}
            Update::ForEach => {
                let all = (0..needs.for_each).flat_map(|_| &trained);
                let _temporaries: Vec<Tensor> = all.map(|&index| self.contiguous_like(&parameters[index])).collect();
            }
            Update::ForLoop => {
                let mut _left = None;
                for &index in &trained {
                    let temporaries: Vec<Tensor> =
                        (0..needs.for_loop).map(|_| self.contiguous_like(&parameters[index])).collect();
                    if needs.leaves_one {
                        let denominator = self.contiguous_like(&parameters[index]);
                        drop(temporaries);
                        _left = Some(denominator);
                    }
                }
            }
        }
    }

    fn contiguous_like(&self, parameter: &Tensor) -> Tensor {
        self.new_tensor(&parameter.shape, parameter.dtype)
    }
}
