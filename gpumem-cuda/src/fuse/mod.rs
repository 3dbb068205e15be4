//! Fusion: consecutive operations that run as one pass over memory.
//!
//! Lowering knows some [groups](gpumem_core::program::fusion), for which it reserves memory where that is free: each kind has its
//! [patterns](of_group). The memory plan does not consider the [others](PATTERNS). In both, a later operation's output may overlap memory that an
//! earlier one reads. Then the operations are not fused: see [`are_apart`].

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
use gpumem_core::program::fusion::{Group, GroupKind};
use gpumem_core::program::{Action, Class, Op, Operation, Slot, TensorId};
pub(crate) use reorder::joined;

/// A function that returns true if a library has an algorithm for a call.
pub type Can<'a> = dyn FnMut(&Call) -> Result<bool, Error> + 'a;

/// The number of fused operations, and their calls; `None` if a pattern does not apply.
type Fused = Result<Option<(usize, Vec<Call>)>, Error>;

/// A pattern: a function that fuses operations from index `first` on.
type Pattern = fn(placed: &Placed, first: usize, setting: LaunchContext) -> Fused;

/// A pattern of the operations of a group.
type GroupPattern = fn(placed: &Placed, group: Group, setting: LaunchContext) -> Fused;

/// Returns the patterns for a kind of group, in the order in which they are tried.
fn of_group(kind: GroupKind) -> &'static [GroupPattern] {
    match kind {
        GroupKind::BatchNormGradient => &[batch_norm::backward, batch_norm::backward_of_sum],
        GroupKind::MaxPoolGradient => &[rectifier::maxima_backward],
        GroupKind::ConvNormGradient => &[conv_norm::backward_of_sum],
        GroupKind::RecomputedOutput => &[batch_norm::renormalised],
        GroupKind::RecomputedInput => &[conv_norm::backward_with_input],
        GroupKind::Updates => &[updates::updates],
    }
}

/// The patterns of operations that are no group, in the order in which they are tried.
const PATTERNS: &[Pattern] = &[
    products::with_activation,
    products::with_sum,
    products::with_activation_gradient,
    products::with_bias_gradient,
    convolutions::with_relu,
    convolutions::alone,
    conv_norm::added,
    batch_norm::forward,
    batch_norm::backward_of_dropout,
    rectifier::convolution,
    rectifier::maxima,
    sum::sum,
    sum::dropped,
    updates::checks,
    updates::squares,
    updates::statistics,
    updates::averages,
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
    let group = Group::at(&placed.program.operations, first);
    let grouped = group.into_iter().flat_map(|it| of_group(it.kind).iter().map(move |fuse| fuse(placed, it, setting)));
    let others = PATTERNS.iter().map(|fuse| fuse(placed, first, setting));
    for found in grouped.chain(others) {
        if let Some((count, calls)) = found?
            && placed.program.operations[first..first + count].iter().all(|it| takes_layouts(placed, it))
            && all_can(&calls, can)?
        {
            return Ok(Some((count, calls)));
        }
    }
    Ok(None)
}

/// True if a fused pass supports the layouts of an operation's tensors. Products support pitches and convolutions every layout. Updates and checks
/// work on a weight's elements in any order.
fn takes_layouts(placed: &Placed, operation: &Operation) -> bool {
    match operation.action {
        Action::Run { op: Op::Product(_) | Op::Convolution(_), .. } => true,
        Action::Update | Action::Check | Action::Squares(_) | Action::Average => {
            placed.program.takes_layouts(operation)
        }
        _ => is_dense(placed, operation) || is_channels_last(placed, operation),
    }
}

/// True if the libraries have algorithms for all library calls among `calls`.
pub(crate) fn all_can(calls: &[Call], can: &mut Can<'_>) -> Result<bool, Error> {
    for call in calls {
        if !matches!(call, Call::Kernel(_) | Call::Passage(_) | Call::Exchange(_)) && !can(call)? {
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
    Some((operation, operation.forward()?, operation.written(Slot::Output)?))
}

/// The gradient of a rectifier with which a group of two gradients begins.
struct RectifierGradient {
    rectifier: Rectifier,
    /// The gradient that it reads, the rectifier's output in the forward pass, and the gradient that it writes.
    dy: TensorId,
    output: TensorId,
    between: TensorId,
}

impl RectifierGradient {
    /// Returns the tensors of operation `first`; `None` if it is no such gradient, or that of another activation.
    fn at(placed: &Placed, first: usize) -> Option<RectifierGradient> {
        let operation = placed.program.operations.get(first)?;
        let Op::Pointwise(activation) = operation.backward()? else { return None };
        let (dy, output) = (operation.read(Slot::Gradient)?, operation.read(Slot::Output)?);
        let between = operation.written(Slot::InputGradient(0))?;
        Some(RectifierGradient { rectifier: Rectifier::of(activation.function)?, dy, output, between })
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
