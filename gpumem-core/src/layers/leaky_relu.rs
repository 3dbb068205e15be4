use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;
use alloc::format;

record! {
    /// `x` where it is positive, else `negative_slope * x`: `LeakyRelu` or `LeakyRelu(negative_slope)`.
    ///
    /// * Options: `negative_slope = 0.01`, at least 0; `inplace`.
    /// * Input and output of any one shape.
    /// * Parameters: none.
    /// * Backward keeps the output. In place it costs nothing.
    ///
    /// PyTorch: `torch.nn.LeakyReLU(negative_slope, inplace)`.
    pub struct LeakyRelu {
        /// Dimensions of input and output.
        pub shape: Shape,
        /// Whether the user asked for the output to overwrite the input.
        pub inplace: bool,
        /// Slope below 0.
        pub negative_slope: f64,
    }
}

impl Rule for LeakyRelu {
    const NAME: &'static str = "LeakyRelu";
    const SIGNATURE: Signature = Signature {
        forms: &[&["negative_slope"]],
        optional: &["negative_slope"],
        options: &["inplace"],
    };
    const KEEPS_SHAPE: bool = true;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<LeakyRelu, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = super::relu::numbers(inputs)?;
        let negative_slope = given.float("negative_slope", 0.01)?;
        // A negative slope would make the sign of the output say nothing about the sign of the input.
        if negative_slope < 0.0 {
            let message = format!("needs `negative_slope` to be at least 0, not {negative_slope}");
            return Err(Mistake::at(given.place("negative_slope"), message));
        }
        Ok(LeakyRelu { shape, inplace: given.flag("inplace", false)?, negative_slope })
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
