//! What is known of an optimizer, and what its hyperparameters may be.

use crate::message::{Message, same};

/// What is known of an optimizer without its hyperparameters' values.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name, as written in `TRAIN`.
    pub name: &'static str,
    /// The hyperparameters as written in `TRAIN`, but for the groups that all of them have.
    pub fields: &'static [&'static str],
    /// The tensors it keeps for each parameter, each of the parameter's size and made of
    /// [`Role::Moment`](crate::Role::Moment) elements.
    pub states: &'static [State],
    /// What its rule needs that is another number in each step.
    pub corrections: Corrections,
}

/// A tensor that an optimizer keeps for each parameter.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// What it holds.
    pub name: &'static str,
    /// The hyperparameter that must not be 0 for the tensor to be there; `None` if it always is.
    pub unless_zero: Option<&'static str>,
    /// The hyperparameter that all elements are before the first step; `None` for 0.
    pub initial: Option<&'static str>,
}

impl State {
    /// A tensor that is always there.
    pub const fn always(name: &'static str) -> State {
        State { name, unless_zero: None, initial: None }
    }

    /// A tensor that is there unless a hyperparameter is 0, or `false`.
    pub const fn unless_zero(name: &'static str, hyperparameter: &'static str) -> State {
        State { unless_zero: Some(hyperparameter), ..State::always(name) }
    }

    /// The same tensor, which begins with the value of a hyperparameter.
    pub const fn beginning_with(self, hyperparameter: &'static str) -> State {
        State { initial: Some(hyperparameter), ..self }
    }
}

/// The two numbers of [`StateWord::Corrections`](crate::program::StateWord::Corrections): what a rule needs that is the same for all
/// elements and another number in each step, so that it is computed once a step. A rule says in its formula what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrections {
    /// It needs none.
    None,
    /// `1 - beta1^t` and `1 - beta2^t`.
    Betas,
    /// Numbers of its own.
    Own,
}

/// A number of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) name: &'static str,
    /// 0 or 1 for a flag.
    pub(super) value: f64,
    is_flag: bool,
    /// Whether it may have this value, and what is said where it may not.
    holds: bool,
    rule: &'static str,
}

impl Value {
    /// A number that is 0 or more.
    pub(super) const fn not_negative(name: &'static str, value: f64) -> Value {
        Value {
            name,
            value,
            is_flag: false,
            holds: value >= 0.0 && value <= f64::MAX,
            rule: "must be 0 or more and finite",
        }
    }

    /// Any number.
    pub(super) const fn finite(name: &'static str, value: f64) -> Value {
        let holds = value >= f64::MIN && value <= f64::MAX;
        Value { holds, rule: "must be finite", ..Value::not_negative(name, value) }
    }

    /// The decay rate of a mean that is corrected: at 1 the correction would be 0.
    pub(super) const fn decay(name: &'static str, value: f64) -> Value {
        let holds = value >= 0.0 && value < 1.0;
        Value { holds, rule: "must be at least 0 and below 1", ..Value::not_negative(name, value) }
    }

    /// A share of something.
    pub(super) const fn share(name: &'static str, value: f64) -> Value {
        let holds = value >= 0.0 && value <= 1.0;
        Value { holds, rule: "must be from 0 to 1", ..Value::not_negative(name, value) }
    }

    pub(super) const fn flag(name: &'static str, value: bool) -> Value {
        Value { is_flag: true, ..Value::not_negative(name, value as u8 as f64) }
    }

    /// The same number, which may be other than 0 only where something `holds`.
    pub(super) const fn only_if(self, holds: bool, rule: &'static str) -> Value {
        if self.holds && self.value != 0.0 { Value { holds, rule, ..self } } else { self }
    }
}

/// How many of these states are there with these values.
pub(super) const fn count(states: &[State], values: &[Value]) -> u64 {
    let mut count = 0;
    let mut i = 0;
    while i < states.len() {
        count += is_there(&states[i], values) as u64;
        i += 1;
    }
    count
}

/// Whether a state is there with these values.
pub(super) const fn is_there(state: &State, values: &[Value]) -> bool {
    match state.unless_zero {
        Some(name) => value(values, name) != 0.0,
        None => true,
    }
}

/// The first state that is not there with these values, and what it depends on.
const fn absent(states: &[State], values: &[Value]) -> Option<(&'static str, Value)> {
    let mut i = 0;
    while i < states.len() {
        if let Some(name) = states[i].unless_zero
            && let Some(at) = position(values, name)
            && values[at].value == 0.0
        {
            return Some((states[i].name, values[at]));
        }
        i += 1;
    }
    None
}

const fn position(values: &[Value], name: &str) -> Option<usize> {
    let mut i = 0;
    while i < values.len() {
        if same(values[i].name, name) {
            return Some(i);
        }
        i += 1;
    }
    None
}

/// The value of a hyperparameter; 0 if there is none of that name.
pub(super) const fn value(values: &[Value], name: &str) -> f64 {
    match position(values, name) {
        Some(at) => values[at].value,
        None => 0.0,
    }
}

/// What is wrong with an optimizer of these values, for a program that has `moments` states for each parameter.
pub(super) const fn mistake(row: &Row, values: &[Value], moments: u64) -> Option<Message<256>> {
    let mut text = Message::new();
    let mut i = 0;
    while i < values.len() {
        if !values[i].holds {
            text.text("`").text(values[i].name).text("` of `").text(row.name).text("` ").text(values[i].rule);
            return Some(text);
        }
        i += 1;
    }
    if count(row.states, values) == moments {
        return None;
    }
    match absent(row.states, values) {
        Some((state, Value { name, is_flag, .. })) => {
            let (is, literal) = if is_flag { ("false", "`false`") } else { ("0", "0.0") };
            text.text("`").text(name).text("` is ").text(is).text(", so that no ").text(state);
            text.text(" is kept, but memory was counted for it: write a literal ").text(literal).text(", or leave `");
            text.text(name).text("` out");
        }
        None => {
            text.text("the program has another number of optimizer states than the optimizer: a defect of gpumem, please report it");
        }
    }
    Some(text)
}
