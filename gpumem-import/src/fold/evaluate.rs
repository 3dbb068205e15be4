//! Evaluates operations whose operands are all known.

use super::operations::{index, one, put, removed, slice};
use super::tensor::Tensor;
use super::{Call, Origin};
use crate::model::{Model, Node};

/// Evaluates an operation. `None` if it is not known, or something that it reads has no numbers.
pub(super) fn evaluate(model: &Model, node: &Node, origins: &[Origin]) -> Option<Vec<Tensor>> {
    let call = Call { model, node, origins };
    let found = match node.op.strip_suffix('_').filter(|op| !op.is_empty() && !op.ends_with('_')) {
        Some(op) => {
            let target = call.tensor("self").or_else(|| call.operand("input"))?;
            let result = if op == "index_put" { put(&call, &target)? } else { one(&call, op)? };
            target.write(&result.broadcast(&target.shape)?.numbers());
            vec![target]
        }
        None => several(&call, &node.op)?,
    };
    // The file says of which shape a result is; another one would be a mistake here.
    let is_right =
        |(index, tensor): (usize, &Tensor)| call.output(index).is_some_and(|(_, shape)| shape == tensor.shape);
    found.iter().enumerate().all(is_right).then_some(found)
}

fn several(call: &Call<'_>, op: &str) -> Option<Vec<Tensor>> {
    let count = call.node.outputs.len();
    match op {
        "split" | "split_with_sizes" | "chunk" | "tensor_split" | "unbind" => {
            let tensor = call.tensor("self")?;
            let dim = index(call.integer("dim", 0), tensor.shape.len())?;
            let mut start = 0;
            (0..count)
                .map(|part| {
                    let keeps = op != "unbind";
                    let size = if keeps { *call.output(part)?.1.get(dim)? } else { 1 };
                    let piece = slice(&tensor, dim, start, start + size as i64, 1)?;
                    start += size as i64;
                    if keeps { Some(piece) } else { removed(&piece, dim) }
                })
                .collect()
        }
        "meshgrid" => {
            let axes: Vec<Tensor> = call.tensors("tensors")?.into_iter().collect::<Option<_>>()?;
            let is_xy =
                matches!(call.node.argument("indexing"), Some(crate::model::Argument::Text(text)) if text == "xy");
            let place = |axis: usize| match (is_xy, axis) {
                (true, 0) => 1,
                (true, 1) => 0,
                _ => axis,
            };
            (0..axes.len())
                .map(|axis| {
                    let mut shape = vec![1; axes.len()];
                    shape[place(axis)] = axes[axis].shape.iter().product();
                    axes[axis].reshape(&shape)?.broadcast(call.output(axis)?.1)
                })
                .collect()
        }
        "max" | "min" | "sort" | "topk" if count == 2 => None,
        _ => one(call, op).map(|tensor| vec![tensor]),
    }
}
