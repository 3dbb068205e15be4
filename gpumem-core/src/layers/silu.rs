use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// Sigmoid linear unit, `x / (1 + exp(-x))`: `Silu`.
    ///
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.SiLU()`.
    pub struct Silu {
        /// Dimensions of input and output.
        pub shape: Shape,
    }
}

impl Rule for Silu {
    const NAME: &'static str = "Silu";
    const SIGNATURE: Signature = Signature::NONE;
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Silu, Mistake> {
        arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        Ok(Silu { shape })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads { input: true, ..Reads::default() }, in_place: true }
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
