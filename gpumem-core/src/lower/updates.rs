//! Updates that wait for each other, so that a backend makes many at once.
//!
//! An update comes right behind the last piece of its gradient, which then dies. Where memory is not scarce the gradient can as well
//! live on: most of a step needs much less than its peak. So updates are gathered, at the end of the step as far as that goes, each
//! only if no position that its gradient lives through grows beyond what the peak needs, at any batch and in any number format.

use crate::number::Role;
use crate::program::{Action, Class, Operation, Slot, Tensor};
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of an element of each role: once with 32 bits for all, once with 16 bits for what can have them.
const MODELS: [u64; 2] = [4, 2];

/// What is alive at a position: bytes for each sample, and bytes that are there once.
#[derive(Clone, Copy, Default)]
struct Load {
    each: u64,
    once: u64,
}

/// Where a placement ends a tensor: every one begins at a multiple of this.
const ALIGNMENT: u64 = 256;

fn bytes(tensor: &Tensor, model: u64) -> u64 {
    let element = match tensor.role {
        Role::Activation | Role::Weight => model,
        _ => 4,
    };
    tensor.layout.elements(tensor.shape).unwrap_or(u64::MAX / 8).saturating_mul(element)
}

/// What is alive at each operation. `room` is added to what is there once, for each tensor.
fn loads(operations: &[Operation], tensors: &[Tensor], model: u64, room: u64) -> Vec<Load> {
    let mut lives: Vec<Option<[usize; 2]>> = vec![None; tensors.len()];
    for (at, operation) in operations.iter().enumerate() {
        for id in operation.tensors() {
            let life = lives[id as usize].get_or_insert([at, at]);
            life[1] = at;
        }
    }
    let mut loads = vec![Load::default(); operations.len()];
    for (tensor, life) in tensors.iter().zip(lives) {
        let Some([first, last]) = life.filter(|_| tensor.class == Class::Transient) else { continue };
        let size = bytes(tensor, model);
        for load in &mut loads[first..=last] {
            if tensor.batched {
                load.each = load.each.saturating_add(size);
            } else {
                load.once = load.once.saturating_add(size);
            }
            load.once = load.once.saturating_add(room);
        }
    }
    loads
}

/// What each position has beside the peak, in one model.
struct Room {
    loads: Vec<Load>,
    peak: Load,
}

impl Room {
    fn new(operations: &[Operation], tensors: &[Tensor], model: u64) -> Room {
        let exact = loads(operations, tensors, model, 0);
        let peak = exact.iter().copied().max_by_key(|load| (load.each, load.once)).unwrap_or_default();
        Room { loads: loads(operations, tensors, model, ALIGNMENT), peak }
    }

    /// Whether so much more is no more than the peak, with one sample and so with any number of them.
    fn has(&self, at: usize, more: u64) -> bool {
        let Load { each, once } = self.loads[at];
        let whole = |each: u64, once: u64| each.saturating_add(once);
        each <= self.peak.each && whole(each, once).saturating_add(more) <= whole(self.peak.each, self.peak.once)
    }
}

