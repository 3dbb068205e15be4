//! Launches of 3-D convolutions and transposed convolutions as implicit matrix products: `kernels/conv/convolution3d.cu` and
//! `kernels/conv/convolution3d_transposed.cu`.
//!
//! Both slide windows over images; each window has a position. A convolution computes positions from images, a transposed convolution images from
//! positions.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::{SUMS_OF_BLOCK, small, tile};
use gpumem_core::error::Error;
use gpumem_core::program::ops::{Convolution3d, Window};
use gpumem_core::program::{Slot, TensorId};

/// A kernel file and its entry points.
struct Kernels {
    file: &'static str,
    forward: &'static str,
    /// Computes the gradient of the input.
    data: &'static str,
    /// Computes the gradient of the weight, and adds up its parts.
    filter: [&'static str; 2],
    /// Computes the gradient of the bias.
    bias: &'static str,
}

const PLAIN: Kernels = Kernels {
    file: "convolution3d.cu",
    forward: "convolution3d_forward",
    data: "convolution3d_backward_data",
    filter: ["convolution3d_backward_filter", "convolution3d_backward_filter_sum"],
    bias: "convolution3d_backward_bias",
};

const TRANSPOSED: Kernels = Kernels {
    file: "convolution3d_transposed.cu",
    forward: "convolution3d_transposed_forward",
    data: "convolution3d_transposed_backward_data",
    filter: ["convolution3d_transposed_backward_filter", "convolution3d_transposed_backward_filter_sum"],
    bias: "convolution3d_transposed_backward_bias",
};

/// Blocks that the products of a weight's gradient are split among: two for each of 132 multiprocessors.
const FILTER_BLOCKS: u64 = 264;
/// The fewest products of a part.
const LEAST_PART: u64 = 1024;

/// The most phases for which the gradient of the input has a launch and a kernel each: those of strides of 2.
const MOST_PHASES: u64 = 8;

/// A phase of the strides: pixels of an image that are a stride apart along each axis, and the taps that reach them.
#[derive(Clone, Copy)]
struct Phase {
    first: [u64; 3],
    /// The first tap, or the size of the kernel if no tap reaches them.
    tap: [u64; 3],
    step: [u64; 3],
}

impl Phase {
    /// The phase of all pixels.
    const ALL: Phase = Phase { first: [0; 3], tap: [0; 3], step: [1; 3] };
}

/// Sizes of a `correlation3d.cuh` computation: windows slide over images, and each window has a position.
struct Correlation {
    kernels: &'static Kernels,
    batch: u64,
    groups: u64,
    /// Channels of a group, and the sizes of a channel.
    images: (u64, [u64; 3]),
    positions: (u64, [u64; 3]),
    window: Window<3>,
}

/// The shape of a launch: tile, number of parts and products of each, blocks along x, y, z and threads.
struct Shape {
    tile: [u64; 2],
    parts: [u64; 2],
    phase: Option<Phase>,
    grid: [u64; 3],
    threads: u32,
}

impl Shape {
    /// Returns the shape of a launch of whole sums, in tiles of `rows` x `columns` for each group.
    fn tiled(rows: u64, columns: u64, groups: u64, largest: u64) -> Shape {
        let tile = tile(rows, columns, groups, largest);
        let grid = [columns.div_ceil(tile[1]), rows.div_ceil(tile[0]), groups];
        Shape { tile, parts: [1, 0], phase: None, grid, threads: 256 }
    }

    /// Returns a shape with `count` blocks along x.
    fn blocks(count: u64, threads: u32) -> Shape {
        Shape { tile: [32, 32], parts: [1, 0], phase: None, grid: [count, 1, 1], threads }
    }
}

fn too_large() -> Error {
    Error::Unsupported { device: "CUDA", what: "a convolution whose sample or kernel has 2^28 elements or more".into() }
}

fn volume(size: [u64; 3]) -> u64 {
    size.iter().fold(1, |product: u64, &side| product.saturating_mul(side))
}

impl Correlation {
    /// Returns the sizes of an operation on as many samples as `y`, the output or its gradient, has.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for sizes that are too large for the kernels; [`Error::Damaged`] for a group without channels.
    fn new(context: &Context<'_>, op: &Convolution3d, y: TensorId) -> Result<Correlation, Error> {
        let of_group = |(channels, size): (u64, [u64; 3])| (channels.checked_div(op.groups).unwrap_or(0), size);
        let [images, positions] = op.sides().map(of_group);
        let (kernels, batch) = (if op.transposed { &TRANSPOSED } else { &PLAIN }, context.samples(y));
        let it = Correlation { kernels, batch, groups: op.groups, images, positions, window: op.window };
        if it.images.0 == 0 || it.positions.0 == 0 {
            return Err(Error::Damaged("a convolution's groups do not divide its channels"));
        }
        let Window { kernel_size, stride, padding, dilation } = it.window;
        let along = |axis: usize| {
            let padded = it.images.1[axis].saturating_add(padding[axis].saturating_mul(2));
            padded.max(kernel_size[axis].saturating_mul(dilation[axis])).max(stride[axis])
        };
        let counts = [
            it.groups.saturating_mul(it.images.0).saturating_mul(volume(it.images.1)),
            it.groups.saturating_mul(it.positions.0).saturating_mul(volume(it.positions.1)),
            it.weights(),
            volume([0, 1, 2].map(along)),
        ];
        if counts.iter().any(|&count| count >= 1 << 28) {
            return Err(too_large());
        }
        small(batch.saturating_mul(volume(it.images.1).max(volume(it.positions.1))))?;
        Ok(it)
    }

