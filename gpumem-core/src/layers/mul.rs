use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// Product of two branches, element by element: `Mul(x, y)`.
    ///
    /// * Both branches get the layer's input; their outputs have one shape, which is that of the product.
    /// * Parameters: none.
    /// * Backward keeps both branches' outputs.
    ///
    /// PyTorch: `x * y`.
    pub struct Mul {
        /// Dimensions of both branches and of the product.
        pub shape: Shape,
    }
}

impl Rule for Mul {
    const NAME: &'static str = "Mul";
    const SIGNATURE: Signature = Signature::NONE;
    const BRANCHES: Option<usize> = Some(2);

    fn resolve(_: &Arguments, inputs: &[Value]) -> Result<Mul, Mistake> {
        if inputs.len() != 2 {
            return Err(Mistake::new("joins exactly 2 branches; nest it for more: `Mul(Mul(x, y), z)`"));
        }
        if inputs.iter().any(|value| !value.batched) {
            return Err(Mistake::new("joins branches that differ between samples; add the positions instead"));
        }
        super::add::equal_shapes(inputs).map(|shape| Mul { shape })
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
        Some(Proof::plain("Add"))
    }
}

/// The type-level shape rule is that of `Add`.
pub(super) mod typed {}
