//! Calls of each operation of a program, one operation a file.

pub(crate) mod attention;
mod context;
pub(crate) mod conv;
pub(crate) mod elementwise;
mod grid;
mod indices;
pub(crate) mod loss;
pub(crate) mod matmul;
pub(crate) mod movement;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod recurrence;

use crate::calls::{Call, Launch};
pub use context::{Context, LaunchContext, order, tensor_core_terms};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, ChannelOrder, Op, Operation, Pass};

/// Returns the calls of one operation that is not fused with others, in order.
///
/// # Errors
/// [`Error::Damaged`] if the operation lacks a tensor, [`Error::Unsupported`] if there is no kernel for it.
pub fn calls(context: &Context<'_>) -> Result<Vec<Call>, Error> {
    if !context.placed.program.takes_layouts(context.operation) {
        return Err(context::other_layout());
    }
    match &context.operation.action {
        Action::Run { op, pass: Pass::Forward | Pass::Again | Pass::Chunk } => forward(context, op),
        Action::Run { op, pass: Pass::Backward } => backward(context, op),
        Action::Loss(criterion) => own(loss::launches(context, criterion)),
        Action::Check => own(optimizer::check(context)),
        Action::Squares(first) => own(optimizer::gradient_norm::squares(context, *first)),
        Action::Norm => own(optimizer::gradient_norm::total(context)),
        Action::Update => own(optimizer::update(context)),
        Action::Advance => own(optimizer::advance(context)),
        Action::Accumulate => own(movement::accumulate(context)),
        Action::Collect => own(movement::collect(context)),
        Action::Copy => own(movement::copy(context)),
        Action::SumBatch => own(movement::sum_batch(context)),
        Action::Fetch(piece) => movement::offload::fetch(context, *piece),
        Action::UpdatePiece(piece) => movement::offload::update(context, *piece),
        Action::Store(piece) => movement::offload::store(context, *piece),
        Action::Settle => Ok(movement::offload::settle()),
        Action::Park(leg) => movement::offload::park(context, *leg),
        Action::Average => own(optimizer::average::launches(context)),
        Action::AveragePiece(piece) => own(optimizer::average::piece(context, *piece)),
        Action::SaveStatistics(_) | Action::RestoreStatistics(_) => own(norm::statistics::launches(context)),
    }
}

/// True if all tensors of an operation are dense: stored in the order of their shapes, without gaps.
pub(crate) fn is_dense(placed: &Placed, operation: &Operation) -> bool {
    operation.tensors().all(|id| placed.program.tensor(id).layout.is_dense())
}

/// True if all maps and weights of an operation have their channels last, without gaps.
pub(crate) fn is_channels_last(placed: &Placed, operation: &Operation) -> bool {
    let mut tensors = operation.tensors().map(|id| placed.program.tensor(id));
    tensors.all(|tensor| {
        let is_either = if tensor.batched { tensor.shape.rank() == 3 } else { tensor.shape.rank() == 4 };
        let has_two = is_either && !tensor.shape.is_same_in_both_orders();
        tensor.layout.pitch == 0 && (!has_two || tensor.layout.order == ChannelOrder::ChannelsLast)
    })
}

/// Converts launches of gpumem's own kernels to calls.
fn own(launches: Result<Vec<Launch>, Error>) -> Result<Vec<Call>, Error> {
    Ok(launches?.into_iter().map(Call::from).collect())
}

