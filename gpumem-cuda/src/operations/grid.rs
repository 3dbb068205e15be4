//! Division of work among blocks and threads.

use super::context::Context;
use crate::calls::{Kernel, Launch, type_name};
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::{ChannelOrder, Layout, Slot, TensorId};
use gpumem_core::shape::Shape;

/// Returns the number format of the parameters of normalisation layers, for a constant: that of `REAL`, but f32 under mixed precision.
pub(super) fn norm_real(context: &Context<'_>) -> &'static str {
    type_name(Role::Norm.format(context.setting.precision))
}

/// Returns the elements that a thread works on at a time: a pack of 16 bytes if rows of `length` elements consist of whole packs, else 1.
pub(super) fn pack(context: &Context<'_>, length: u64) -> u64 {
    let wide = 16 / Role::Activation.bytes(context.setting.precision);
    if length.is_multiple_of(wide) { wide } else { 1 }
}

/// True if all these maps have channels last, without gaps. Maps that are the same in both orders count as either.
pub(super) fn is_last(context: &Context<'_>, maps: &[(&'static str, TensorId, Shape)]) -> bool {
    let last = Layout { order: ChannelOrder::ChannelsLast, pitch: 0 };
    let lies = |id: TensorId, shape: Shape| {
        let tensor = context.tensor(id);
        // A dense tensor may have the shape of a vector.
        (tensor.layout == last && tensor.shape == shape) || (tensor.layout.is_dense() && shape.is_same_in_both_orders())
    };
    let has_last = maps.iter().any(|&(_, id, _)| context.tensor(id).layout == last);
    has_last && maps.iter().all(|&(_, id, shape)| lies(id, shape))
}

/// Returns the channels that a thread works on at a time: a pack of 16 bytes if all these maps have channels last and whole packs, else 1.
pub(super) fn channel_pack(context: &Context<'_>, channels: u64, maps: &[(&'static str, TensorId, Shape)]) -> u64 {
    if is_last(context, maps) { pack(context, channels) } else { 1 }
}

/// Adds the layouts of its maps to a kernel that includes `planes.cuh`. Also returns the channels that a thread works on at a time.
pub(super) fn planes(
    context: &Context<'_>,
    kernel: Kernel,
    channels: u64,
    maps: &[(&'static str, TensorId, Shape)],
) -> Result<(Kernel, u64), Error> {
    let pack = channel_pack(context, channels, maps);
    let kernel = kernel.with("PACK", pack);
    let constants = kernel.constants.len();
    let kernel = context.with_strides(kernel, maps)?;
    let dense = kernel.constants.len() == constants;
    Ok((if dense { kernel } else { kernel.with("CHANNELS", channels) }, pack))
}

/// Returns the packs of 16 bytes in `count` elements: the threads of a kernel that includes `vector16.cuh`.
pub(super) fn pieces(context: &Context<'_>, count: u64) -> u64 {
    count.div_ceil(16 / Role::Activation.bytes(context.setting.precision))
}

/// Returns the threads of a block that processes `items` items, about four each.
pub(super) fn threads(items: u64) -> u32 {
    items.div_ceil(4).next_multiple_of(32).clamp(64, 1024) as u32
}

/// Blocks that keep the largest cards busy: four on each of 132 multiprocessors.
pub(super) const BLOCKS: u64 = 528;

/// Sums of parts that a block of 256 threads adds up: `SUMS_OF_BLOCK` of `partial_sums.cuh`.
pub(super) const SUMS_OF_BLOCK: u64 = 32;

/// Returns the number of parts to split `items` items into, so that about [`BLOCKS`] blocks run. Each part needs `blocks` blocks. There are at most
/// `most` parts, of about `least` items or more; none is empty.
pub(super) fn parts(items: u64, blocks: u64, most: u64, least: u64) -> u64 {
    let parts = BLOCKS.div_ceil(blocks.max(1)).min(items / least).clamp(1, most);
    items.div_ceil(items.div_ceil(parts).max(1)).max(1)
}

/// A division of rows among warps or blocks.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// 1 if a warp works on a row, 0 if a block does; for a constant.
    pub(super) warp: u8,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
}

impl Rows {
    /// Divides `rows` rows of `length` elements: a warp for each row of up to 1024 elements, else a block.
    pub(super) fn new(context: &Context<'_>, rows: u64, length: u64) -> Result<Rows, Error> {
        let warp = length <= 1024;
        // A block has eight warps.
        let blocks = if warp { rows.div_ceil(8) } else { rows };
        let block = if warp { 256 } else { threads(length / pack(context, length)) };
        let blocks = u32::try_from(blocks).map_err(|_| Error::Damaged("there are more rows than a grid has blocks"))?;
        Ok(Rows { warp: u8::from(warp), grid: [blocks, 1, 1], block: [block, 1, 1] })
    }
}

/// Returns the launch of a kernel with a warp for each sample, which makes indices of `steps` indices.
pub(super) fn warp_for_each_sample(context: &Context<'_>, kernel: Kernel, steps: u64) -> Result<Vec<Launch>, Error> {
    let (token, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let samples = context.samples(y);
    let blocks =
        u32::try_from(samples.div_ceil(8)).map_err(|_| Error::Damaged("more samples than a grid has blocks"))?;
    let kernel = kernel.with("SAMPLES", format!("{samples}ull")).with("STEPS", format!("{steps}ull"));
    let arguments = vec![Some(token), Some(y)];
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}

/// Blocks that a present-day card runs at once. Tiles are made smaller until a product has as many.
const ENOUGH_BLOCKS: u64 = 128;
/// Returns the rows and columns of the tile that a block computes, for `count` products with results of `rows` x `columns`. Large tiles read less;
/// small ones leave fewer multiprocessors idle.
pub(super) fn tile(rows: u64, columns: u64, count: u64, largest: u64) -> [u64; 2] {
    let around = |extent: u64| extent.clamp(32, largest).next_power_of_two();
    let [mut tall, mut wide] = [around(rows), around(columns)];
    let blocks =
        |tall: u64, wide: u64| rows.div_ceil(tall).saturating_mul(columns.div_ceil(wide)).saturating_mul(count);
    while tall.max(wide) > 32 && blocks(tall, wide) < ENOUGH_BLOCKS {
        if tall > wide {
            tall /= 2;
        } else {
            wide /= 2;
        }
    }
    [tall, wide]
}

/// Converts a number to the 31 bits that the kernels have for it.
///
/// # Errors
/// [`Error::Unsupported`] if it needs more.
pub(super) fn small(number: u64) -> Result<u32, Error> {
    match u32::try_from(number) {
        Ok(number) if number < 1 << 31 => Ok(number),
        _ => Err(Error::Unsupported { device: "CUDA", what: "a product with a dimension of 2^31 or more".into() }),
    }
}
