//! Convolutions of images of few channels on tensor cores: `kernels/narrow.cuh`.

use super::correlation::{Correlation, FILTER_BLOCKS, Kind, Parts, Shape};
use crate::operations::context::Context;
use crate::operations::grid::BLOCKS;
use gpumem_core::program::{Order, TensorId};

/// Channels of the image, at most.
const MOST_CHANNELS: u64 = 4;
/// Elements of the weight of an output channel, at most: the sums of more have no registers.
const MOST_TAPS: u64 = 160;
/// Positions of a tile, along each axis, that there have to be for it to be worth its while.
const LEAST_POSITIONS: u64 = 8;
/// Columns and lines of positions of a tile.
const COLUMNS: u64 = 16;
const LINES: u64 = 8;
/// Blocks of the forward pass: three for each of 132 multiprocessors.
const FORWARD_BLOCKS: u64 = 396;
/// Taps of a weight whose gradient has registers for four blocks on a multiprocessor, rather than two: see `WANTED` of `narrow.cuh`.
const FEW_TAPS: u64 = 64;
/// Words of the image that a tile sees, at most: a thread holds 24 of them.
const MOST_SEEN: u64 = 24 * 256;
/// Bytes of shared memory that a kernel has without asking for more.
const SHARED: u64 = 48 << 10;

impl Correlation {
    /// Whether these kernels know the convolution: its positions lie channels last, in pieces of 16 bytes. The sizes of windows and strides are
    /// less than those of images then.
    fn is_narrow(&self, context: &Context<'_>, positions: TensorId) -> bool {
        let tensor = context.tensor(positions);
        let lies = tensor.layout.order == Order::ChannelsLast && tensor.layout.pitch.is_multiple_of(8);
        let fits = (2..=MOST_CHANNELS).contains(&self.images) && self.filter() <= MOST_TAPS && self.kernel[1] <= 16;
        let is_large = self.position.iter().all(|&size| size >= LEAST_POSITIONS);
        let is_plain = self.groups == 1 && !self.is_transposed();
        let has_cores = context.tensor_core_terms() > 0;
        let is_known = has_cores && is_plain && fits && is_large && lies && self.positions.is_multiple_of(8);
        is_known && self.seen(LINES) <= MOST_SEEN
    }

    /// Words of the part of the image that a tile of so many lines sees.
    fn seen(&self, lines: u64) -> u64 {
        let span = |axis: usize, positions: u64| {
            (positions - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1
        };
        self.images * span(0, lines) * span(1, COLUMNS)
    }

    fn tiles(&self) -> u64 {
        self.batch * self.position[0].div_ceil(LINES) * self.position[1].div_ceil(COLUMNS)
    }

    /// Channels of positions that a block computes.
    fn narrow_channels(&self) -> u64 {
        if self.positions > 32 { 64 } else { 32 }
    }

    /// The launch that computes positions, if these kernels do.
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

    /// The launch that computes the gradient of the weight, in as many parts as the operation's workspace has room for: at least one.
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
