//! A convolution and the rectifier behind it in one pass.

use super::super::{Context, Setting, conv_transpose2d, conv2d};
use super::{are_apart, forward_at, rectified};
use crate::launch::Call;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;

pub(super) fn forward(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let Some((operation, layer, value)) = forward_at(placed, first) else { return Ok(None) };
    let Some((rectifier, output)) = rectified(placed, first + 1, value) else { return Ok(None) };
    if !are_apart(placed, first, 2) {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    let launches = match layer {
        Layer::Conv2d(layer) => conv2d::forward_to(&context, layer, output, rectifier)?,
        Layer::ConvTranspose2d(layer) => conv_transpose2d::forward_to(&context, layer, output, rectifier)?,
        _ => return Ok(None),
    };
    Ok(Some((2, launches.into_iter().map(Call::from).collect())))
}
