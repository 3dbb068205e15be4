//! The kernels: one operation a file, forward and backward side by side.
//!
//! A kernel is bound once: it finds its tensors by slot, checks their lengths against the layer's attributes, and returns
//! the closure that runs it. A closure cannot fail. Letters: B batch, C channels, H height, W width, T steps of a sequence,
//! D width of a sequence, N elements of a sample. Tensors are row-major with the batch outermost.

mod activation;
mod adaptive_avg_pool2d;
mod attention;
mod avg_pool2d;
mod batch_norm2d;
mod conv2d;
mod conv_transpose2d;
mod correlation;
mod dropout;
mod embedding;
mod exponential;
mod global_avg_pool;
mod join;
mod layer_norm;
mod linear;
mod loss;
mod max_pool2d;
mod movement;
mod optimizer;
mod position_embedding;
mod softmax;
mod upsample;
mod window;

use crate::operands::Operands;
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::optim::Optimizer;
use gpumem_core::program::Action;

/// What a kernel is given when it runs, beside its tensors.
pub(crate) struct Frame<'a> {
    /// The optimizer of this step.
    pub(crate) optimizer: &'a Optimizer,
    /// A buffer for what an operation needs while it runs; it only grows.
    pub(crate) scratch: &'a mut Vec<f32>,
}

/// A bound operation.
pub(crate) type Kernel = Box<dyn FnMut(&mut Frame<'_>) + Send>;

/// What binding gives.
type Bound = Result<Kernel, Error>;

/// A closure as a kernel.
fn kernel(run: impl FnMut(&mut Frame<'_>) + Send + 'static) -> Bound {
    Ok(Box::new(run))
}

/// Binds an operation to its kernel.
pub(crate) fn bind(action: &Action, operands: &mut Operands<'_>) -> Bound {
    match action {
        Action::Forward(layer) => bind_layer(layer, true, operands),
        Action::BackwardInput(layer) | Action::BackwardParameters(layer) | Action::Backward(layer) => {
            bind_layer(layer, false, operands)
        }
        Action::Loss(criterion) => loss::bind(criterion, operands),
        Action::Update => optimizer::update(operands),
        Action::Advance => optimizer::advance(operands),
        Action::Accumulate => movement::accumulate(operands),
        Action::Copy => movement::copy(operands),
        Action::SumBatch => movement::sum_batch(operands),
    }
}

/// Binds a layer's forward or backward operation. Backward kernels look at what the operation writes, so that one
/// function serves the gradient of the input, that of the parameters, and both at once.
fn bind_layer(layer: &Layer, forward: bool, operands: &mut Operands<'_>) -> Bound {
    macro_rules! pass {
        ($module:ident, $layer:expr) => {
            if forward { $module::forward($layer, operands) } else { $module::backward($layer, operands) }
        };
    }
    match layer {
        Layer::Conv2d(layer) => pass!(conv2d, layer),
        Layer::ConvTranspose2d(layer) => pass!(conv_transpose2d, layer),
        Layer::Linear(layer) => pass!(linear, &linear::Affine::linear(layer)),
        Layer::Tied(layer) => pass!(linear, &linear::Affine::tied(layer)),
        Layer::BatchNorm2d(layer) => pass!(batch_norm2d, layer),
        Layer::LayerNorm(layer) => pass!(layer_norm, layer),
        Layer::MaxPool2d(layer) => pass!(max_pool2d, layer),
        Layer::AvgPool2d(layer) => pass!(avg_pool2d, layer),
        Layer::AdaptiveAvgPool2d(layer) => pass!(adaptive_avg_pool2d, layer),
        Layer::GlobalAvgPool(layer) => pass!(global_avg_pool, layer),
        Layer::Relu(layer) => pass!(activation, &activation::Relu(layer.shape)),
        Layer::Relu6(layer) => pass!(activation, &activation::Relu6(layer.shape)),
        Layer::LeakyRelu(layer) => pass!(activation, &activation::LeakyRelu::new(layer)),
        Layer::Gelu(layer) if layer.tanh => pass!(activation, &activation::GeluTanh(layer.shape)),
        Layer::Gelu(layer) => pass!(activation, &activation::Gelu(layer.shape)),
        Layer::Silu(layer) => pass!(activation, &activation::Silu(layer.shape)),
        Layer::Sigmoid(layer) => pass!(activation, &activation::Sigmoid(layer.shape)),
        Layer::Tanh(layer) => pass!(activation, &activation::Tanh(layer.shape)),
        Layer::Softmax(layer) => pass!(softmax, layer),
        Layer::Dropout(layer) => pass!(dropout, layer),
        Layer::Upsample(layer) => pass!(upsample, layer),
        Layer::Embedding(layer) => pass!(embedding, layer),
        Layer::PositionEmbedding(layer) => pass!(position_embedding, layer),
        Layer::CausalAttention(layer) => pass!(attention, layer),
        Layer::Add(layer) => pass!(join, &join::Add(layer)),
        Layer::Mul(layer) => pass!(join, &join::Mul(layer)),
        Layer::Concat(layer) => pass!(join, &join::Concat(layer)),
        Layer::Flatten(_) => Err(Error::Damaged("Flatten is a view, but the program runs it")),
        Layer::CausalSelfAttention(_) => {
            Err(Error::Damaged("CausalSelfAttention stands for others, but the program runs it"))
        }
    }
}
