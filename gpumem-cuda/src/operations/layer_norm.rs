//! Layer normalisation: `kernels/layer_norm.cu`.

use super::Context;
use super::batch_norm2d::{norm_real, pack, threads};
use crate::launch::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::layers::LayerNorm;
use gpumem_core::program::Slot;

/// How rows are shared out among warps or blocks.
pub(super) struct Rows {
    /// Whether a warp works on a row, rather than a block: 1 or 0, for a constant.
    pub(super) warp: u8,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
}

impl Rows {
    /// `rows` rows of `length` elements: a warp for each row of up to 1024 elements, else a block.
    pub(super) fn new(context: &Context<'_>, rows: u64, length: u64) -> Result<Rows, Error> {
        let warp = length <= 1024;
        // Eight warps a block.
        let blocks = if warp { rows.div_ceil(8) } else { rows };
        let block = if warp { 256 } else { threads(length / pack(context, length)) };
        let blocks = u32::try_from(blocks).map_err(|_| Error::Damaged("there are more rows than a grid has blocks"))?;
        Ok(Rows { warp: u8::from(warp), grid: [blocks, 1, 1], block: [block, 1, 1] })
    }
}

/// Columns of a block that sums over rows: 32 bytes, the least that memory gives, so that there are many blocks; more where
/// there are many all the same.
fn columns(context: &Context<'_>, features: u64) -> u64 {
    let least = if pack(context, 0) == 4 { 8 } else { 16 };
    if features >= 32 * 256 { 32 } else { least }
}

/// What the launches of a layer share.
struct Plan<'a> {
    context: &'a Context<'a>,
    layer: &'a LayerNorm,
    /// Rows in all samples.
    count: u64,
    rows: Rows,
}

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, layer: &'a LayerNorm) -> Result<Plan<'a>, Error> {
        let count = context.samples(context.read(Slot::Input(0))?) * layer.rows;
        Ok(Plan { context, layer, count, rows: Rows::new(context, count, layer.features)? })
    }

    fn kernel(&self, entry: &'static str, add: [u8; 3]) -> Kernel {
        let (context, layer) = (self.context, self.layer);
        let kernel = context.kernel("layer_norm.cu", entry).with("ROWS", format!("{}ull", self.count));
        let kernel =
            kernel.with("STEPS", format!("{}ull", layer.rows)).with("FEATURES", format!("{}ull", layer.features));
        let kernel = kernel.with("NORM_REAL", norm_real(context)).with("AFFINE", u8::from(layer.affine));
        let kernel = kernel.with("BIAS", u8::from(layer.bias)).with_float("EPS", layer.eps);
        let kernel = kernel.with("WARP_ROWS", self.rows.warp).with("COLUMNS", columns(context, layer.features));
        kernel.with("ADD", add[0]).with("ADD_WEIGHT", add[1]).with("ADD_BIAS", add[2])
    }
}

pub(super) fn forward(context: &Context<'_>, layer: &LayerNorm) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let weight = if layer.affine { Some(context.read(Slot::Parameter(0))?) } else { None };
    let bias = if layer.bias { Some(context.read(Slot::Parameter(1))?) } else { None };
    let saved = context.operation.written(Slot::Saved(0));
    let plan = Plan::new(context, layer)?;
    let arguments = vec![Some(x), weight, bias, Some(y), saved];
    let kernel = plan.kernel("layer_norm_forward", [0; 3]);
    Ok(vec![Launch { kernel, grid: plan.rows.grid, block: plan.rows.block, arguments }])
}

pub(super) fn backward(context: &Context<'_>, layer: &LayerNorm) -> Result<Vec<Launch>, Error> {
    let (dy, x, saved) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Saved(0))?);
    let slots = [Slot::InputGradient(0), Slot::ParameterGradient(0), Slot::ParameterGradient(1)];
    let [dx, dweight, dbias] = slots.map(|slot| context.operation.written(slot));
    let add = slots.map(|slot| context.adds(slot));
    let plan = Plan::new(context, layer)?;
    let mut launches = Vec::new();
    // The sums over rows first: the gradient of the input may take the place of what they read.
    if dweight.is_some() || dbias.is_some() {
        let columns = columns(context, layer.features);
        let blocks = u32::try_from(layer.features.div_ceil(columns))
            .map_err(|_| Error::Damaged("a layer normalisation has more columns than a grid has blocks"))?;
        // A power of two of rows at a time, about eight for each thread.
        let slices = (plan.count / 8).next_power_of_two().clamp(64 / columns, 1024 / columns);
        launches.push(Launch {
            kernel: plan.kernel("layer_norm_parameters", add),
            grid: [blocks, 1, 1],
            block: [(slices * columns) as u32, 1, 1],
            arguments: vec![Some(dy), Some(x), Some(saved), dweight, dbias],
        });
    }
    if let Some(dx) = dx {
        let weight = if layer.affine { Some(context.read(Slot::Parameter(0))?) } else { None };
        launches.push(Launch {
            kernel: plan.kernel("layer_norm_input", add),
            grid: plan.rows.grid,
            block: plan.rows.block,
            arguments: vec![Some(dy), Some(x), weight, Some(saved), Some(dx)],
        });
    }
    Ok(launches)
}
