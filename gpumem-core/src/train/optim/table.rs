//! Facts about optimizers: their hyperparameters with bounds, and the state tensors that they keep.

use crate::message::{Message, same};
use crate::number::{Role, dynamic_8bit};
use crate::shape::Shape;

/// The facts about an optimizer that do not depend on the values of hyperparameters.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name, as written in `TRAIN`.
    pub name: &'static str,
    /// The hyperparameters as written in `TRAIN`, without `groups`, which all optimizers have.
    pub fields: &'static [&'static str],
    /// The numbers among `betas`, `eps` and `momentum` that a [`Group`](super::Group) may set.
    pub of_groups: &'static [&'static str],
    /// The tensors it keeps for each parameter. Their extents determine their sizes.
    pub states: &'static [State],
    /// The numbers that its rule needs and that change in each step.
    pub corrections: Corrections,
}

impl Row {
    /// True if a group may set this number of the rule.
    pub(super) const fn is_of_groups(&self, name: &str) -> bool {
        let mut i = 0;
        while i < self.of_groups.len() {
            if same(self.of_groups[i], name) {
                return true;
            }
            i += 1;
        }
        false
    }
}

/// A tensor that an optimizer keeps for each parameter.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Its key in PyTorch's `optimizer.state[parameter]`. The state of `w` is called `w.exp_avg`.
    pub name: &'static str,
    /// The key for a parameter whose state has the parameter's shape in spite of the extent: a vector has no rows, and a small parameter no
    /// codes. `None` if the key is [`State::name`] then too.
    pub whole_name: Option<&'static str>,
    /// True if no element can be negative: means and sums of squares, largest magnitudes, scales.
    pub not_negative: bool,
    /// The hyperparameter that must not be 0 for the tensor to be there; `None` if it always is.
    pub unless_zero: Option<&'static str>,
    /// The hyperparameter whose value all elements have before the first step; `None` for 0.
    pub initial: Option<&'static str>,
    /// The parts of the parameter that it has an element for.
    pub extent: Extent,
}

/// The parts of a parameter that a state tensor has an element for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every element: the tensor is as large as the parameter.
    Whole,
    /// Every row of the parameter's last two axes: its shape with 1 as the last dimension. Every element of a vector.
    Rows,
    /// Every column of the parameter's last two axes: its shape with 1 as the last dimension but one. A vector has no such state.
    Columns,
    /// Every element, as codes of 8 bits in one vector. For a parameter of fewer than [`LEAST`](dynamic_8bit::LEAST) elements, the state has its
    /// shape, in f32.
    Codes,
    /// Every [`BLOCK`](dynamic_8bit::BLOCK) of the parameter's elements, in f32: the scale of their codes. A parameter without codes has no such
    /// state.
    Blocks,
    /// Every element of a parameter that is no matrix of a hidden layer. Such a matrix has no such state.
    Others,
}

impl Extent {
    /// Every extent, in the order of their numbers.
    pub const ALL: [Extent; 6] =
        [Extent::Whole, Extent::Rows, Extent::Columns, Extent::Codes, Extent::Blocks, Extent::Others];

    /// Returns the shape of the tensor for a parameter of this shape, and the role of its elements; `None` if there is no tensor.
    pub fn tensor(self, parameter: Shape) -> Option<(Shape, Role)> {
        let elements = parameter.elements().unwrap_or(u64::MAX);
        let has_codes = elements >= dynamic_8bit::LEAST;
        match (self, parameter.rank()) {
            (Extent::Columns, 0 | 1) => None,
            (Extent::Whole | Extent::Others, _) | (Extent::Rows, 0 | 1) => Some((parameter, Role::Moment)),
            (Extent::Rows, _) => Some((parameter.with_last(1), Role::Moment)),
            (Extent::Columns, rank) => Some((parameter.with(rank - 2, 1), Role::Moment)),
            (Extent::Codes, _) if has_codes => Some((Shape::new(&[elements]), Role::Code)),
            (Extent::Codes, _) => Some((parameter, Role::WideMoment)),
            (Extent::Blocks, _) if has_codes => {
                Some((Shape::new(&[elements.div_ceil(dynamic_8bit::BLOCK)]), Role::WideMoment))
            }
            (Extent::Blocks, _) => None,
        }
    }

    /// Returns the shape of the tensor for a parameter of this shape; `None` if there is no tensor.
    pub fn shape(self, parameter: Shape) -> Option<Shape> {
        self.tensor(parameter).map(|(shape, _)| shape)
    }
}

/// The lowest bit of the extents in the number that [`with_state`] makes. First come the two low bits of each extent, then the third bit of
/// each. [`MOST_EXTENTS`] states may have an extent.
const EXTENTS: u64 = 8;
const MOST_EXTENTS: u64 = 16;
const THIRDS: u64 = EXTENTS + 2 * MOST_EXTENTS;

