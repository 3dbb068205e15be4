use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Value};
use crate::shape::Shape;
use crate::wire::record;
use crate::shape::product;
use alloc::format;
use alloc::vec::Vec;

record! {
    /// Branches side by side: `Concat(x, y, ..)`, along the channels of feature maps and the last axis of vectors and
    /// sequences.
    ///
    /// * Every branch gets the layer's input; their outputs agree in all other dimensions.
    /// * Parameters: none.
    /// * Backward keeps nothing: each branch gets its part of the gradient.
    ///
    /// PyTorch: `torch.cat((x, y), dim=1)` for feature maps and vectors, `dim=-1` for sequences.
    pub struct Concat {
        /// Rows a sample: T for a sequence, else 1.
        pub outer: u64,
        /// Elements that each branch adds to a row: channels times height times width, or features.
        pub parts: Vec<u64>,
        /// Dimensions of the output.
        pub shape: Shape,
    }
}

impl Rule for Concat {
    const NAME: &'static str = "Concat";
    const SIGNATURE: Signature = Signature::NONE;
    const BRANCHES: Option<usize> = Some(2);

    fn resolve(_: &Arguments, inputs: &[Value]) -> Result<Concat, Mistake> {
        super::add::check_branches(inputs)?;
        if inputs.iter().any(|value| value.index || !value.batched) {
            return Err(Mistake::new("joins numbers that differ between samples; embed tokens and add positions first"));
        }
        let first = inputs[0].shape;
        // Sequences grow in width; maps and vectors in their first dimension.
        let axis = usize::from(first.rank() == 2);
        let rest = |shape: Shape| -> Vec<u64> {
            shape.dims().iter().enumerate().filter(|(index, _)| *index != axis).map(|(_, dim)| *dim).collect()
        };
        let mut length = 0u64;
        for (branch, value) in inputs.iter().enumerate() {
            if value.shape.rank() != first.rank() || rest(value.shape) != rest(first) {
                return Err(Mistake::at(
                    super::arguments::At::Positional(branch),
                    format!(
                        "joins branches that agree in all but the {} dimension, but branch 0 produces {first} and branch \
                         {branch} produces {}",
                        if axis == 0 { "first" } else { "last" },
                        value.shape
                    ),
                ));
            }
            length = length.saturating_add(value.shape.dims()[axis]);
        }
        let outer = product(&first.dims()[..axis]);
        let parts = inputs.iter().map(|value| product(&value.shape.dims()[axis..])).collect();
        let mut dims = first.dims().to_vec();
        dims[axis] = length;
        Ok(Concat { outer, parts, shape: Shape::new(&dims) })
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: false }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof::plain("Concat"))
    }
}

/// The type-level shape rule, for each pair of branches.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::ops::Add;
    use typenum::{Sum, Unsigned};

    /// Adds the dimension along which branches are joined.
    #[derive(Debug)]
    pub struct Concat;

    impl<A: Add<B>, B> ShapeRule<((A,), (B,))> for Concat
    where
        Sum<A, B>: Unsigned,
    {
        type Out = (Sum<A, B>,);
    }

    impl<T: Unsigned, A: Add<B>, B> ShapeRule<((T, A), (T, B))> for Concat
    where
        Sum<A, B>: Unsigned,
    {
        type Out = (T, Sum<A, B>);
    }

    impl<A: Add<B>, B, H: Unsigned, W: Unsigned> ShapeRule<((A, H, W), (B, H, W))> for Concat
    where
        Sum<A, B>: Unsigned,
    {
        type Out = (Sum<A, B>, H, W);
    }
}
