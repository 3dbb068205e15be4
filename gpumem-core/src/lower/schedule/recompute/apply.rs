//! A training step whose operations run in another order, forward ones maybe more than once.
//!
//! The order decides everything. Each run writes new tensors, and operations read the value that was written last. Live ranges, and what may be
//! overwritten, follow from that.

use super::values::{NONE, Place, Values, reads_saved};
use crate::lower::draft::Draft;
use crate::lower::liveness::ranges;
use crate::lower::schedule::concat_prefix::on_prefix;
use crate::program::{Action, Class, Op, Operand, Operation, Pass, Slot, Tensor, TensorId};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Returns the step that runs the operations of `draft` in this order, given by their numbers. First runs keep their order, and only forward
/// operations run a second time. `None` if that is not so, or something would read what is not there.
pub(in crate::lower) fn apply(draft: &Draft, values: &Values, order: &[u32]) -> Option<Draft> {
    // The tensor with the gradient of an input may have held values before, each of which now has a tensor of its own.
    let mut tensors = draft.tensors.clone();
    let named = draft.input_gradients.iter().map(|&id| core::mem::take(&mut tensors[id as usize].name));
    let named: Vec<String> = named.collect();
    let mut run = Replay {
        draft,
        values,
        tensors,
        like: (0..draft.tensors.len() as TensorId).collect(),
        of_values: vec![NONE; values.values.len()],
        of_owns: vec![NONE; values.owns.len()],
    };
    let mut operations: Vec<Operation> = Vec::with_capacity(order.len());
    let (mut next, mut nodes) = (0, Vec::new());
    for &at in order {
        let is_again = at < next;
        if at > next || (is_again && at as usize >= values.forward) {
            return None;
        }
        next = next.max(at + 1);
        operations.push(run.operation(at as usize, is_again)?);
        nodes.extend(draft.nodes.get(at as usize));
    }
    if next as usize != draft.operations.len() {
        return None;
    }
    let last_of = |id: &TensorId| {
        let own = values.owns.iter().position(|own| own.tensor == *id);
        own.map_or(Some(*id), |own| Some(run.of_owns[own]).filter(|&tensor| tensor != NONE))
    };
    let results = draft.results.iter().map(last_of).collect::<Option<Vec<TensorId>>>()?;
    let input_gradients = draft.input_gradients.iter().map(last_of).collect::<Option<Vec<TensorId>>>()?;
    let Replay { tensors, like, .. } = run;
    let mut applied = Draft { tensors, operations, results, input_gradients, nodes, prefixes: Vec::new() };
    overwrite(&mut applied);
    // Sorted like the tensors of which they are copies: if nothing runs again, that is the order of the step.
    applied.sort_tensors(|id| like[id as usize]);
    for (&id, name) in applied.input_gradients.iter().zip(named) {
        applied.tensors[id as usize].name = name;
    }
    Some(applied)
}

/// The state while an order is applied.
struct Replay<'d> {
    draft: &'d Draft,
    values: &'d Values,
    tensors: Vec<Tensor>,
    /// The tensor of the step that each is a copy of.
    like: Vec<TensorId>,
    /// The current tensor of each value, and of each tensor that is first written after the forward pass, or [`NONE`].
    of_values: Vec<u32>,
    of_owns: Vec<u32>,
}

