use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::Gather;
use crate::shape::{Shape, product};
use alloc::format;

/// `Embedding(num_embeddings, embedding_dim)`: one row of a table for each token. With `padding_idx`,
/// `Embedding(num_embeddings, embedding_dim, 0)`, the row of that token begins with 0 and gets no gradient.
///
/// * Options: `padding_idx`, counted from the end where it is negative.
/// * Input tokens `[T]`, each below `num_embeddings`; output `[T, embedding_dim]`. Tokens of several axes `[A, B, ..]`, up to five, give
///   `[A, B, .., embedding_dim]`.
/// * Parameters: `weight` `[num_embeddings, embedding_dim]`, normal with mean 0 and deviation 1; 0 in row
///   `padding_idx`.
/// * Backward keeps nothing beside the tokens.
///
/// PyTorch: `torch.nn.Embedding(num_embeddings, embedding_dim, padding_idx)`.
#[derive(Clone, Debug)]
pub struct Embedding {
    num_embeddings: u64,
    embedding_dim: u64,
    padding_idx: Option<i64>,
}

impl Layer for Embedding {
    const NAME: &'static str = "Embedding";

    fn read(from: &mut Arguments<'_>) -> Embedding {
        Embedding {
            num_embeddings: from.required("num_embeddings").positive(),
            embedding_dim: from.required("embedding_dim").positive(),
            padding_idx: from.trailing("padding_idx").offset(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        if x[0].elements != Elements::Indices {
            return Err(Mistake::new("works on tokens; make the network's input `Tokens<T>` and put it first"));
        }
        let Embedding { num_embeddings: rows, embedding_dim: width, .. } = *self;
        let dims = x[0].shape.dims();
        if dims.len() >= Shape::MAX_RANK {
            let text = format!(
                "has a row for each of {}, and a value has up to {} axes; flatten the tokens",
                x[0].shape,
                Shape::MAX_RANK
            );
            return Err(Mistake::new(text));
        }
        b.check_indices(&x[0], rows)?;
        let padding = self.padding(b);
        let init = match padding {
            None => Init::Normal(1.0),
            Some(row) => Init::NormalWithZeros { deviation: 1.0, zeros: [row.saturating_mul(width), width] },
        };
        let table = b.parameter("weight", &[rows, width], Role::Weight, init);
        let count = product(dims);
        let tokens = b.reshaped(x[0], Shape::new(&[count]));
        let rows = b.op(Gather { rows, width, count, padding }, &[tokens, table])?;
        Ok(b.reshaped(rows, Shape::new(&[dims, &[width]].concat())))
    }
}

impl Embedding {
    /// Returns the row that `padding_idx` means. `None` if it is left out or wrong.
    fn padding(&self, b: &mut Builder<'_>) -> Option<u64> {
        let (index, rows) = (self.padding_idx?, self.num_embeddings);
        let row = if index < 0 { rows.checked_sub(index.unsigned_abs()) } else { Some(index.unsigned_abs()) };
        let row = row.filter(|&row| row < rows);
        if row.is_none() {
            let text =
                format!("is {index}, but there are {rows} rows; use one from 0 to {}, or -1 for the last", rows - 1);
            b.report(Mistake::of("padding_idx", text));
        }
        row
    }
}
