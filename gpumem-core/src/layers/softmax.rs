use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::{Shape, product};
use crate::wire::record;
use alloc::format;

record! {
    /// `exp(x) / sum(exp(x))` along one axis: `Softmax`.
    ///
    /// * Options: `dim`, the axis as PyTorch counts it, with the batch as axis 0. Left out, it is the channels of a
    ///   feature map and the last axis of anything else.
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.nn.Softmax(dim)`.
    pub struct Softmax {
        /// Dimensions of input and output.
        pub shape: Shape,
        /// Positions before the axis.
        pub outer: u64,
        /// Length of the axis.
        pub classes: u64,
        /// Positions after the axis.
        pub inner: u64,
    }
}

impl Rule for Softmax {
    const NAME: &'static str = "Softmax";
    const SIGNATURE: Signature = Signature { forms: &[&["dim"]], optional: &["dim"], options: &[] };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Softmax, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        let rank = shape.rank();
        let default = if rank == 3 { 1 } else { rank as u64 };
        let dim = given.float("dim", default as f64)?;
        let axis = (1..=rank).find(|&axis| dim == axis as f64 || dim == axis as f64 - (rank + 1) as f64);
        let Some(axis) = axis else {
            let message = format!("needs `dim` to be an axis from 1 to {rank} (0 is the batch), or -1 for the last");
            return Err(Mistake::at(given.place("dim"), message));
        };
        let dims = shape.dims();
        let (outer, inner) = (product(&dims[..axis - 1]), product(&dims[axis..]));
        Ok(Softmax { shape, outer, classes: dims[axis - 1], inner })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads { output: true, ..Reads::default() }, in_place: true }
    }

    fn in_place(&self) -> bool {
        true
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("Same"))
    }
}

/// The type-level shape rule is [`Same`](crate::typed::Same).
pub(super) mod typed {}
