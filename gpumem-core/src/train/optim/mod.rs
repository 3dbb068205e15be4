//! Optimizers, as they are written in `TRAIN`: `optimizer: AdamW { lr: 1e-3 }`. Hyperparameters that are left out take PyTorch's defaults.
//! [`Sgd`], [`Adam`], [`AdamW`], [`AdamW8bit`], [`NAdam`], [`RAdam`], [`Adamax`], [`RmsProp`], [`Adagrad`], [`Adadelta`], [`Adafactor`],
//! [`Muon`] and [`Lion`] each have a page with the update rule, the hyperparameters and the state they keep. [`Group`] gives some
//! parameters a rate or a weight decay of their own.
//!
//! Each optimizer is one file of this crate: its hyperparameters with defaults and bounds, its formula, and the state it keeps. The macro,
//! the budget and the backends read all their facts from it, also its rule, if that updates each element by itself: see [`ElementRule`]. A new
//! optimizer of elements is a new file, its `mod` line and a name in the list below. One of whole tensors needs kernels in each backend.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod adamw;
mod adamw8bit;
mod element;
mod group;
mod lion;
mod muon;
mod nadam;
mod radam;
mod rmsprop;
mod sgd;
mod sums;
mod table;

pub use adadelta::Adadelta;
pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::Adam;
pub use adamax::Adamax;
pub use adamw::AdamW;
pub use adamw8bit::AdamW8bit;
pub use element::{ElementRule, RuleVisitor, STATES, Scalar, StepScalars};
pub use group::{Group, matches};
pub use lion::Lion;
pub use muon::{Iteration, Muon, matrix};
pub use nadam::NAdam;
pub use radam::RAdam;
pub use rmsprop::RmsProp;
pub use sgd::Sgd;
pub use sums::{Sums, scratch, scratch_of_all};
pub use table::{Corrections, Extent, Row, State, extent_of, has_extent, state_count, whole_states, with_state};

use crate::shape::Shape;
use element::bias_correction;
use table::Value;

/// Calls a visitor with a rule of elements, and gives `None` for a rule `of_tensors`.
macro_rules! visit {
    ($visitor:ident, $rule:ident) => {
        Some($visitor.visit(*$rule))
    };
    ($visitor:ident, $rule:ident, of_tensors) => {
        None
    };
}

