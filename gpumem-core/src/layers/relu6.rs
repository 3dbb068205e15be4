use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// `min(max(x, 0), 6)`: `Relu6` or `Relu6(inplace)`.
    ///
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the output. In place it costs nothing.
    ///
    /// PyTorch: `torch.nn.ReLU6(inplace)`.
    pub struct Relu6 {
        /// Dimensions of input and output.
        pub shape: Shape,
        /// Whether the user asked for the output to overwrite the input.
        pub inplace: bool,
    }
}

impl Rule for Relu6 {
    const NAME: &'static str = "Relu6";
    const SIGNATURE: Signature = Signature { forms: &[&[]], optional: &[], options: &["inplace"] };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Relu6, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        Ok(Relu6 { shape, inplace: given.flag("inplace", false)? })
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

    fn asks_in_place(&self) -> bool {
        self.inplace
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("Same"))
    }
}

/// The type-level shape rule is [`Same`](crate::typed::Same).
pub(super) mod typed {}
