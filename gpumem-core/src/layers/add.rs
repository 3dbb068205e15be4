use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;
use alloc::format;

record! {
    /// Sum of branches: `Add(x, y, ..)`. A residual is `Add([], [..])`.
    ///
    /// * Every branch gets the layer's input; their outputs have one shape, which is that of the sum.
    /// * Parameters: none.
    /// * Backward keeps nothing: each branch gets the gradient as it is.
    ///
    /// PyTorch: `x + y`.
    pub struct Add {
        /// Number of branches.
        pub branches: u64,
        /// Dimensions of every branch and of the sum.
        pub shape: Shape,
    }
}

/// Operations number their inputs in a byte.
pub(super) fn check_branches(inputs: &[Value]) -> Result<(), Mistake> {
    if inputs.len() <= 255 {
        return Ok(());
    }
    Err(Mistake::new(format!("joins at most 255 branches, not {}; nest it", inputs.len())))
}

/// The one shape of all branches.
///
/// # Errors
/// A branch of another shape, or one that carries tokens.
pub(super) fn equal_shapes(inputs: &[Value]) -> Result<Shape, Mistake> {
    if inputs.iter().any(|value| value.index) {
        return Err(Mistake::new("joins numbers, but a branch carries tokens; put `Embedding` in that branch"));
    }
    let first = inputs[0].shape;
    match inputs.iter().position(|value| value.shape != first) {
        None => Ok(first),
        Some(other) => Err(Mistake::at(
            super::arguments::At::Positional(other),
            format!(
                "joins branches of one shape, but branch 0 produces {first} and branch {other} produces {}",
                inputs[other].shape
            ),
        )),
    }
}

impl Rule for Add {
    const NAME: &'static str = "Add";
    const SIGNATURE: Signature = Signature::NONE;
    const BRANCHES: Option<usize> = Some(2);

    fn resolve(_: &Arguments, inputs: &[Value]) -> Result<Add, Mistake> {
        check_branches(inputs)?;
        Ok(Add { branches: inputs.len() as u64, shape: equal_shapes(inputs)? })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: true }
    }

    fn in_place(&self) -> bool {
        true
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("Add"))
    }
}

/// The type-level shape rule, for each pair of branches.
pub(super) mod typed {
    use crate::typed::{Dimensions, ShapeRule};

    /// Two equal shapes.
    #[derive(Debug)]
    pub struct Add;

    impl<In: Dimensions> ShapeRule<(In, In)> for Add {
        type Out = In;
    }
}
