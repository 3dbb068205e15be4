//! What each operation of a program makes the card do: one file an operation.

mod attention;
mod average_pool;
pub(crate) mod batch_norm;
mod binary;
pub(crate) mod convolution;
mod gather;
mod grid;
pub(crate) mod join;
mod loss;
mod mask;
mod mat_mul;
mod max_pool;
mod movement;
pub(crate) mod normalize;
pub(crate) mod optimizer;
pub(crate) mod pointwise;
pub(crate) mod product;
mod resize;
mod slice;
mod softmax;

use crate::calls::{Call, Kernel, Launch, type_name};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Op, Operation, Pass, Slot, Tensor, TensorId};
use gpumem_core::train::optim::Optimizer;
use gpumem_core::{Format, Precision};

/// What the calls of a whole network depend on.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Samples in a step.
    pub batch: u64,
    /// Number format.
    pub precision: Precision,
    /// The optimizer with its hyperparameters. Its learning rate is read from the state tensor instead.
    pub optimizer: Optimizer,
    /// Compute capability of the card, major and minor.
    pub capability: (i32, i32),
    /// Whether f32 products may run in TensorFloat-32.
    pub tf32: bool,
    /// Whether only algorithms may be chosen that give the same bits in every run.
    pub deterministic: bool,
    /// Whether matrix products go to cuBLASLt. The project's own kernel computes them otherwise.
    pub library: bool,
    /// Whether convolutions go to cuDNN. The project's own kernels compute them otherwise.
    pub cudnn: bool,
}

/// An operation with what its calls depend on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The program and where its tensors are.
    pub placed: &'a Placed,
    /// The operation.
    pub operation: &'a Operation,
    /// The network's.
    pub setting: Setting,
}

impl Context<'_> {
    /// The tensor read as `slot`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn read(&self, slot: Slot) -> Result<TensorId, Error> {
        self.operation.read(slot).ok_or(Error::Damaged("an operation lacks a tensor that its kernel reads"))
    }

    /// The tensor written as `slot`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn written(&self, slot: Slot) -> Result<TensorId, Error> {
        self.operation.written(slot).ok_or(Error::Damaged("an operation lacks a tensor that its kernel writes"))
    }

    /// A tensor by its number.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        self.placed.program.tensor(id)
    }

    /// Elements of a tensor.
    pub fn elements(&self, id: TensorId) -> u64 {
        self.tensor(id).elements(self.setting.batch).unwrap_or(u64::MAX)
    }

    /// Samples in a tensor: the batch, or 1 for what is there once for the whole batch.
    pub fn samples(&self, id: TensorId) -> u64 {
        if self.tensor(id).batched { self.setting.batch } else { 1 }
    }

    /// Whether a gradient is added to what is in its tensor: 1 or 0, for a constant.
    pub fn adds(&self, slot: Slot) -> u8 {
        u8::from(self.operation.accumulate && self.operation.read(slot).is_some())
    }

    /// Bytes of the operation's workspace, 0 if it has none.
    pub fn workspace_bytes(&self) -> u64 {
        let workspace = self.operation.written(Slot::Workspace);
        workspace.map_or(0, |id| self.placed.bytes[id as usize])
    }

    /// A kernel of `file` for this network's number format.
    pub fn kernel(&self, file: &'static str, entry: &'static str) -> Kernel {
        Kernel::new(file, entry).with("REAL", type_name(self.setting.precision.narrow()))
    }

    /// The same for a file whose products can be computed by tensor cores.
    pub fn product_kernel(&self, file: &'static str, entry: &'static str) -> Kernel {
        self.kernel(file, entry).with("TENSOR_CORES", self.tensor_core_terms())
    }

    /// What the tensor cores of the card do for this network's number format: [`tensor_core_terms`].
    pub fn tensor_core_terms(&self) -> u8 {
        tensor_core_terms(self.setting.precision.narrow(), self.setting.capability)
    }
}

/// The constant `TENSOR_CORES` of the kernels: how many terms one instruction of the tensor cores multiplies for a number format at
/// this compute capability, 0 where the kernels do without them.
///
/// Volta's tensor cores have instructions of their own and are left idle.
pub fn tensor_core_terms(format: Format, capability: (i32, i32)) -> u8 {
    match format {
        Format::Bf16 | Format::F16 if capability >= (8, 0) => 16,
        Format::F16 if capability >= (7, 5) => 8,
        Format::F32 | Format::Bf16 | Format::F16 | Format::U32 => 0,
    }
}