/// Gathers the updates of a training step.
pub(super) fn gather(operations: Vec<Operation>, tensors: &[Tensor]) -> Vec<Operation> {
    let is_update = |operation: &Operation| operation.action == Action::Update;
    let updates: Vec<usize> = (0..operations.len()).filter(|&at| is_update(&operations[at])).collect();
    let held = |at: usize| operations[at].read(Slot::ParameterGradient).map(|id| &tensors[id as usize]);
    if updates.len() < 2 || updates.iter().any(|&at| held(at).is_none_or(|held| held.class != Class::Transient)) {
        return operations;
    }
    let mut rooms = MODELS.map(|model| Room::new(&operations, tensors, model));
    // The position before which an update comes, itself where it stays.
    let mut places: Vec<usize> = (0..operations.len()).collect();
    let mut place = operations.len() - 1;
    for &at in updates.iter().rev() {
        let sizes = MODELS.map(|model| held(at).map_or(0, |held| bytes(held, model)).saturating_add(ALIGNMENT));
        let fits = |(room, size): (&Room, u64)| (at + 1..=place).all(|at| room.has(at, size));
        if rooms.iter().zip(sizes).all(fits) {
            for (room, size) in rooms.iter_mut().zip(sizes) {
                room.loads[at + 1..=place].iter_mut().for_each(|load| load.once = load.once.saturating_add(size));
            }
            places[at] = place;
        } else {
            place = at;
        }
    }
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    updates.iter().filter(|&&at| places[at] != at).for_each(|&at| waiting[places[at]].push(at));
    let order = (0..operations.len()).flat_map(|at| {
        let stays = (places[at] == at).then_some(at);
        core::mem::take(&mut waiting[at]).into_iter().chain(stays)
    });
    let order: Vec<usize> = order.collect();
    let mut operations: Vec<Option<Operation>> = operations.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| operations[at].take()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::graph::Type;
    use crate::layers::Entry;
    use crate::layers::arguments::Argument;
    use crate::layers::{Built, Written};
    use crate::lower::{Options, Term, Training, lower};
    use crate::program::{Phase, Program};
    use crate::shape::Shape;
    use crate::train::Update;
    use alloc::string::String;

    /// A training step of layers with a number each.
    fn step(shape: &[u64], layers: &[(&str, u64)]) -> Program {
        let mut graph = Graph::default();
        let mut value = graph.input(Type::numbers(Shape::new(shape))).unwrap();
        for (name, number) in layers {
            let written = [Written::positional(Argument::Integer(*number))];
            let written = if *number > 0 { &written[..] } else { &[] };
            let Built { value: next, .. } =
                graph.layer(&Entry::find(name).unwrap(), written, &[value], String::new(), None);
            value = next.unwrap();
        }
        let loss = &[Term::MSE];
        let training =
            Training { loss, moments: 1, update: Update::Fused, skips_overflow: false, input_gradient: false };
        lower(&graph, &[value], &Options { training: Some(training) }).unwrap()
    }

    fn updates(program: &Program) -> Vec<usize> {
        let is_update = |at: &usize| program.operations[*at].action == Action::Update;
        (0..program.operations.len()).filter(is_update).collect()
    }

    /// The most bytes that are alive at once.
    fn peak(program: &Program, model: u64, batch: u64) -> u64 {
        let loads = loads(&program.operations, &program.tensors, model, 0);
        loads.iter().map(|load| load.once + batch * load.each).max().unwrap()
    }

    #[test]
    fn small_updates_wait_for_the_end() {
        let program =
            step(&[64, 64], &[("LayerNorm", 0), ("Tanh", 0), ("LayerNorm", 0), ("Tanh", 0), ("LayerNorm", 0)]);
        let (found, last) = (updates(&program), program.operations.len() - 1);
        assert_eq!(found.len(), 6);
        assert_eq!(found, (last - 6..last).collect::<Vec<_>>());
    }

    #[test]
    fn what_would_raise_the_peak_stays() {
        // The gradients of weights are much larger than a sample's activations.
        let program = step(&[8], &[("Linear", 512), ("Tanh", 0), ("Linear", 512), ("Tanh", 0), ("Linear", 512)]);
        let found = updates(&program);
        assert!(found.windows(2).any(|pair| pair[1] - pair[0] > 1), "{found:?}");
    }

    /// The same operations with each update behind those of its layer.
    fn scattered(program: &Program) -> Program {
        let mut operations: Vec<Operation> = Vec::new();
        let (updates, others): (Vec<Operation>, Vec<Operation>) =
            program.operations.iter().cloned().partition(|operation| operation.action == Action::Update);
        for (at, other) in others.iter().enumerate() {
            operations.push(other.clone());
            let is_last = others.get(at + 1).is_none_or(|next| next.row != other.row);
            let of_layer = |update: &&Operation| update.row == other.row && other.phase() == Phase::Backward;
            operations.extend(updates.iter().filter(of_layer).filter(|_| is_last).cloned());
        }
        assert_eq!(operations.len(), program.operations.len());
        Program { operations, ..program.clone() }
    }

    #[test]
    fn no_peak_rises() {
        let wide = [("Linear", 64), ("Tanh", 0), ("LayerNorm", 0), ("Linear", 256), ("Tanh", 0), ("Linear", 16)];
        for features in [1, 7, 300, 5000] {
            let program = step(&[features], &wide);
            let before = scattered(&program);
            for (model, batch) in MODELS.into_iter().flat_map(|model| [1, 2, 17, 1000].map(|batch| (model, batch))) {
                let (peak, before) = (peak(&program, model, batch), peak(&before, model, batch));
                assert!(peak <= before, "{features} features, batch {batch}: {peak} above {before}");
            }
        }
    }
}
