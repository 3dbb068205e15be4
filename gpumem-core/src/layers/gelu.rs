use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// Gaussian error linear unit, `x * Phi(x)`: `Gelu` or `Gelu(approximate = "tanh")`.
    ///
    /// * Options: `approximate = "none"` (the error function) or `"tanh"`
    ///   (`0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`).
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.GELU(approximate)`.
    pub struct Gelu {
        /// Dimensions of input and output.
        pub shape: Shape,
        /// Whether `Phi` is approximated with the hyperbolic tangent.
        pub tanh: bool,
    }
}

impl Rule for Gelu {
    const NAME: &'static str = "Gelu";
    const SIGNATURE: Signature = Signature { forms: &[&[]], optional: &[], options: &["approximate"] };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Gelu, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        let tanh = given.choice("approximate", &["none", "tanh"])? == 1;
        Ok(Gelu { shape, tanh })
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