macro_rules! optimizers {
    ($($(#[$doc:meta])* $name:ident $($of_tensors:ident)?,)*) => {
        /// An optimizer with its hyperparameters.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Optimizer {
            $($(#[$doc])* $name($name),)*
        }

        impl Optimizer {
            /// Every optimizer, in the order of their numbers.
            pub const ROWS: &'static [Row] = &[$($name::ROW),*];

            /// Every optimizer with its defaults, in the order of their numbers.
            pub const DEFAULTS: &'static [Optimizer] = &[$(Optimizer::$name($name::DEFAULT)),*];

            /// Returns the facts about the optimizer that do not depend on the values of hyperparameters.
            pub const fn row(&self) -> Row {
                match self { $(Optimizer::$name(_) => $name::ROW,)* }
            }

            /// Returns the state tensors that it keeps for each parameter, packed into one number: see [`with_state`]. The number is their
            /// count if each has the parameter's size.
            pub const fn moments(&self) -> u64 {
                match self { $(Optimizer::$name(optimizer) => table::moments($name::ROW.states, &optimizer.values()),)* }
            }

            /// Returns the learning rate.
            pub const fn lr(&self) -> f64 {
                match self { $(Optimizer::$name(optimizer) => optimizer.lr,)* }
            }

            /// Returns this optimizer with another learning rate.
            pub const fn with_lr(self, lr: f64) -> Optimizer {
                match self { $(Optimizer::$name(optimizer) => Optimizer::$name($name { lr, ..optimizer }),)* }
            }

            /// Returns the groups of parameters with a learning rate or a weight decay of their own.
            pub const fn groups(&self) -> &'static [Group] {
                match self { $(Optimizer::$name(optimizer) => optimizer.groups,)* }
            }

            /// Returns this optimizer with another learning rate and weight decay.
            const fn with(self, lr: f64, weight_decay: f64) -> Optimizer {
                match self {
                    $(Optimizer::$name(optimizer) => {
                        Optimizer::$name($name { lr, weight_decay, ..optimizer })
                    })*
                }
            }

            /// Returns the weight decay.
            pub const fn weight_decay(&self) -> f64 {
                match self { $(Optimizer::$name(optimizer) => optimizer.weight_decay,)* }
            }

            /// Returns the optimizer with those numbers of a group that its rule has.
            fn with_rule(self, group: &Group) -> Optimizer {
                match self { $(Optimizer::$name(optimizer) => Optimizer::$name(optimizer.with_group(group)),)* }
            }

            /// Calls `visitor` with its rule. `None` if it does not update each element by itself.
            pub fn visit<V: RuleVisitor>(&self, visitor: V) -> Option<V::Output> {
                match self { $(Optimizer::$name(_rule) => visit!(visitor, _rule $(, $of_tensors)?),)* }
            }

            /// Returns a number of its rule; 0 if there is none of that name.
            pub const fn value(&self, name: &str) -> f64 {
                match self { $(Optimizer::$name(optimizer) => table::value(&optimizer.values(), name),)* }
            }

            /// Calls `with` with the numbers of its rule, except the learning rate.
            fn with_values<R>(&self, with: impl FnOnce(&[Value]) -> R) -> R {
                match self { $(Optimizer::$name(optimizer) => with(&optimizer.values()),)* }
            }

            /// Returns the mistake in its hyperparameter `field`, or the first in any if `field` is empty. `None` if there is none.
            const fn mistake(&self, field: &str) -> Option<crate::message::Message<256>> {
                match self {
                    $(Optimizer::$name(optimizer) => table::mistake(&$name::ROW, &optimizer.values(), field),)*
                }
            }

            /// Returns the mistake if it does not keep the states that a program has for each parameter: see [`with_state`]. `None` if it
            /// does.
            const fn wrong_states(&self, moments: u64) -> Option<crate::message::Message<256>> {
                match self {
                    $(Optimizer::$name(optimizer) => {
                        table::wrong_states(&$name::ROW, &optimizer.values(), moments)
                    })*
                }
            }
        }
    };
}

optimizers! {
    /// Stochastic gradient descent.
    Sgd,
    /// Adam with L2 regularisation.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
    /// Steps by the sign of an interpolation of gradient and momentum.
    Lion,
    /// Divides by a running root mean square of gradients.
    RmsProp,
    /// Divides by the root of the sum of all squared gradients.
    Adagrad,
    /// Scales a gradient by the ratio of the root mean squares of earlier steps and gradients.
    Adadelta,
    /// Adam with Nesterov's momentum.
    NAdam,
    /// Adam with a running maximum in place of the root mean square.
    Adamax,
    /// Adam that divides by its root mean square only once that is a mean of enough steps.
    RAdam,
    /// Divides by a root mean square, and keeps only its means over rows and columns.
    Adafactor of_tensors,
    /// AdamW with optimizer state in 8 bits.
    AdamW8bit,
    /// Orthogonal steps for matrices of hidden layers, and AdamW for all other parameters.
    Muon of_tensors,
}

impl Optimizer {
    /// Returns the rule for a parameter that is a matrix of a hidden layer, or for one that is none. Only [`Muon`] has two rules. The
    /// learning rate of the result is that of `self`; [`Optimizer::own_as`] returns its factor.
    pub const fn rule(self, is_matrix: bool) -> Optimizer {
        match self {
            Optimizer::Muon(muon) if !is_matrix => Optimizer::AdamW(muon.adamw()),
            optimizer => optimizer,
        }
    }

    /// Returns the factor of the learning rate in [`Optimizer::rule`] for a parameter whose groups set none.
    pub const fn factor(self, is_matrix: bool) -> f64 {
        match self {
            Optimizer::Muon(muon) if !is_matrix => muon.adamw_lr_factor,
            _ => 1.0,
        }
    }

    /// Two optimizers that update each element by itself, as messages name them.
    pub const OF_ELEMENTS: &'static str = "`AdamW` or `Lion`";

    /// The largest number of state tensors that any optimizer keeps for a parameter.
    pub const MOST_STATES: usize = {
        let (mut most, mut i) = (0, 0);
        while i < Optimizer::ROWS.len() {
            let count = Optimizer::ROWS[i].states.len();
            most = if count > most { count } else { most };
            i += 1;
        }
        most
    };

    /// Calls `each` with the name and the value of every number of its rule, except the learning rate. A flag is 0 or 1.
    pub fn for_each_value(&self, each: impl FnMut(&'static str, f64)) {
        let mut each = each;
        self.with_values(|values| values.iter().for_each(|value| each(value.name, value.value)));
    }

    /// Returns the factor of the learning rate and the weight decay for the parameter of this name. The parameter is taken for a matrix of
    /// a hidden layer, if that makes a difference.
    pub fn own(&self, parameter: &str) -> (f64, f64) {
        self.own_as(true, parameter)
    }

    /// Returns the factor of the learning rate and the weight decay for the parameter of this name. Unlike [`Optimizer::own`], takes
    /// whether it is a matrix of a hidden layer: see [`Optimizer::rule`].
    pub fn own_as(&self, is_matrix: bool, parameter: &str) -> (f64, f64) {
        self.groups()
            .iter()
            .filter(|group| group.holds(parameter))
            .fold((self.factor(is_matrix), self.rule(is_matrix).weight_decay()), |(factor, decay), group| {
                (group.lr_factor.unwrap_or(factor), group.weight_decay.unwrap_or(decay))
            })
    }

    /// Returns the rule for the parameter of this name, with the numbers that its groups set: see [`Optimizer::rule`]. Its rate and weight
    /// decay are still the optimizer's: [`Optimizer::own_as`] returns those of the parameter.
    pub fn rule_of(self, is_matrix: bool, parameter: &str) -> Optimizer {
        let groups = self.groups().iter().filter(|group| group.changes_rule() && group.holds(parameter));
        groups.fold(self.rule(is_matrix), |rule, group| rule.with_rule(group))
    }

    /// Returns the optimizer for a parameter whose factor and weight decay are these: see [`Optimizer::own`].
    pub const fn of(self, (factor, weight_decay): (f64, f64)) -> Optimizer {
        self.with(self.lr() * factor, weight_decay)
    }

    /// Returns state tensor `number` of a parameter of this shape, with its name: PyTorch's key in `optimizer.state[parameter]`. `None` if
    /// there are not so many. `is_matrix` says that the parameter is a matrix of a hidden layer: see [`Optimizer::rule`].
    pub fn state(&self, number: usize, parameter: Shape, is_matrix: bool) -> Option<(&'static str, State)> {
        let rule = self.rule(is_matrix);
        rule.with_values(|values| {
            let states = rule.row().states.iter().filter(|state| table::is_there(state, values));
            states.filter_map(|state| Some((state.name_for(parameter)?, *state))).nth(number)
        })
    }

    /// Returns the names of the optimizers that keep a state of this name: `momentum_buffer` is one of `Sgd`, `RmsProp` and `Muon`.
    pub fn owners_of(state: &str) -> impl Iterator<Item = &'static str> + '_ {
        let keeps = move |row: Row| row.states.iter().any(|known| known.is_called(state));
        let owners = Optimizer::DEFAULTS.iter().filter(move |it| keeps(it.row()) || keeps(it.rule(false).row()));
        owners.map(|optimizer| optimizer.row().name)
    }

    /// Returns which of [`Row::states`] it keeps of an element.
    pub fn kept_states(&self) -> [bool; STATES] {
        let mut states = self.row().states.iter().filter(|state| state.extent != Extent::Blocks);
        self.with_values(|values| {
            [(); STATES].map(|()| states.next().is_some_and(|state| table::is_there(state, values)))
        })
    }

    /// Returns the numbers of [`Corrections`] for step `t`, counted from 1; zeros for an optimizer without any.
    pub fn corrections<N: Scalar>(&self, t: N) -> [N; 2] {
        struct Own<N>(N);
        impl<N: Scalar> RuleVisitor for Own<N> {
            type Output = [N; 2];

            fn visit<const FACTORS: usize>(self, rule: impl ElementRule<FACTORS>) -> [N; 2] {
                rule.corrections(self.0)
            }
        }
        match (self.row().corrections, self) {
            (Corrections::None, _) => [N::of(0.0); 2],
            (Corrections::Betas, _) => ["beta1", "beta2"].map(|name| bias_correction(self.value(name), t)),
            (Corrections::Own, Optimizer::Adafactor(adafactor)) => adafactor.corrections(t),
            (Corrections::Own, _) => self.visit(Own(t)).unwrap_or([N::of(0.0); 2]),
        }
    }

    /// Returns the value of a state tensor's elements before the first step; 0 beyond the last state.
    pub fn initial(&self, moment: usize) -> f64 {
        self.with_values(|values| {
            let mut there = self.row().states.iter().filter(|state| table::is_there(state, values));
            there.nth(moment).and_then(|state| state.initial).map_or(0.0, |name| table::value(values, name))
        })
    }
}

/// Fails to compile unless the hyperparameter `field` of [`Row::fields`] is in its bounds. Each hyperparameter that is written has its own
/// check, so that all mistakes are reported at once.
#[track_caller]
pub const fn assert_hyperparameter(optimizer: &Optimizer, field: &str) {
    let lr = optimizer.lr();
    if crate::message::same(field, "lr") && !(lr >= 0.0 && lr <= f32::MAX as f64) {
        panic!("the learning rate `lr` must be 0 or more and finite")
    }
    if let Some(text) = optimizer.mistake(field) {
        panic!("{}", text.as_str())
    }
}

/// Fails to compile unless the numbers of the group with this index are in their bounds.
#[track_caller]
pub const fn assert_group(optimizer: &Optimizer, index: usize) {
    let group = &optimizer.groups()[index];
    if let Some(text) = group.mistake() {
        panic!("{}", text)
    }
    if group.momentum.is_some() && optimizer.row().is_of_groups("momentum") && optimizer.value("momentum") == 0.0 {
        panic!("a group has `momentum`, but the optimizer keeps none: give the optimizer a `momentum` too")
    }
}

/// Fails to compile unless the optimizer keeps the state tensors that the program has for each parameter: see [`with_state`]. If a
/// hyperparameter is out of its bounds, only [`assert_hyperparameter`] reports it.
///
/// The macro assumes that a hyperparameter that is no literal is not 0. If it were a constant with the value 0, memory would be counted
/// that nothing uses.
#[track_caller]
pub const fn assert_states(optimizer: &Optimizer, moments: u64) {
    if optimizer.mistake("").is_some() {
        return;
    }
    if let Some(text) = optimizer.wrong_states(moments) {
        panic!("{}", text.as_str())
    }
}

#[cfg(test)]
mod tests;