fn forward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
    match op {
        Op::Product(op) => matmul::linear::forward(context, op),
        Op::MatMul(op) => own(matmul::mat_mul::forward(context, op)),
        Op::Convolution(op) => conv::convolution::forward(context, op),
        Op::Pointwise(op) => own(elementwise::pointwise::forward(context, op)),
        Op::Sum(op) => own(elementwise::sum::forward(context, op)),
        Op::Binary(op) => own(elementwise::binary::forward(context, op)),
        Op::Normalize(op) => own(norm::row_norm::forward(context, op)),
        Op::BatchNorm(op) => own(norm::batch_norm::forward(context, op)),
        Op::InplaceNorm(op) => own(norm::inplace_norm::forward(context, op)),
        Op::MaxPool(op) => own(conv::max_pool::forward(context, op)),
        Op::AveragePool(op) => own(conv::average_pool::forward(context, op)),
        Op::Resize(op) => own(movement::resize::forward(context, op)),
        Op::Softmax(op) => own(elementwise::softmax::forward(context, op)),
        Op::Attention(op) => attention::forward(context, op),
        Op::Gather(op) => own(movement::gather::forward(context, op)),
        Op::Concat(op) => own(movement::concat::forward(context, op)),
        Op::Slice(op) => own(movement::slice::forward(context, op)),
        Op::Mask(op) => own(elementwise::dropout::forward(context, op)),
        Op::Formula(op) => own(elementwise::formula::forward(context, op)),
        Op::Declared(op) => own(elementwise::declared::forward(context, op)),
        Op::Standardize(op) => own(norm::input_norm::forward(context, op)),
        Op::Permute(op) => own(movement::permute::forward(context, op)),
        Op::Reduce(op) => own(elementwise::reduce::forward(context, op)),
        Op::Expand(_) => own(movement::expand::forward(context)),
        Op::Interpolate(op) => own(movement::interpolate::forward(context, op)),
        Op::Pad(op) => own(movement::pad::forward(context, op)),
        Op::RelativeBias(op) => own(attention::relative_bias::forward(context, op)),
        Op::Rotary(op) => own(attention::rotary::forward(context, op)),
        Op::Sinusoid(op) => own(attention::sinusoid::forward(context, op)),
        Op::WindowMask(op) => own(attention::window_mask::forward(context, op)),
        Op::Constant(op) => own(elementwise::constant::forward(context, op)),
        Op::L2Norm(op) => own(norm::l2_norm::forward(context, op)),
        Op::VectorNorm(op) => own(norm::vector_norm::forward(context, op)),
        Op::PaddedPositions(op) => own(indices::padded_positions(context, op)),
        Op::ArgMax(op) => own(indices::arg_max(context, op)),
        Op::Take(op) => own(movement::take::forward(context, op)),
        Op::Recurrence(op) => own(recurrence::forward(context, op)),
        Op::CachedAttention(op) => own(attention::cached_attention::forward(context, op)),
        Op::Positions(op) => own(attention::positions::forward(context, op)),
        Op::Convolution3d(op) => own(conv::convolution3d::forward(context, op)),
        Op::MaxPool3d(op) => own(conv::pools3d::max_forward(context, op)),
        Op::AveragePool3d(op) => own(conv::pools3d::average_forward(context, op)),
        Op::SelectiveScan(op) => own(recurrence::selective_scan::forward(context, op)),
        Op::Reparametrize(op) => own(norm::reparametrize::forward(context, op)),
        Op::SpectralNorm(op) => own(norm::spectral_norm::forward(context, op)),
        Op::CachedScan(op) => own(recurrence::selective_scan::cached(context, op)),
        Op::CachedConvolution(op) => own(conv::cached_convolution::forward(context, op)),
        Op::CachedRecurrence(op) => own(recurrence::cached(context, op)),
        Op::CodedProduct(op) => own(matmul::quantized_linear::forward(context, op)),
        Op::WholeRecurrence(op) => recurrence::whole_recurrence::forward(context, op),
        Op::Rectifier(op) => own(elementwise::activation_mask::forward(context, op)),
        Op::NormalizedConvolution(op) => conv::normalized_convolution::forward(context, op),
        Op::SequenceMask(op) => own(attention::sequence_mask::forward(context, op)),
        Op::SegmentPositions(op) => own(indices::segment_positions(context, op)),
        Op::AsStrided(op) => own(indices::as_strided(context, op)),
        Op::TopK(op) => own(movement::top_k::forward(context, op)),
        Op::TakeAlong(op) => own(movement::take_along::forward(context, op)),
        Op::ScatterAdd(op) => own(movement::take_along::scatter(context, op)),
    }
}

