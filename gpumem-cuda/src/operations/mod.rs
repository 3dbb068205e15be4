//! Calls of each operation of a program, one operation a file.

pub(crate) mod attention;
pub(crate) mod average;
mod average_pool;
pub(crate) mod batch_norm;
mod binary;
mod cached_attention;
mod cached_convolution;
pub(crate) mod chain;
mod coded_product;
mod concat;
mod constant;
mod context;
mod contrastive;
pub(crate) mod convolution;
mod convolution3d;
mod declared;
mod expand;
mod factored;
mod formula;
mod gather;
mod grid;
mod indices;
mod inplace_norm;
mod interpolate;
mod l2_norm;
pub(crate) mod loss;
mod mask;
mod mat_mul;
pub(crate) mod max_pool;
mod movement;
mod muon;
pub(crate) mod norm;
pub(crate) mod normalize;
pub(crate) mod normalized_convolution;
mod offload;
pub(crate) mod optimizer;
mod pad;
mod permute;
pub(crate) mod pointwise;
mod pools3d;
mod positions;
pub(crate) mod product;
mod rectifier;
mod recurrence;
mod reduce;
mod relative_bias;
mod reparametrize;
mod resize;
mod rotary;
mod selective_scan;
mod sequence_mask;
mod sinusoid;
mod slice;
mod softmax;
mod spectral_norm;
mod standardize;
pub(crate) mod statistics;
pub(crate) mod sum;
mod take;
mod take_along;
mod top_k;
mod triplet;
mod vector_norm;
pub(crate) mod whole_recurrence;
mod window_mask;

use crate::calls::{Call, Launch};
pub use context::{Context, Setting, order, tensor_core_terms};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Op, Operation, Order, Pass};

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
        Action::Squares(first) => own(norm::squares(context, *first)),
        Action::Norm => own(norm::total(context)),
        Action::Update => own(optimizer::update(context)),
        Action::Advance => own(optimizer::advance(context)),
        Action::Accumulate => own(movement::accumulate(context)),
        Action::Collect => own(movement::collect(context)),
        Action::Copy => own(movement::copy(context)),
        Action::SumBatch => own(movement::sum_batch(context)),
        Action::Fetch(piece) => offload::fetch(context, *piece),
        Action::UpdatePiece(piece) => offload::update(context, *piece),
        Action::Store(piece) => offload::store(context, *piece),
        Action::Settle => Ok(offload::settle()),
        Action::Park(leg) => offload::park(context, *leg),
        Action::Average => own(average::launches(context)),
        Action::AveragePiece(piece) => own(average::piece(context, *piece)),
        Action::SaveStatistics(_) | Action::RestoreStatistics(_) => own(statistics::launches(context)),
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
        tensor.layout.pitch == 0 && (!has_two || tensor.layout.order == Order::ChannelsLast)
    })
}

/// Converts launches of gpumem's own kernels to calls.
fn own(launches: Result<Vec<Launch>, Error>) -> Result<Vec<Call>, Error> {
    Ok(launches?.into_iter().map(Call::from).collect())
}

fn forward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
    match op {
        Op::Product(op) => product::forward(context, op),
        Op::MatMul(op) => own(mat_mul::forward(context, op)),
        Op::Convolution(op) => convolution::forward(context, op),
        Op::Pointwise(op) => own(pointwise::forward(context, op)),
        Op::Sum(op) => own(sum::forward(context, op)),
        Op::Binary(op) => own(binary::forward(context, op)),
        Op::Normalize(op) => own(normalize::forward(context, op)),
        Op::BatchNorm(op) => own(batch_norm::forward(context, op)),
        Op::InplaceNorm(op) => own(inplace_norm::forward(context, op)),
        Op::MaxPool(op) => own(max_pool::forward(context, op)),
        Op::AveragePool(op) => own(average_pool::forward(context, op)),
        Op::Resize(op) => own(resize::forward(context, op)),
        Op::Softmax(op) => own(softmax::forward(context, op)),
        Op::Attention(op) => attention::forward(context, op),
        Op::Gather(op) => own(gather::forward(context, op)),
        Op::Concat(op) => own(concat::forward(context, op)),
        Op::Slice(op) => own(slice::forward(context, op)),
        Op::Mask(op) => own(mask::forward(context, op)),
        Op::Formula(op) => own(formula::forward(context, op)),
        Op::Declared(op) => own(declared::forward(context, op)),
        Op::Standardize(op) => own(standardize::forward(context, op)),
        Op::Permute(op) => own(permute::forward(context, op)),
        Op::Reduce(op) => own(reduce::forward(context, op)),
        Op::Expand(_) => own(expand::forward(context)),
        Op::Interpolate(op) => own(interpolate::forward(context, op)),
        Op::Pad(op) => own(pad::forward(context, op)),
        Op::RelativeBias(op) => own(relative_bias::forward(context, op)),
        Op::Rotary(op) => own(rotary::forward(context, op)),
        Op::Sinusoid(op) => own(sinusoid::forward(context, op)),
        Op::WindowMask(op) => own(window_mask::forward(context, op)),
        Op::Constant(op) => own(constant::forward(context, op)),
        Op::L2Norm(op) => own(l2_norm::forward(context, op)),
        Op::VectorNorm(op) => own(vector_norm::forward(context, op)),
        Op::PaddedPositions(op) => own(indices::padded_positions(context, op)),
        Op::ArgMax(op) => own(indices::arg_max(context, op)),
        Op::Take(op) => own(take::forward(context, op)),
        Op::Recurrence(op) => own(recurrence::forward(context, op)),
        Op::CachedAttention(op) => own(cached_attention::forward(context, op)),
        Op::Positions(op) => own(positions::forward(context, op)),
        Op::Convolution3d(op) => own(convolution3d::forward(context, op)),
        Op::MaxPool3d(op) => own(pools3d::max_forward(context, op)),
        Op::AveragePool3d(op) => own(pools3d::average_forward(context, op)),
        Op::SelectiveScan(op) => own(selective_scan::forward(context, op)),
        Op::Reparametrize(op) => own(reparametrize::forward(context, op)),
        Op::SpectralNorm(op) => own(spectral_norm::forward(context, op)),
        Op::CachedScan(op) => own(selective_scan::cached(context, op)),
        Op::CachedConvolution(op) => own(cached_convolution::forward(context, op)),
        Op::CachedRecurrence(op) => own(recurrence::cached(context, op)),
        Op::CodedProduct(op) => own(coded_product::forward(context, op)),
        Op::WholeRecurrence(op) => whole_recurrence::forward(context, op),
        Op::Rectifier(op) => own(rectifier::forward(context, op)),
        Op::NormalizedConvolution(op) => normalized_convolution::forward(context, op),
        Op::SequenceMask(op) => own(sequence_mask::forward(context, op)),
        Op::SegmentPositions(op) => own(indices::segment_positions(context, op)),
        Op::AsStrided(op) => own(indices::as_strided(context, op)),
        Op::TopK(op) => own(top_k::forward(context, op)),
        Op::TakeAlong(op) => own(take_along::forward(context, op)),
        Op::ScatterAdd(op) => own(take_along::scatter(context, op)),
    }
}

