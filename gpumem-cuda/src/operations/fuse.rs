//! Operations that follow each other and run as one pass over memory.
//!
//! The plan knows nothing of this: it placed the tensors of each operation for themselves. A later operation's output may
//! therefore lie where an earlier one still reads, and such a pair stays apart: see [`are_apart`].

mod batch_norm2d;
mod conv2d;
mod join;
mod optimizer;

use super::{Can, Setting, all_can, convolutions, products};
use crate::launch::Call;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::program::{Action, Class, Operation, Slot, TensorId};

/// A way to run several operations, from number `first` on, as one: how many, and their calls. `None` where it does not apply.
type Pattern = fn(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error>;

/// All of them, in the order in which they are tried.
const PATTERNS: &[Pattern] = &[
    products::with_activation,
    products::with_activation_gradient,
    products::with_bias_gradient,
    convolutions::with_relu,
    convolutions::alone,
    batch_norm2d::forward,
    batch_norm2d::backward,
    conv2d::forward,
    join::add,
    optimizer::updates,
];

/// The first pattern that applies, and for whose products and convolutions there are algorithms.
pub(super) fn fused(
    placed: &Placed,
    first: usize,
    setting: Setting,
    can: &mut Can<'_>,
) -> Result<Option<(usize, Vec<Call>)>, Error> {
    for pattern in PATTERNS {
        if let Some((count, calls)) = pattern(placed, first, setting)?
            && all_can(&calls, can)?
        {
            return Ok(Some((count, calls)));
        }
    }
    Ok(None)
}

/// The forward operation number `at`, if that is one: the operation, its layer and its output.
fn forward_at(placed: &Placed, at: usize) -> Option<(&Operation, &Layer, TensorId)> {
    let operation = placed.program.operations.get(at)?;
    match &operation.action {
        Action::Forward(layer) => Some((operation, layer, operation.written(Slot::Output)?)),
        _ => None,
    }
}

/// What a layer rectifies like: `RECTIFIER` of `rectify.cuh`.
fn rectifier(layer: &Layer) -> Option<u8> {
    match layer {
        Layer::Relu(_) => Some(1),
        Layer::Relu6(_) => Some(2),
        _ => None,
    }
}

/// The rectifier in operation `at`, if what it reads is `value` and nobody needs that afterwards: which one, and its output.
fn rectified(placed: &Placed, at: usize, value: TensorId) -> Option<(u8, TensorId)> {
    let (operation, layer, output) = forward_at(placed, at)?;
    let kind = rectifier(layer)?;
    (operation.read(Slot::Input(0)) == Some(value) && ends(placed, at, value)).then_some((kind, output))
}

/// Whether `value` is overwritten by operation `at`, or not needed after it.
fn ends(placed: &Placed, at: usize, value: TensorId) -> bool {
    let program = &placed.program;
    let tensor = program.tensor(value);
    let is_overwritten = program.operations[at].written(Slot::Output) == Some(value);
    is_overwritten || (tensor.class == Class::Transient && tensor.last as usize == at)
}

/// Whether two different tensors share memory.
fn overlap(placed: &Placed, a: TensorId, b: TensorId) -> bool {
    let range = |id: TensorId| {
        let id = id as usize;
        (placed.offsets[id], placed.offsets[id].saturating_add(placed.bytes[id]))
    };
    let ((from, to), (start, end)) = (range(a), range(b));
    a != b && from < end && start < to
}

/// Whether operations `first` to `first + count - 1` may run as one: nothing that a later one writes lies where an earlier
/// one has a tensor, unless it is that very tensor.
pub(super) fn are_apart(placed: &Placed, first: usize, count: usize) -> bool {
    are_apart_without(placed, first, count, None)
}

/// The same if tensor `unused`, scratch memory of one of them, is left alone.
pub(super) fn are_apart_without(placed: &Placed, first: usize, count: usize, unused: Option<TensorId>) -> bool {
    let Some(group) = placed.program.operations.get(first..first + count) else { return false };
    let used = |id: &TensorId| Some(*id) != unused;
    (1..group.len()).all(|later| {
        let earlier = || group[..later].iter().flat_map(|operation| operation.tensors()).filter(used);
        group[later].writes.iter().all(|written| !earlier().any(|tensor| overlap(placed, written.tensor, tensor)))
    })
}
