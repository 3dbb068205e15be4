//! Kernels: one operation per file, with forward and backward pass.
//!
//! A kernel is bound once. Binding finds its tensors by slot, checks their lengths against the operation's sizes, and returns the closure that runs
//! it. A closure cannot fail. Letters: B batch, C channels, H height, W width, T time steps, D width of a sequence, N elements of a sample. Tensors
//! are row-major, with the batch outermost.

mod arg_max;
mod as_strided;
mod attention;
mod average_pool;
mod batch_norm;
mod binary;
mod cached_attention;
mod cached_convolution;
mod cached_scan;
mod coded_product;
mod concat;
mod constant;
mod contrastive;
mod convolution;
mod convolution3d;
mod correlation;
mod cosine_embedding;
mod ctc;
mod declared;
mod expand;
mod exponential;
mod formula;
mod gather;
mod inplace_norm;
mod interpolate;
mod joined;
mod l2_norm;
mod loss;
mod loss_of_classes;
mod loss_of_steps;
mod mask;
mod mat_mul;
mod max_pool;
mod mined;
mod movement;
mod normalize;
mod normalized_convolution;
mod offload;
pub(crate) mod optimizer;
mod pad;
mod padded_positions;
mod permute;
mod pointwise;
mod positions;
mod product;
mod rectifier;
mod recurrence;
mod reduce;
mod relative_bias;
mod reparametrize;
mod resize;
mod rotary;
mod scatter_add;
mod segment_positions;
mod selective_scan;
mod sequence_mask;
mod sinusoid;
mod slice;
mod softmax;
mod spectral_norm;
mod standardize;
mod statistics;
mod sum;
mod take;
mod take_along;
mod taps;
mod top_k;
mod triplet;
mod vector_norm;
mod window;
mod window_mask;

use crate::operands::Operands;
use gpumem_core::error::Error;
use gpumem_core::program::{Action, Op, Pass};
use gpumem_core::train::optim::Optimizer;

/// The state that a kernel gets when it runs, in addition to its tensors.
pub(crate) struct Frame<'a> {
    /// The optimizer of this step.
    pub(crate) optimizer: &'a Optimizer,
    /// A scratch buffer for one operation. It only grows.
    pub(crate) scratch: &'a mut Vec<f32>,
    /// A second scratch buffer, for operations that call others which use the first.
    pub(crate) planes: &'a mut Vec<f32>,
}

