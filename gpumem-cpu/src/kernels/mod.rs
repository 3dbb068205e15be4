//! Kernels: one operation per file, with forward and backward pass.
//!
//! A kernel is bound once. Binding finds its tensors by slot, checks their lengths against the operation's sizes, and returns the closure that runs
//! it. A closure cannot fail. Letters: B batch, C channels, H height, W width, T time steps, D width of a sequence, N elements of a sample. Tensors
//! are row-major, with the batch outermost.

mod attention;
pub(crate) mod conv;
pub(crate) mod elementwise;
mod loss;
pub(crate) mod matmul;
mod movement;
pub(crate) mod norm;
pub(crate) mod optimizer;
mod recurrence;

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
        Action::Fetch(piece) => movement::offload::fetch(*piece, operands),
        Action::UpdatePiece(piece) => optimizer::update_piece(*piece, operands),
        Action::Store(piece) => movement::offload::store(*piece, operands),
        Action::Settle => movement::offload::settle(),
        Action::Park(leg) => movement::offload::park(*leg, operands),
        Action::Accumulate => movement::accumulate(operands),
        Action::Collect => movement::collect(operands),
        Action::Copy => movement::copy(operands),
        Action::SumBatch => movement::sum_batch(operands),
        Action::SaveStatistics(first) => norm::statistics::save(*first, operands),
        Action::RestoreStatistics(first) => norm::statistics::restore(*first, operands),
        Action::Average => optimizer::average::average(operands),
        Action::AveragePiece(piece) => optimizer::average::average_piece(*piece, operands),
    }
}

fn forward(op: &Op, operands: &mut Operands<'_>) -> Bound {
    match op {
        Op::Product(op) => matmul::linear::forward(op, operands),
        Op::MatMul(op) => matmul::mat_mul::forward(op, operands),
        Op::Convolution(op) => conv::convolution::forward(op, operands),
        Op::Pointwise(op) => elementwise::pointwise::forward(op, operands),
        Op::Sum(op) => elementwise::sum::forward(op, operands),
        Op::Binary(op) => elementwise::binary::forward(op, operands),
        Op::Normalize(op) => norm::row_norm::forward(op, operands),
        Op::BatchNorm(op) => norm::batch_norm::forward(op, operands, |y| y),
        Op::InplaceNorm(op) => norm::inplace_norm::forward(op, operands),
        Op::MaxPool(op) => conv::max_pool::forward(op, operands),
        Op::AveragePool(op) => conv::average_pool::forward(op, operands),
        Op::Resize(op) => movement::resize::forward(op, operands),
        Op::Softmax(op) => elementwise::softmax::forward(op, operands),
        Op::Attention(op) => attention::forward(op, operands),
        Op::Gather(op) => movement::gather::forward(op, operands),
        Op::Concat(op) => movement::concat::forward(op, operands),
        Op::Slice(op) => movement::slice::forward(op, operands),
        Op::Mask(op) => elementwise::dropout::forward(op, operands),
        Op::Formula(op) => elementwise::formula::forward(op, operands),
        Op::Declared(op) => elementwise::declared::forward(op, operands),
        Op::Standardize(op) => norm::input_norm::forward(op, operands),
        Op::Permute(op) => movement::permute::forward(op, operands),
        Op::Reduce(op) => elementwise::reduce::forward(op, operands),
        Op::Expand(op) => movement::expand::forward(op, operands),
        Op::Interpolate(op) => movement::interpolate::forward(op, operands),
        Op::Pad(op) => movement::pad::forward(op, operands),
        Op::RelativeBias(op) => attention::relative_bias::forward(op, operands),
        Op::Rotary(op) => attention::rotary::forward(op, operands),
        Op::Sinusoid(op) => attention::sinusoid::forward(op, operands),
        Op::WindowMask(op) => attention::window_mask::forward(op, operands),
        Op::Constant(op) => elementwise::constant::forward(op, operands),
        Op::L2Norm(op) => norm::l2_norm::forward(op, operands),
        Op::VectorNorm(op) => norm::vector_norm::forward(op, operands),
        Op::PaddedPositions(op) => attention::padded_positions::forward(op, operands),
        Op::ArgMax(op) => movement::arg_max::forward(op, operands),
        Op::Take(op) => movement::take::forward(op, operands),
        Op::Recurrence(op) => recurrence::forward(op, operands),
        Op::CachedAttention(op) => attention::cached_attention::forward(op, operands),
        Op::Positions(op) => attention::positions::forward(op, operands),
        Op::Convolution3d(op) => conv::convolution3d::forward(op, operands),
        Op::MaxPool3d(op) => conv::max_pool::forward(op, operands),
        Op::AveragePool3d(op) => conv::average_pool::forward(op, operands),
        Op::SelectiveScan(op) => recurrence::selective_scan::forward(op, operands),
        Op::Reparametrize(op) => norm::reparametrize::forward(op, operands),
        Op::SpectralNorm(op) => norm::spectral_norm::forward(op, operands),
        Op::CachedScan(op) => recurrence::cached_scan::forward(op, operands),
        Op::CachedConvolution(op) => conv::cached_convolution::forward(op, operands),
        Op::CachedRecurrence(op) => recurrence::cached(op, operands),
        Op::CodedProduct(op) => matmul::quantized_linear::forward(op, operands),
        Op::WholeRecurrence(op) => recurrence::whole::forward(op, operands),
        Op::Rectifier(op) => elementwise::activation_mask::forward(op, operands),
        Op::NormalizedConvolution(op) => conv::normalized_convolution::forward(op, operands),
        Op::SequenceMask(op) => attention::sequence_mask::forward(op, operands),
        Op::SegmentPositions(op) => attention::segment_positions::forward(op, operands),
        Op::AsStrided(op) => movement::as_strided::forward(op, operands),
        Op::TopK(op) => movement::top_k::forward(op, operands),
        Op::TakeAlong(op) => movement::take_along::forward(op, operands),
        Op::ScatterAdd(op) => movement::scatter_add::forward(op, operands),
    }
}

