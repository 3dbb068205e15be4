//! The end of lowering: tensors are sorted by class, and live ranges read off the operations.

use crate::graph::Graph;
use crate::lower::draft::Draft;
use crate::lower::emit::{averages, batch_updates, extend_lifetimes, guard, micro_batches, pad_logits, ranks};
use crate::lower::liveness::{LiveRange, ranges};
use crate::lower::options::Training;
use crate::lower::schedule::offload;
use crate::program::{Class, Operation, Program, Tensor, TensorId};
use crate::train::Descent;
use alloc::vec::Vec;

/// The order of tensors in a program, by class.
const ORDER: [Class; 11] = [
    Class::Parameter,
    Class::Gradient,
    Class::Moment,
    Class::Average,
    Class::Buffer,
    Class::State,
    Class::Cache,
    Class::Input,
    Class::Target,
    Class::Host,
    Class::Transient,
];

/// Returns the program of a draft, with the settings of training if it trains.
pub(in crate::lower) fn finish(mut draft: Draft, graph: &Graph, training: Option<Training<'_>>) -> Program {
    draft.operations = with_updates(draft.operations, &mut draft.tensors, &draft.results, training);
    let ranges = set_live_ranges(&mut draft, training);
    sort_by_class(&mut draft, &ranges);
    let Draft { tensors, operations, results, .. } = draft;
    let mut program = Program {
        training: training.is_some(),
        moments: training.map_or(0, |training| training.moments),
        holds_gradients: training.is_some_and(|training| training.holds_gradients()),
        descent: training.map_or(Descent::PLAIN, |training| training.descent),
        tensors,
        operations,
        paths: graph.rows.iter().map(|row| row.path.clone()).collect(),
        results,
    };
    pad_logits::pad_classes(&mut program);
    program
}

/// Returns the operations with their updates gathered or streamed, and with what belongs to updates: exchanges between ranks, scratch memory,
/// averages and guards.
fn with_updates(
    operations: Vec<Operation>,
    tensors: &mut Vec<Tensor>,
    results: &[TensorId],
    training: Option<Training<'_>>,
) -> Vec<Operation> {
    let moments = training.map_or(0, |training| training.moments);
    let operations = extend_lifetimes::hold(operations, tensors);
    let shared = training.filter(|training| !training.descent.ranks.is_alone());
    let operations = match &shared {
        Some(training) => ranks::exchange(operations, tensors, training, results),
        None => operations,
    };
    let mut operations = match training {
        Some(training) if training.descent.offloads() => offload::stream(operations, tensors),
        // Exchanges have put the updates of a bucket together.
        _ if shared.is_some() => operations,
        _ => batch_updates::gather(operations, tensors, moments),
    };
    batch_updates::with_scratch(&mut operations, tensors, moments);
    if training.is_some_and(|training| training.descent.ema.is_some()) {
        operations = averages::average(operations, tensors);
    }
    if training.is_some_and(|training| training.descent.skips) {
        operations = guard::guard_statistics(operations, tensors);
    }
    operations
}

/// Sets the live ranges of all tensors, and returns what the operations say of them. With micro-batches, some tensors live longer.
fn set_live_ranges(draft: &mut Draft, training: Option<Training<'_>>) -> Vec<Option<LiveRange>> {
    let Draft { tensors, operations, results, input_gradients, .. } = draft;
    // The gradients of inputs are read after the step if they are asked for.
    let ranges = ranges(operations, tensors.len(), results.iter().chain(&*input_gradients).copied());
    for (tensor, range) in tensors.iter_mut().zip(&ranges) {
        if let Some([first, last]) = *range {
            [tensor.first, tensor.last] = [first as u32, last as u32];
        }
    }
    if training.is_some_and(|training| training.descent.accumulates()) {
        micro_batches::keep_loss(operations, tensors, results);
        guard::keep_statistics(operations, tensors, operations.len() as u32 - 1);
    }
    ranges
}

/// Sorts tensors by class, and drops those that live inside a step and that nothing touches.
fn sort_by_class(draft: &mut Draft, ranges: &[Option<LiveRange>]) {
    let place = |(tensor, range): (&Tensor, &Option<LiveRange>)| match tensor.class {
        Class::Transient if range.is_none() => ORDER.len(),
        class => ORDER.iter().position(|&other| other == class).unwrap_or(ORDER.len()),
    };
    let places: Vec<usize> = draft.tensors.iter().zip(ranges).map(place).collect();
    draft.sort_tensors(|id| places[id as usize]);
    draft.tensors.truncate(places.iter().filter(|&&place| place < ORDER.len()).count());
}
