//! The arguments of operations that layers read.

use super::{Layer, Lift, Result, refuse};
use crate::model::{Node, ValueId};

/// Returns the tensor of an argument that must be there.
pub(super) fn tensor(node: &Node, name: &str) -> Result<ValueId> {
    match node.tensor(name) {
        Some(value) => Ok(value),
        None => refuse(format!("it has no `{name}`")),
    }
}

/// Returns a layer that reads the argument `input` and makes the first output.
pub(super) fn of_one(lift: &mut Lift<'_>, node: &Node, kind: &'static str, input: &str) -> Result<Layer> {
    let input = lift.operand(tensor(node, input)?)?;
    Ok(Layer::new(kind, input, node.outputs[0]))
}
