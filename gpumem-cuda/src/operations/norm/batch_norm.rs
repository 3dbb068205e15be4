//! Launches of batch normalisation: `kernels/norm/batch_norm.cu`, and `kernels/norm/batch_norm_last.cu` for channels last.

mod sync_batch_norm;

use crate::calls::{Kernel, Launch, TOGETHER};
use crate::operations::context::Context;
use crate::operations::elementwise::dropout::{with_draws, with_parts};
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::grid::{channel_pack, norm_real, pack, parts, threads};
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::BatchNorm;
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::shape::Shape;
use sync_batch_norm::Share;

/// The operations that a pass over the output does after normalising it.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    /// A map that is added; `None` if there is none.
    pub(crate) residual: Option<TensorId>,
    /// The function applied after that: `RECTIFIER` of `rectify.cuh`.
    pub(crate) rectifier: Rectifier,
    /// The tensor of the result.
    pub(crate) output: TensorId,
    /// Dropout after all that; `None` if there is none.
    pub(crate) dropped: Option<Dropped>,
}

impl Tail {
    /// Returns a tail that only writes the output.
    pub(crate) fn new(output: TensorId) -> Tail {
        Tail { residual: None, rectifier: Rectifier::NONE, output, dropped: None }
    }
}

/// Dropout in the pass of the normalisation.
#[derive(Clone, Copy)]
pub(crate) struct Drop {
    /// The probability that an element is dropped.
    pub(crate) p: f64,
    /// The row of the layer that draws, and the state of the random generator.
    pub(crate) row: u32,
    pub(crate) state: TensorId,
}

impl Drop {
    /// Returns `launch` with dropout of the elements of `map`: the normalisation's own output or its gradient. Its input may be part of a larger
    /// map.
    pub(super) fn add_to(self, launch: Launch, context: &Context<'_>, map: TensorId) -> Launch {
        let kernel = with_parts(launch.kernel.clone(), context, map, context.count(map));
        let kernel = with_draws(kernel, "SCALE", self.p);
        Launch { kernel, ..launch }.with_numbers(vec![self.row])
    }
}

/// Dropout after the pass over the output.
#[derive(Clone, Copy)]
pub(crate) struct Dropped {
    pub(crate) drop: Drop,
    /// The tensor of its result.
    pub(crate) output: TensorId,
    /// True if another operation needs dropout's input too, so that it is written as well.
    pub(crate) keeps_input: bool,
}

/// The gradient with which a backward pass starts, and the operations that it passes through first.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    /// The gradient of the output of the rectifier after the normalisation.
    pub(crate) dy: TensorId,
    pub(crate) rectifier: Rectifier,
    /// The rectifier's output, and the tensor for the gradient after the rectifier, if other operations need that gradient too; else `None`.
    pub(crate) masked: Option<[TensorId; 2]>,
    /// Dropout that the gradient passes through before the rectifier; `None` if there is none.
    pub(crate) drop: Option<Drop>,
    /// The tensor for the recomputed output, which is written with the gradient of the input. Its layout is that of `dy`. `None` if the output is
    /// not recomputed.
    pub(crate) again: Option<TensorId>,
}

/// Channels from which on a block for each is enough. A block of 1024 threads, each with four 16-byte loads in flight, on each multiprocessor
/// requests more than memory can deliver.
const MANY: u64 = 128;

/// Threads of a block that works on several channels. Two such blocks use all registers of a multiprocessor, and request enough.
const THREADS: u64 = 384;

/// Such blocks that a multiprocessor runs at once.
const AT_ONCE: u64 = 2;

/// Adjacent packs of a block that has its channels to itself: 32 bytes, the least that memory moves. Such a block has twice the threads.
const NARROW: u64 = 2;

/// The division of the maps among blocks and threads.
#[derive(Clone, Copy)]
enum Traversal {
    /// A block for each channel. It goes through the planes, `pack` elements a thread at a time; a channel has `packs` packs over all samples.
    Planes { pack: u64, packs: u64 },
    /// A block for `wide` adjacent packs of channels, and `rows` pixels at a time.
    Pixels { pack: u64, wide: u64, rows: u64 },
}

