use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Parameter, Proof, Reads, Rule, Value};
use crate::program::Init;
use crate::role::Role;
use crate::shape::Shape;
use crate::wire::record;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// One row of a table for each token: `Embedding(num_embeddings, embedding_dim)`.
    ///
    /// * Input tokens `[T]`, each below `num_embeddings`; output `[T, embedding_dim]`.
    /// * Parameters: `weight` `[num_embeddings, embedding_dim]`, normal with mean 0 and deviation 1.
    /// * Backward keeps nothing beside the tokens.
    ///
    /// PyTorch: `torch.nn.Embedding(num_embeddings, embedding_dim)`.
    pub struct Embedding {
        /// Rows of the table.
        pub num_embeddings: u64,
        /// Elements of a row.
        pub embedding_dim: u64,
        /// Tokens a sample.
        pub tokens: u64,
    }
}

impl Rule for Embedding {
    const NAME: &'static str = "Embedding";
    const SIGNATURE: Signature =
        Signature { forms: &[&["num_embeddings", "embedding_dim"]], optional: &[], options: &[] };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Embedding, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [Value { shape, index: true, .. }] = inputs else {
            return Err(Mistake::new("works on tokens; make the network's input `Tokens<T>` and put it first"));
        };
        let num_embeddings = given.positive("num_embeddings")?;
        Ok(Embedding { num_embeddings, embedding_dim: given.positive("embedding_dim")?, tokens: shape.last() })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.tokens, self.embedding_dim])
    }

    fn parameters(&self) -> Vec<Parameter> {
        let shape = Shape::new(&[self.num_embeddings, self.embedding_dim]);
        vec![Parameter { name: "weight", shape, role: Role::Weight, init: Init::Normal(1.0) }]
    }

    fn backward(&self) -> Backward {
        Backward::Parameters { reads: Reads { input: true, ..Reads::default() } }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "Embedding", arguments: vec![self.embedding_dim] })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Elements of a row.
    #[derive(Debug)]
    pub struct Embedding<N>(PhantomData<N>);

    impl<T: Unsigned, N: Unsigned> ShapeRule<(T,)> for Embedding<N> {
        type Out = (T, N);
    }
}
