//! Fusion: consecutive operations that run as one pass over memory.
//!
//! The memory plan does not consider fusion: it placed the tensors of each operation separately. A later operation's output may therefore overlap
//! memory that an earlier one reads. Such a pair is not fused: see [`are_apart`].

mod batch_norm;
mod chain;
mod conv_norm;
mod convolutions;
mod products;
mod rectifier;
mod reorder;
mod sum;
mod updates;

use crate::calls::{Call, Launch};
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::{LaunchContext, is_channels_last, is_dense};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::functions::Function;
use gpumem_core::program::{Action, Class, Op, Operation, Pass, Slot, TensorId};
pub(crate) use reorder::joined;

/// A function that returns true if a library has an algorithm for a call.
pub type Can<'a> = dyn FnMut(&Call) -> Result<bool, Error> + 'a;

/// The number of fused operations, and their calls; `None` if a pattern does not apply.
type Fused = Result<Option<(usize, Vec<Call>)>, Error>;

/// A pattern: a function that fuses operations from index `first` on.
type Pattern = fn(placed: &Placed, first: usize, setting: LaunchContext) -> Fused;

/// All patterns, in the order in which they are tried.
const PATTERNS: &[Pattern] = &[
    products::with_activation,
    products::with_sum,
    products::with_activation_gradient,
    products::with_bias_gradient,
    convolutions::with_relu,
    convolutions::alone,
    conv_norm::added,
    conv_norm::backward_with_input,
    batch_norm::renormalised,
    batch_norm::forward,
    batch_norm::backward_of_dropout,
    batch_norm::backward,
    batch_norm::backward_of_sum,
    conv_norm::backward_of_sum,
    rectifier::convolution,
    rectifier::maxima,
    rectifier::maxima_backward,
    sum::sum,
    updates::checks,
    updates::squares,
    updates::statistics,
    updates::averages,
    updates::updates,
];

/// Returns the first pattern that applies and whose library calls have algorithms. Prefers an elementwise chain, if all operations of the pattern
/// are elementwise and the chain is longer.
pub(crate) fn fused(placed: &Placed, first: usize, setting: LaunchContext, can: &mut Can<'_>) -> Fused {
    let found = special(placed, first, setting, can)?;
    let alone = found.as_ref().map_or(1, |(count, _)| *count);
    if alone > 1 && !chain::is_elementwise(placed, &Vec::from_iter(first..first + alone), setting) {
        return Ok(found);
    }
    let chain = chain::chain(placed, first, setting, can)?;
    Ok(chain.filter(|(count, _)| *count > alone).or(found))
}

/// Returns the first pattern that matches at `first`. Unlike [`fused`], never builds an elementwise chain.
fn special(placed: &Placed, first: usize, setting: LaunchContext, can: &mut Can<'_>) -> Fused {
    for pattern in PATTERNS {
        // Products support pitches and convolutions every layout. Updates and checks work on a weight's elements in any order.
        let takes = |it: &Operation| match it.action {
            Action::Run { op: Op::Product(_) | Op::Convolution(_), .. } => true,
            Action::Update | Action::Check | Action::Squares(_) | Action::Average => placed.program.takes_layouts(it),
            _ => is_dense(placed, it) || is_channels_last(placed, it),
        };
        let all_take = |count: usize| placed.program.operations[first..first + count].iter().all(takes);
        if let Some((count, calls)) = pattern(placed, first, setting)?
            && all_take(count)
            && all_can(&calls, can)?
        {
            return Ok(Some((count, calls)));
        }
    }
    Ok(None)
}