/// Adds a state to the number that describes a parameter's states. Its low 8 bits are their count; the bits above are the [`Extent`] of
/// each. As long as all are [`Extent::Whole`], the number equals the count.
pub const fn with_state(moments: u64, state: &State) -> u64 {
    let (extent, index) = (state.extent as u64, state_count(moments));
    (moments + 1) | (extent & 3) << (EXTENTS + 2 * index) | (extent >> 2) << (THIRDS + index)
}

/// Returns the number of states.
pub const fn state_count(moments: u64) -> u64 {
    moments & ((1 << EXTENTS) - 1)
}

/// Returns the extent of the state with this index.
pub const fn extent_of(moments: u64, index: u64) -> Extent {
    if index >= MOST_EXTENTS {
        return Extent::Whole;
    }
    let number = (moments >> (EXTENTS + 2 * index) & 3 | (moments >> (THIRDS + index) & 1) << 2) as usize;
    if number < Extent::ALL.len() { Extent::ALL[number] } else { Extent::Whole }
}

/// True if some states have this extent.
pub const fn has_extent(moments: u64, extent: Extent) -> bool {
    let mut index = 0;
    while index < state_count(moments) {
        if extent_of(moments, index) as u64 == extent as u64 {
            return true;
        }
        index += 1;
    }
    false
}

/// Returns the number of states with the extent [`Extent::Whole`], and true if there are others.
pub const fn whole_states(moments: u64) -> (u64, bool) {
    let (mut whole, mut index) = (0, 0);
    while index < state_count(moments) {
        whole += matches!(extent_of(moments, index), Extent::Whole) as u64;
        index += 1;
    }
    (whole, whole < state_count(moments))
}

impl State {
    /// Returns a tensor that is always there.
    pub const fn always(name: &'static str) -> State {
        State { name, whole_name: None, not_negative: false, unless_zero: None, initial: None, extent: Extent::Whole }
    }

    /// Returns a tensor that is there unless a hyperparameter is 0 or `false`.
    pub const fn unless_zero(name: &'static str, hyperparameter: &'static str) -> State {
        State { unless_zero: Some(hyperparameter), ..State::always(name) }
    }

    /// Returns this tensor with the value of a hyperparameter as its first value.
    pub const fn beginning_with(self, hyperparameter: &'static str) -> State {
        State { initial: Some(hyperparameter), ..self }
    }

    /// Returns this tensor with another extent than every element of the parameter.
    pub const fn of(self, extent: Extent) -> State {
        State { extent, ..self }
    }

    /// Returns this tensor with another name for parameters whose shape it has: see [`State::whole_name`].
    pub const fn or_whole(self, name: &'static str) -> State {
        State { whole_name: Some(name), ..self }
    }

    /// Returns this tensor, marked as one without negative elements.
    pub const fn not_negative(self) -> State {
        State { not_negative: true, ..self }
    }

    /// Returns its name for a parameter of this shape; `None` if such a parameter has no such state.
    pub fn name_for(&self, parameter: Shape) -> Option<&'static str> {
        let (shape, role) = self.extent.tensor(parameter)?;
        let is_whole = shape == parameter && role != Role::Code && !matches!(self.extent, Extent::Blocks);
        Some(self.whole_name.filter(|_| is_whole).unwrap_or(self.name))
    }

    /// True if a state of this kind is called by this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.whole_name == Some(name)
    }
}

/// The two numbers of [`StateWord::Corrections`](crate::program::StateWord::Corrections). A rule needs them for all elements alike, and
/// they change in each step, so they are computed once a step. The formula of a rule says what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrections {
    /// No numbers.
    None,
    /// `1 - beta1^t` and `1 - beta2^t`.
    Betas,
    /// Numbers of its own: see [`ElementRule::corrections`](super::ElementRule::corrections).
    Own,
}

/// A number of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) name: &'static str,
    /// 0 or 1 for a flag.
    pub(super) value: f64,
    is_flag: bool,
    /// True if it may have this value. If not, `rule` is the message.
    holds: bool,
    rule: &'static str,
}

impl Value {
    /// Returns a number that must be 0 or more.
    pub(super) const fn not_negative(name: &'static str, value: f64) -> Value {
        Value {
            name,
            value,
            is_flag: false,
            holds: value >= 0.0 && value <= f64::MAX,
            rule: "must be 0 or more and finite",
        }
    }

    /// Returns a number without bounds, which must be finite.
    pub(super) const fn finite(name: &'static str, value: f64) -> Value {
        let holds = value >= f64::MIN && value <= f64::MAX;
        Value { holds, rule: "must be finite", ..Value::not_negative(name, value) }
    }