/// Returns the calls of a backward pass. Each function looks at the gradients that the operation writes, so it serves the gradient of one input as
/// well as all gradients at once.
fn backward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
    match op {
        Op::Product(op) => product::backward(context, op),
        Op::MatMul(op) => own(mat_mul::backward(context, op)),
        Op::Convolution(op) => convolution::backward(context, op),
        Op::Pointwise(op) => own(pointwise::backward(context, op)),
        Op::Binary(op) => own(binary::backward(context, op)),
        Op::Normalize(op) => own(normalize::backward(context, op)),
        Op::BatchNorm(op) => own(batch_norm::backward(context, op)),
        Op::InplaceNorm(op) => own(inplace_norm::backward(context, op)),
        Op::MaxPool(op) => own(max_pool::backward(context, op)),
        Op::AveragePool(op) => own(average_pool::backward(context, op)),
        Op::Resize(op) => own(resize::backward(context, op)),
        Op::Softmax(op) => own(softmax::backward(context, op)),
        Op::Attention(op) => attention::backward(context, op),
        Op::Gather(op) => own(gather::backward(context, op)),
        Op::Concat(op) => own(concat::backward(context, op)),
        Op::Slice(op) => own(slice::backward(context, op)),
        Op::Mask(op) => own(mask::backward(context, op)),
        Op::Formula(op) => own(formula::backward(context, op)),
        Op::Declared(op) => own(declared::backward(context, op)),
        Op::Standardize(op) => own(standardize::backward(context, op)),
        Op::Permute(op) => own(permute::backward(context, op)),
        Op::Reduce(op) => own(reduce::backward(context, op)),
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
        Op::Interpolate(op) => own(interpolate::backward(context, op)),
        Op::Pad(op) => own(pad::backward(context, op)),
        Op::RelativeBias(op) => own(relative_bias::backward(context, op)),
        Op::Rotary(op) => own(rotary::backward(context, op)),
        Op::Sinusoid(op) => own(sinusoid::backward(context, op)),
        Op::L2Norm(op) => own(l2_norm::backward(context, op)),
        Op::VectorNorm(op) => own(vector_norm::backward(context, op)),
        Op::Take(op) => own(take::backward(context, op)),
        Op::TakeAlong(op) => own(take_along::backward(context, op)),
        Op::ScatterAdd(op) => own(take_along::scatter_backward(context, op)),
        Op::Recurrence(op) => own(recurrence::backward(context, op)),
        Op::WholeRecurrence(op) => whole_recurrence::backward(context, op),
        Op::Convolution3d(op) => own(convolution3d::backward(context, op)),
        Op::MaxPool3d(op) => own(pools3d::max_backward(context, op)),
        Op::AveragePool3d(op) => own(pools3d::average_backward(context, op)),
        Op::SelectiveScan(op) => own(selective_scan::backward(context, op)),
        Op::Reparametrize(op) => own(reparametrize::backward(context, op)),
        Op::SpectralNorm(op) => own(spectral_norm::backward(context, op)),
        Op::Rectifier(op) => own(rectifier::backward(context, op)),
        Op::CodedProduct(op) => own(coded_product::backward(context, op)),
        Op::NormalizedConvolution(op) => normalized_convolution::backward(context, op),
        Op::SequenceMask(op) => own(sequence_mask::backward(context, op)),
    }
}
