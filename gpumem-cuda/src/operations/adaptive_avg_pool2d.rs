//! Means over as many windows as the output has elements, and over whole planes: `kernels/adaptive_avg_pool2d.cu`.

use super::Context;
use crate::launch::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::layers::{AdaptiveAvgPool2d, GlobalAvgPool};
use gpumem_core::program::Slot;

/// Windows of at least this many elements are added up by a warp each: then most of its lanes have something to do.
const LARGE: u64 = 24;

/// Height and width of the input's planes and of the output's.
#[derive(Clone, Copy)]
struct Maps {
    input: [u64; 2],
    output: [u64; 2],
}

impl From<&AdaptiveAvgPool2d> for Maps {
    fn from(layer: &AdaptiveAvgPool2d) -> Maps {
        Maps { input: layer.input, output: layer.output }
    }
}

/// One window, as large as the plane.
impl From<&GlobalAvgPool> for Maps {
    fn from(layer: &GlobalAvgPool) -> Maps {
        Maps { input: layer.input, output: [1, 1] }
    }
}

impl Maps {
    fn kernel(self, context: &Context<'_>, entry: &'static str, count: u64, lanes: u64, add: u8) -> Kernel {
        let kernel = context.kernel("adaptive_avg_pool2d.cu", entry).with("COUNT", format!("{count}ull"));
        let kernel = kernel.with("HEIGHT", self.input[0]).with("WIDTH", self.input[1]);
        let kernel = kernel.with("OUT_HEIGHT", self.output[0]).with("OUT_WIDTH", self.output[1]);
        kernel.with("LANES", lanes).with("ADD", add)
    }

    fn forward(self, context: &Context<'_>) -> Result<Vec<Launch>, Error> {
        let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
        let count = context.elements(y);
        let side = |axis: usize| self.input[axis].div_ceil(self.output[axis].max(1));
        let lanes = if side(0).saturating_mul(side(1)) >= LARGE { 32 } else { 1 };
        let kernel = self.kernel(context, "adaptive_avg_pool2d_forward", count, lanes, 0);
        Ok(vec![Launch::elementwise(kernel, count.saturating_mul(lanes), vec![Some(x), Some(y)])])
    }

    fn backward(self, context: &Context<'_>) -> Result<Vec<Launch>, Error> {
        let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
        let count = context.elements(dx);
        let add = context.adds(Slot::InputGradient(0));
        let kernel = self.kernel(context, "adaptive_avg_pool2d_backward", count, 1, add);
        Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(dx)])])
    }
}

pub(super) fn forward(context: &Context<'_>, layer: &AdaptiveAvgPool2d) -> Result<Vec<Launch>, Error> {
    Maps::from(layer).forward(context)
}

pub(super) fn backward(context: &Context<'_>, layer: &AdaptiveAvgPool2d) -> Result<Vec<Launch>, Error> {
    Maps::from(layer).backward(context)
}

pub(super) fn forward_global(context: &Context<'_>, layer: &GlobalAvgPool) -> Result<Vec<Launch>, Error> {
    Maps::from(layer).forward(context)
}

pub(super) fn backward_global(context: &Context<'_>, layer: &GlobalAvgPool) -> Result<Vec<Launch>, Error> {
    Maps::from(layer).backward(context)
}
