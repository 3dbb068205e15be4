//! Operations that a backend may run as one pass over memory. Stages ask before they put something between two of them.

use crate::program::functions::Function;
use crate::program::ops::Pointwise;
use crate::program::{Op, Operation, Slot};

/// True if operation `at` propagates a gradient through a rectifier to the next operation, the gradient of a conv norm. Backends fuse such a
/// rectifier into the pass of that gradient.
pub(in crate::lower) fn hands_on(operations: &[Operation], at: usize) -> bool {
    let (Some(after), Some(operation)) = (operations.get(at), operations.get(at + 1)) else { return false };
    let is_rectifier =
        matches!(after.backward(), Some(Op::Pointwise(Pointwise { function: Function::Relu | Function::Relu6, .. })));
    let handed = after.written(Slot::InputGradient(0)).filter(|_| is_rectifier && !after.accumulate);
    let takes = matches!(operation.backward(), Some(Op::NormalizedConvolution(_)));
    takes && handed.is_some() && handed == operation.read(Slot::Gradient)
}
