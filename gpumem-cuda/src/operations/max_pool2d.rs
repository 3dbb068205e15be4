//! Maxima over windows: `kernels/max_pool2d.cu`.

use super::Context;
use crate::launch::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::layers::MaxPool2d;
use gpumem_core::program::Slot;

fn kernel(context: &Context<'_>, entry: &'static str, layer: &MaxPool2d, count: u64, saves: bool, add: u8) -> Kernel {
    let kernel = context.kernel("max_pool2d.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("HEIGHT", layer.input[0]).with("WIDTH", layer.input[1]);
    let kernel = kernel.with("OUT_HEIGHT", layer.output[0]).with("OUT_WIDTH", layer.output[1]);
    let kernel = kernel.with("KERNEL_H", layer.kernel_size[0]).with("KERNEL_W", layer.kernel_size[1]);
    let kernel = kernel.with("STRIDE_H", layer.stride[0]).with("STRIDE_W", layer.stride[1]);
    let kernel = kernel.with("PADDING_H", layer.padding[0]).with("PADDING_W", layer.padding[1]);
    let kernel = kernel.with("DILATION_H", layer.dilation[0]).with("DILATION_W", layer.dilation[1]);
    kernel.with("SAVES", u8::from(saves)).with("ADD", add)
}

pub(super) fn forward(context: &Context<'_>, layer: &MaxPool2d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let places = context.operation.written(Slot::Saved(0));
    let count = context.elements(y);
    let kernel = kernel(context, "max_pool2d_forward", layer, count, places.is_some(), 0);
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(y), places])])
}

pub(super) fn backward(context: &Context<'_>, layer: &MaxPool2d) -> Result<Vec<Launch>, Error> {
    let (dy, places) = (context.read(Slot::Gradient)?, context.read(Slot::Saved(0))?);
    let dx = context.written(Slot::InputGradient(0))?;
    let count = context.elements(dx);
    let kernel = kernel(context, "max_pool2d_backward", layer, count, true, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(places), Some(dx)])])
}
