//! Calls of each operation of a program, one operation a file.

pub(crate) mod attention;
mod context;
pub(crate) mod conv;
pub(crate) mod elementwise;
mod grid;
pub(crate) mod loss;
pub(crate) mod matmul;
pub(crate) mod movement;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod recurrence;

use crate::calls::Call;
pub use attention::warpgroup_launches;
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
        Action::Exchange(it) => movement::exchange::start(context, it.collective),
        Action::EndExchange(_) => Ok(movement::exchange::wait(context)),
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

/// Makes `forward` and `backward`, which return the calls of an operation, of the rows of the list of operations.
///
/// A backward pass looks at the gradients that the operation writes, so one function serves the gradient of one input as well as all gradients at
/// once.
macro_rules! passes {
    ($($(#[$doc:meta])* $name:ident: $($module:ident)::+, [$($kernel:literal),*];)*) => {
        fn forward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
            match op { $(Op::$name(op) => own($($module::)+forward(context, op)),)* }
        }

        fn backward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
            match op { $(Op::$name(op) => own($($module::)+backward(context, op)),)* }
        }
    };
}
gpumem_core::for_each_operation!(passes);

/// Converts launches of gpumem's own kernels to calls, if they are not calls yet.
fn own<C: Into<Call>>(calls: Result<Vec<C>, Error>) -> Result<Vec<Call>, Error> {
    Ok(calls?.into_iter().map(C::into).collect())
}

/// Refuses the backward pass of an operation that has none. Its module takes this function as its `backward`.
fn no_backward<T>(_: &Context<'_>, _: &T) -> Result<Vec<Call>, Error> {
    Err(Error::Damaged("what needs no backward operation has one in the program"))
}