    /// Returns a number that must be 0 or less.
    pub(super) const fn not_positive(name: &'static str, value: f64) -> Value {
        let holds = value <= 0.0 && value >= f64::MIN;
        Value { holds, rule: "must be 0 or less and finite", ..Value::not_negative(name, value) }
    }

    /// Returns a number that must be above 0.
    pub(super) const fn positive(name: &'static str, value: f64) -> Value {
        let holds = value > 0.0 && value <= f64::MAX;
        Value { holds, rule: "must be above 0 and finite", ..Value::not_negative(name, value) }
    }

    /// Returns a number that must be 1 or more.
    pub(super) const fn at_least_one(name: &'static str, value: f64) -> Value {
        let holds = value >= 1.0 && value <= f64::MAX;
        Value { holds, rule: "must be 1 or more and finite", ..Value::not_negative(name, value) }
    }

    /// Returns the decay rate of a mean with bias correction, below 1: at 1 the correction would be 0.
    pub(super) const fn decay(name: &'static str, value: f64) -> Value {
        let holds = value >= 0.0 && value < 1.0;
        Value { holds, rule: "must be at least 0 and below 1", ..Value::not_negative(name, value) }
    }

    /// Returns a share, which must be from 0 to 1.
    pub(super) const fn share(name: &'static str, value: f64) -> Value {
        let holds = value >= 0.0 && value <= 1.0;
        Value { holds, rule: "must be from 0 to 1", ..Value::not_negative(name, value) }
    }

    pub(super) const fn flag(name: &'static str, value: bool) -> Value {
        Value { is_flag: true, ..Value::not_negative(name, value as u8 as f64) }
    }

    /// Returns this number with one more rule: it may be other than 0 only if `holds`.
    pub(super) const fn only_if(self, holds: bool, rule: &'static str) -> Value {
        if self.holds && self.value != 0.0 { Value { holds, rule, ..self } } else { self }
    }
}

/// Returns the states that exist with these values, packed into one number: see [`with_state`].
pub(super) const fn moments(states: &[State], values: &[Value]) -> u64 {
    let mut moments = 0;
    let mut i = 0;
    while i < states.len() {
        if is_there(&states[i], values) {
            moments = with_state(moments, &states[i]);
        }
        i += 1;
    }
    moments
}

/// True if a state exists with these values.
pub(super) const fn is_there(state: &State, values: &[Value]) -> bool {
    match state.unless_zero {
        Some(name) => value(values, name) != 0.0,
        None => true,
    }
}

/// Returns the first state that does not exist with these values, and the hyperparameter that it depends on. `None` if all exist.
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

/// Returns the value of a hyperparameter; 0 if there is none of that name.
pub(super) const fn value(values: &[Value], name: &str) -> f64 {
    match position(values, name) {
        Some(at) => values[at].value,
        None => 0.0,
    }
}

/// Returns the mistake in the hyperparameter `field` of an optimizer, or the first in any if `field` is empty. `None` if there is none.
pub(super) const fn mistake(row: &Row, values: &[Value], field: &str) -> Option<Message<256>> {
    let mut text = Message::new();
    let mut i = 0;
    while i < values.len() {
        if !values[i].holds && (field.is_empty() || is_of(values[i].name, field)) {
            text.text("`").text(values[i].name).text("` of `").text(row.name).text("` ").text(values[i].rule);
            return Some(text);
        }
        i += 1;
    }
    None
}

/// True if the number `value` of a rule is the hyperparameter `field` or a part of it. `beta1` is a part of `betas`, and `eps.0` of `eps`.
pub(super) const fn is_of(value: &str, field: &str) -> bool {
    let (value, field) = (value.as_bytes(), field.as_bytes());
    let mut i = 0;
    while i < value.len() && i < field.len() && value[i] == field[i] {
        i += 1;
    }
    let is_numbered = i + 1 == value.len() && value[i].is_ascii_digit() && i + 1 == field.len() && field[i] == b's';
    i == field.len() && (i == value.len() || value[i] == b'.') || is_numbered
}

/// Returns the mistake if an optimizer does not keep the states that a program has for each parameter: see [`with_state`]. `None` if it
/// does. All of `values` must be within their bounds.
pub(super) const fn wrong_states(row: &Row, values: &[Value], moments: u64) -> Option<Message<256>> {
    let mut text = Message::new();
    if self::moments(row.states, values) == moments {
        return None;
    }
    match absent(row.states, values) {
        Some((state, Value { name, is_flag, .. })) => {
            let (is, literal) = if is_flag { ("false", "`false`") } else { ("0", "0.0") };
            text.text("`").text(name).text("` is ").text(is).text(", so that no `").text(state);
            text.text("` is kept, but memory was counted for it: write a literal ").text(literal).text(", or leave `");
            text.text(name).text("` out");
        }
        None => {
            text.text("the program has another number of optimizer states than the optimizer: a defect of gpumem, please report it");
        }
    }
    Some(text)
}
