//! Launches of convolutions as implicit matrix products over sliding windows: `kernels/conv/correlation.cuh`.

use crate::calls::{Kernel, Launch, type_name};
use crate::operations::context::{Context, in_braces, other_layout};
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::grid::{SUMS_OF_BLOCK, small, tile};
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::program::{ChannelOrder, Layout, Slot, TensorId};
use gpumem_core::shape::Shape as Dimensions;

/// A kernel file and its entry points.
pub(super) struct Kernels {
    pub(super) file: &'static str,
    /// True for a transposed convolution, which computes images from positions.
    pub(super) transposed: bool,
    pub(super) forward: &'static str,
    /// Computes the gradient of the input.
    pub(super) data: &'static str,
    /// Computes the gradient of the weight, and adds up its parts.
    pub(super) filter: [&'static str; 2],
    /// Computes the gradient of the bias, and adds up its parts.
    pub(super) bias: [&'static str; 2],
}

/// Sizes of a `correlation.cuh` computation: windows slide over images, and each window has a position.
pub(super) struct Correlation {
    /// The kernels that are compiled with these sizes.
    pub(super) kernels: &'static Kernels,
    pub(super) batch: u64,
    pub(super) groups: u64,
    /// Image channels of a group.
    pub(super) images: u64,
    /// Position channels of a group.
    pub(super) positions: u64,
    pub(super) image: [u64; 2],
    pub(super) position: [u64; 2],
    pub(super) kernel: [u64; 2],
    pub(super) stride: [u64; 2],
    pub(super) padding: [u64; 2],
    pub(super) dilation: [u64; 2],
}

fn area(size: [u64; 2]) -> u64 {
    size[0].saturating_mul(size[1])
}

/// True if a map has its channels last.
fn is_last(context: &Context<'_>, map: TensorId) -> bool {
    context.tensor(map).layout.order == ChannelOrder::ChannelsLast
}

fn too_large() -> Error {
    Error::Unsupported { device: "CUDA", what: "a convolution whose sample or kernel has 2^28 elements or more".into() }
}

/// Blocks that the products of a weight's gradient are split among: two for each of 132 multiprocessors.
pub(super) const FILTER_BLOCKS: u64 = 264;
/// The fewest products of a part, and the most parts.
const LEAST_PART: u64 = 1024;
const MOST_PARTS: u64 = 64;
/// The most parts of the sums of channels, which are small.
const MOST_CHANNEL_PARTS: u64 = 128;

/// A split of the products of a weight's gradient into `count` parts of `length` products, a multiple of 64.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pub(super) count: u64,
    pub(super) length: u64,
}

impl Parts {
    /// The split of launches that sum everything at once.
    pub(super) const ONE: Parts = Parts { count: 1, length: 0 };

    /// Splits `products` products into `count` parts or fewer, none of them empty.
    fn new(products: u64, count: u64) -> Parts {
        let length = products.div_ceil(count.max(1)).next_multiple_of(64);
        Parts { count: products.div_ceil(length.max(1)).max(1), length }
    }
}

/// The bias and the function that a forward pass adds to the sums, and the tensor of the result.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) bias: Option<TensorId>,
    /// The function applied in the end: `RECTIFIER` of `rectify.cuh`.
    pub(super) rectifier: Rectifier,
    pub(super) to: TensorId,
    /// 1 if the result is added to its tensor, 0 if it overwrites it.
    pub(super) add: u8,
}

impl Tail {
    /// Returns a tail that only stores the sums.
    pub(super) fn plain(to: TensorId, add: u8) -> Tail {
        Tail { bias: None, rectifier: Rectifier::NONE, to, add }
    }
}

/// A phase of the strides: pixels of an image that are a stride apart, and the taps that reach them.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    first: [u64; 2],
    /// The first tap, or the size of the kernel if no tap reaches them.
    tap: [u64; 2],
    step: [u64; 2],
}

/// The most phases for which the gradient of the input has a launch and a kernel each.
const MOST_PHASES: u64 = 4;

/// The shape of a launch: tile, blocks along x, y, z and threads.
pub(super) struct Shape {
    pub(super) tile: [u64; 2],
    pub(super) kind: Kind,
    pub(super) parts: Parts,
    pub(super) phase: Option<Phase>,
    pub(super) grid: [u64; 3],
    pub(super) threads: u32,
}

/// A variant of a kernel.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Plain,
    /// Rows of the product are pixels, not channels.
    Exchanged,
    /// The kernels of `narrow.cuh`.
    Narrow,
}

impl Kind {
    fn exchanged_if(is: bool) -> Kind {
        if is { Kind::Exchanged } else { Kind::Plain }
    }