/// Returns the adjacent packs of channels of a block, out of `packs`. A row of them has 128 bytes or more if there are as many, and as few threads
/// as possible are left without a channel.
fn side_by_side(packs: u64) -> u64 {
    if packs <= 16 {
        return packs.max(1);
    }
    let idle = |wide: &u64| packs.next_multiple_of(*wide) - packs;
    (8..=16).min_by_key(idle).unwrap_or(8)
}

/// Sizes and choices that the launches of an operation share.
struct Plan<'a> {
    context: &'a Context<'a>,
    op: &'a BatchNorm,
    samples: u64,
    /// Elements of a plane: H * W.
    area: u64,
    way: Traversal,
    parts: u64,
    /// The state tensor, which has a word for the grid barrier, if there are parts and all blocks are resident at once; else `None`.
    together: Option<TensorId>,
    rectifier: Rectifier,
    residual: bool,
    masked: bool,
    /// True if the backward pass writes y as well.
    renormalises: bool,
    /// True if mean and deviation of each channel are already known.
    is_again: bool,
    /// The maps x; y or its gradient; and the gradient of x, or x again without one.
    maps: [TensorId; 3],
}

impl Traversal {
    /// Returns the blocks that one part of the pixels needs.
    fn blocks(self, channels: u64) -> u64 {
        match self {
            Traversal::Planes { .. } => channels,
            Traversal::Pixels { pack, wide, .. } => channels.div_ceil(pack * wide),
        }
    }

    /// True if one block for all pixels of its channels is faster than two launches for parts of the pixels.
    ///
    /// That holds if half of the multiprocessors have a block, or a quarter if the map is small enough to be in the cache still. A single launch
    /// for parts, with a grid barrier, is faster than both: on an H100, 64 such blocks move 1.3 to 2.1 TB/s, and 256 blocks for parts of pixels 2.7
    /// TB/s.
    fn is_enough(self, pixels: u64, channels: u64) -> bool {
        let elements = pixels.saturating_mul(channels);
        self.blocks(channels) >= if elements <= 8 << 20 { 32 } else { 64 }
    }

    /// Returns the number of parts that the pixels are split into, at most `most`. A thread has four pixels or more.
    fn parts_of_pixels(self, pixels: u64, channels: u64, most: u64) -> u64 {
        match self {
            Traversal::Planes { .. } => 1,
            // Half as many blocks as other operations have.
            Traversal::Pixels { rows, .. } => parts(pixels, 2 * self.blocks(channels), most, 4 * rows),
        }
    }
}