/// A bound operation.
pub(crate) type Kernel = Box<dyn FnMut(&mut Frame<'_>) + Send>;

/// The result of binding an operation.
type Bound = Result<Kernel, Error>;

/// Returns a closure as a kernel.
fn kernel(run: impl FnMut(&mut Frame<'_>) + Send + 'static) -> Bound {
    Ok(Box::new(run))
}

/// Returns the larger number. Unlike `max`, returns NaN if `x` is NaN.
fn at_least<T: PartialOrd>(least: T, x: T) -> T {
    if x < least { least } else { x }
}

/// Binds an operation to its tensors, and returns its kernel.
pub(crate) fn bind(action: &Action, operands: &mut Operands<'_>) -> Bound {
    match action {
        Action::Run { op, pass: Pass::Forward | Pass::Again | Pass::Chunk } => forward(op, operands),
        Action::Run { op, pass: Pass::Backward } => backward(op, operands),
        Action::Loss(criterion) => loss::bind(criterion, operands),
        Action::Check => optimizer::check(operands),
        Action::Squares(first) => optimizer::clip::squares(*first, operands),
        Action::Norm => optimizer::clip::norm(operands),
        Action::Update => optimizer::update(operands),
        Action::Advance => optimizer::advance(operands),
        Action::Fetch(piece) => offload::fetch(*piece, operands),
        Action::UpdatePiece(piece) => optimizer::update_piece(*piece, operands),
        Action::Store(piece) => offload::store(*piece, operands),
        Action::Settle => offload::settle(),
        Action::Park(leg) => offload::park(*leg, operands),
        Action::Accumulate => movement::accumulate(operands),
        Action::Collect => movement::collect(operands),
        Action::Copy => movement::copy(operands),
        Action::SumBatch => movement::sum_batch(operands),
        Action::SaveStatistics(first) => statistics::save(*first, operands),
        Action::RestoreStatistics(first) => statistics::restore(*first, operands),
        Action::Average => optimizer::average::average(operands),
        Action::AveragePiece(piece) => optimizer::average::average_piece(*piece, operands),
    }
}

fn forward(op: &Op, operands: &mut Operands<'_>) -> Bound {
    match op {
        Op::Product(op) => product::forward(op, operands),
        Op::MatMul(op) => mat_mul::forward(op, operands),
        Op::Convolution(op) => convolution::forward(op, operands),
        Op::Pointwise(op) => pointwise::forward(op, operands),
        Op::Sum(op) => sum::forward(op, operands),
        Op::Binary(op) => binary::forward(op, operands),
        Op::Normalize(op) => normalize::forward(op, operands),
        Op::BatchNorm(op) => batch_norm::forward(op, operands, |y| y),
        Op::InplaceNorm(op) => inplace_norm::forward(op, operands),
        Op::MaxPool(op) => max_pool::forward(op, operands),
        Op::AveragePool(op) => average_pool::forward(op, operands),
        Op::Resize(op) => resize::forward(op, operands),
        Op::Softmax(op) => softmax::forward(op, operands),
        Op::Attention(op) => attention::forward(op, operands),
        Op::Gather(op) => gather::forward(op, operands),
        Op::Concat(op) => concat::forward(op, operands),
        Op::Slice(op) => slice::forward(op, operands),
        Op::Mask(op) => mask::forward(op, operands),
        Op::Formula(op) => formula::forward(op, operands),
        Op::Declared(op) => declared::forward(op, operands),
        Op::Standardize(op) => standardize::forward(op, operands),
        Op::Permute(op) => permute::forward(op, operands),
        Op::Reduce(op) => reduce::forward(op, operands),
        Op::Expand(op) => expand::forward(op, operands),
        Op::Interpolate(op) => interpolate::forward(op, operands),
        Op::Pad(op) => pad::forward(op, operands),
        Op::RelativeBias(op) => relative_bias::forward(op, operands),
        Op::Rotary(op) => rotary::forward(op, operands),
        Op::Sinusoid(op) => sinusoid::forward(op, operands),
        Op::WindowMask(op) => window_mask::forward(op, operands),
        Op::Constant(op) => constant::forward(op, operands),
        Op::L2Norm(op) => l2_norm::forward(op, operands),
        Op::VectorNorm(op) => vector_norm::forward(op, operands),
        Op::PaddedPositions(op) => padded_positions::forward(op, operands),
        Op::ArgMax(op) => arg_max::forward(op, operands),
        Op::Take(op) => take::forward(op, operands),
        Op::Recurrence(op) => recurrence::forward(op, operands),
        Op::CachedAttention(op) => cached_attention::forward(op, operands),
        Op::Positions(op) => positions::forward(op, operands),
        Op::Convolution3d(op) => convolution3d::forward(op, operands),
        Op::MaxPool3d(op) => max_pool::forward(op, operands),
        Op::AveragePool3d(op) => average_pool::forward(op, operands),
        Op::SelectiveScan(op) => selective_scan::forward(op, operands),
        Op::Reparametrize(op) => reparametrize::forward(op, operands),
        Op::SpectralNorm(op) => spectral_norm::forward(op, operands),
        Op::CachedScan(op) => cached_scan::forward(op, operands),
        Op::CachedConvolution(op) => cached_convolution::forward(op, operands),
        Op::CachedRecurrence(op) => recurrence::cached(op, operands),
        Op::CodedProduct(op) => coded_product::forward(op, operands),
        Op::WholeRecurrence(op) => recurrence::whole::forward(op, operands),
        Op::Rectifier(op) => rectifier::forward(op, operands),
        Op::NormalizedConvolution(op) => normalized_convolution::forward(op, operands),
        Op::SequenceMask(op) => sequence_mask::forward(op, operands),
        Op::SegmentPositions(op) => segment_positions::forward(op, operands),
        Op::AsStrided(op) => as_strided::forward(op, operands),
        Op::TopK(op) => top_k::forward(op, operands),
        Op::TakeAlong(op) => take_along::forward(op, operands),
        Op::ScatterAdd(op) => scatter_add::forward(op, operands),
    }
}

/// Binds the backward pass of an operation.
///
/// Backward kernels compute the gradients whose slots the operation writes. So one function serves the gradient of each input, and of all at once.
fn backward(op: &Op, operands: &mut Operands<'_>) -> Bound {
    match op {
        Op::Product(op) => product::backward(op, operands),
        Op::MatMul(op) => mat_mul::backward(op, operands),
        Op::Convolution(op) => convolution::backward(op, operands),
        Op::Pointwise(op) => pointwise::backward(op, operands),
        Op::Binary(op) => binary::backward(op, operands),
        Op::Normalize(op) => normalize::backward(op, operands),
        Op::BatchNorm(op) => batch_norm::backward(op, operands),
        Op::InplaceNorm(op) => inplace_norm::backward(op, operands),
        Op::MaxPool(op) => max_pool::backward(op, operands),
        Op::AveragePool(op) => average_pool::backward(op, operands),
        Op::Resize(op) => resize::backward(op, operands),
        Op::Softmax(op) => softmax::backward(op, operands),
        Op::Attention(op) => attention::backward(op, operands),
        Op::Gather(op) => gather::backward(op, operands),
        Op::Concat(op) => concat::backward(op, operands),
        Op::Slice(op) => slice::backward(op, operands),
        Op::Mask(op) => mask::backward(op, operands),
        Op::Formula(op) => formula::backward(op, operands),
        Op::Declared(op) => declared::backward(op, operands),
        Op::Standardize(op) => standardize::backward(op, operands),
        Op::Permute(op) => permute::backward(op, operands),
        Op::Reduce(op) => reduce::backward(op, operands),
        Op::Sum(_)
        | Op::Expand(_)
        | Op::WindowMask(_)
        | Op::CachedAttention(_)
        | Op::CachedScan(_)
        | Op::CachedConvolution(_)
        | Op::CachedRecurrence(_)
        | Op::Positions(_)
        | Op::Constant(_)
        | Op::PaddedPositions(_)
        | Op::SegmentPositions(_)
        | Op::AsStrided(_)
        | Op::TopK(_)
        | Op::ArgMax(_) => Err(Error::Damaged("what needs no backward operation has one in the program")),
        Op::Interpolate(op) => interpolate::backward(op, operands),
        Op::Pad(op) => pad::backward(op, operands),
        Op::RelativeBias(op) => relative_bias::backward(op, operands),
        Op::Rotary(op) => rotary::backward(op, operands),
        Op::Sinusoid(op) => sinusoid::backward(op, operands),
        Op::L2Norm(op) => l2_norm::backward(op, operands),
        Op::VectorNorm(op) => vector_norm::backward(op, operands),
        Op::Take(op) => take::backward(op, operands),
        Op::TakeAlong(op) => take_along::backward(op, operands),
        Op::ScatterAdd(op) => scatter_add::backward(op, operands),
        Op::Recurrence(op) => recurrence::backward(op, operands),
        Op::WholeRecurrence(op) => recurrence::whole::backward(op, operands),
        Op::Convolution3d(op) => convolution3d::backward(op, operands),
        Op::MaxPool3d(op) => max_pool::backward(op, operands),
        Op::AveragePool3d(op) => average_pool::backward(op, operands),
        Op::SelectiveScan(op) => selective_scan::backward(op, operands),
        Op::Reparametrize(op) => reparametrize::backward(op, operands),
        Op::SpectralNorm(op) => spectral_norm::backward(op, operands),
        Op::Rectifier(op) => rectifier::backward(op, operands),
        Op::CodedProduct(op) => coded_product::backward(op, operands),
        Op::NormalizedConvolution(op) => normalized_convolution::backward(op, operands),
        Op::SequenceMask(op) => sequence_mask::backward(op, operands),
    }
}
