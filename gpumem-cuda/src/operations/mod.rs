//! What each operation of a program launches. One file a family, one line a layer.

mod activation;
mod adaptive_avg_pool2d;
mod attention;
mod avg_pool2d;
mod batch_norm2d;
mod conv2d;
mod conv_transpose2d;
pub(crate) mod convolutions;
mod dropout;
mod embedding;
mod fuse;
mod join;
mod layer_norm;
mod linear;
mod loss;
mod max_pool2d;
mod movement;
mod optimizer;
mod position_embedding;
mod products;
mod softmax;
mod upsample;

use crate::launch::{Call, Kernel, Launch};
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::optim::Optimizer;
use gpumem_core::program::{Action, Operation, Slot, Tensor, TensorId};
use gpumem_core::{Half, Precision};

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

/// The calls of an operation, or of several that run as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index of the first operation.
    pub first: usize,
    /// Number of operations, at least 1.
    pub count: usize,
    /// What they make the card do, in order.
    pub calls: Vec<Call>,
}

/// The calls of a whole program.
///
/// # Errors
/// As for [`calls`].
pub fn steps(placed: &Placed, setting: Setting) -> Result<Vec<Step>, Error> {
    steps_where(placed, setting, &mut |_| Ok(true))
}

/// The calls of a whole program, with those matrix products and convolutions only that `can` says the libraries have an
/// algorithm for: where there is none for a fused one, the operations run by themselves, and where there is none for that
/// either, the project's own kernel.
///
/// # Errors
/// As for [`calls`], and what `can` fails with.
pub fn steps_where(placed: &Placed, setting: Setting, can: &mut Can<'_>) -> Result<Vec<Step>, Error> {
    let mut steps: Vec<Step> = Vec::new();
    let mut first = 0;
    while let Some(operation) = placed.program.operations.get(first) {
        let step = match fuse::fused(placed, first, setting, can)? {
            Some((count, calls)) => Step { first, count: count.max(1), calls },
            None => Step { first, count: 1, calls: possible(&Context { placed, operation, setting }, can)? },
        };
        first += step.count;
        steps.push(step);
    }
    Ok(steps)
}

/// Answers whether there is an algorithm for a call that is a library's.
pub type Can<'a> = dyn FnMut(&Call) -> Result<bool, Error> + 'a;

/// The calls of one operation by itself, without those of libraries that cannot be.
fn possible(context: &Context<'_>, can: &mut Can<'_>) -> Result<Vec<Call>, Error> {
    let calls = self::calls(context)?;
    if all_can(&calls, can)? {
        return Ok(calls);
    }
    self::calls(&Context { setting: Setting { library: false, cudnn: false, ..context.setting }, ..*context })
}

/// Whether there is an algorithm for each call of a library's among `calls`.
fn all_can(calls: &[Call], can: &mut Can<'_>) -> Result<bool, Error> {
    for call in calls {
        if !matches!(call, Call::Kernel(_)) && !can(call)? {
            return Ok(false);
        }
    }
    Ok(true)
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
        workspace.and_then(|id| self.placed.bytes.get(id as usize)).copied().unwrap_or(0)
    }

    /// A kernel of `file` for this network's number format.
    pub fn kernel(&self, file: &'static str, entry: &'static str) -> Kernel {
        Kernel::new(file, entry).with("REAL", real(self.setting.precision))
    }

    /// The same for a file whose products can be computed by tensor cores.
    pub fn product_kernel(&self, file: &'static str, entry: &'static str) -> Kernel {
        self.kernel(file, entry).with("TENSOR_CORES", self.tensor_core_terms())
    }

    /// What the tensor cores of the card do for this network's number format: [`tensor_core_terms`].
    pub fn tensor_core_terms(&self) -> u8 {
        tensor_core_terms(real(self.setting.precision), self.setting.capability)
    }
}

/// The constant `REAL` of the kernels: 0 for f32, 1 for bf16, 2 for f16.
fn real(precision: Precision) -> u8 {
    match precision {
        Precision::F32 => 0,
        Precision::Bf16 | Precision::Mixed(Half::Bf16) => 1,
        Precision::F16 | Precision::Mixed(Half::F16) => 2,
    }
}

/// The constant `TENSOR_CORES` of the kernels: how many terms one instruction of the tensor cores multiplies for the number format
/// `real` (the constant `REAL`) at this compute capability, 0 where the kernels do without them.
///
/// Volta's tensor cores have instructions of their own and are left idle.
pub fn tensor_core_terms(real: u8, capability: (i32, i32)) -> u8 {
    match real {
        1 | 2 if capability >= (8, 0) => 16,
        2 if capability >= (7, 5) => 8,
        _ => 0,
    }
}

