//! One operation a file: its numbers, which gradients read what, what is saved, scratch memory and cost.

mod attention;
mod average_pool;
mod batch_norm;
mod binary;
mod concat;
mod convolution;
mod gather;
mod mask;
mod mat_mul;
mod max_pool;
mod normalize;
mod pointwise;
mod product;
mod resize;
mod slice;
mod softmax;
mod sum;
mod window;

pub use attention::Attention;
pub use average_pool::{AveragePool, Windows};
pub use batch_norm::BatchNorm;
pub use binary::{Axis, Binary, BinaryFunction, broadcast};
pub use concat::Concat;
pub use convolution::Convolution;
pub use gather::Gather;
pub use mask::Mask;
pub use mat_mul::MatMul;
pub use max_pool::MaxPool;
pub use normalize::Normalize;
pub use pointwise::Pointwise;
pub use product::Product;
pub use resize::Resize;
pub use slice::Slice;
pub use softmax::Softmax;
pub use sum::Sum;
pub use window::Window;
