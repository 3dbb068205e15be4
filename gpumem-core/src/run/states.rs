//! Names of the optimizer's state tensors, and the values they may hold. A program numbers them; the optimizer names them.

use crate::error::Error;
use crate::program::{Action, Class, Program, Slot, TensorId};
use crate::train::optim::{Optimizer, State};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The end of the name of a running variance.
const VARIANCE: &str = "running_var";

/// A state tensor: the number of its training step, and its own number among the states of its parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateOf {
    pub(super) step: usize,
    pub(super) number: usize,
    state: State,
}

/// The state tensors of all training steps, by their numbers in the first one's program.
#[derive(Clone, Debug, Default)]
pub(super) struct States(BTreeMap<TensorId, StateOf>);

impl States {
    /// Names the state tensors of the training steps as their optimizers do: `w.exp_avg` belongs to the parameter `w`, and
    /// `w.CRITIC.exp_avg` to step `CRITIC` of a network with named steps.
    pub(super) fn name(mut programs: Vec<(&str, &mut Program, Optimizer)>) -> States {
        let mut states = BTreeMap::new();
        for step in 0..programs.len() {
            let (name, program, optimizer) = &programs[step];
            for (id, name, number, state) in named(name, program, optimizer) {
                // All programs declare the same states, in one order.
                let Some(place) = program_place(programs[step].1, id) else { continue };
                let first = programs[0].1.of_class(Class::Moment).nth(place);
                for (at, id) in [(0, first), (step, Some(id))] {
                    if let Some(id) = id {
                        programs[at].1.tensors[id as usize].name.clone_from(&name);
                    }
                }
                states.extend(first.map(|id| (id, StateOf { step, number, state })));
            }
        }
        States(states)
    }

    /// Returns the state that a tensor is; `None` if it is no optimizer state.
    pub(super) fn of(&self, id: TensorId) -> Option<StateOf> {
        self.0.get(&id).copied()
    }

    /// Refuses values that a running statistic or a state cannot have. A step would compute NaN or other wrong numbers from them.
    ///
    /// # Errors
    /// [`Error::Value`] of the first.
    pub(super) fn check(&self, id: TensorId, name: &str, has_codes: bool, values: &[f32]) -> Result<(), Error> {
        let is_variance = name.strip_suffix(VARIANCE).is_some_and(|path| path.is_empty() || path.ends_with('.'));
        let state = self.0.get(&id).map(|of| of.state);
        let (rule, refuses): (&'static str, fn(f32) -> bool) = match state {
            Some(_) if has_codes => ("codes are whole numbers from 0 to 255", |value| {
                !(0.0..=255.0).contains(&value) || f32::from(value as u8) != value
            }),
            Some(state) if state.not_negative => {
                ("the optimizer keeps numbers of 0 or more there", |value| value < 0.0)
            }
            None if is_variance => ("a variance is 0 or more", |value| value < 0.0),
            _ => return Ok(()),
        };
        match (0..).zip(values).find(|&(_, &value)| refuses(value)) {
            None => Ok(()),
            Some((position, &value)) => Err(Error::Value { name: name.to_string(), position, value, rule }),
        }
    }
}

/// Returns the states that the updates of a program write: their tensors, names and numbers.
fn named(step: &str, program: &Program, optimizer: &Optimizer) -> Vec<(TensorId, String, usize, State)> {
    let mut named = Vec::new();
    let is_update = |action: &Action| matches!(action, Action::Update | Action::Store(_));
    for update in program.operations.iter().filter(|operation| is_update(&operation.action)) {
        let Some(parameter) = update.read(Slot::Parameter).map(|id| program.tensor(id)) else { continue };
        // A parameter with a single state is a matrix, for an optimizer that treats matrices in its own way.
        let is_matrix = update.written(Slot::Moment(1)).is_none();
        let of = if step.is_empty() { parameter.name.clone() } else { alloc::format!("{}.{step}", parameter.name) };
        for number in 0..Optimizer::MOST_STATES {
            let Some(id) = update.written(Slot::Moment(number as u8)) else { continue };
            let state = optimizer.state(number, parameter.shape, is_matrix);
            named.extend(state.map(|(name, state)| (id, alloc::format!("{of}.{name}"), number, state)));
        }
    }
    named
}

/// Returns the position of a state among all states of a program. `None` if the tensor is no state.
fn program_place(program: &Program, id: TensorId) -> Option<usize> {
    program.of_class(Class::Moment).position(|other| other == id)
}

/// Returns an error if `name` is a parameter's state that other optimizers keep, but `optimizer` does not. `kept` are the names of the
/// existing states.
pub(super) fn of_another<'n>(
    name: &str,
    optimizer: &Optimizer,
    mut parameters: impl Iterator<Item = &'n str>,
    kept: impl Iterator<Item = &'n str>,
) -> Option<Error> {
    let split = |parameter: &'n str| Some((parameter, name.strip_prefix(parameter)?.strip_prefix('.')?));
    let (parameter, state) = parameters.find_map(split)?;
    let owners: Vec<&'static str> = Optimizer::owners_of(state).collect();
    if owners.is_empty() {
        return None;
    }
    let own = |kept: &str| Some(kept.strip_prefix(parameter)?.strip_prefix('.')?.to_string());
    let kept: Vec<String> = kept.filter_map(own).collect();
    let (name, parameter, optimizer) = (name.to_string(), parameter.to_string(), optimizer.row().name);
    Some(Error::State { name, parameter, owners, optimizer, kept })
}
