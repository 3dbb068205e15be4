//! A sum with what follows it in one pass: a rectifier, or the layer normalisation of the sum.

use super::super::join::add_and_rectify;
use super::super::{Context, Setting, layer_norm};
use super::{are_apart, forward_at, rectified};
use crate::launch::Call;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::layers::{Add, Layer};
use gpumem_core::program::{Operation, Slot, TensorId};

pub(super) fn add(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let Some((operation, Layer::Add(layer), sum)) = forward_at(placed, first) else { return Ok(None) };
    if !are_apart(placed, first, 2) {
        return Ok(None);
    }
    let launches = if let Some((rectifier, output)) = rectified(placed, first + 1, sum) {
        add_and_rectify(&Context { placed, operation, setting }, layer, output, rectifier)?
    } else if let Some((after, Layer::LayerNorm(norm), _)) = forward_at(placed, first + 1)
        && after.read(Slot::Input(0)) == Some(sum)
        && let Some([x, residual]) = pair(placed, operation, layer)
    {
        let context = Context { placed, operation: after, setting };
        layer_norm::forward_of(&context, norm, x, Some([residual, sum]))?
    } else {
        return Ok(None);
    };
    Ok(Some((2, launches.into_iter().map(Call::from).collect())))
}

/// The two branches of a sum, if there are two different ones of the sum's size.
fn pair(placed: &Placed, operation: &Operation, layer: &Add) -> Option<[TensorId; 2]> {
    let branches = [operation.read(Slot::Input(0))?, operation.read(Slot::Input(1))?];
    let batched = |id: TensorId| placed.program.tensor(id).batched;
    let sum = operation.written(Slot::Output)?;
    let is_pair = layer.branches == 2 && branches[0] != branches[1];
    (is_pair && branches.iter().all(|&branch| batched(branch) == batched(sum))).then_some(branches)
}