/// The calls of one operation by itself, in order.
///
/// # Errors
/// [`Error::Damaged`] if the operation lacks a tensor, [`Error::Unsupported`] for what has no kernel yet.
pub fn calls(context: &Context<'_>) -> Result<Vec<Call>, Error> {
    if context.setting.library
        && let Some(calls) = products::calls(context)?
    {
        return Ok(calls);
    }
    if context.setting.cudnn
        && let Some(calls) = convolutions::calls(context)?
    {
        return Ok(calls);
    }
    let launches = match &context.operation.action {
        Action::Forward(layer) => forward(context, layer),
        Action::BackwardInput(layer) | Action::BackwardParameters(layer) | Action::Backward(layer) => {
            backward(context, layer)
        }
        Action::Loss(criterion) => loss::launches(context, criterion),
        Action::Update => optimizer::update(context),
        Action::Advance => optimizer::advance(context),
        Action::Accumulate => movement::accumulate(context),
        Action::Copy => movement::copy(context),
        Action::SumBatch => movement::sum_batch(context),
    };
    Ok(launches?.into_iter().map(Call::from).collect())
}

fn forward(context: &Context<'_>, layer: &Layer) -> Result<Vec<Launch>, Error> {
    match layer {
        Layer::Conv2d(layer) => conv2d::forward(context, layer),
        Layer::ConvTranspose2d(layer) => conv_transpose2d::forward(context, layer),
        Layer::Linear(layer) => linear::forward(context, layer),
        Layer::Tied(layer) => linear::forward_tied(context, layer),
        Layer::BatchNorm2d(layer) => batch_norm2d::forward(context, layer),
        Layer::LayerNorm(layer) => layer_norm::forward(context, layer),
        Layer::MaxPool2d(layer) => max_pool2d::forward(context, layer),
        Layer::AvgPool2d(layer) => avg_pool2d::forward(context, layer),
        Layer::AdaptiveAvgPool2d(layer) => adaptive_avg_pool2d::forward(context, layer),
        Layer::GlobalAvgPool(layer) => adaptive_avg_pool2d::forward_global(context, layer),
        Layer::Softmax(layer) => softmax::forward(context, layer),
        Layer::Dropout(layer) => dropout::forward(context, layer),
        Layer::Upsample(layer) => upsample::forward(context, layer),
        Layer::Embedding(layer) => embedding::forward(context, layer),
        Layer::PositionEmbedding(layer) => position_embedding::forward(context, layer),
        Layer::CausalAttention(layer) => attention::forward(context, layer),
        Layer::Add(layer) => join::add(context, layer),
        Layer::Mul(layer) => join::mul(context, layer),
        Layer::Concat(layer) => join::concat(context, layer),
        Layer::Relu(_)
        | Layer::Relu6(_)
        | Layer::LeakyRelu(_)
        | Layer::Gelu(_)
        | Layer::Silu(_)
        | Layer::Sigmoid(_)
        | Layer::Tanh(_) => activation::forward(context, layer),
        Layer::Flatten(_) | Layer::CausalSelfAttention(_) => Err(NO_OPERATION),
    }
}

fn backward(context: &Context<'_>, layer: &Layer) -> Result<Vec<Launch>, Error> {
    match layer {
        Layer::Conv2d(layer) => conv2d::backward(context, layer),
        Layer::ConvTranspose2d(layer) => conv_transpose2d::backward(context, layer),
        Layer::Linear(layer) => linear::backward(context, layer),
        Layer::Tied(layer) => linear::backward_tied(context, layer),
        Layer::BatchNorm2d(layer) => batch_norm2d::backward(context, layer),
        Layer::LayerNorm(layer) => layer_norm::backward(context, layer),
        Layer::MaxPool2d(layer) => max_pool2d::backward(context, layer),
        Layer::AvgPool2d(layer) => avg_pool2d::backward(context, layer),
        Layer::AdaptiveAvgPool2d(layer) => adaptive_avg_pool2d::backward(context, layer),
        Layer::GlobalAvgPool(layer) => adaptive_avg_pool2d::backward_global(context, layer),
        Layer::Softmax(layer) => softmax::backward(context, layer),
        Layer::Dropout(layer) => dropout::backward(context, layer),
        Layer::Upsample(layer) => upsample::backward(context, layer),
        Layer::Embedding(layer) => embedding::backward(context, layer),
        Layer::PositionEmbedding(layer) => position_embedding::backward(context, layer),
        Layer::CausalAttention(layer) => attention::backward(context, layer),
        Layer::Mul(layer) => join::mul_backward(context, layer),
        Layer::Concat(layer) => join::concat_backward(context, layer),
        Layer::Relu(_)
        | Layer::Relu6(_)
        | Layer::LeakyRelu(_)
        | Layer::Gelu(_)
        | Layer::Silu(_)
        | Layer::Sigmoid(_)
        | Layer::Tanh(_) => activation::backward(context, layer),
        Layer::Add(_) | Layer::Flatten(_) | Layer::CausalSelfAttention(_) => Err(NO_OPERATION),
    }
}

/// Lowering makes no such operation.
const NO_OPERATION: Error = Error::Damaged("the program has an operation that no layer has");

#[cfg(test)]
mod tests {
    use super::tensor_core_terms;

    #[test]
    fn tensor_cores_are_used_where_they_have_the_format() {
        let terms = |real| [(6, 1), (7, 0), (7, 5), (8, 0), (12, 0)].map(|card| tensor_core_terms(real, card));
        assert_eq!(terms(0), [0; 5]);
        assert_eq!(terms(1), [0, 0, 0, 16, 16]);
        assert_eq!(terms(2), [0, 0, 8, 16, 16]);
    }
}
