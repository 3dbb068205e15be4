//! Batch normalisation: `kernels/batch_norm2d.cu`.

use super::Context;
use crate::launch::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::layers::BatchNorm2d;
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::{Half, Precision};

/// What parameters of normalisation layers are made of, for a constant: as `REAL`, but f32 under mixed precision.
pub(super) fn norm_real(context: &Context<'_>) -> u8 {
    match context.setting.precision {
        Precision::F32 | Precision::Mixed(Half::Bf16 | Half::F16) => 0,
        Precision::Bf16 => 1,
        Precision::F16 => 2,
    }
}

/// Elements that a thread takes at a time: 16 bytes of them, if rows of `length` elements are whole numbers of that.
pub(super) fn pack(context: &Context<'_>, length: u64) -> u64 {
    let wide = if context.setting.precision == Precision::F32 { 4 } else { 8 };
    if length.is_multiple_of(wide) { wide } else { 1 }
}

/// Threads of a block that goes through `items` items, about four each.
pub(super) fn threads(items: u64) -> u32 {
    items.div_ceil(4).next_multiple_of(32).clamp(64, 1024) as u32
}

/// What the launches of a layer share.
struct Plan<'a> {
    context: &'a Context<'a>,
    layer: &'a BatchNorm2d,
    samples: u64,
    /// H * W.
    area: u64,
    /// Packs of a channel, over all samples.
    packs: u64,
}

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, layer: &'a BatchNorm2d, x: TensorId) -> Plan<'a> {
        let (samples, area) = (context.samples(x), layer.size[0] * layer.size[1]);
        Plan { context, layer, samples, area, packs: samples * area / pack(context, area) }
    }

    fn kernel(&self, entry: &'static str, add: [u8; 3]) -> Kernel {
        let (context, layer) = (self.context, self.layer);
        let kernel = context.kernel("batch_norm2d.cu", entry).with("BATCH", format!("{}ull", self.samples));
        let kernel =
            kernel.with("CHANNELS", format!("{}ull", layer.num_features)).with("AREA", format!("{}ull", self.area));
        let kernel = kernel.with("NORM_REAL", norm_real(context)).with("AFFINE", u8::from(layer.affine));
        let kernel = kernel.with_float("EPS", layer.eps).with_float("MOMENTUM", layer.momentum);
        let kernel = kernel.with("TRAINING", u8::from(context.placed.program.training));
        kernel.with("ADD", add[0]).with("ADD_WEIGHT", add[1]).with("ADD_BIAS", add[2])
    }

    /// A block for each channel.
    fn channels(&self, entry: &'static str, add: [u8; 3], arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let blocks = u32::try_from(self.layer.num_features)
            .map_err(|_| Error::Damaged("a batch normalisation has more channels than a grid has blocks"))?;
        let block = [threads(self.packs), 1, 1];
        Ok(Launch { kernel: self.kernel(entry, add), grid: [blocks, 1, 1], block, arguments })
    }
}

/// The layer's parameters, where it has any.
fn parameters(context: &Context<'_>, layer: &BatchNorm2d) -> Result<[Option<TensorId>; 2], Error> {
    if !layer.affine {
        return Ok([None; 2]);
    }
    Ok([Some(context.read(Slot::Parameter(0))?), Some(context.read(Slot::Parameter(1))?)])
}

pub(super) fn forward(context: &Context<'_>, layer: &BatchNorm2d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let [weight, bias] = parameters(context, layer)?;
    let plan = Plan::new(context, layer, x);
    let mut launches = Vec::new();
    let [mean, variance] = if context.placed.program.training {
        let saved = context.written(Slot::Saved(0))?;
        // In training there may be no running statistics that anybody keeps.
        let running = match context.operation.written(Slot::Buffer(0)) {
            Some(mean) => [Some(mean), Some(context.written(Slot::Buffer(1))?)],
            None => [None; 2],
        };
        let arguments = vec![Some(x), Some(saved), running[0], running[1]];
        launches.push(plan.channels("batch_norm2d_statistics", [0; 3], arguments)?);
        [Some(saved), None]
    } else {
        [Some(context.read(Slot::Buffer(0))?), Some(context.read(Slot::Buffer(1))?)]
    };
    let kernel = plan.kernel("batch_norm2d_apply", [0; 3]);
    let arguments = vec![Some(x), weight, bias, mean, variance, Some(y)];
    launches.push(Launch::elementwise(kernel, layer.num_features * plan.packs, arguments));
    Ok(launches)
}

pub(super) fn backward(context: &Context<'_>, layer: &BatchNorm2d) -> Result<Vec<Launch>, Error> {
    let (dy, x, saved) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Saved(0))?);
    let slots = [Slot::InputGradient(0), Slot::ParameterGradient(0), Slot::ParameterGradient(1)];
    let [dx, dweight, dbias] = slots.map(|slot| context.operation.written(slot));
    let weight = if layer.affine && dx.is_some() { Some(context.read(Slot::Parameter(0))?) } else { None };
    let plan = Plan::new(context, layer, x);
    let arguments = vec![Some(dy), Some(x), weight, Some(saved), dx, dweight, dbias];
    Ok(vec![plan.channels("batch_norm2d_backward", slots.map(|slot| context.adds(slot)), arguments)?])
}