/// Binds the backward pass of an operation.
///
/// Backward kernels compute the gradients whose slots the operation writes. So one function serves the gradient of each input, and of all at once.
fn backward(op: &Op, operands: &mut Operands<'_>) -> Bound {
    match op {
        Op::Product(op) => matmul::linear::backward(op, operands),
        Op::MatMul(op) => matmul::mat_mul::backward(op, operands),
        Op::Convolution(op) => conv::convolution::backward(op, operands),
        Op::Pointwise(op) => elementwise::pointwise::backward(op, operands),
        Op::Binary(op) => elementwise::binary::backward(op, operands),
        Op::Normalize(op) => norm::row_norm::backward(op, operands),
        Op::BatchNorm(op) => norm::batch_norm::backward(op, operands),
        Op::InplaceNorm(op) => norm::inplace_norm::backward(op, operands),
        Op::MaxPool(op) => conv::max_pool::backward(op, operands),
        Op::AveragePool(op) => conv::average_pool::backward(op, operands),
        Op::Resize(op) => movement::resize::backward(op, operands),
        Op::Softmax(op) => elementwise::softmax::backward(op, operands),
        Op::Attention(op) => attention::backward(op, operands),
        Op::Gather(op) => movement::gather::backward(op, operands),
        Op::Concat(op) => movement::concat::backward(op, operands),
        Op::Slice(op) => movement::slice::backward(op, operands),
        Op::Mask(op) => elementwise::dropout::backward(op, operands),
        Op::Formula(op) => elementwise::formula::backward(op, operands),
        Op::Declared(op) => elementwise::declared::backward(op, operands),
        Op::Standardize(op) => norm::input_norm::backward(op, operands),
        Op::Permute(op) => movement::permute::backward(op, operands),
        Op::Reduce(op) => elementwise::reduce::backward(op, operands),
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
        Op::Interpolate(op) => movement::interpolate::backward(op, operands),
        Op::Pad(op) => movement::pad::backward(op, operands),
        Op::RelativeBias(op) => attention::relative_bias::backward(op, operands),
        Op::Rotary(op) => attention::rotary::backward(op, operands),
        Op::Sinusoid(op) => attention::sinusoid::backward(op, operands),
        Op::L2Norm(op) => norm::l2_norm::backward(op, operands),
        Op::VectorNorm(op) => norm::vector_norm::backward(op, operands),
        Op::Take(op) => movement::take::backward(op, operands),
        Op::TakeAlong(op) => movement::take_along::backward(op, operands),
        Op::ScatterAdd(op) => movement::scatter_add::backward(op, operands),
        Op::Recurrence(op) => recurrence::backward(op, operands),
        Op::WholeRecurrence(op) => recurrence::whole::backward(op, operands),
        Op::Convolution3d(op) => conv::convolution3d::backward(op, operands),
        Op::MaxPool3d(op) => conv::max_pool::backward(op, operands),
        Op::AveragePool3d(op) => conv::average_pool::backward(op, operands),
        Op::SelectiveScan(op) => recurrence::selective_scan::backward(op, operands),
        Op::Reparametrize(op) => norm::reparametrize::backward(op, operands),
        Op::SpectralNorm(op) => norm::spectral_norm::backward(op, operands),
        Op::Rectifier(op) => elementwise::activation_mask::backward(op, operands),
        Op::CodedProduct(op) => matmul::quantized_linear::backward(op, operands),
        Op::NormalizedConvolution(op) => conv::normalized_convolution::backward(op, operands),
        Op::SequenceMask(op) => attention::sequence_mask::backward(op, operands),
    }
}