    fn constant(self) -> Option<&'static str> {
        match self {
            Kind::Plain => None,
            Kind::Exchanged => Some("EXCHANGED"),
            Kind::Narrow => Some("NARROW"),
        }
    }
}

impl Correlation {
    /// Returns these sizes, if the kernels' integers are wide enough for them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] otherwise; [`Error::Damaged`] if there are no groups.
    pub(super) fn checked(self) -> Result<Correlation, Error> {
        if self.groups == 0 || self.images == 0 || self.positions == 0 {
            return Err(Error::Damaged("a convolution's groups do not divide its channels"));
        }
        let both = |channels: u64| channels.saturating_mul(self.groups);
        let padded = |axis: usize| self.image[axis].saturating_add(self.padding[axis].saturating_mul(2));
        let counts = [
            both(self.images).saturating_mul(area(self.image)),
            both(self.positions).saturating_mul(area(self.position)),
            both(self.positions).saturating_mul(self.filter()),
            area([padded(0), padded(1)]),
            area([self.kernel[0], self.dilation[0]]),
            area([self.kernel[1], self.dilation[1]]),
            self.stride[0],
            self.stride[1],
        ];
        if counts.iter().any(|&count| count >= 1 << 28) {
            return Err(too_large());
        }
        small(self.batch.saturating_mul(area(self.image).max(area(self.position))))?;
        Ok(self)
    }

    /// Returns the elements of the weight of an output channel.
    pub(super) fn filter(&self) -> u64 {
        self.images.saturating_mul(area(self.kernel))
    }

    /// True if the kernels sum element by element instead of in tiles: for one image channel a group, as in depthwise convolutions.
    fn is_direct(&self) -> bool {
        self.images == 1
    }

    /// True if a forward pass computes images: for a transposed convolution.
    pub(super) fn is_transposed(&self) -> bool {
        self.kernels.transposed
    }

    /// Adds all constants to a kernel.
    fn constants(&self, kernel: Kernel, pass: &'static str, shape: &Shape, tail: &Tail) -> Kernel {
        let kernel = kernel.with("BATCH", self.batch).with("GROUPS", self.groups);
        let kernel = kernel.with("IMAGE_CHANNELS", self.images).with("POSITION_CHANNELS", self.positions);
        let kernel = kernel.with("IMAGE_HEIGHT", self.image[0]).with("IMAGE_WIDTH", self.image[1]);
        let kernel = kernel.with("POSITION_HEIGHT", self.position[0]).with("POSITION_WIDTH", self.position[1]);
        let kernel = kernel.with("KERNEL_HEIGHT", self.kernel[0]).with("KERNEL_WIDTH", self.kernel[1]);
        let kernel = kernel.with("STRIDE_Y", self.stride[0]).with("STRIDE_X", self.stride[1]);
        let kernel = kernel.with("PADDING_Y", self.padding[0]).with("PADDING_X", self.padding[1]);
        let kernel = kernel.with("DILATION_Y", self.dilation[0]).with("DILATION_X", self.dilation[1]);
        let kernel = kernel.with("BIAS", u8::from(tail.bias.is_some())).with("ADD", tail.add);
        let kernel = kernel.with("RECTIFIER", tail.rectifier);
        let kernel = kernel.with("PARTS", shape.parts.count).with("PART", shape.parts.length);
        let phase = shape.phase.unwrap_or(Phase { first: [0; 2], tap: [0; 2], step: [1; 2] });
        let kernel = kernel.with("PHASED", u8::from(shape.phase.is_some()));
        let kernel = kernel.with("FIRST_Y", phase.first[0]).with("FIRST_X", phase.first[1]);
        let kernel = kernel.with("TAP_Y", phase.tap[0]).with("TAP_X", phase.tap[1]);
        let kernel = kernel.with("TAP_STEP_Y", phase.step[0]).with("TAP_STEP_X", phase.step[1]);
        kernel.with("PASS", pass).with("TILE_M", shape.tile[0]).with("TILE_N", shape.tile[1])
    }

