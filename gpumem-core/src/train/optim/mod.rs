//! Optimizers: what is written in `TRAIN`, as `optimizer: AdamW { lr: 1e-3 }`. Hyperparameters left out take PyTorch's defaults.
//! [`Sgd`], [`Adam`], [`AdamW`] and [`Lion`] each have a page with the update rule, the hyperparameters and the state they keep.
//!
//! In the crate each is one file. A new optimizer is a new file, its `mod` line and a name in the list below; a backend then needs
//! its rule.

mod adam;
mod adamw;
mod lion;
mod sgd;

pub use adam::Adam;
pub use adamw::AdamW;
pub use lion::Lion;
pub use sgd::Sgd;

use crate::message::{Message, same};

/// What is known of an optimizer without its hyperparameters' values.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name, as written in `TRAIN`.
    pub name: &'static str,
    /// The hyperparameters as written in `TRAIN`.
    pub fields: &'static [&'static str],
    /// The tensors it keeps for each parameter, each of the parameter's size and made of
    /// [`Role::Moment`](crate::Role::Moment) elements.
    pub states: &'static [State],
}

/// A tensor that an optimizer keeps for each parameter.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// What it holds.
    pub name: &'static str,
    /// The hyperparameter that must not be 0 for the tensor to be there; `None` if it always is.
    pub unless_zero: Option<&'static str>,
}

impl State {
    /// A tensor that is always there.
    pub const fn always(name: &'static str) -> State {
        State { name, unless_zero: None }
    }

    /// A tensor that is there unless a hyperparameter is 0.
    pub const fn unless_zero(name: &'static str, hyperparameter: &'static str) -> State {
        State { name, unless_zero: Some(hyperparameter) }
    }
}

macro_rules! optimizers {
    ($($(#[$doc:meta])* $name:ident,)*) => {
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

            /// What is known of it without its hyperparameters' values.
            pub const fn row(&self) -> Row {
                match self { $(Optimizer::$name(_) => $name::ROW,)* }
            }

            /// State tensors that it keeps for each parameter, each of the parameter's size.
            pub const fn moments(&self) -> u64 {
                match self { $(Optimizer::$name(optimizer) => count($name::ROW.states, &optimizer.values()),)* }
            }

            /// The learning rate.
            pub const fn lr(&self) -> f64 {
                match self { $(Optimizer::$name(optimizer) => optimizer.lr,)* }
            }

            /// The same optimizer with another learning rate.
            pub const fn with_lr(self, lr: f64) -> Optimizer {
                match self { $(Optimizer::$name(optimizer) => Optimizer::$name($name { lr, ..optimizer }),)* }
            }

            /// The first state that is not there with these hyperparameters, and the one that is 0.
            const fn absent(&self) -> Option<(&'static str, &'static str)> {
                match self { $(Optimizer::$name(optimizer) => absent($name::ROW.states, &optimizer.values()),)* }
            }

            /// Calls `each` with the name and the value of every number of its rule but the learning rate. A flag is 0 or 1.
            pub fn for_each_value(&self, each: impl FnMut(&'static str, f64)) {
                let mut each = each;
                match self {
                    $(Optimizer::$name(optimizer) => {
                        optimizer.values().into_iter().for_each(|(name, value)| each(name, value));
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
}

/// How many of these states are there with these values.
const fn count(states: &[State], values: &[(&str, f64)]) -> u64 {
    let mut count = 0;
    let mut i = 0;
    while i < states.len() {
        count += match states[i].unless_zero {
            Some(name) if value(values, name) == 0.0 => 0,
            _ => 1,
        };
        i += 1;
    }
    count
}

const fn absent(states: &[State], values: &[(&str, f64)]) -> Option<(&'static str, &'static str)> {
    let mut i = 0;
    while i < states.len() {
        match states[i].unless_zero {
            Some(name) if value(values, name) == 0.0 => return Some((states[i].name, name)),
            _ => i += 1,
        }
    }
    None
}

/// Fails to compile unless the optimizer keeps as many state tensors as the program has for each parameter.
///
/// The macro takes a hyperparameter that is no literal for one that is not 0: a constant that is 0 after all would count
/// memory that nothing uses.
#[track_caller]
pub const fn assert_states(optimizer: &Optimizer, moments: u64) {
    if optimizer.moments() == moments {
        return;
    }
    let mut text = Message::<256>::new();
    match optimizer.absent() {
        Some((state, name)) => {
            text.text("`").text(name).text("` is 0, so that no ").text(state);
            text.text(" is kept, but memory was counted for it: write a literal 0.0, or leave `")
                .text(name)
                .text("` out");
        }
        None => {
            text.text("the program has another number of optimizer states than the optimizer: a defect of gpumem, please report it");
        }
    }
    panic!("{}", text.as_str())
}

/// The value of a hyperparameter; 0 if there is none of that name.
const fn value(values: &[(&str, f64)], name: &str) -> f64 {
    let mut i = 0;
    while i < values.len() {
        if same(values[i].0, name) {
            return values[i].1;
        }
        i += 1;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_velocity_is_there_where_there_is_momentum() {
        assert_eq!(Optimizer::Sgd(Sgd::DEFAULT).moments(), 0);
        assert_eq!(Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }).moments(), 1);
        assert_eq!(Optimizer::Adam(Adam::DEFAULT).moments(), 2);
        assert_eq!(Optimizer::AdamW(AdamW::DEFAULT).moments(), 2);
        assert_eq!(Optimizer::Lion(Lion::DEFAULT).moments(), 1);
    }

    /// What a state depends on is a number of the rule: a name that is none would count as 0.
    #[test]
    fn states_depend_on_numbers_that_are_there() {
        for optimizer in Optimizer::DEFAULTS {
            let mut names = alloc::vec::Vec::new();
            optimizer.for_each_value(|name, _| names.push(name));
            let asked = optimizer.row().states.iter().filter_map(|state| state.unless_zero);
            asked.for_each(|name| assert!(names.contains(&name), "{name} of {}", optimizer.row().name));
        }
    }

    #[test]
    #[should_panic(expected = "`momentum` is 0, so that no velocity is kept, but memory was counted for it")]
    fn a_state_that_nothing_uses_is_refused() {
        assert_states(&Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT }), 1);
        assert_states(&Optimizer::Sgd(Sgd::DEFAULT), 0);
        assert_states(&Optimizer::Sgd(Sgd::DEFAULT), 1);
    }
}