/// Returns the names, tensors and shapes of x, y and dx, for their strides. If there is no dx, x takes its place.
fn lying(op: &BatchNorm, [x, y, dx]: [TensorId; 3]) -> [(&'static str, TensorId, Shape); 3] {
    let shape = |id: TensorId| if id == x { op.input() } else { op.output() };
    [("X_STRIDES", x, op.input()), ("Y_STRIDES", y, shape(y)), ("D_STRIDES", dx, shape(dx))]
}

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, op: &'a BatchNorm, maps: [TensorId; 3], rectifier: Rectifier) -> Plan<'a> {
        let (samples, area) = (context.samples(maps[0]), op.size[0] * op.size[1]);
        let share = Share::of(context.operation);
        // Two f32 numbers for each part of each channel.
        let room = match share {
            // Nothing is joined after these. A grid has so many blocks along y.
            Share::Receives(_) => 65_535,
            Share::Whole | Share::Sends(_) => context.workspace_bytes() / 8 / op.channels.max(1),
        };
        let pack = channel_pack(context, op.channels, &lying(op, maps));
        let pack = if op.input_channels().is_multiple_of(pack) { pack } else { 1 };
        let mut together = None;
        let (way, parts) = if pack > 1 {
            let (pixels, wide) = (samples * area, side_by_side(op.channels / pack));
            let rows = |wide: u64, threads: u64| pixels.div_ceil(4).clamp(1, threads / wide);
            let way = Traversal::Pixels { pack, wide, rows: rows(wide, THREADS) };
            let parts = way.parts_of_pixels(pixels, op.channels, room.max(1));
            let narrow = Traversal::Pixels { pack, wide: NARROW, rows: rows(NARROW, 2 * THREADS) };
            let most = AT_ONCE * u64::from(context.setting.multiprocessors) / way.blocks(op.channels).max(1);
            together = context.placed.program.state().filter(|_| parts > 1 && most > 1 && share == Share::Whole);
            if together.is_some() {
                (way, way.parts_of_pixels(pixels, op.channels, room.clamp(1, most)))
            } else if matches!(share, Share::Receives(_)) {
                (way, parts)
            } else if parts > 1 && narrow.is_enough(pixels, op.channels) {
                (narrow, 1)
            } else {
                (way, parts)
            }
        } else {
            // As in `pack`; planes of 14 x 14 are whole packs of 4.
            let widest = self::pack(context, 0);
            let is_dense = maps.iter().all(|&id| context.tensor(id).layout.is_dense());
            let fits = |pack: &u64| is_dense && *pack <= widest && area.is_multiple_of(*pack);
            let pack = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
            let packs = samples * area / pack;
            // A warp joins the parts, one in each lane.
            let most = match share {
                Share::Receives(_) => room,
                _ if op.channels >= MANY => 1,
                _ => room.clamp(1, 32),
            };
            (Traversal::Planes { pack, packs }, parts(packs, op.channels, most, 512))
        };
        Plan {
            context,
            op,
            samples,
            area,
            way,
            parts,
            together,
            rectifier,
            residual: false,
            masked: false,
            renormalises: false,
            is_again: false,
            maps,
        }
    }

    /// Returns this plan with another map, if there is one, added to the output.
    fn adding(self, residual: Option<TensorId>) -> Plan<'a> {
        Plan { residual: residual.is_some(), ..self }
    }

    /// Returns this plan with the gradient after the rectifier written, or not.
    fn masking(self, masked: bool) -> Plan<'a> {
        Plan { masked, ..self }
    }

    fn kernel(&self, entry: &'static str, add: [u8; 3]) -> Result<Kernel, Error> {
        let (context, op) = (self.context, self.op);
        let file = match self.way {
            Traversal::Planes { .. } => "batch_norm.cu",
            Traversal::Pixels { .. } => "batch_norm_last.cu",
        };
        let kernel = context.kernel(file, entry).with("BATCH", format!("{}ull", self.samples));
        let kernel = kernel.with("CHANNELS", format!("{}ull", op.channels)).with("AREA", format!("{}ull", self.area));
        let kernel = kernel.with("PARTS", self.parts);
        let kernel = match self.way {
            Traversal::Planes { pack, .. } => kernel.with("PACK", pack),
            Traversal::Pixels { pack, wide, rows } => kernel.with("PACK", pack).with("WIDE", wide).with("ROWS", rows),
        };
        let kernel = kernel.with("NORM_REAL", norm_real(context)).with("AFFINE", u8::from(op.affine));
        let kernel = kernel.with_float("EPS", op.eps).with_float("MOMENTUM", op.momentum);
        let kernel = kernel.with("RESIDUAL", u8::from(self.residual)).with("RECTIFIER", self.rectifier);
        let kernel = kernel.with("MASKED", u8::from(self.masked));
        let kernel = match self.rectifier.slope() {
            Some(slope) => kernel.with_float("SLOPE", slope),
            None => kernel,
        };
        let kernel = kernel.with("ADD", add[0]).with("ADD_WEIGHT", add[1]).with("ADD_BIAS", add[2]);
        let kernel = if op.input_channels() > op.channels {
            kernel.with("WITHIN", format!("{}ull", op.input_channels()))
        } else {
            kernel
        };
        let kernel = if self.renormalises { kernel.with("AGAIN", 1) } else { kernel };
        let kernel = if self.is_again { kernel.with("KEPT", 1) } else { kernel };
        let kernel = if op.eval && !self.is_again { kernel.with("EVAL", 1) } else { kernel };
        let kernel = if self.together.is_some() { kernel.with(TOGETHER, 1) } else { kernel };
        if matches!(self.way, Traversal::Pixels { .. }) {
            return Ok(kernel);
        }
        let constants = kernel.constants.len();
        let kernel = context.with_strides(kernel, &lying(op, self.maps))?;
        let dense = kernel.constants.len() == constants;
        Ok(if dense { kernel } else { kernel.with("HEIGHT", op.size[0]).with("WIDTH", op.size[1]) })
    }

    /// Returns a launch with a block for each channel, or group of channels, and each part.
    fn channels(&self, entry: &'static str, add: [u8; 3], arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let (blocks, block) = match self.way {
            Traversal::Planes { packs, .. } => (self.op.channels, threads(packs.div_ceil(self.parts))),
            Traversal::Pixels { wide, rows, .. } => {
                (self.way.blocks(self.op.channels), (wide * rows).next_multiple_of(32) as u32)
            }
        };
        let blocks = u32::try_from(blocks)
            .map_err(|_| Error::Damaged("a batch normalisation has more channels than a grid has blocks"))?;
        let grid = [blocks, self.parts as u32, 1];
        Ok(Launch { kernel: self.kernel(entry, add)?, grid, block: [block, 1, 1], arguments, numbers: Vec::new() })
    }

    /// Returns a launch that only joins the results of the parts of each channel.
    fn joining(&self, entry: &'static str, add: [u8; 3], arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let mut launch = self.channels(entry, add, arguments)?;
        launch.grid[1] = 1;
        if let Traversal::Planes { .. } = self.way {
            launch.block = [32, 1, 1];
        }
        Ok(launch)
    }

    /// Returns the launch of inference, or of recomputing the output from the batch's own statistics.
    fn inference(self, arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        self.elementwise("batch_norm_apply", [0; 3], arguments)
    }

    /// Returns a launch in which elements do not depend on each other.
    fn elementwise(
        mut self,
        entry: &'static str,
        add: [u8; 3],
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Launch, Error> {
        self.together = None;
        match self.way {
            Traversal::Planes { packs, .. } => {
                self.parts = 1;
                let kernel = self.kernel(entry, add)?;
                Ok(Launch::elementwise(kernel, self.op.channels * packs, arguments))
            }
            Traversal::Pixels { .. } => {
                // The most blocks along y of a grid.
                self.parts = self.way.parts_of_pixels(self.samples * self.area, self.op.channels, 65_535);
                self.channels(entry, add, arguments)
            }
        }
    }

    /// Returns the workspace for partial results; `None` if there are none.
    fn partial(&self) -> Option<TensorId> {
        if self.parts > 1 { self.context.operation.written(Slot::Workspace) } else { None }
    }
}

