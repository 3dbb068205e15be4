use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// `max(x, 0)`: `Relu` or `Relu(inplace)`.
    ///
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the output. In place it costs nothing. Without `inplace` the output still overwrites the input
    ///   wherever nothing else needs the input; with it, that is promised, or an error.
    ///
    /// PyTorch: `torch.nn.ReLU(inplace)`.
    pub struct Relu {
        /// Dimensions of input and output.
        pub shape: Shape,
        /// Whether the user asked for the output to overwrite the input.
        pub inplace: bool,
    }
}

/// The shape of the only input of a layer that works on numbers of any shape.
///
/// # Errors
/// Tokens.
pub(super) fn numbers(inputs: &[Value]) -> Result<Shape, Mistake> {
    match inputs {
        [Value { shape, index: false, .. }] => Ok(*shape),
        _ => Err(Mistake::new("works on numbers, but it is given tokens; put `Embedding` before it")),
    }
}

impl Rule for Relu {
    const NAME: &'static str = "Relu";
    const SIGNATURE: Signature = Signature { forms: &[&[]], optional: &[], options: &["inplace"] };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Relu, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = numbers(inputs)?;
        Ok(Relu { shape, inplace: given.flag("inplace", false)? })
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
