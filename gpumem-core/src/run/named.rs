//! Tensors that last from step to step, and their kinds.

use crate::number::Role;
use crate::program::{Class, Tensor};

/// A tensor that lasts from step to step: see [`Net::tensors`](crate::run::net::Net::tensors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'n> {
    /// Its name, such as `stage[0].conv2d[1].weight`.
    pub name: &'n str,
    /// Its dimensions, as PyTorch lays them out.
    pub shape: &'n [u64],
    /// Its kind.
    pub kind: Kind,
}

/// A kind of tensor that lasts from step to step. A model file for other programs has parameters and statistics only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A weight, bias, scale or shift.
    Parameter,
    /// A running statistic.
    Statistic,
    /// Optimizer state of a parameter.
    OptimizerState,
    /// A gradient that lives until the end of the step.
    Gradient,
    /// The moving average of a parameter: see [`Ema`](crate::train::Ema).
    Average,
}

impl Kind {
    /// Returns the kind of a tensor. `None` if it does not last, or is the scales of codes, which are a part of their weight.
    pub(super) fn of(tensor: &Tensor) -> Option<Kind> {
        match tensor.class {
            _ if tensor.role == Role::Scale => None,
            Class::Parameter => Some(Kind::Parameter),
            Class::Buffer => Some(Kind::Statistic),
            Class::Moment => Some(Kind::OptimizerState),
            Class::Average => Some(Kind::Average),
            Class::Gradient => Some(Kind::Gradient),
            Class::State | Class::Cache | Class::Input | Class::Target | Class::Transient | Class::Host => None,
        }
    }
}