/// Returns scale and shift; `None` for those that the layer lacks.
pub(crate) fn parameters(context: &Context<'_>, op: &BatchNorm) -> Result<[Option<TensorId>; 2], Error> {
    if !op.affine {
        return Ok([None; 2]);
    }
    if op.eval {
        return Ok([Some(context.read(Slot::Input(1))?), context.operation.read(Slot::Input(2))]);
    }
    Ok([Some(context.read(Slot::Input(1))?), Some(context.read(Slot::Input(2))?)])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &BatchNorm) -> Result<Vec<Launch>, Error> {
    forward_through(context, op, Rectifier::NONE)
}

/// Returns the launches of a forward pass with a rectifier after it.
pub(super) fn forward_through(
    context: &Context<'_>,
    op: &BatchNorm,
    rectifier: Rectifier,
) -> Result<Vec<Launch>, Error> {
    if let Share::Sends(rows) = Share::of(context.operation) {
        return sync_batch_norm::statistics(context, op, rows);
    }
    let tail = Tail::new(context.written(Slot::Output)?);
    forward_with(context, op, Tail { rectifier, ..tail })
}

pub(crate) fn forward_with(context: &Context<'_>, op: &BatchNorm, tail: Tail) -> Result<Vec<Launch>, Error> {
    if let Share::Receives(rows) = Share::of(context.operation) {
        return sync_batch_norm::output(context, op, rows, tail);
    }
    let x = context.read(Slot::Input(0))?;
    let (residual, y) = (tail.residual, Some(tail.output));
    let [weight, bias] = parameters(context, op)?;
    let plan = Plan { residual: residual.is_some(), ..Plan::new(context, op, [x, tail.output, x], tail.rectifier) };
    if let Some(saved) = kept(context) {
        let plan = Plan { is_again: true, ..plan };
        return Ok(vec![plan.inference(vec![Some(x), weight, bias, Some(saved), Some(saved), residual, y])?]);
    }
    if context.placed.program.training && !op.eval {
        let saved = Some(context.written(Slot::Saved(0))?);
        // In training the running statistics may not be kept.
        let [mean, variance] = match context.operation.written(Slot::Buffer(0)) {
            Some(mean) => [Some(mean), Some(context.written(Slot::Buffer(1))?)],
            None => [None; 2],
        };
        let Some(partial) = plan.partial() else {
            if let Some(Dropped { drop, output, keeps_input }) = tail.dropped {
                let written = [saved, mean, variance, y.filter(|_| keeps_input), Some(output)];
                let arguments = [vec![Some(x), weight, bias, residual, Some(drop.state)], written.to_vec()].concat();
                return Ok(vec![drop.add_to(
                    plan.channels("batch_norm_forward_drop", [0; 3], arguments)?,
                    context,
                    tail.output,
                )]);
            }
            let arguments = vec![Some(x), weight, bias, residual, saved, mean, variance, y];
            return Ok(vec![plan.channels("batch_norm_forward", [0; 3], arguments)?]);
        };
        if let Some(state) = plan.together {
            let written = [Some(partial), Some(state), saved, mean, variance, y];
            let arguments = [vec![Some(x), weight, bias, residual], written.to_vec()].concat();
            return Ok(vec![plan.channels("batch_norm_forward_parts", [0; 3], arguments)?]);
        }
        let statistics = plan.channels("batch_norm_statistics", [0; 3], vec![Some(x), Some(partial)])?;
        let arguments = vec![Some(x), Some(partial), weight, bias, residual, saved, mean, variance, y];
        return Ok(vec![statistics, plan.channels("batch_norm_apply_parts", [0; 3], arguments)?]);
    }
    let [mean, variance] = [context.read(Slot::Buffer(0))?, context.read(Slot::Buffer(1))?];
    let mut arguments = vec![Some(x), weight, bias, Some(mean), Some(variance), residual, y];
    if op.eval {
        arguments.push(Some(context.written(Slot::Saved(0))?));
    }
    Ok(vec![plan.inference(arguments)?])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &BatchNorm) -> Result<Vec<Launch>, Error> {
    let dy = context.read(Slot::Gradient)?;
    backward_through(context, op, Incoming { dy, rectifier: follower(op)?, masked: None, drop: None, again: None })
}

