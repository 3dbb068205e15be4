//! Fusion groups: consecutive operations that a backend may run as one pass over memory.
//!
//! This is the one definition of the groups that memory depends on. Lowering asks it which tensors should live longer, which scratch memory to
//! share, and where no copy may go. A backend asks it which kernels to try. It may still run the operations of a group one by one: a program is
//! complete without its groups. Further patterns, such as elementwise chains, change no memory, and each backend has its own.
//!
//! Groups are not stored. They follow from the operations, so that a decoded program has the groups of the program that was lowered.

use super::functions::Function;
#[cfg(feature = "lower")]
use super::op::Layouts;
use super::{Action, Op, Operation, Pass, Slot};
#[cfg(feature = "lower")]
use alloc::vec::Vec;

/// Consecutive operations that a backend may run as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The index of its first operation.
    pub first: usize,
    /// The number of its operations, at least 1.
    pub count: usize,
    /// The pattern of its operations.
    pub kind: GroupKind,
}

/// The pattern of a group's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// The gradient of an activation, then that of the batch norm before the activation.
    BatchNormGradient,
    /// The gradient of an activation, then that of the max pooling before the activation.
    MaxPoolGradient,
    /// The gradient of `Relu` or `Relu6`, then that of the conv norm before it.
    ConvNormGradient,
    /// A batch norm's recomputed output, maybe through an activation, then the gradient of that norm.
    RecomputedOutput,
    /// A batch norm's recomputed output, maybe through an activation, then the gradient of the conv norm that reads it. That gradient may be a
    /// [`ConvNormGradient`](GroupKind::ConvNormGradient) of two operations.
    RecomputedInput,
    /// Updates of parameters, which may run in any order.
    Updates,
}

impl Group {
    /// Returns the longest group that begins with operation `first`; `None` if there is none. Shorter groups may begin within it.
    pub fn at(operations: &[Operation], first: usize) -> Option<Group> {
        let rest = operations.get(first..)?;
        let (kind, count) = gradients(rest).or_else(|| recomputed(rest)).or_else(|| updates(rest))?;
        Some(Group { first, count, kind })
    }

    /// Returns the index of its last operation.
    pub fn last(&self) -> usize {
        self.first + self.count - 1
    }
}

/// Returns the groups of a list of operations, in order and without those within others.
#[cfg(feature = "lower")]
pub(crate) fn groups(operations: &[Operation]) -> Vec<Group> {
    let (mut groups, mut first) = (Vec::new(), 0);
    while first < operations.len() {
        let group = Group::at(operations, first);
        first = group.map_or(first, |group| group.last()) + 1;
        groups.extend(group);
    }
    groups
}

impl GroupKind {
    /// True if a group of this kind begins with operation `first`.
    pub fn is_at(self, operations: &[Operation], first: usize) -> bool {
        Group::at(operations, first).is_some_and(|group| group.kind == self)
    }
}

/// Returns a group of two gradients, of which the first writes what the second reads.
fn gradients(rest: &[Operation]) -> Option<(GroupKind, usize)> {
    let [first, second, ..] = rest else { return None };
    let Some(Op::Pointwise(activation)) = first.backward() else { return None };
    let between = first.written(Slot::InputGradient(0)).filter(|_| !first.accumulate)?;
    if second.read(Slot::Gradient) != Some(between) {
        return None;
    }
    let kind = match second.backward()? {
        // The slope of the activation is computed from the input. A norm by running statistics may not read it.
        Op::BatchNorm(_) if second.read(Slot::Input(0)).is_some() => GroupKind::BatchNormGradient,
        Op::MaxPool(_) => GroupKind::MaxPoolGradient,
        Op::NormalizedConvolution(_) if matches!(activation.function, Function::Relu | Function::Relu6) => {
            GroupKind::ConvNormGradient
        }
        _ => return None,
    };
    Some((kind, 2))
}

