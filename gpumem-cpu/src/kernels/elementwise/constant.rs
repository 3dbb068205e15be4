//! Numbers that are written in the network.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Constant;

/// Writes the numbers, or a single number everywhere.
pub(in crate::kernels) fn forward(op: &Constant, operands: &mut Operands<'_>) -> Bound {
    let values = op.values().ok_or(Error::Damaged("a constant has other numbers than elements"))?;
    let mut output = operands.target(Slot::Output, count(&[op.shape.elements().unwrap_or(0)]))?;
    kernel(move |_| match values[..] {
        [one] => output.get().fill(one),
        _ => output.get().copy_from_slice(&values),
    })
}