    /// Adds the strides of images and positions to a kernel, for those that it touches.
    fn lie(&self, context: &Context<'_>, kernel: Kernel, sides: [Option<TensorId>; 2]) -> Result<Kernel, Error> {
        let layout = |side: Option<TensorId>| side.map_or(Layout::DENSE, |id| context.tensor(id).layout);
        if sides.iter().all(|&side| layout(side).is_dense()) {
            return Ok(kernel);
        }
        let sizes = [(self.images, self.image), (self.positions, self.position)];
        let names = ["IMAGE_STRIDES", "POSITION_STRIDES"];
        sides.into_iter().zip(sizes).zip(names).try_fold(kernel, |kernel, ((side, (channels, size)), name)| {
            let shape = Dimensions::new(&[channels.saturating_mul(self.groups), size[0], size[1]]);
            let fits = layout(side).is_dense() || side.is_some_and(|id| context.tensor(id).shape == shape);
            let (_, strides) = layout(side).places(shape).filter(|_| fits).ok_or_else(other_layout)?;
            // The limit that `checked` applies to sizes.
            if strides.sample >= 1 << 28 {
                return Err(too_large());
            }
            Ok(kernel.with(name, in_braces(strides)))
        })
    }

    /// Returns the launch shape that writes a map, by channels of a group and pixels. With channels last, channels are the columns, so that
    /// neighbouring threads write neighbouring elements.
    fn tiled(&self, context: &Context<'_>, to: TensorId, channels: u64, pixels: u64) -> Shape {
        let exchanged = is_last(context, to);
        let [rows, columns] = if exchanged { [pixels, channels] } else { [channels, pixels] };
        let tile = tile(rows, columns, self.groups, 128);
        let [of_channels, of_pixels] = if exchanged { [tile[1], tile[0]] } else { tile };
        let grid = [pixels.div_ceil(of_pixels), channels.div_ceil(of_channels), self.groups];
        Shape { tile, kind: Kind::exchanged_if(exchanged), parts: Parts::ONE, phase: None, grid, threads: 256 }
    }

    /// Returns a launch shape with a thread for each of `count` elements.
    fn each(&self, count: u64) -> Shape {
        Shape {
            tile: [32, 32],
            kind: Kind::Plain,
            parts: Parts::ONE,
            phase: None,
            grid: [count.div_ceil(256), 1, 1],
            threads: 256,
        }
    }

    /// Returns the launch shape that adds up the parts of `count` sums.
    fn sums(&self, count: u64, parts: Parts) -> Shape {
        Shape { parts, grid: [count.div_ceil(SUMS_OF_BLOCK), 1, 1], ..self.each(count) }
    }

    /// Returns the launch shape of the gradient of the weight, in as many parts as the operation's workspace has space for.
    fn split(&self, context: &Context<'_>, sides: [TensorId; 2]) -> Shape {
        let workspace = context.workspace_bytes();
        // With channels last, a block of sums that are not a product works on many channels.
        let exchanged = self.is_direct() && sides.iter().all(|&side| is_last(context, side));
        let weights = self.groups.saturating_mul(self.positions).saturating_mul(self.filter());
        let products = self.batch * area(self.position);
        let room = workspace / 4 / weights.max(1);
        let most = room.min(products / LEAST_PART).clamp(1, MOST_PARTS);
        let (tile, grid) = if self.is_direct() {
            let channels = self.groups * self.positions;
            ([32, 32], [if exchanged { channels.div_ceil(32) } else { channels }, self.kernel[0], 1])
        } else {
            // Two sets of sums are in registers, so tiles are no larger than 64. With parts they need not be smaller either.
            let (rows, columns) = (self.positions, self.filter());
            let tile = tile(rows, columns, self.groups.saturating_mul(most), 64);
            (tile, [columns.div_ceil(tile[1]), rows.div_ceil(tile[0]), self.groups])
        };
        let blocks = grid.iter().fold(1, |blocks: u64, &count| blocks.saturating_mul(count));
        let parts = Parts::new(products, FILTER_BLOCKS.div_ceil(blocks.max(1)).min(most));
        let parts = if parts.count == 1 { Parts::ONE } else { parts };
        let grid = [grid[0], grid[1], grid[2].saturating_mul(parts.count)];
        Shape { tile, kind: Kind::exchanged_if(exchanged), parts, phase: None, grid, threads: 256 }
    }

    /// True if the weight that a pass reads or writes is stored channels last, and that differs from channels first.
    fn is_turned(&self, context: &Context<'_>, pass: &str) -> bool {
        let weight = match pass {
            "GATHER" | "SCATTER" => context.operation.read(Slot::Input(1)),
            "WEIGH" => context.operation.written(Slot::InputGradient(1)),
            _ => None,
        };
        self.images > 1 && area(self.kernel) > 1 && weight.is_some_and(|id| context.tensor(id).is_turned())
    }

