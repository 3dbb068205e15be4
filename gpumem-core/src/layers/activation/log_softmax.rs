use super::softmax::along;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `LogSoftmax` or `LogSoftmax(dim = 1)`: `x - log(sum(exp(x)))` along one axis, the logarithm of [`Softmax`](super::Softmax) without its
/// loss of digits. Use it before the losses that take logarithms of probabilities, `Nll` and `KlDiv`; `CrossEntropy` takes logits and needs
/// none.
///
/// * Options: `dim`, the axis as PyTorch counts it, with the batch as axis 0. Left out, it is the channels of a feature map
///   and the last axis of anything else.
/// * Input and output of any one shape.
/// * Parameters: none.
/// * Backward keeps the output.
///
/// PyTorch: `torch.nn.LogSoftmax(dim)`.
#[derive(Clone, Debug)]
pub struct LogSoftmax {
    dim: Option<f64>,
}

impl Layer for LogSoftmax {
    const NAME: &'static str = "LogSoftmax";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> LogSoftmax {
        LogSoftmax { dim: from.trailing("dim").number_if_any() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let op = along(self.dim, true, b, x[0])?;
        b.op(op, x)
    }
}