/// True if the libraries have algorithms for all library calls among `calls`.
pub(crate) fn all_can(calls: &[Call], can: &mut Can<'_>) -> Result<bool, Error> {
    for call in calls {
        if !matches!(call, Call::Kernel(_) | Call::Passage(_)) && !can(call)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn calls(launches: Vec<Launch>) -> Vec<Call> {
    launches.into_iter().map(Call::from).collect()
}

/// Returns operation `at`, its `Op` and its output, if it is a forward operation; else `None`.
fn forward_at(placed: &Placed, at: usize) -> Option<(&Operation, &Op, TensorId)> {
    let operation = placed.program.operations.get(at)?;
    match &operation.action {
        Action::Run { op, pass: Pass::Forward | Pass::Again | Pass::Chunk } => {
            Some((operation, op, operation.written(Slot::Output)?))
        }
        _ => None,
    }
}

/// Returns the `Op` whose backward pass an operation is; `None` for other operations.
fn backward_of(operation: &Operation) -> Option<&Op> {
    match &operation.action {
        Action::Run { op, pass: Pass::Backward } => Some(op),
        _ => None,
    }
}

/// The backward pass of a rectifier, whose gradient only the next operation reads.
struct HandedOn<'a> {
    rectifier: Rectifier,
    /// The gradient that it reads, the rectifier's output in the forward pass, and the gradient that it writes.
    dy: TensorId,
    output: TensorId,
    between: TensorId,
    /// The next operation, and the `Op` whose backward pass it is.
    operation: &'a Operation,
    op: &'a Op,
}

impl<'a> HandedOn<'a> {
    /// Returns operations `first` and `first + 1`, if they are such a pair; else `None`.
    fn at(placed: &'a Placed, first: usize) -> Option<HandedOn<'a>> {
        let operations = &placed.program.operations;
        let (after, operation) = (operations.get(first)?, operations.get(first + 1)?);
        let Op::Pointwise(follower) = backward_of(after)? else { return None };
        let (dy, output) = (after.read(Slot::Gradient)?, after.read(Slot::Output)?);
        let between = after.written(Slot::InputGradient(0))?;
        let is_handed_on = !after.accumulate && operation.read(Slot::Gradient) == Some(between);
        let rectifier = Rectifier::of(follower.function).filter(|_| is_handed_on)?;
        Some(HandedOn { rectifier, dy, output, between, operation, op: backward_of(operation)? })
    }
}

/// Returns the rectifier in operation `at` and its output, if it reads `value` and nothing needs `value` afterwards; else `None`.
fn rectified(placed: &Placed, at: usize, value: TensorId) -> Option<(Rectifier, TensorId)> {
    followed(placed, at, value, Rectifier::of)
}

/// Returns the elementwise function in operation `at`, as [`rectified`] does, for every function that `can` accepts.
fn followed(
    placed: &Placed,
    at: usize,
    value: TensorId,
    can: fn(Function) -> Option<Rectifier>,
) -> Option<(Rectifier, TensorId)> {
    let (operation, Op::Pointwise(follower), output) = forward_at(placed, at)? else { return None };
    let kind = can(follower.function)?;
    (operation.read(Slot::Input(0)) == Some(value) && ends(placed, at, value)).then_some((kind, output))
}

/// True if `value` is overwritten by operation `at`, or not needed after it.
fn ends(placed: &Placed, at: usize, value: TensorId) -> bool {
    let program = &placed.program;
    let tensor = program.tensor(value);
    let is_overwritten = program.operations[at].written(Slot::Output) == Some(value);
    // Results for the host are needed after all operations.
    let is_last = tensor.last as usize == at && !program.results.contains(&value);
    is_overwritten || (tensor.class == Class::Transient && is_last)
}

/// True if nothing reads `tensor` after operation `last`. A fusion group that ends at `last` need not write it.
fn dies_by(placed: &Placed, tensor: TensorId, last: usize) -> bool {
    !placed.program.results.contains(&tensor) && placed.program.tensor(tensor).last as usize <= last
}

/// True if two different tensors share memory.
fn overlap(placed: &Placed, a: TensorId, b: TensorId) -> bool {
    let range = |id: TensorId| {
        let id = id as usize;
        (placed.offsets[id], placed.offsets[id].saturating_add(placed.bytes[id]))
    };
    let ((from, to), (start, end)) = (range(a), range(b));
    a != b && from < end && start < to
}

/// True if operations `first` to `first + count - 1` may run as one. No later one may write where an earlier one has a tensor, unless it is that
/// very tensor.
fn are_apart(placed: &Placed, first: usize, count: usize) -> bool {
    are_apart_without(placed, first, count, None)
}

/// True if operations may run as one, as for [`are_apart`], provided that `unused`, scratch of one of them, is not used.
fn are_apart_without(placed: &Placed, first: usize, count: usize, unused: Option<TensorId>) -> bool {
    let group = first..first + count;
    let exists = placed.program.operations.get(group.clone()).is_some();
    exists && group.skip(1).all(|later| is_apart_from_earlier(placed, first, later, unused))
}

/// True if operation `later` writes to no other tensor's memory of operations `first` to `later - 1`, apart from `unused`.
fn is_apart_from_earlier(placed: &Placed, first: usize, later: usize, unused: Option<TensorId>) -> bool {
    let operations = &placed.program.operations;
    let earlier = || operations[first..later].iter().flat_map(Operation::tensors).filter(|&id| Some(id) != unused);
    operations[later].writes.iter().all(|written| !earlier().any(|tensor| overlap(placed, written.tensor, tensor)))
}