    fn launch(
        &self,
        context: &Context<'_>,
        (entry, pass): (&'static str, &'static str),
        shape: &Shape,
        tail: &Tail,
        sides: [Option<TensorId>; 2],
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Launch, Error> {
        let kernel = self.constants(context.product_kernel(self.kernels.file, entry), pass, shape, tail);
        let kernel = self.lie(context, kernel, sides)?;
        let precision = context.setting.precision;
        let kernel = match context.tensor(tail.to).role.format(precision) {
            Format::F32 if precision.narrow() != Format::F32 => kernel.with("TOTAL", type_name(Format::F32)),
            _ => kernel,
        };
        let kernel = shape.kind.constant().into_iter().fold(kernel, |kernel, constant| kernel.with(constant, 1));
        let kernel = if self.is_turned(context, pass) { kernel.with("WEIGHT_LAST", 1) } else { kernel };
        let [x, y, z] = shape.grid;
        if y > 65535 || z > 65535 {
            return Err(too_large());
        }
        Ok(Launch {
            kernel,
            grid: [small(x)?, small(y)?, small(z)?],
            block: [shape.threads, 1, 1],
            arguments,
            numbers: Vec::new(),
        })
    }

    /// Returns the launch that computes positions from `images` and the weight.
    pub(super) fn gather(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        images: TensorId,
        tail: Tail,
    ) -> Result<Launch, Error> {
        let columns = self.batch * area(self.position);
        let shape = if self.is_direct() {
            self.each(columns * self.groups * self.positions)
        } else if let Some(shape) = self.narrow_gather(context, tail.to) {
            shape
        } else {
            self.tiled(context, tail.to, self.positions, columns)
        };
        let arguments = self.operands(context, images, &tail)?;
        let sides = [Some(images), Some(tail.to)];
        self.launch(context, (entry, "GATHER"), &shape, &tail, sides, arguments)
    }

    /// Returns the launches that compute images from `positions` and the weight: one, or one for each phase of the strides.
    pub(super) fn scatter(
        &self,
        context: &Context<'_>,
        entry: &'static str,
        positions: TensorId,
        tail: Tail,
    ) -> Result<Vec<Launch>, Error> {
        let launch = |shape: Shape| {
            let arguments = self.operands(context, positions, &tail)?;
            let sides = [Some(tail.to), Some(positions)];
            self.launch(context, (entry, "SCATTER"), &shape, &tail, sides, arguments)
        };
        if self.is_direct() {
            return Ok(vec![launch(self.each(self.batch * area(self.image) * self.groups))?]);
        }
        if !(2..=MOST_PHASES).contains(&area(self.stride)) {
            return Ok(vec![launch(self.tiled(context, tail.to, self.images, self.batch * area(self.image)))?]);
        }
        let mut launches = Vec::new();
        for (y, x) in (0..self.stride[0]).flat_map(|y| (0..self.stride[1]).map(move |x| (y, x))) {
            let Some(phase) = self.phase([y, x]) else { continue };
            let is_reached = phase.tap[0] < self.kernel[0] && phase.tap[1] < self.kernel[1];
            // No tap reaches these pixels, so nothing is added to them.
            if !is_reached && tail.add == 1 {
                continue;
            }
            let pixels = [0, 1].map(|axis| (self.image[axis] - phase.first[axis]).div_ceil(self.stride[axis]));
            let shape = self.tiled(context, tail.to, self.images, self.batch * area(pixels));
            launches.push(launch(Shape { phase: Some(phase), ..shape })?);
        }
        Ok(launches)
    }

    /// Returns the phase of the pixels whose taps `r` have a remainder of `r * dilation` by the stride of `remainders`; `None` if there are no such
    /// pixels.
    fn phase(&self, remainders: [u64; 2]) -> Option<Phase> {
        let mut phase = Phase { first: [0; 2], tap: [0; 2], step: [1; 2] };
        for (axis, remainder) in remainders.into_iter().enumerate() {
            let (stride, dilation) = (self.stride[axis], self.dilation[axis]);
            let remains = |tap: u64, of: u64| (tap * dilation) % stride == of;
            phase.first[axis] = (remainder + stride - self.padding[axis] % stride) % stride;
            phase.tap[axis] = (0..self.kernel[axis]).find(|&tap| remains(tap, remainder)).unwrap_or(self.kernel[axis]);
            phase.step[axis] = (1..=stride).find(|&step| remains(step, 0)).unwrap_or(1);
            if phase.first[axis] >= self.image[axis] {
                return None;
            }
        }
        Some(phase)
    }

    /// Returns the arguments of a kernel. A forward pass has a parameter for the bias, a backward pass has none.
    fn operands(&self, context: &Context<'_>, from: TensorId, tail: &Tail) -> Result<Vec<Option<TensorId>>, Error> {
        let weight = context.read(Slot::Input(1))?;
        let forward = context.operation.written(Slot::Output).is_some();
        Ok(if forward {
            vec![Some(from), Some(weight), tail.bias, Some(tail.to)]
        } else {
            vec![Some(from), Some(weight), Some(tail.to)]
        })
    }

    /// Returns the launches of the gradients of weight and bias that the operation writes.
    pub(super) fn parameters(&self, context: &Context<'_>) -> Result<Vec<Launch>, Error> {
        let dy = context.read(Slot::Gradient)?;
        let [filter, sum] = self.kernels.filter;
        let mut launches = Vec::new();
        if let Some(dw) = context.operation.written(Slot::InputGradient(1)) {
            let x = context.read(Slot::Input(0))?;
            let shape = self.narrow_weigh(context, dy).unwrap_or_else(|| self.split(context, [x, dy]));
            let sides = if self.is_transposed() { [Some(dy), Some(x)] } else { [Some(x), Some(dy)] };
            let tail = Tail::plain(dw, context.adds(Slot::InputGradient(1)));
            if shape.parts.count > 1 || shape.kind == Kind::Narrow {
                let partial = Some(context.written(Slot::Workspace)?);
                let arguments = vec![Some(x), Some(dy), partial, None];
                // Parts overwrite the workspace; `add` applies when they are added up.
                let part = Tail::plain(dw, 0);
                launches.push(self.launch(context, (filter, "WEIGH"), &shape, &part, sides, arguments)?);
                let weights = self.groups * self.positions * self.filter();
                let each = self.sums(weights, shape.parts);
                let arguments = vec![partial, Some(dw)];
                launches.push(self.launch(context, (sum, "SUM_PARTS"), &each, &tail, [None; 2], arguments)?);
            } else {
                let arguments = vec![Some(x), Some(dy), None, Some(dw)];
                launches.push(self.launch(context, (filter, "WEIGH"), &shape, &tail, sides, arguments)?);
            }
        }
        launches.extend(self.bias_gradient(context)?);
        Ok(launches)
    }

    /// Returns the launches of the gradient of the bias, if the operation writes it.
    pub(super) fn bias_gradient(&self, context: &Context<'_>) -> Result<Vec<Launch>, Error> {
        let Some(db) = context.operation.written(Slot::InputGradient(2)) else { return Ok(Vec::new()) };
        let [entry, sum] = self.kernels.bias;
        let tail = Tail::plain(db, context.adds(Slot::InputGradient(2)));
        let dy = context.read(Slot::Gradient)?;
        let sides = if self.is_transposed() { [Some(dy), None] } else { [None, Some(dy)] };
        let shape = self.channel_sums(context, dy, context.elements(db));
        if shape.parts.count == 1 {
            let arguments = vec![Some(dy), Some(db)];
            return Ok(vec![self.launch(context, (entry, "CHANNEL_SUMS"), &shape, &tail, sides, arguments)?]);
        }
        let partial = Some(context.written(Slot::Workspace)?);
        // Parts overwrite the workspace; `add` applies when they are added up.
        let part = Tail::plain(db, 0);
        let sums = self.launch(context, (entry, "CHANNEL_SUMS"), &shape, &part, sides, vec![Some(dy), partial])?;
        let each = self.sums(context.elements(db), shape.parts);
        let arguments = vec![partial, Some(db)];
        Ok(vec![sums, self.launch(context, (sum, "SUM_CHANNEL_PARTS"), &each, &tail, [None; 2], arguments)?])
    }

    /// Returns the launch shape that sums the channels of a map: a block for each channel. With channels last, a block for many channels and a part
    /// of the pixels.
    fn channel_sums(&self, context: &Context<'_>, map: TensorId, channels: u64) -> Shape {
        let whole =
            |grid| Shape { tile: [32, 32], kind: Kind::Plain, parts: Parts::ONE, phase: None, grid, threads: 512 };
        if !is_last(context, map) {
            return whole([channels, 1, 1]);
        }
        let wide = if channels > 32 { 64 } else { 32 };
        let blocks = channels.div_ceil(wide);
        let pixels = self.batch * area(if self.is_transposed() { self.image } else { self.position });
        let room = context.workspace_bytes() / 4 / channels.max(1);
        let most = room.min(pixels / LEAST_PART).clamp(1, MOST_CHANNEL_PARTS);
        let parts = Parts::new(pixels, FILTER_BLOCKS.div_ceil(blocks.max(1)).min(most));
        // A single part has the length of the map.
        let parts = if parts.count == 1 { Parts::ONE } else { parts };
        Shape { tile: [32, wide], kind: Kind::Exchanged, parts, ..whole([blocks, parts.count, 1]) }
    }
}
