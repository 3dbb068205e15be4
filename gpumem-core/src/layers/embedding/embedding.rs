use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::Gather;

/// `Embedding(num_embeddings, embedding_dim)`: one row of a table for each token.
///
/// * Input tokens `[T]`, each below `num_embeddings`; output `[T, embedding_dim]`.
/// * Parameters: `weight` `[num_embeddings, embedding_dim]`, normal with mean 0 and deviation 1.
/// * Backward keeps nothing beside the tokens.
///
/// PyTorch: `torch.nn.Embedding(num_embeddings, embedding_dim)`.
#[derive(Clone, Debug)]
pub struct Embedding {
    num_embeddings: u64,
    embedding_dim: u64,
}

impl Layer for Embedding {
    const NAME: &'static str = "Embedding";

    fn read(from: &mut Arguments<'_>) -> Embedding {
        Embedding {
            num_embeddings: from.required("num_embeddings").positive(),
            embedding_dim: from.required("embedding_dim").positive(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        if x[0].elements != Elements::Indices {
            return Err(Mistake::new("works on tokens; make the network's input `Tokens<T>` and put it first"));
        }
        let Embedding { num_embeddings: rows, embedding_dim: width } = *self;
        let table = b.parameter("weight", &[rows, width], Role::Weight, Init::Normal(1.0));
        b.op(Gather { rows, width, count: x[0].shape.last() }, &[x[0], table])
    }
}