    /// Returns the elements of the weight of an output channel.
    fn filter(&self) -> u64 {
        self.images.0.saturating_mul(self.window.area())
    }

    fn weights(&self) -> u64 {
        self.groups.saturating_mul(self.positions.0).saturating_mul(self.filter())
    }

    /// Returns a launch of an entry point for a pass of `correlation3d.cuh`. It adds to its tensor if `add` is 1.
    fn launch(
        &self,
        context: &Context<'_>,
        (entry, pass): (&'static str, &'static str),
        shape: &Shape,
        (bias, add): (bool, u8),
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Launch, Error> {
        let Window { kernel_size, stride, padding, dilation } = self.window;
        let phase = shape.phase.unwrap_or(Phase::ALL);
        let kernel = context.product_kernel(self.kernels.file, entry).with("BATCH", self.batch);
        let kernel = kernel.with("GROUPS", self.groups).with("IMAGE_CHANNELS", self.images.0);
        let kernel = kernel.with("POSITION_CHANNELS", self.positions.0);
        let constants = [
            (["IMAGE_DEPTH", "IMAGE_HEIGHT", "IMAGE_WIDTH"], self.images.1),
            (["POSITION_DEPTH", "POSITION_HEIGHT", "POSITION_WIDTH"], self.positions.1),
            (["KERNEL_DEPTH", "KERNEL_HEIGHT", "KERNEL_WIDTH"], kernel_size),
            (["STRIDE_Z", "STRIDE_Y", "STRIDE_X"], stride),
            (["PADDING_Z", "PADDING_Y", "PADDING_X"], padding),
            (["DILATION_Z", "DILATION_Y", "DILATION_X"], dilation),
            (["FIRST_Z", "FIRST_Y", "FIRST_X"], phase.first),
            (["TAP_Z", "TAP_Y", "TAP_X"], phase.tap),
            (["TAP_STEP_Z", "TAP_STEP_Y", "TAP_STEP_X"], phase.step),
        ];
        let all = constants.into_iter().flat_map(|(names, sizes)| names.into_iter().zip(sizes));
        let kernel = all.fold(kernel, |kernel: Kernel, (name, size)| kernel.with(name, size));
        let kernel = kernel.with("BIAS", u8::from(bias)).with("ADD", add).with("PASS", pass);
        let kernel = kernel.with("PHASED", u8::from(shape.phase.is_some()));
        let kernel = kernel.with("PARTS", shape.parts[0]).with("PART", shape.parts[1]);
        let kernel = kernel.with("TILE_M", shape.tile[0]).with("TILE_N", shape.tile[1]);
        let [x, y, z] = shape.grid;
        if y > 65535 || z > 65535 {
            return Err(too_large());
        }
        let grid = [small(x)?, small(y)?, small(z)?];
        Ok(Launch { kernel, grid, block: [shape.threads, 1, 1], arguments, numbers: Vec::new() })
    }

    /// Returns the launch that computes positions from images and the weight.
    fn gather(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        (bias, add): (bool, u8),
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Vec<Launch>, Error> {
        let pixels = self.batch * volume(self.positions.1);
        let shape = Shape::tiled(self.positions.0, pixels, self.groups, 128);
        Ok(vec![self.launch(context, (entry, "GATHER"), &shape, (bias, add), arguments)?])
    }

    /// Returns the launches that compute images from positions and the weight: one, or one for each phase of the strides.
    fn scatter(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        (bias, add): (bool, u8),
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Vec<Launch>, Error> {
        let tiled = |pixels: [u64; 3]| Shape::tiled(self.images.0, self.batch * volume(pixels), self.groups, 128);
        let launch = |shape: &Shape| self.launch(context, (entry, "SCATTER"), shape, (bias, add), arguments.clone());
        let stride = self.window.stride;
        if !(2..=MOST_PHASES).contains(&volume(stride)) {
            return Ok(vec![launch(&tiled(self.images.1))?]);
        }
        let mut launches = Vec::new();
        let remainders =
            (0..volume(stride)).map(|it| [it / stride[2] / stride[1], it / stride[2] % stride[1], it % stride[2]]);
        for phase in remainders.filter_map(|remainders| self.phase(remainders)) {
            let is_reached = (0..3).all(|axis| phase.tap[axis] < self.window.kernel_size[axis]);
            // No tap reaches these pixels, so nothing is added to them.
            if !is_reached && add == 1 {
                continue;
            }
            let pixels = [0, 1, 2].map(|axis| (self.images.1[axis] - phase.first[axis]).div_ceil(stride[axis]));
            launches.push(launch(&Shape { phase: Some(phase), ..tiled(pixels) })?);
        }
        Ok(launches)
    }

    /// Returns the phase of the pixels whose taps `t` have a remainder of `t * dilation` by the stride of `remainders`; `None` if there are no such
    /// pixels.
    fn phase(&self, remainders: [u64; 3]) -> Option<Phase> {
        let Window { kernel_size, stride, padding, dilation } = self.window;
        let mut phase = Phase::ALL;
        for (axis, remainder) in remainders.into_iter().enumerate() {
            let (stride, dilation) = (stride[axis], dilation[axis]);
            let remains = |tap: u64, of: u64| (tap * dilation) % stride == of;
            phase.first[axis] = (remainder + stride - padding[axis] % stride) % stride;
            phase.tap[axis] = (0..kernel_size[axis]).find(|&tap| remains(tap, remainder)).unwrap_or(kernel_size[axis]);
            phase.step[axis] = (1..=stride).find(|&step| remains(step, 0)).unwrap_or(1);
            if phase.first[axis] >= self.images.1[axis] {
                return None;
            }
        }
        Some(phase)
    }

    /// Returns the launches of the gradient of the weight, in as many parts as the operation's workspace has space for.
    fn weigh(&self, context: &Context<'_>, dw: TensorId) -> Result<Vec<Launch>, Error> {
        let (x, dy) = (Some(context.read(Slot::Input(0))?), Some(context.read(Slot::Gradient)?));
        let ([entry, sum], add) = (self.kernels.filter, context.adds(Slot::InputGradient(1)));
        let products = self.batch * volume(self.positions.1);
        let room = context.workspace_bytes() / 4 / self.weights().max(1);
        let most = room.min(products / LEAST_PART).max(1);
        // Two sets of sums are in registers, so tiles are no larger than 64. With parts they need not be smaller either.
        let (rows, columns) = (self.positions.0, self.filter());
        let tile = tile(rows, columns, self.groups.saturating_mul(most), 64);
        let [wide, tall] = [columns.div_ceil(tile[1]), rows.div_ceil(tile[0])];
        let blocks = wide.saturating_mul(tall).saturating_mul(self.groups);
        let parts = FILTER_BLOCKS.div_ceil(blocks.max(1)).min(most);
        let length = products.div_ceil(parts).next_multiple_of(64);
        let parts = products.div_ceil(length.max(1)).max(1);
        let shape = Shape {
            tile,
            parts: if parts == 1 { [1, 0] } else { [parts, length] },
            phase: None,
            grid: [wide, tall, self.groups.saturating_mul(parts)],
            threads: 256,
        };
        if parts == 1 {
            let arguments = vec![x, dy, None, Some(dw)];
            return Ok(vec![self.launch(context, (entry, "WEIGH"), &shape, (false, add), arguments)?]);
        }
        let partial = Some(context.written(Slot::Workspace)?);
        // Parts overwrite the workspace; `add` applies when they are added up.
        let weighed = self.launch(context, (entry, "WEIGH"), &shape, (false, 0), vec![x, dy, partial, None])?;
        let each = Shape { parts: shape.parts, ..Shape::blocks(self.weights().div_ceil(SUMS_OF_BLOCK), 256) };
        let summed = self.launch(context, (sum, "SUM_PARTS"), &each, (false, add), vec![partial, Some(dw)])?;
        Ok(vec![weighed, summed])
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Convolution3d) -> Result<Vec<Launch>, Error> {
    let (x, weight) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let y = context.written(Slot::Output)?;
    let bias = if op.bias { Some(context.read(Slot::Input(2))?) } else { None };
    let correlation = Correlation::new(context, op, y)?;
    let (entry, arguments) = (correlation.kernels.forward, vec![Some(x), Some(weight), bias, Some(y)]);
    let launch = if op.transposed { Correlation::scatter } else { Correlation::gather };
    launch(&correlation, context, entry, (op.bias, 0), arguments)
}

/// Returns the launches of the gradients of weight and bias, then of the input, as far as the operation writes them.
pub(in crate::operations) fn backward(context: &Context<'_>, op: &Convolution3d) -> Result<Vec<Launch>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let correlation = Correlation::new(context, op, dy)?;
    let mut launches = Vec::new();
    if let Some(dw) = context.operation.written(Slot::InputGradient(1)) {
        launches.extend(correlation.weigh(context, dw)?);
    }
    if let Some(db) = context.operation.written(Slot::InputGradient(2)) {
        let (entry, add) = (correlation.kernels.bias, context.adds(Slot::InputGradient(2)));
        let shape = Shape::blocks(op.out_channels, 512);
        let arguments = vec![Some(dy), Some(db)];
        launches.push(correlation.launch(context, (entry, "CHANNEL_SUMS"), &shape, (false, add), arguments)?);
    }
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let weight = context.read(Slot::Input(1))?;
        let (entry, add) = (correlation.kernels.data, context.adds(Slot::InputGradient(0)));
        let arguments = vec![Some(dy), Some(weight), Some(dx)];
        let launch = if op.transposed { Correlation::gather } else { Correlation::scatter };
        launches.extend(launch(&correlation, context, entry, (false, add), arguments)?);
    }
    Ok(launches)
}
