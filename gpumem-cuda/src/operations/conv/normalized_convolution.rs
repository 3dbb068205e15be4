//! Calls of a conv norm, a 1x1 convolution and the batch normalisation after it. `kernels/conv/normalized_convolution.cu` computes, from sums over
//! pixels, the matrices of 1x1 convolutions. Those convolutions, and sums that are not computed in [one launch](Together), are passes of a
//! [convolution](crate::operations::conv::convolution), by a library or by gpumem's own kernels.
//!
//! Channels whose values would lose their precision in sums of products are found on the card, and computed directly by separate kernels, which do
//! nothing if there are none: `kernels/conv/normalized_direct.cuh`.

use crate::calls::{Call, Kernel, Launch, TOGETHER};
use crate::operations::calls;
use crate::operations::context::{Context, in_braces, other_layout};
use crate::operations::conv::convolution;
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::grid::{BLOCKS, is_last, norm_real, small, tile};
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{BatchNorm, Convolution, NormalizedConvolution};
use gpumem_core::program::{Action, Op, Operand, Operation, Pass, Slot, TensorId};
use gpumem_core::shape::Shape;

/// Rows of a matrix that a block computes at a time: `ROWS` of the kernels.
const ROWS: u64 = 4;

/// The unit and the fewest pixels of a part of the sums over pixels. The unit is a multiple of `TILE_K` of the kernels.
const STEP: u64 = 32;
const LEAST_PORTION: u64 = 256;

/// The most columns of a tile, in the launch of the forward pass and in that of the gradients. With more, the former would spill registers.
const WIDEST: [u64; 2] = [64, 128];

/// Returns an operation between tensors of this one, as if it were part of the program. A gradient that it also reads is added to.
fn operation(
    context: &Context<'_>,
    op: Op,
    pass: Pass,
    reads: &[(Slot, TensorId)],
    writes: &[(Slot, TensorId)],
) -> Operation {
    let operands = |all: &[(Slot, TensorId)]| -> Vec<Operand> {
        all.iter().map(|&(slot, tensor)| Operand { slot, tensor }).collect()
    };
    let workspace = context.operation.written(Slot::Workspace).map(|tensor| (Slot::Workspace, tensor));
    let (reads, writes) = (operands(reads), operands(&Vec::from_iter(writes.iter().copied().chain(workspace))));
    let accumulate = reads.iter().any(|read| matches!(read.slot, Slot::InputGradient(_)));
    Operation { action: Action::Run { op, pass }, row: context.operation.row, accumulate, reads, writes }
}

/// Returns the calls of such an operation.
fn pass(
    context: &Context<'_>,
    op: &Convolution,
    pass: Pass,
    reads: &[(Slot, TensorId)],
    writes: &[(Slot, TensorId)],
) -> Result<Vec<Call>, Error> {
    calls(&Context { operation: &operation(context, op.clone().into(), pass, reads, writes), ..*context })
}