/// Returns a group that begins with recomputing the output of a batch norm.
fn recomputed(rest: &[Operation]) -> Option<(GroupKind, usize)> {
    let norm = rest.first()?;
    let Some(Op::BatchNorm(_)) = again(norm) else { return None };
    let (mut count, mut output) = (1, norm.written(Slot::Output));
    if let Some(next) = rest.get(1)
        && let Some(Op::Pointwise(_)) = again(next)
        && next.read(Slot::Input(0)) == output
    {
        (count, output) = (2, next.written(Slot::Output));
    }
    let gradient = rest.get(count)?;
    if let Some(Op::BatchNorm(_)) = gradient.backward() {
        let is_own = gradient.read(Slot::Saved(0)) == norm.read(Slot::Saved(0));
        let is_one_pass = is_own && gradient.read(Slot::Input(0)).is_some();
        return is_one_pass.then_some((GroupKind::RecomputedOutput, count + 1));
    }
    if let Some((GroupKind::ConvNormGradient, _)) = gradients(&rest[count..]) {
        count += 1;
    }
    let gradient = rest.get(count)?;
    let is_reader =
        matches!(gradient.backward(), Some(Op::NormalizedConvolution(_))) && gradient.read(Slot::Input(0)) == output;
    is_reader.then_some((GroupKind::RecomputedInput, count + 1))
}

/// Returns the `Op` that an operation runs a second time; `None` for other operations.
fn again(operation: &Operation) -> Option<&Op> {
    match &operation.action {
        Action::Run { op, pass: Pass::Again } => Some(op),
        _ => None,
    }
}

/// Returns the group of all updates that follow each other.
fn updates(rest: &[Operation]) -> Option<(GroupKind, usize)> {
    let count = rest.iter().take_while(|operation| operation.action == Action::Update).count();
    (count > 0).then_some((GroupKind::Updates, count))
}

/// Returns `Some` if operation `at` recomputes an output in a [group with the norm's gradient](GroupKind::RecomputedOutput). That gradient reads the
/// norm's input, so it can write the output too. It writes only the last output of the group, for which the answer is `Some(true)`. Returns `None`
/// for any other operation.
pub(crate) fn made_beside(operations: &[Operation], at: usize) -> Option<bool> {
    let is_it = |group: &Group| group.kind == GroupKind::RecomputedOutput && at < group.last();
    let starts = [Some(at), at.checked_sub(1)].into_iter().flatten();
    let group = starts.filter_map(|first| Group::at(operations, first)).find(is_it)?;
    Some(at + 1 == group.last())
}

/// True if an operation computes each element on its own. A backend may fuse it with its neighbours, so that lowering keeps them together.
#[cfg(feature = "lower")]
pub(crate) fn is_elementwise(op: &Op) -> bool {
    op.layouts() == Layouts::Alike
}

/// True if a backend may fuse operation `at` with the one before it, so that lowering puts no copy between them. Backends fuse elementwise
/// operations in more patterns than there are groups.
#[cfg(feature = "lower")]
pub(crate) fn may_join(operations: &[Operation], at: usize) -> bool {
    let (one, other) = (&operations[at - 1], &operations[at]);
    // Fewer than all elementwise operations: a copy may stand next to dropout and formulas.
    let is_simple = |operation: &Operation| match &operation.action {
        Action::Run { op, .. } => matches!(op, Op::Pointwise(_) | Op::Rectifier(_) | Op::Binary(_) | Op::Sum(_)),
        _ => false,
    };
    let is_read = one.writes.iter().any(|written| other.reads.iter().any(|read| read.tensor == written.tensor));
    // Wider than the two groups of recomputation: whatever was recomputed last.
    let is_norm = matches!(other.backward(), Some(Op::BatchNorm(_) | Op::NormalizedConvolution(_)));
    let recomputes = again(one).is_some() && (is_norm || GroupKind::ConvNormGradient.is_at(operations, at));
    recomputes || (is_read && (is_simple(one) || is_simple(other)))
}
