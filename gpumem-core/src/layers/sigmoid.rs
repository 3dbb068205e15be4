use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// `1 / (1 + exp(-x))`: `Sigmoid`.
    ///
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.nn.Sigmoid()`.
    pub struct Sigmoid {
        /// Dimensions of input and output.
        pub shape: Shape,
    }
}

impl Rule for Sigmoid {
    const NAME: &'static str = "Sigmoid";
    const SIGNATURE: Signature = Signature::NONE;
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Sigmoid, Mistake> {
        arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        Ok(Sigmoid { shape })
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
