//! A convolution of one pixel and the normalisation behind it: `kernels/normalized_convolution.cu` makes of sums over pixels the maps of a pixel
//! that are convolved with. Sums and maps are passes of a [convolution](super::convolution), whoever computes those.

use super::context::Context;
use super::grid::{norm_real, small};
use super::pointwise::Rectifier;
use super::{calls, convolution};
use crate::calls::{Call, Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::ops::{Convolution, NormalizedConvolution};
use gpumem_core::program::{Action, Operand, Operation, Pass, Slot, TensorId};

/// Rows that a block of `normalized_weight` and `normalized_matrix` has: `ROWS` of the kernels.
const ROWS: u64 = 4;

/// A pass of a convolution between tensors of the operation, as if that were one of the program. A gradient that it reads as well is added to.
fn operation(
    context: &Context<'_>,
    op: &Convolution,
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
    Operation {
        action: Action::Run { op: (*op).clone().into(), pass },
        row: context.operation.row,
        accumulate,
        reads,
        writes,
    }
}

/// Its calls.
fn pass(
    context: &Context<'_>,
    op: &Convolution,
    pass: Pass,
    reads: &[(Slot, TensorId)],
    writes: &[(Slot, TensorId)],
) -> Result<Vec<Call>, Error> {
    calls(&Context { operation: &operation(context, op, pass, reads, writes), ..*context })
}

/// The kernel with its constants, which work on as many samples as `y` has.
fn kernel(
    context: &Context<'_>,
    op: &NormalizedConvolution,
    entry: &'static str,
    y: TensorId,
) -> Result<Kernel, Error> {
    let area = op.size[0].saturating_mul(op.size[1]);
    for size in [context.samples(y).saturating_mul(area), op.in_channels, op.out_channels] {
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
    let kernel = kernel.with("RECTIFIER", Rectifier::NONE).with("MASKED", 0);
    let gradients = ["ADD", "ADD_WEIGHT", "ADD_BIAS"].into_iter().zip([1, 2, 3]);
    Ok(gradients.fold(kernel, |kernel, (name, input)| kernel.with(name, context.adds(Slot::InputGradient(input)))))
}

/// A launch of so many blocks.
fn launch(kernel: Kernel, blocks: u64, arguments: Vec<Option<TensorId>>) -> Result<Call, Error> {
    Ok(Launch { kernel, grid: [small(blocks)?, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }.into())
}

/// Factors and summands, if there are some.
fn affine(context: &Context<'_>, op: &NormalizedConvolution) -> Result<[Option<TensorId>; 2], Error> {
    if !op.affine {
        return Ok([None; 2]);
    }
    Ok([Some(context.read(Slot::Input(2))?), Some(context.read(Slot::Input(3))?)])
}

pub(super) fn forward(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    let (x, weight, y) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?, context.written(Slot::Output)?);
    let [statistics, mean] = [NormalizedConvolution::STATISTICS, NormalizedConvolution::MEAN].map(Slot::Saved);
    let scaled = context.written(Slot::Scratch(NormalizedConvolution::WEIGHT))?;
    let added = context.written(Slot::Scratch(NormalizedConvolution::SUMMANDS))?;
    let [factors, summands] = affine(context, op)?;
    let is_training = context.placed.program.training;
    let mut all = Vec::new();
    if is_training && context.operation.read(statistics).is_none() {
        let squares = context.written(Slot::Saved(NormalizedConvolution::SQUARES))?;
        let sums = context.written(Slot::Scratch(NormalizedConvolution::SUMS))?;
        let own = op.convolution(op.in_channels, op.in_channels, true);
        let reads = [(Slot::Gradient, x), (Slot::Input(0), x)];
        let writes = [(Slot::InputGradient(1), squares), (Slot::InputGradient(2), sums)];
        all.extend(pass(context, &own, Pass::Backward, &reads, &writes)?);
        let made = [squares, sums, context.written(statistics)?, context.written(mean)?, scaled, added].map(Some);
        let running = [0, 1].map(|index| context.operation.written(Slot::Buffer(index)));
        let arguments = [Some(weight), factors, summands].into_iter().chain(made).chain(running).collect();
        let kernel = kernel(context, op, "normalized_weight", y)?;
        all.push(launch(kernel, op.out_channels.div_ceil(ROWS), arguments)?);
    } else {
        let kernel = kernel(context, op, "normalized_weight_known", y)?;
        let kernel = if is_training { kernel.with("KEPT", 1) } else { kernel };
        let known = if is_training { [statistics, mean] } else { [Slot::Buffer(1), Slot::Buffer(0)] };
        let [statistics, means] = known.map(|slot| context.read(slot));
        let given = [statistics?, means?, scaled, added].map(Some);
        let arguments = [Some(weight), factors, summands].into_iter().chain(given).collect();
        all.push(launch(kernel, op.out_channels.div_ceil(8), arguments)?);
    }
    let map = op.convolution(op.in_channels, op.out_channels, true);
    let reads = [(Slot::Input(0), x), (Slot::Input(1), scaled), (Slot::Input(2), added)];
    all.extend(pass(context, &map, Pass::Forward, &reads, &[(Slot::Output, y)])?);
    Ok(all)
}

pub(super) fn backward(context: &Context<'_>, op: &NormalizedConvolution) -> Result<Vec<Call>, Error> {
    let (dy, x, weight) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let saved = |index: u8| context.read(Slot::Saved(index));
    let scratch = |index: u8| context.written(Slot::Scratch(index));
    let (statistics, mean) = (saved(NormalizedConvolution::STATISTICS)?, saved(NormalizedConvolution::MEAN)?);
    let (squares, scaled) = (saved(NormalizedConvolution::SQUARES)?, scratch(NormalizedConvolution::WEIGHT)?);
    let (products, sums) = (scratch(NormalizedConvolution::PRODUCTS)?, scratch(NormalizedConvolution::SUMS)?);
    let factors = if op.affine { Some(context.read(Slot::Input(2))?) } else { None };
    let map = op.convolution(op.in_channels, op.out_channels, true);
    let reads = [(Slot::Gradient, dy), (Slot::Input(0), x)];
    let writes = [(Slot::InputGradient(1), products), (Slot::InputGradient(2), sums)];
    let mut all = pass(context, &map, Pass::Backward, &reads, &writes)?;
    let written = |input: u8| context.operation.written(Slot::InputGradient(input));
    let kernel = |entry: &'static str| kernel(context, op, entry, dy);
    let given = [statistics, mean, squares, sums, products, scaled].map(Some);
    let arguments = [Some(weight), factors].into_iter().chain(given).chain([1, 2, 3].map(written)).collect();
    all.push(launch(kernel("normalized_gradients")?, op.out_channels.div_ceil(ROWS), arguments)?);
    let Some(dx) = written(0) else { return Ok(all) };
    let (matrix, added) = (scratch(NormalizedConvolution::MATRIX)?, scratch(NormalizedConvolution::SUMMANDS)?);
    let arguments = [weight, scaled, mean, sums, products, matrix, added].map(Some).to_vec();
    all.push(launch(kernel("normalized_matrix")?, op.in_channels.div_ceil(ROWS), arguments)?);
    let own = op.convolution(op.in_channels, op.in_channels, true);
    let reads = [(Slot::Input(0), x), (Slot::Input(1), matrix), (Slot::Input(2), added)];
    if context.adds(Slot::InputGradient(0)) == 1 {
        let operation = operation(context, &own, Pass::Forward, &reads, &[(Slot::Output, dx)]);
        let context = Context { operation: &operation, ..*context };
        all.push(convolution::forward_added(&context, &own)?.into());
    } else {
        all.extend(pass(context, &own, Pass::Forward, &reads, &[(Slot::Output, dx)])?);
    }
    let reads = [(Slot::Gradient, dy), (Slot::Input(1), scaled), (Slot::InputGradient(0), dx)];
    all.extend(pass(context, &map, Pass::Backward, &reads, &[(Slot::InputGradient(0), dx)])?);
    Ok(all)
}
