//! Optimizers, one file each: the update rule, its hyperparameters and how much state it keeps.

mod adam;
mod adamw;
mod sgd;

pub use adam::Adam;
pub use adamw::AdamW;
pub use sgd::Sgd;

/// An optimizer with its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam with L2 regularisation.
    Adam(Adam),
    /// Adam with decoupled weight decay.
    AdamW(AdamW),
}

impl Optimizer {
    /// Every optimizer's name, as written in `TRAIN`.
    pub const NAMES: [&'static str; 3] = ["Sgd", "Adam", "AdamW"];

    /// State tensors that the optimizer keeps for each parameter, each of the parameter's size.
    pub const fn moments(&self) -> u64 {
        match self {
            Optimizer::Sgd(sgd) => sgd.moments(),
            Optimizer::Adam(_) | Optimizer::AdamW(_) => 2,
        }
    }

    /// The learning rate.
    pub const fn lr(&self) -> f64 {
        match self {
            Optimizer::Sgd(sgd) => sgd.lr,
            Optimizer::Adam(adam) => adam.lr,
            Optimizer::AdamW(adam) => adam.lr,
        }
    }

    /// The same optimizer with another learning rate.
    pub const fn with_lr(self, lr: f64) -> Optimizer {
        match self {
            Optimizer::Sgd(sgd) => Optimizer::Sgd(Sgd { lr, ..sgd }),
            Optimizer::Adam(adam) => Optimizer::Adam(Adam { lr, ..adam }),
            Optimizer::AdamW(adam) => Optimizer::AdamW(AdamW { lr, ..adam }),
        }
    }
}