/// Returns the function after the normalisation that is part of the operation, so that its gradient passes through it.
pub(crate) fn follower(op: &BatchNorm) -> Result<Rectifier, Error> {
    let Some(function) = op.activation else { return Ok(Rectifier::NONE) };
    Rectifier::after_norm(function)
        .ok_or(Error::Damaged("a normalisation has the gradient of a function that keeps more than its input"))
}

/// Returns the saved statistics, if the operation recomputes the output; else `None`.
pub(crate) fn kept(context: &Context<'_>) -> Option<TensorId> {
    context.operation.forward().and(context.operation.read(Slot::Saved(0)))
}

/// True if the sums of the backward pass are a launch of their own.
pub(crate) fn sums_first(context: &Context<'_>, op: &BatchNorm, dy: TensorId) -> Result<bool, Error> {
    let x = context.read(Slot::Input(0))?;
    let dx = context.operation.written(Slot::InputGradient(0)).unwrap_or(x);
    Ok(Plan::new(context, op, [x, dy, dx], Rectifier::NONE).parts > 1)
}

/// True if the statistics of the forward pass are a launch of their own.
pub(crate) fn statistics_first(context: &Context<'_>, op: &BatchNorm, output: TensorId) -> Result<bool, Error> {
    let x = context.read(Slot::Input(0))?;
    let observes = kept(context).is_none() && !op.eval && Share::of(context.operation) == Share::Whole;
    Ok(observes && Plan::new(context, op, [x, output, x], Rectifier::NONE).parts > 1)
}

