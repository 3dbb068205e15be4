use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Inference, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// Sets elements to 0 with probability `p` in training and scales the others by `1 / (1 - p)`: `Dropout` or
    /// `Dropout(p)`.
    ///
    /// * Options: `p = 0.5`; `inplace`.
    /// * Input and output of any one shape. In inference it is gone.
    /// * Parameters: none.
    /// * Backward keeps nothing: which elements were dropped is drawn again from the seed, the step and the layer.
    ///
    /// PyTorch: `torch.nn.Dropout(p, inplace)`.
    pub struct Dropout {
        /// Dimensions of input and output.
        pub shape: Shape,
        /// Whether the user asked for the output to overwrite the input.
        pub inplace: bool,
        /// Probability of a zero.
        pub p: f64,
    }
}

impl Rule for Dropout {
    const NAME: &'static str = "Dropout";
    const SIGNATURE: Signature = Signature { forms: &[&["p"]], optional: &["p"], options: &["inplace"] };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Dropout, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        let p = given.probability("p", 0.5)?;
        Ok(Dropout { shape, inplace: given.flag("inplace", false)?, p })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads { state: true, ..Reads::default() }, in_place: true }
    }

    fn in_place(&self) -> bool {
        true
    }

    fn asks_in_place(&self) -> bool {
        self.inplace
    }

    fn draws(&self) -> bool {
        true
    }

    fn inference(&self) -> Inference {
        Inference::PassesOn
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("Same"))
    }
}

/// The type-level shape rule is [`Same`](crate::typed::Same).
pub(super) mod typed {}
