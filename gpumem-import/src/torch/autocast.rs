//! Autocast: which operations run in which type, and the cache of weights in the lower one.

use super::meta::{Eager, Tensor};
use crate::model::Dtype;

/// True if autocast runs the operation in f32. Others that it lists have no memory of note.
pub(super) fn runs_in_f32(op: &str) -> bool {
    matches!(
        op,
        "softmax"
            | "log_softmax"
            | "layer_norm"
            | "group_norm"
            | "rms_norm"
            | "exp"
            | "expm1"
            | "log"
            | "log10"
            | "log1p"
            | "log2"
            | "pow"
            | "rsqrt"
            | "reciprocal"
            | "cumsum"
            | "cumprod"
            | "sum"
            | "prod"
            | "softplus"
            | "norm"
            | "linalg_vector_norm"
            | "cosine_similarity"
            | "mse_loss"
            | "l1_loss"
            | "smooth_l1_loss"
            | "huber_loss"
            | "nll_loss"
            | "cross_entropy"
            | "acos"
            | "asin"
            | "cosh"
            | "erfinv"
            | "sinh"
            | "tan"
    )
}

impl Eager {
    /// Converts arguments to the type of autocast. Returns them as they are outside of it.
    ///
    /// They are converted from the last to the first. A parameter is converted once, and its copy lives until the context ends.
    pub fn lowered<const N: usize>(&self, arguments: [Option<Tensor>; N]) -> [Option<Tensor>; N] {
        let Some(dtype) = self.autocast() else { return arguments };
        let mut result = arguments;
        for argument in result.iter_mut().rev() {
            let Some(tensor) = argument.take() else { continue };
            *argument = Some(self.lower(tensor, dtype));
        }
        result
    }

    fn lower(&self, tensor: Tensor, dtype: Dtype) -> Tensor {
        if !tensor.is_float() || tensor.dtype == dtype {
            return tensor;
        }
        let is_cached = tensor.requires_grad() && tensor.is_leaf() && self.records();
        let Some(index) = tensor.storage_index().filter(|_| is_cached) else { return self.cast(&tensor, dtype) };
        let known = self.casts.borrow().get(&index).cloned();
        known.unwrap_or_else(|| {
            let copy = self.cast(&tensor, dtype);
            self.casts.borrow_mut().insert(index, copy.clone());
            copy
        })
    }
}
