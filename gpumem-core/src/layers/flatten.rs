use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::{Shape, product};
use crate::wire::record;

record! {
    /// All elements of a sample as one vector: `Flatten`.
    ///
    /// * Input of any shape, output `[N]` with as many elements. The same memory under another shape: no operation.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `torch.nn.Flatten()`.
    pub struct Flatten {
        /// Dimensions of the input.
        pub input: Shape,
    }
}

impl Rule for Flatten {
    const NAME: &'static str = "Flatten";
    const SIGNATURE: Signature = Signature::NONE;

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Flatten, Mistake> {
        arguments.matched(&Self::SIGNATURE)?;
        super::relu::numbers(inputs).map(|input| Flatten { input })
    }

    fn output(&self) -> Shape {
        Shape::new(&[product(self.input.dims())])
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: true }
    }

    fn is_view(&self) -> bool {
        true
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("Flatten"))
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::ops::Mul;
    use typenum::{Prod, Unsigned};

    /// Multiplies all dimensions.
    #[derive(Debug)]
    pub struct Flatten;

    impl<N: Unsigned> ShapeRule<(N,)> for Flatten {
        type Out = (N,);
    }

    impl<T: Unsigned + Mul<N>, N: Unsigned> ShapeRule<(T, N)> for Flatten
    where
        Prod<T, N>: Unsigned,
    {
        type Out = (Prod<T, N>,);
    }

    impl<C: Unsigned + Mul<H>, H: Unsigned, W: Unsigned> ShapeRule<(C, H, W)> for Flatten
    where
        Prod<C, H>: Mul<W>,
        Prod<Prod<C, H>, W>: Unsigned,
    {
        type Out = (Prod<Prod<C, H>, W>,);
    }
}
