//! Runs of forward operations: the values that each reads and writes, for the first time or again.

use super::apply::{is_alike, overwriting};
use super::values::{Place, Values, reads_saved};
use crate::lower::draft::Draft;
use crate::program::{Action, Slot};
use alloc::vec::Vec;

/// A forward operation, as far as memory is concerned.
#[derive(Clone, Debug, Default)]
pub(in crate::lower) struct OperationEffects {
    /// The values that it reads, each once.
    pub(in crate::lower) inputs: Vec<u32>,
    /// The values that it reads when it runs again, besides what it saved.
    pub(in crate::lower) inputs_again: Vec<u32>,
    /// The values that it writes.
    pub(in crate::lower) outputs: Vec<u32>,
    /// The values that it writes when it runs again, and the saved ones that it then reads instead.
    pub(in crate::lower) again: Vec<u32>,
    pub(in crate::lower) saved: Vec<u32>,
    /// `(input, output)`: outputs that may overwrite an input, in the order in which inputs are tried.
    pub(in crate::lower) overwrites: Vec<(u32, u32)>,
    /// True if it has scratch memory, for the first time and again.
    pub(in crate::lower) has_scratch: [bool; 2],
}

/// Returns the runs of all forward operations of a step.
pub(in crate::lower) fn runs(draft: &Draft, values: &Values) -> Vec<OperationEffects> {
    (0..values.forward).map(|at| OperationEffects::of(draft, values, at)).collect()
}

impl OperationEffects {
    fn of(draft: &Draft, values: &Values, at: usize) -> OperationEffects {
        let operation = &draft.operations[at];
        let takes_saved = reads_saved(operation);
        let has_scratch = operation.written(Slot::Workspace).is_some();
        let mut run =
            OperationEffects { has_scratch: [has_scratch, has_scratch && !takes_saved], ..OperationEffects::default() };
        for value in values.read_by(at) {
            if !run.inputs.contains(&value) {
                run.inputs.push(value);
            }
        }
        for value in values.read_in(at, true) {
            if !run.inputs_again.contains(&value) {
                run.inputs_again.push(value);
            }
        }
        for (operand, place) in operation.writes.iter().zip(&values.writes[at]) {
            let Place::Value(value) = *place else { continue };
            run.outputs.push(value);
            let is_read = takes_saved && matches!(operand.slot, Slot::Saved(_));
            if is_read { run.saved.push(value) } else { run.again.push(value) }
        }
        run.overwrites = overwrites(draft, values, at);
        run
    }

    /// Returns the values that it reads.
    pub(in crate::lower) fn read(&self, is_again: bool) -> &[u32] {
        if is_again { &self.inputs_again } else { &self.inputs }
    }

    /// Returns the values that it writes.
    pub(in crate::lower) fn written(&self, is_again: bool) -> &[u32] {
        if is_again { &self.again } else { &self.outputs }
    }
}

/// Returns the outputs of a forward operation that may overwrite an input, if the live ranges of both allow it.
fn overwrites(draft: &Draft, values: &Values, at: usize) -> Vec<(u32, u32)> {
    let operation = &draft.operations[at];
    let Action::Run { op, .. } = &operation.action else { return Vec::new() };
    let read = |slot: Slot| {
        let index = operation.reads.iter().position(|operand| operand.slot == slot)?;
        match values.reads[at][index] {
            Place::Value(value) => Some(value),
            _ => None,
        }
    };
    let written = |slot: Slot| {
        let index = operation.writes.iter().position(|operand| operand.slot == slot)?;
        match values.writes[at][index] {
            Place::Value(value) => Some(value),
            _ => None,
        }
    };
    let tensor = |value: u32| values.values[value as usize].tensor;
    let mut all = Vec::new();
    for (inputs, to) in overwriting(operation, op) {
        let Some(to) = written(to) else { continue };
        for from in inputs.into_iter().filter_map(read) {
            let is_alone = values.read_by(at).filter(|&other| other == from).count() == 1;
            if is_alone && is_alike(&draft.tensors, tensor(from), tensor(to)) {
                all.push((from, to));
            }
        }
    }
    all
}