impl Replay<'_> {
    fn operation(&mut self, at: usize, is_again: bool) -> Option<Operation> {
        let operation = self.draft.operations.get(at)?;
        let takes_saved = is_again && reads_saved(operation);
        let is_left = |slot: Slot| takes_saved && matches!(slot, Slot::Buffer(_) | Slot::Workspace);
        let prefix = self.values.prefix(at).filter(|_| is_again);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (&operand, &place) in operation.reads.iter().zip(&self.values.reads[at]) {
            let place = match (prefix, place) {
                (Some([own, whole]), Place::Value(value)) if value == own => Place::Value(whole),
                _ => place,
            };
            if !is_left(operand.slot) {
                reads.push(Operand { tensor: self.now(operand.tensor, place)?, ..operand });
            }
        }
        for (&operand, &place) in operation.writes.iter().zip(&self.values.writes[at]) {
            if is_left(operand.slot) {
                continue;
            }
            if takes_saved && matches!(operand.slot, Slot::Saved(_)) {
                reads.push(Operand { tensor: self.now(operand.tensor, place)?, ..operand });
                continue;
            }
            writes.push(Operand { tensor: self.written(operand.tensor, place)?, ..operand });
        }
        let action = match &operation.action {
            Action::Run { op, .. } if is_again => {
                let whole = prefix.map(|[_, whole]| self.values.values[whole as usize].tensor);
                let op = match whole {
                    Some(whole) => on_prefix(op, self.draft.tensors[whole as usize].shape)?,
                    None => op.clone(),
                };
                Action::Run { op, pass: Pass::Again }
            }
            action => action.clone(),
        };
        Some(Operation { action, row: operation.row, accumulate: operation.accumulate, reads, writes })
    }

    /// Returns the tensor that holds an operand now; `None` if it is not there.
    fn now(&self, tensor: TensorId, place: Place) -> Option<TensorId> {
        let found = match place {
            Place::Lasting | Place::Scratch => tensor,
            Place::Value(value) => self.of_values[value as usize],
            Place::Own(own) => self.of_owns[own as usize],
        };
        (found != NONE).then_some(found)
    }

    /// Returns the tensor to which an operand is written. `None` if the value whose memory it takes over is not there.
    fn written(&mut self, tensor: TensorId, place: Place) -> Option<TensorId> {
        Some(match place {
            Place::Lasting => tensor,
            Place::Scratch => self.fresh(tensor),
            Place::Value(value) => {
                self.of_values[value as usize] = self.fresh(tensor);
                self.of_values[value as usize]
            }
            Place::Own(own) if self.of_owns[own as usize] != NONE => self.of_owns[own as usize],
            Place::Own(own) => {
                let takes = self.values.owns[own as usize].takes;
                self.of_owns[own as usize] = match takes {
                    NONE => self.fresh(tensor),
                    // The value that was there is gone.
                    taken => core::mem::replace(&mut self.of_values[taken as usize], NONE),
                };
                Some(self.of_owns[own as usize]).filter(|&tensor| tensor != NONE)?
            }
        })
    }

    fn fresh(&mut self, like: TensorId) -> TensorId {
        self.tensors.push(self.tensors[like as usize].clone());
        self.like.push(like);
        self.tensors.len() as TensorId - 1
    }
}

/// Lets outputs of forward operations overwrite inputs that nothing reads any more.
fn overwrite(draft: &mut Draft) {
    let lasting = draft.results.iter().chain(&draft.input_gradients).copied();
    let ranges = ranges(&draft.operations, draft.tensors.len(), lasting);
    let mut root: Vec<TensorId> = (0..draft.tensors.len() as TensorId).collect();
    for (at, operation) in draft.operations.iter().enumerate() {
        let Action::Run { op, pass: Pass::Forward | Pass::Again } = &operation.action else { continue };
        let dies = |from: TensorId, to: TensorId| {
            is_alike(&draft.tensors, from, to)
                && ranges[from as usize].is_some_and(|[_, last]| last == at)
                && ranges[to as usize].is_some_and(|[first, _]| first == at)
                && operation.reads.iter().filter(|operand| operand.tensor == from).count() == 1
        };
        let mut taken = Vec::new();
        for (inputs, to) in overwriting(operation, op) {
            let Some(to) = operation.written(to) else { continue };
            let mut inputs = inputs.into_iter().filter_map(|slot| operation.read(slot));
            let from = inputs.find(|&from| dies(from, to) && !taken.contains(&from));
            if let Some(from) = from {
                root[to as usize] = root[from as usize];
                taken.push(from);
            }
        }
    }
    draft.renumber(&root);
}

/// Returns the outputs of a forward operation that may overwrite an input. Each comes after these inputs, in the order in which they are tried.
pub(super) fn overwriting(operation: &Operation, op: &Op) -> Vec<(Vec<Slot>, Slot)> {
    let saved = (0..).zip(op.saved()).filter_map(|(number, saved)| {
        let over = saved.over?;
        Some((vec![Slot::Input(over)], Slot::Saved(number)))
    });
    let mut all: Vec<(Vec<Slot>, Slot)> = saved.collect();
    if op.in_place() {
        let inputs = operation.reads.iter().map(|operand| operand.slot);
        all.push((inputs.filter(|slot| matches!(slot, Slot::Input(_))).collect(), Slot::Output));
    }
    all
}

/// True if a tensor may overwrite another one.
pub(super) fn is_alike(tensors: &[Tensor], from: TensorId, to: TensorId) -> bool {
    let [from, to] = [from, to].map(|id| &tensors[id as usize]);
    let is_transient = from.class == Class::Transient && to.class == Class::Transient;
    is_transient && from.role == to.role && from.batched == to.batched && from.shape.elements() == to.shape.elements()
}
