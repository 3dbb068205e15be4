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
    /// The version of the parameters. It differs from that of the last run if one of them may have changed.
    pub(crate) version: u64,
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
        Action::Exchange(exchange) => movement::exchange::begin(*exchange, operands),
        Action::EndExchange(exchange) => movement::exchange::end(*exchange, operands),
    }
}

/// Makes `forward` and `backward`, which bind the kernels of an operation, of the rows of the list of operations.
///
/// Backward kernels compute the gradients whose slots the operation writes. So one function serves the gradient of each input, and of all at once.
macro_rules! passes {
    ($($(#[$doc:meta])* $name:ident: $($module:ident)::+, [$($kernel:literal),*];)*) => {
        fn forward(op: &Op, operands: &mut Operands<'_>) -> Bound {
            match op { $(Op::$name(op) => $($module::)+forward(op, operands),)* }
        }

        fn backward(op: &Op, operands: &mut Operands<'_>) -> Bound {
            match op { $(Op::$name(op) => $($module::)+backward(op, operands),)* }
        }
    };
}
gpumem_core::for_each_operation!(passes);

/// Refuses the backward pass of an operation that has none. Its module takes this function as its `backward`.
fn no_backward<T>(_: &T, _: &mut Operands<'_>) -> Bound {
    Err(Error::Damaged("what needs no backward operation has one in the program"))
}