/// Returns a kernel with its constants, for as many samples as `y` has. `input` is the index of the input to whose gradient it may add.
fn kernel(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    (entry, input): (&'static str, u8),
    y: TensorId,
) -> Result<Kernel, Error> {
    let area = op.size[0].saturating_mul(op.size[1]);
    for size in [pixels(context, op, y), op.in_channels, op.out_channels] {
        small(size)?;
    }
    if op.in_channels > NormalizedConvolution::MOST_CHANNELS {
        return Err(Error::Damaged("a normalised convolution has more channels than an operation of its kind"));
    }
    let kernel = context.kernel("normalized_convolution.cu", entry).with("INS", format!("{}u", op.in_channels));
    let sizes = [("BATCH", context.samples(y)), ("CHANNELS", op.out_channels), ("AREA", area)];
    let kernel = sizes.into_iter().fold(kernel, |kernel, (name, size)| kernel.with(name, format!("{size}ull")));
    let kernel = kernel.with("NORM_REAL", norm_real(context)).with("AFFINE", u8::from(op.affine));
    let kernel = kernel.with_float("EPS", op.eps).with_float("MOMENTUM", op.momentum);
    let gradients = ["ADD", "ADD_WEIGHT", "ADD_BIAS"].into_iter().zip([input, 2, 3]);
    Ok(gradients.fold(kernel, |kernel, (name, input)| kernel.with(name, context.adds(Slot::InputGradient(input)))))
}

/// Returns a kernel with its constants and without a rectifier.
fn plain(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    entry: (&'static str, u8),
    y: TensorId,
) -> Result<Kernel, Error> {
    Ok(kernel(context, op, entry, y)?.with("RECTIFIER", Rectifier::NONE).with("MASKED", 0))
}

/// Adds the layouts of maps to a kernel that reads them for direct channels: see `kernels/conv/normalized_direct.cuh`. `y` is the output, or its
/// gradient.
fn with_maps(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    kernel: Kernel,
    y: TensorId,
    dx: Option<TensorId>,
) -> Result<Kernel, Error> {
    let x = ("X_STRIDES", context.read(Slot::Input(0))?, op.input());
    let all = [x, ("Y_STRIDES", y, op.output())].into_iter().chain(dx.map(|dx| ("D_STRIDES", dx, op.input())));
    let kernel = kernel.with("WIDTH", format!("{}u", op.size[1]));
    let place = |kernel: Kernel, (name, id, shape): (&'static str, TensorId, Shape)| {
        let (_, strides) = context.tensor(id).layout.places(shape).ok_or_else(other_layout)?;
        Ok(kernel.with(name, in_braces(strides)))
    };
    all.into_iter().try_fold(kernel, place)
}

/// True if gpumem's own kernels can multiply the maps in their layout: channels last, in multiples of eight, and in a 16-bit format for which the
/// card has tensor cores.
fn is_for_tiles(context: &Context<'_>, op: &NormalizedConvolution, [x, y]: [TensorId; 2]) -> bool {
    let lies = [("", x, op.input()), ("", y, op.output())];
    let is_whole = op.in_channels.is_multiple_of(8) && op.out_channels.is_multiple_of(8);
    context.tensor_core_terms() > 0 && is_whole && is_last(context, &lies)
}

/// A launch with a grid barrier, which computes sums over all pixels and then the matrices from them.
struct Together {
    /// The state tensor, which has the words of the grid barrier.
    state: TensorId,
    partial: TensorId,
    tile: [u64; 2],
    parts: u64,
    /// Pixels of a part.
    portion: u64,
    blocks: u64,
}

impl Together {
    /// Returns a launch's division of work, for `rows` channels that are multiplied with those of x. Tiles have at most `widest` columns. `None`
    /// unless [the maps are suitable](is_for_tiles), the card takes such launches, and the workspace has space for a part.
    fn new(
        context: &Context<'_>,
        op: &NormalizedConvolution,
        maps: [TensorId; 2],
        [rows, widest]: [u64; 2],
    ) -> Option<Together> {
        // `TILE_RESIDENT` of the kernels.
        let resident = if context.tensor_core_terms() == 16 { 2 } else { 1 };
        let at_once = u64::from(context.setting.multiprocessors) * resident;
        if at_once == 0 || !is_for_tiles(context, op, maps) {
            return None;
        }
        let state = context.placed.program.state()?;
        let partial = context.operation.written(Slot::Workspace)?;
        let part = rows.checked_mul(op.in_channels)?.checked_add(rows)?.checked_mul(4)?;
        let room = context.workspace_bytes().checked_div(part).filter(|&room| room > 0)?;
        let tile =
            [(rows, 128), (op.in_channels, widest)].map(|(extent, most)| extent.clamp(32, most).next_power_of_two());
        let tiles = rows.div_ceil(tile[0]) * op.in_channels.div_ceil(tile[1]);
        let pixels = pixels(context, op, maps[1]).max(1);
        let most = (at_once / tiles).min(room).min(pixels / LEAST_PORTION).max(1);
        let portion = pixels.div_ceil(most).next_multiple_of(STEP);
        let parts = pixels.div_ceil(portion);
        let blocks = (tiles * parts).max(op.out_channels.div_ceil(ROWS)).min(at_once);
        Some(Together { state, partial, tile, parts, portion, blocks })
    }

    /// Returns the launch of a kernel with this division of work.
    fn launch(&self, context: &Context<'_>, kernel: Kernel, arguments: Vec<Option<TensorId>>) -> Result<Call, Error> {
        let is_forward = context.operation.written(Slot::Output).is_some();
        let kernel = kernel.with(TOGETHER, 1).with("FORWARD", u8::from(is_forward)).with("PACK", 8);
        let kernel = in_tiles(context, kernel, self.tile);
        let kernel = kernel.with("PARTS", format!("{}u", self.parts)).with("PORTION", format!("{}u", self.portion));
        launch(kernel, self.blocks, arguments)
    }
}

/// Returns the pixels of all samples in `y`.
fn pixels(context: &Context<'_>, op: &NormalizedConvolution, y: TensorId) -> u64 {
    context.samples(y).saturating_mul(op.size[0].saturating_mul(op.size[1]))
}

fn in_tiles(context: &Context<'_>, kernel: Kernel, tile: [u64; 2]) -> Kernel {
    kernel.with("TENSOR_CORES", context.tensor_core_terms()).with("TILE_M", tile[0]).with("TILE_N", tile[1])
}

/// The gradient that the backward pass starts with, if it passes through a rectifier after a sum: the rectifier, the gradient of its output, and
/// its output.
#[derive(Clone, Copy)]
pub(crate) struct Rectified {
    pub(crate) rectifier: Rectifier,
    pub(crate) dy: TensorId,
    pub(crate) output: TensorId,
}

/// The tensors from which x is recomputed: input, saved statistics and parameters of the normalisation before it, and the function after that.
#[derive(Clone, Copy)]
pub(crate) struct Again {
    pub(crate) input: TensorId,
    pub(crate) saved: TensorId,
    pub(crate) parameters: [Option<TensorId>; 2],
    pub(crate) after: Rectifier,
}

/// Other operations that are fused into the launch of the gradients.
#[derive(Clone, Copy, Default)]
pub(crate) struct Besides {
    pub(crate) rectified: Option<Rectified>,
    pub(crate) again: Option<Again>,
}

/// Returns a launch of `blocks` blocks.
fn launch(kernel: Kernel, blocks: u64, arguments: Vec<Option<TensorId>>) -> Result<Call, Error> {
    Ok(Launch { kernel, grid: [small(blocks)?, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }.into())
}

/// Returns the scale or the shift; `None` without them.
fn affine(context: &Context<'_>, op: &NormalizedConvolution, input: u8) -> Result<Option<TensorId>, Error> {
    if op.affine { context.read(Slot::Input(input)).map(Some) } else { Ok(None) }
}

/// Returns the calls for inference: a convolution, then a normalisation by running statistics, in place. A single 1x1 convolution would round the
/// scaled weight and the shift once more.
fn evaluation(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    let (x, weight, y) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?, context.written(Slot::Output)?);
    let NormalizedConvolution { out_channels: channels, size, eps, momentum, affine: is_affine, .. } = *op;
    let map = op.convolution(op.in_channels, op.out_channels, false);
    let mut all =
        pass(context, &map, Pass::Forward, &[(Slot::Input(0), x), (Slot::Input(1), weight)], &[(Slot::Output, y)])?;
    let norm = BatchNorm { channels, size, eps, momentum, affine: is_affine, within: 0, activation: None, eval: false };
    let factors = [(Slot::Input(1), affine(context, op, 2)?), (Slot::Input(2), affine(context, op, 3)?)];
    let known = [Slot::Buffer(0), Slot::Buffer(1)].map(|slot| context.read(slot).map(|tensor| (slot, tensor)));
    let [mean, variance] = known;
    let factors = factors.into_iter().filter_map(|(slot, tensor)| Some((slot, tensor?)));
    let reads: Vec<(Slot, TensorId)> = [(Slot::Input(0), y), mean?, variance?].into_iter().chain(factors).collect();
    let operation = operation(context, norm.into(), Pass::Forward, &reads, &[(Slot::Output, y)]);
    all.extend(calls(&Context { operation: &operation, ..*context })?);
    Ok(all)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    if !context.placed.program.training {
        return evaluation(context, op);
    }
    let (x, weight, y) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?, context.written(Slot::Output)?);
    let [statistics, totals] = [NormalizedConvolution::STATISTICS, NormalizedConvolution::TOTALS].map(Slot::Saved);
    let scaled = context.written(Slot::Scratch(NormalizedConvolution::WEIGHT))?;
    let added = context.written(Slot::Scratch(NormalizedConvolution::SUMMANDS))?;
    let (factors, summands) = (affine(context, op, 2)?, affine(context, op, 3)?);
    let mut all = Vec::new();
    if context.operation.read(statistics).is_none() {
        let squares = context.written(Slot::Saved(NormalizedConvolution::SQUARES))?;
        let (totals, saved) = (context.written(totals)?, context.written(statistics)?);
        let running = [0, 1].map(|index| context.operation.written(Slot::Buffer(index)));
        let given = [Some(weight), factors, summands];
        if let Some(together) = Together::new(context, op, [x, y], [op.in_channels, WIDEST[0]]) {
            let made = [together.partial, together.state, squares, totals, saved, scaled, added].map(Some);
            let arguments = [Some(x)].into_iter().chain(given).chain(made).chain(running).collect();
            let kernel = plain(context, op, ("normalized_forward_together", 1), y)?;
            all.push(together.launch(context, kernel, arguments)?);
        } else {
            let own = op.convolution(op.in_channels, op.in_channels, true);
            let reads = [(Slot::Gradient, x), (Slot::Input(0), x)];
            let writes = [(Slot::InputGradient(1), squares), (Slot::InputGradient(2), totals)];
            all.extend(pass(context, &own, Pass::Backward, &reads, &writes)?);
            let made = [squares, totals, saved, scaled, added].map(Some);
            let arguments = given.into_iter().chain(made).chain(running).collect();
            let kernel = plain(context, op, ("normalized_weight", 1), y)?;
            all.push(launch(kernel, op.out_channels.div_ceil(ROWS), arguments)?);
        }
    } else {
        let kernel = plain(context, op, ("normalized_weight_known", 1), y)?.with("KEPT", 1);
        let [statistics, totals] = [statistics, totals].map(|slot| context.read(slot));
        let given = [statistics?, totals?, scaled, added].map(Some);
        let arguments = [Some(weight), factors, summands].into_iter().chain(given).collect();
        all.push(launch(kernel, op.out_channels.div_ceil(8), arguments)?);
    }
    let map = op.convolution(op.in_channels, op.out_channels, true);
    let reads = [(Slot::Input(0), x), (Slot::Input(1), scaled), (Slot::Input(2), added)];
    all.extend(pass(context, &map, Pass::Forward, &reads, &[(Slot::Output, y)])?);
    all.push(direct_output(context, op, (None, y), false)?);
    Ok(all)
}

/// Returns the last call of the forward pass, which overwrites the output of direct channels. With `addend`, the output is the sum with that map;
/// with `relu`, a Relu follows.
pub(crate) fn direct_output(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    (addend, y): (Option<TensorId>, TensorId),
    relu: bool,
) -> Result<Call, Error> {
    let output = context.written(Slot::Output)?;
    let saved = |index: u8| {
        let slot = Slot::Saved(index);
        context.operation.read(slot).or_else(|| context.operation.written(slot))
    };
    let known = [NormalizedConvolution::STATISTICS, NormalizedConvolution::TOTALS, NormalizedConvolution::SQUARES];
    let known = known.map(saved);
    let kernel = with_maps(context, op, plain(context, op, ("normalized_direct_output", 1), output)?, output, None)?;
    let follows = if relu { "Relu" } else { "Identity" };
    let kernel = kernel.with("ADDEND", u8::from(addend.is_some())).with("FOLLOWS", follows);
    let is_known = context.operation.read(Slot::Saved(NormalizedConvolution::STATISTICS)).is_some();
    let kernel = if is_known { kernel.with("KEPT", 1) } else { kernel };
    let running = [0, 1].map(|index| context.operation.written(Slot::Buffer(index)).filter(|_| !is_known));
    let read = [Some(context.read(Slot::Input(0))?), Some(context.read(Slot::Input(1))?)];
    let read = read.into_iter().chain([affine(context, op, 2)?, affine(context, op, 3)?]);
    let read = read.chain(known).chain(running).chain([addend]);
    launch(kernel, op.out_channels, read.chain([Some(y)]).collect())
}

/// Returns the call that computes the gradients of weight, scale and shift for direct channels.
fn direct_parameters(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Call, Error> {
    let (dy, x, weight) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let [saved, totals, squares] = saved(context)?;
    let scratch = |index: u8| context.written(Slot::Scratch(index));
    let (products, sums) = (scratch(NormalizedConvolution::PRODUCTS)?, scratch(NormalizedConvolution::SUMS)?);
    let kernel = plain(context, op, ("normalized_direct_parameters", 1), dy)?.with("OWN_PARAMETERS", 1);
    let kernel = with_maps(context, op, kernel, dy, None)?;
    let read = [Some(dy), Some(x), Some(weight), affine(context, op, 2)?].into_iter();
    let arguments = read.chain([saved, totals, squares, sums, products].map(Some)).chain(written(context)).collect();
    launch(kernel, op.out_channels, arguments)
}

/// Returns the call that adds the part of direct channels to the gradient of x.
fn direct_gradient(context: &Context<'_>, op: &NormalizedConvolution, dx: TensorId) -> Result<Call, Error> {
    let (dy, x, weight) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let [saved, totals, squares] = saved(context)?;
    let scratch = |index: u8| context.written(Slot::Scratch(index));
    let (products, sums) = (scratch(NormalizedConvolution::PRODUCTS)?, scratch(NormalizedConvolution::SUMS)?);
    let kernel = plain(context, op, ("normalized_direct_gradient", 0), dy)?;
    let kernel = with_maps(context, op, kernel, dy, Some(dx))?;
    let factors = affine(context, op, 2)?;
    let read = [Some(dy), Some(x), Some(weight), factors].into_iter();
    let arguments = read.chain([saved, totals, squares, sums, products, dx].map(Some)).collect();
    launch(kernel, pixels(context, op, dy).div_ceil(32).clamp(1, BLOCKS), arguments)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    let x = context.read(Slot::Input(0))?;
    let together = Together::new(context, op, [x, context.read(Slot::Gradient)?], [op.out_channels, WIDEST[1]]);
    let mut all = match together {
        Some(together) => vec![parameters_together(context, op, &together, Besides::default())?],
        None => parameters(context, op)?,
    };
    all.push(direct_parameters(context, op)?);
    all.extend(map_gradient(context, op)?);
    Ok(all)
}

/// Returns the calls of the backward pass, fused with a rectifier's or with recomputing x; `None` if that is not possible.
pub(crate) fn backward_with(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    besides: Besides,
) -> Result<Option<Vec<Call>>, Error> {
    let maps = [context.read(Slot::Input(0))?, context.read(Slot::Gradient)?];
    let outer = besides.rectified.map(|it| [it.dy, it.output].map(|map| ("", map, op.output())));
    let inner = besides.again.map(|it| ("", it.input, op.input()));
    let lies: Vec<_> = outer.into_iter().flatten().chain(inner).collect();
    let Some(together) =
        Together::new(context, op, maps, [op.out_channels, WIDEST[1]]).filter(|_| is_last(context, &lies))
    else {
        return Ok(None);
    };
    let mut all = vec![parameters_together(context, op, &together, besides)?, direct_parameters(context, op)?];
    all.extend(map_gradient(context, op)?);
    Ok(Some(all))
}

/// Returns the calls that compute the gradients of weight, scale and shift, and the matrices for the gradient of x. Sums are passes of a
/// convolution.
fn parameters(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    let (dy, x, weight) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let [saved, totals, squares] = saved(context)?;
    let scratch = |index: u8| context.written(Slot::Scratch(index));
    let scaled = scratch(NormalizedConvolution::WEIGHT)?;
    let (products, sums) = (scratch(NormalizedConvolution::PRODUCTS)?, scratch(NormalizedConvolution::SUMS)?);
    let map = op.convolution(op.in_channels, op.out_channels, true);
    let reads = [(Slot::Gradient, dy), (Slot::Input(0), x)];
    let writes = [(Slot::InputGradient(1), products), (Slot::InputGradient(2), sums)];
    let mut all = pass(context, &map, Pass::Backward, &reads, &writes)?;
    let given = [saved, totals, squares, sums, products, scaled].map(Some);
    let read = [Some(weight), affine(context, op, 2)?].into_iter().chain(given);
    let arguments = read.chain(written(context)).collect();
    let rows_of = |entry| plain(context, op, (entry, 1), dy);
    all.push(launch(rows_of("normalized_gradients")?, op.out_channels.div_ceil(ROWS), arguments)?);
    if context.operation.written(Slot::InputGradient(0)).is_some() {
        let (matrix, added) = (scratch(NormalizedConvolution::MATRIX)?, scratch(NormalizedConvolution::SUMMANDS)?);
        let arguments = [weight, scaled, totals, sums, products, matrix, added].map(Some).to_vec();
        all.push(launch(rows_of("normalized_matrix")?, op.in_channels.div_ceil(ROWS), arguments)?);
    }
    Ok(all)
}

/// Returns one call that does all that [`parameters`] does, with the operations in `Besides`.
fn parameters_together(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    together: &Together,
    Besides { rectified, again }: Besides,
) -> Result<Call, Error> {
    let (dy, x, weight) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let [saved, totals, squares] = saved(context)?;
    let scratch = |index: u8| context.written(Slot::Scratch(index));
    let has_map = context.operation.written(Slot::InputGradient(0)).is_some();
    let of_map = |index: u8| if has_map { scratch(index).map(Some) } else { Ok(None) };
    let rectifier = rectified.map_or(Rectifier::NONE, |rectified| rectified.rectifier);
    let kernel = kernel(context, op, ("normalized_backward_together", 1), dy)?;
    let kernel = kernel.with("RECTIFIER", rectifier).with("MASKED", u8::from(rectified.is_some()));
    let kernel = match again {
        Some(again) => kernel.with("AGAIN", again.after).with("AGAIN_AFFINE", u8::from(again.parameters[0].is_some())),
        None => kernel,
    };
    let [before_factors, before_summands] = again.map_or([None; 2], |again| again.parameters);
    let read = [
        Some(rectified.map_or(dy, |rectified| rectified.dy)),
        again.is_none().then_some(x),
        rectified.map(|rectified| rectified.output),
        Some(weight),
        affine(context, op, 2)?,
        Some(saved),
        Some(totals),
        Some(squares),
        again.map(|again| again.input),
        again.map(|again| again.saved),
        before_factors,
        before_summands,
        again.map(|_| x),
        rectified.map(|_| dy),
    ];
    let made = [
        together.partial,
        together.state,
        scratch(NormalizedConvolution::SUMS)?,
        scratch(NormalizedConvolution::PRODUCTS)?,
        scratch(NormalizedConvolution::WEIGHT)?,
    ];
    let of_map = [of_map(NormalizedConvolution::MATRIX)?, of_map(NormalizedConvolution::SUMMANDS)?];
    let arguments = read.into_iter().chain(made.map(Some)).chain(written(context)).chain(of_map).collect();
    together.launch(context, kernel, arguments)
}

/// Returns the saved tensors: statistics of y, the sums of x, and the sums of products of its channels.
fn saved(context: &Context<'_>) -> Result<[TensorId; 3], Error> {
    let saved = |index: u8| context.read(Slot::Saved(index));
    let [statistics, totals, squares] =
        [NormalizedConvolution::STATISTICS, NormalizedConvolution::TOTALS, NormalizedConvolution::SQUARES].map(saved);
    Ok([statistics?, totals?, squares?])
}

/// Returns the gradients of weight, scale and shift; `None` for those that are not wanted.
fn written(context: &Context<'_>) -> [Option<TensorId>; 3] {
    [1, 2, 3].map(|input| context.operation.written(Slot::InputGradient(input)))
}

/// Returns the calls of the gradient of x, from the matrices that earlier calls have computed. Empty if that is not wanted.
fn map_gradient(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    let Some(dx) = context.operation.written(Slot::InputGradient(0)) else { return Ok(Vec::new()) };
    let (dy, x) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?);
    let scratch = |index: u8| context.written(Slot::Scratch(index));
    let scaled = scratch(NormalizedConvolution::WEIGHT)?;
    let (matrix, added) = (scratch(NormalizedConvolution::MATRIX)?, scratch(NormalizedConvolution::SUMMANDS)?);
    if is_for_tiles(context, op, [x, dy]) && is_last(context, &[("", dx, op.input())]) {
        let pixels = pixels(context, op, dy);
        let tile = tile(pixels, op.in_channels, 1, 128);
        let kernel = plain(context, op, ("normalized_map_gradient", 0), dy)?.with("MAP", 1);
        let sizes = [("ROWS", pixels), ("COLUMNS", op.in_channels), ("DEPTH", op.out_channels)];
        let kernel = sizes.into_iter().fold(kernel, |kernel, (name, size)| kernel.with(name, format!("{size}ull")));
        let kernel = kernel.with("A_TRANSPOSED", 0).with("B_TRANSPOSED", 0).with("BIAS", 1);
        let arguments = [dy, x, scaled, matrix, added, dx].map(Some).to_vec();
        let blocks = pixels.div_ceil(tile[0]).saturating_mul(op.in_channels.div_ceil(tile[1]));
        return Ok(vec![
            launch(in_tiles(context, kernel, tile), blocks, arguments)?,
            direct_gradient(context, op, dx)?,
        ]);
    }
    let own = op.convolution(op.in_channels, op.in_channels, true);
    let reads = [(Slot::Input(0), x), (Slot::Input(1), matrix), (Slot::Input(2), added)];
    let mut all = Vec::new();
    if context.adds(Slot::InputGradient(0)) == 1 {
        let operation = operation(context, own.clone().into(), Pass::Forward, &reads, &[(Slot::Output, dx)]);
        let context = Context { operation: &operation, ..*context };
        all.push(convolution::forward_added(&context, &own)?.into());
    } else {
        all.extend(pass(context, &own, Pass::Forward, &reads, &[(Slot::Output, dx)])?);
    }
    let map = op.convolution(op.in_channels, op.out_channels, true);
    let reads = [(Slot::Gradient, dy), (Slot::Input(1), scaled), (Slot::InputGradient(0), dx)];
    all.extend(pass(context, &map, Pass::Backward, &reads, &[(Slot::InputGradient(0), dx)])?);
    all.push(direct_gradient(context, op, dx)?);
    Ok(all)
}
