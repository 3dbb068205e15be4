use super::permute::permuted;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use alloc::vec::Vec;

/// `Transpose(dim0, dim1)`: two axes change places.
///
/// * Axes are as PyTorch counts them: the batch is axis 0 and stays where it is, -1 is the last.
/// * Input of any shape, numbers or tokens. Where one of the axes has length 1 it may be the same memory under another shape: no operation.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.transpose(dim0, dim1)`.
#[derive(Clone, Debug)]
pub struct Transpose {
    dim0: i64,
    dim1: i64,
}

impl Layer for Transpose {
    const NAME: &'static str = "Transpose";

    fn read(from: &mut Arguments<'_>) -> Transpose {
        Transpose { dim0: from.required("dim0").offset(), dim1: from.required("dim1").offset() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let rank = x[0].numbers_or_tokens()?.rank();
        let [first, second] = [x[0].axis_of("dim0", self.dim0)?, x[0].axis_of("dim1", self.dim1)?];
        let mut order: Vec<u64> = (0..rank as u64).collect();
        order.swap(first, second);
        permuted(b, x[0], order)
    }
}