/// The calls of one operation by itself, in order.
///
/// # Errors
/// [`Error::Damaged`] if the operation lacks a tensor, [`Error::Unsupported`] for what has no kernel yet.
pub fn calls(context: &Context<'_>) -> Result<Vec<Call>, Error> {
    if !is_dense(context.placed, context.operation) {
        let what = "a tensor in another layout than its shape is written in, for this operation".into();
        return Err(Error::Unsupported { device: "CUDA", what });
    }
    match &context.operation.action {
        Action::Run { op, pass: Pass::Forward } => forward(context, op),
        Action::Run { op, pass: Pass::Backward } => backward(context, op),
        Action::Loss(criterion) => own(loss::launches(context, criterion)),
        Action::Check => own(optimizer::check(context)),
        Action::Update => own(optimizer::update(context)),
        Action::Advance => own(optimizer::advance(context)),
        Action::Accumulate => own(movement::accumulate(context)),
        Action::Copy => own(movement::copy(context)),
        Action::SumBatch => own(movement::sum_batch(context)),
    }
}

/// Whether all tensors of an operation are stored in the order that their shapes are written in, without gaps.
pub(crate) fn is_dense(placed: &Placed, operation: &Operation) -> bool {
    operation.tensors().all(|id| placed.program.tensor(id).layout.is_dense())
}

/// Launches of own kernels, as calls.
fn own(launches: Result<Vec<Launch>, Error>) -> Result<Vec<Call>, Error> {
    Ok(launches?.into_iter().map(Call::from).collect())
}

fn forward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
    match op {
        Op::Product(op) => product::forward(context, op),
        Op::MatMul(op) => own(mat_mul::forward(context, op)),
        Op::Convolution(op) => convolution::forward(context, op),
        Op::Pointwise(op) => own(pointwise::forward(context, op)),
        Op::Sum(op) => own(join::sum(context, op)),
        Op::Binary(op) => own(binary::forward(context, op)),
        Op::Normalize(op) => own(normalize::forward(context, op)),
        Op::BatchNorm(op) => own(batch_norm::forward(context, op)),
        Op::MaxPool(op) => own(max_pool::forward(context, op)),
        Op::AveragePool(op) => own(average_pool::forward(context, op)),
        Op::Resize(op) => own(resize::forward(context, op)),
        Op::Softmax(op) => own(softmax::forward(context, op)),
        Op::Attention(op) => own(attention::forward(context, op)),
        Op::Gather(op) => own(gather::forward(context, op)),
        Op::Concat(op) => own(join::concat(context, op)),
        Op::Slice(op) => own(slice::forward(context, op)),
        Op::Mask(op) => own(mask::forward(context, op)),
    }
}

/// Backward passes look at what the operation writes, so that one function serves the gradient of each input, and of all at
/// once.
fn backward(context: &Context<'_>, op: &Op) -> Result<Vec<Call>, Error> {
    match op {
        Op::Product(op) => product::backward(context, op),
        Op::MatMul(op) => own(mat_mul::backward(context, op)),
        Op::Convolution(op) => convolution::backward(context, op),
        Op::Pointwise(op) => own(pointwise::backward(context, op)),
        Op::Binary(op) => own(binary::backward(context, op)),
        Op::Normalize(op) => own(normalize::backward(context, op)),
        Op::BatchNorm(op) => own(batch_norm::backward(context, op)),
        Op::MaxPool(op) => own(max_pool::backward(context, op)),
        Op::AveragePool(op) => own(average_pool::backward(context, op)),
        Op::Resize(op) => own(resize::backward(context, op)),
        Op::Softmax(op) => own(softmax::backward(context, op)),
        Op::Attention(op) => own(attention::backward(context, op)),
        Op::Gather(op) => own(gather::backward(context, op)),
        Op::Concat(op) => own(join::concat_backward(context, op)),
        Op::Slice(op) => own(slice::backward(context, op)),
        Op::Mask(op) => own(mask::backward(context, op)),
        Op::Sum(_) => Err(Error::Damaged("a sum needs no backward operation, but the program has one")),
    }
}

#[cfg(test)]
mod tests {
    use super::tensor_core_terms;
    use gpumem_core::Format;

    #[test]
    fn tensor_cores_are_used_where_they_have_the_format() {
        let terms = |format| [(6, 1), (7, 0), (7, 5), (8, 0), (12, 0)].map(|card| tensor_core_terms(format, card));
        assert_eq!(terms(Format::F32), [0; 5]);
        assert_eq!(terms(Format::Bf16), [0, 0, 0, 16, 16]);
        assert_eq!(terms(Format::F16), [0, 0, 8, 16, 16]);
    }
}
