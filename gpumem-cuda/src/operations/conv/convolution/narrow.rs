//! Launches of convolutions of images with few channels on tensor cores: `kernels/common/narrow.cuh`.

use super::correlation::{Correlation, FILTER_BLOCKS, Kind, Parts, Shape};
use crate::operations::context::Context;
use crate::operations::grid::BLOCKS;
use gpumem_core::program::{ChannelOrder, TensorId};

/// The most channels of the image.
const MOST_CHANNELS: u64 = 4;
/// The most elements of the weight of an output channel: the sums of more would not fit in registers.
const MOST_TAPS: u64 = 160;
/// Positions along each axis from which on these kernels pay off.
const LEAST_POSITIONS: u64 = 8;
/// Columns and lines of positions in a tile.
const COLUMNS: u64 = 16;
const LINES: u64 = 8;
/// Blocks of the forward pass: three for each of 132 multiprocessors.
const FORWARD_BLOCKS: u64 = 396;
/// The most taps of a weight for whose gradient the registers suffice for four blocks on a multiprocessor; with more, for two. See `WANTED` of
/// `narrow.cuh`.
const FEW_TAPS: u64 = 64;
/// The most words of the image that a tile reads: a thread holds 24 of them.
const MOST_SEEN: u64 = 24 * 256;
/// Bytes of shared memory that a kernel has without requesting more.
const SHARED: u64 = 48 << 10;

impl Correlation {
    /// True if these kernels support the convolution. Positions must have channels last, with rows of whole 16-byte packs. Sizes of windows and
    /// strides are then smaller than those of images.
    fn is_narrow(&self, context: &Context<'_>, positions: TensorId) -> bool {
        let tensor = context.tensor(positions);
        let lies = tensor.layout.order == ChannelOrder::ChannelsLast && tensor.layout.pitch.is_multiple_of(8);
        let fits = (2..=MOST_CHANNELS).contains(&self.images) && self.filter() <= MOST_TAPS && self.kernel[1] <= 16;
        let is_large = self.position.iter().all(|&size| size >= LEAST_POSITIONS);
        let is_plain = self.groups == 1 && !self.is_transposed();
        let has_cores = context.tensor_core_terms() > 0;
        let is_known = has_cores && is_plain && fits && is_large && lies && self.positions.is_multiple_of(8);
        is_known && self.seen(LINES) <= MOST_SEEN
    }

    /// Returns the words of the image that a tile of `lines` lines reads.
    fn seen(&self, lines: u64) -> u64 {
        let span = |axis: usize, positions: u64| {
            (positions - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1
        };
        self.images * span(0, lines) * span(1, COLUMNS)
    }

    fn tiles(&self) -> u64 {
        self.batch * self.position[0].div_ceil(LINES) * self.position[1].div_ceil(COLUMNS)
    }

    /// Returns the position channels that a block computes.
    fn narrow_channels(&self) -> u64 {
        if self.positions > 32 { 64 } else { 32 }
    }

    /// Returns the launch shape that computes positions; `None` if these kernels do not support the convolution.
    pub(super) fn narrow_gather(&self, context: &Context<'_>, positions: TensorId) -> Option<Shape> {
        if !self.is_narrow(context, positions) {
            return None;
        }
        let channels = self.narrow_channels();
        let steps = (self.images * self.kernel[0] * self.kernel[1].next_power_of_two().max(2)).div_ceil(16);
        let bytes = 4 * self.seen(LINES) + 4 * steps * 16 / 2 * channels;
        if bytes > SHARED {
            return None;
        }
        let grid = [self.tiles().min(FORWARD_BLOCKS), self.positions.div_ceil(channels), 1];
        Some(Shape { tile: [32, channels], kind: Kind::Narrow, parts: Parts::ONE, phase: None, grid, threads: 256 })
    }

    /// Returns the launch shape of the gradient of the weight, in as many parts as the operation's workspace has space for. `None` if there is no
    /// space for one, or if these kernels do not support the convolution.
    pub(super) fn narrow_weigh(&self, context: &Context<'_>, positions: TensorId) -> Option<Shape> {
        if !self.is_narrow(context, positions) {
            return None;
        }
        let channels = self.narrow_channels();
        let bytes = 4 * self.seen(LINES - 1) + 2 * 2 * LINES * (COLUMNS * (channels + 8) + 32);
        let room = context.workspace_bytes() / 4 / (self.positions * self.filter());
        if bytes > SHARED || room == 0 {
            return None;
        }
        let across = self.positions.div_ceil(channels);
        let blocks = if self.filter() <= FEW_TAPS { BLOCKS } else { FILTER_BLOCKS };
        let count = blocks.div_ceil(across).min(self.tiles()).min(room);
        let (parts, grid) = (Parts { count, length: 0 }, [count, across, 1]);
        Some(Shape { tile: [channels, 32], kind: Kind::Narrow, parts, phase: None, grid, threads: 256 })
    }
}
