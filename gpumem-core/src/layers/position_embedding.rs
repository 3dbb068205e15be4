use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Parameter, Proof, Reads, Rule, Value};
use crate::program::Init;
use crate::role::Role;
use crate::shape::Shape;
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// One row of a table for each position: `PositionEmbedding(positions, embedding_dim)`, or
    /// `PositionEmbedding(positions)` on a sequence, whose width it takes.
    ///
    /// * Input tokens `[T]` or a sequence `[T, D]`, of which only the length matters; output `[T, embedding_dim]`, the
    ///   first T rows of the table, one for the whole batch. Add it to the tokens' rows:
    ///   `Add(Embedding(V, D), PositionEmbedding(T, D))`.
    /// * Parameters: `weight` `[positions, embedding_dim]`, normal with mean 0 and deviation 1.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `torch.nn.Embedding(positions, embedding_dim)(torch.arange(T))`.
    pub struct PositionEmbedding {
        /// Rows of the table.
        pub positions: u64,
        /// Elements of a row.
        pub embedding_dim: u64,
        /// Rows used: the length of the sequence.
        pub steps: u64,
    }
}

impl Rule for PositionEmbedding {
    const NAME: &'static str = "PositionEmbedding";
    const SIGNATURE: Signature =
        Signature { forms: &[&["positions", "embedding_dim"]], optional: &["embedding_dim"], options: &[] };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<PositionEmbedding, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let shape = inputs[0].shape;
        let (steps, width) = match (shape.dims(), inputs[0].index) {
            (&[steps], true) => (steps, None),
            (&[steps, width], false) => (steps, Some(width)),
            _ => {
                let message = format!("works on tokens or a sequence [T, D], but the previous layer produces {shape}");
                return Err(Mistake::new(message));
            }
        };
        let positions = given.positive("positions")?;
        let embedding_dim = match width {
            Some(width) if !given.has("embedding_dim") => width,
            _ => given.positive("embedding_dim")?,
        };
        if positions < steps {
            let message = format!("has {positions} positions, but its input has {steps} steps");
            return Err(Mistake::at(given.place("positions"), message));
        }
        Ok(PositionEmbedding { positions, embedding_dim, steps })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.embedding_dim])
    }

    fn parameters(&self) -> Vec<Parameter> {
        let shape = Shape::new(&[self.positions, self.embedding_dim]);
        vec![Parameter { name: "weight", shape, role: Role::Weight, init: Init::Normal(1.0) }]
    }

    fn backward(&self) -> Backward {
        Backward::Parameters { reads: Reads::default() }
    }

    fn ignores_input(&self) -> bool {
        true
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "PositionEmbedding", arguments: vec![self.embedding_dim] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Elements of a row.
    #[derive(Debug)]
    pub struct PositionEmbedding<N>(PhantomData<N>);

    impl<T: Unsigned, N: Unsigned> ShapeRule<(T,)> for PositionEmbedding<N> {
        type Out = (T, N);
    }

    impl<T: Unsigned, M: Unsigned, N: Unsigned> ShapeRule<(T, M)> for PositionEmbedding<N> {
        type Out = (T, N);
    }
}