/// Returns the calls of a backward pass. Each function looks at the gradients that the operation writes, so it serves the gradient of one input as
/// well as all gradients at once.
fn backward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
    match op {
        Op::Product(op) => matmul::linear::backward(context, op),
        Op::MatMul(op) => own(matmul::mat_mul::backward(context, op)),
        Op::Convolution(op) => conv::convolution::backward(context, op),
        Op::Pointwise(op) => own(elementwise::pointwise::backward(context, op)),
        Op::Binary(op) => own(elementwise::binary::backward(context, op)),
        Op::Normalize(op) => own(norm::row_norm::backward(context, op)),
        Op::BatchNorm(op) => own(norm::batch_norm::backward(context, op)),
        Op::InplaceNorm(op) => own(norm::inplace_norm::backward(context, op)),
        Op::MaxPool(op) => own(conv::max_pool::backward(context, op)),
        Op::AveragePool(op) => own(conv::average_pool::backward(context, op)),
        Op::Resize(op) => own(movement::resize::backward(context, op)),
        Op::Softmax(op) => own(elementwise::softmax::backward(context, op)),
        Op::Attention(op) => attention::backward(context, op),
        Op::Gather(op) => own(movement::gather::backward(context, op)),
        Op::Concat(op) => own(movement::concat::backward(context, op)),
        Op::Slice(op) => own(movement::slice::backward(context, op)),
        Op::Mask(op) => own(elementwise::dropout::backward(context, op)),
        Op::Formula(op) => own(elementwise::formula::backward(context, op)),
        Op::Declared(op) => own(elementwise::declared::backward(context, op)),
        Op::Standardize(op) => own(norm::input_norm::backward(context, op)),
        Op::Permute(op) => own(movement::permute::backward(context, op)),
        Op::Reduce(op) => own(elementwise::reduce::backward(context, op)),
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
        Op::Interpolate(op) => own(movement::interpolate::backward(context, op)),
        Op::Pad(op) => own(movement::pad::backward(context, op)),
        Op::RelativeBias(op) => own(attention::relative_bias::backward(context, op)),
        Op::Rotary(op) => own(attention::rotary::backward(context, op)),
        Op::Sinusoid(op) => own(attention::sinusoid::backward(context, op)),
        Op::L2Norm(op) => own(norm::l2_norm::backward(context, op)),
        Op::VectorNorm(op) => own(norm::vector_norm::backward(context, op)),
        Op::Take(op) => own(movement::take::backward(context, op)),
        Op::TakeAlong(op) => own(movement::take_along::backward(context, op)),
        Op::ScatterAdd(op) => own(movement::take_along::scatter_backward(context, op)),
        Op::Recurrence(op) => own(recurrence::backward(context, op)),
        Op::WholeRecurrence(op) => recurrence::whole_recurrence::backward(context, op),
        Op::Convolution3d(op) => own(conv::convolution3d::backward(context, op)),
        Op::MaxPool3d(op) => own(conv::pools3d::max_backward(context, op)),
        Op::AveragePool3d(op) => own(conv::pools3d::average_backward(context, op)),
        Op::SelectiveScan(op) => own(recurrence::selective_scan::backward(context, op)),
        Op::Reparametrize(op) => own(norm::reparametrize::backward(context, op)),
        Op::SpectralNorm(op) => own(norm::spectral_norm::backward(context, op)),
        Op::Rectifier(op) => own(elementwise::activation_mask::backward(context, op)),
        Op::CodedProduct(op) => own(matmul::quantized_linear::backward(context, op)),
        Op::NormalizedConvolution(op) => conv::normalized_convolution::backward(context, op),
        Op::SequenceMask(op) => own(attention::sequence_mask::backward(context, op)),
    }
}