/// True if dropout may be fused into the pass from the input to `other`, or back. All maps must be dense, and each channel must have one block,
/// which goes plane by plane.
pub(crate) fn may_drop(context: &Context<'_>, op: &BatchNorm, other: TensorId) -> Result<bool, Error> {
    if op.eval || Share::of(context.operation) != Share::Whole {
        return Ok(false);
    }
    let x = context.read(Slot::Input(0))?;
    let maps = [x, other, context.operation.written(Slot::InputGradient(0)).unwrap_or(x)];
    let plan = Plan::new(context, op, maps, Rectifier::NONE);
    let is_dense = maps.iter().all(|&id| context.tensor(id).layout.is_dense());
    Ok(matches!(plan.way, Traversal::Planes { .. }) && plan.parts == 1 && is_dense && kept(context).is_none())
}

/// Returns the launches of the backward pass from the incoming gradient.
pub(crate) fn backward_through(
    context: &Context<'_>,
    op: &BatchNorm,
    incoming: Incoming,
) -> Result<Vec<Launch>, Error> {
    let Incoming { dy, rectifier, masked, drop, again } = incoming;
    // If the function after it is inverted, that is done from the output.
    let kept = if rectifier.slope().is_some() { Slot::Output } else { Slot::Input(0) };
    // With running statistics, the gradients of input and bias read no x, so dy takes its place.
    let x = if op.eval { context.operation.read(kept).unwrap_or(dy) } else { context.read(kept)? };
    match Share::of(context.operation) {
        Share::Whole => {}
        Share::Sends(sums) => return sync_batch_norm::sums(context, op, incoming, (x, sums)),
        Share::Receives(sums) => return sync_batch_norm::input_gradient(context, op, incoming, (x, sums)),
    }
    let saved = context.read(Slot::Saved(0))?;
    let slots = [Slot::InputGradient(0), Slot::InputGradient(1), Slot::InputGradient(2)];
    let [dx, dweight, dbias] = slots.map(|slot| context.operation.written(slot));
    let add = slots.map(|slot| context.adds(slot));
    let [weight, bias] = parameters(context, op)?;
    let plan = Plan::new(context, op, [x, dy, dx.unwrap_or(x)], rectifier);
    let plan = Plan { masked: masked.is_some(), renormalises: again.is_some(), ..plan };
    let [output, through] = masked.map_or([None; 2], |masked| masked.map(Some));
    let read = |dy| vec![Some(dy), Some(x), weight, bias, Some(saved)];
    if op.eval && dweight.is_none() && dbias.is_none() {
        return Ok(vec![plan.elementwise("batch_norm_scale", add, vec![Some(dy), weight, Some(saved), dx])?]);
    }
    let Some(partial) = plan.partial() else {
        if let Some(drop) = drop {
            let arguments = [read(dy), vec![Some(drop.state), dx, dweight, dbias]].concat();
            return Ok(vec![drop.add_to(plan.channels("batch_norm_backward_drop", add, arguments)?, context, dy)]);
        }
        let arguments = [read(dy), vec![output, through, dx, dweight, dbias, again]].concat();
        return Ok(vec![plan.channels("batch_norm_backward", add, arguments)?]);
    };
    if let Some(state) = plan.together {
        let written = vec![output, through, Some(partial), Some(state), dx, dweight, dbias, again];
        return Ok(vec![plan.channels("batch_norm_backward_parts", add, [read(dy), written].concat())?]);
    }
    let sums = Plan { renormalises: false, ..plan };
    let sums = sums.channels("batch_norm_sums", add, [read(dy), vec![output, through, Some(partial)]].concat())?;
    let arguments = [read(through.unwrap_or(dy)), vec![Some(partial), dx, dweight, dbias, again]].concat();
    let entry = "batch_norm_input";
    let input = if dx.is_some() { plan.channels(entry, add, arguments) } else { plan.joining(entry, add, arguments) };
    Ok(vec![sums, input?])
}
