//! Inputs of the network, and the arguments of operations that layers read.

use super::{Layer, Lift, Result, refuse, shapes};
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

/// Gives tokens of several axes their shape: an input of the language has one, and the bytes are equal.
pub(super) fn give_tokens_axes(lift: &mut Lift<'_>) {
    let model = lift.model;
    for &input in &model.inputs {
        let shape = lift.sample(input);
        if model.values[input].dtype.is_float() || shape.len() < 2 || lift.readers[input].is_empty() {
            continue;
        }
        let apart = lift.between(&shape);
        let node = lift.readers[input].first().copied().unwrap_or(0);
        let layer = Layer::new("Reshape", input, apart).with(shapes::sizes(&shape));
        lift.layers.push(Layer { node, ..layer });
        lift.same(input, apart);
    }
}
