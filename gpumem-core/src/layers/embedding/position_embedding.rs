use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::Slice;
use alloc::format;

/// `PositionEmbedding(positions, embedding_dim)`, or `PositionEmbedding(positions)` on a sequence, whose width it takes: one row of
/// a table for each position.
///
/// * Input tokens `[T]` or a sequence `[T, D]`, of which only the length matters; output `[T, embedding_dim]`, the
///   first T rows of the table, one for the whole batch. Add it to the tokens' rows:
///   `Add(Embedding(V, D), PositionEmbedding(T, D))`.
/// * Parameters: `weight` `[positions, embedding_dim]`, normal with mean 0 and deviation 1.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.Embedding(positions, embedding_dim)(torch.arange(T))`.
#[derive(Clone, Debug)]
pub struct PositionEmbedding {
    positions: u64,
    embedding_dim: Option<u64>,
}

impl Layer for PositionEmbedding {
    const NAME: &'static str = "PositionEmbedding";

    fn read(from: &mut Arguments<'_>) -> PositionEmbedding {
        PositionEmbedding {
            positions: from.required("positions").positive(),
            embedding_dim: from.trailing("embedding_dim").positive_if_any(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].shape;
        let (steps, arriving) = match (shape.dims(), x[0].elements) {
            (&[steps], Elements::Indices) => (steps, None),
            (&[steps, width], Elements::Numbers) => (steps, Some(width)),
            _ => {
                let text = format!("works on tokens or a sequence [T, D], but the previous layer produces {shape}");
                return Err(Mistake::new(text));
            }
        };
        let Some(width) = self.embedding_dim.or(arriving) else { return Err(Mistake::new("needs `embedding_dim`")) };
        let mut positions = self.positions;
        if positions < steps {
            b.report(Mistake::of("positions", format!("has {positions} positions, but its input has {steps} steps")));
            positions = steps;
        }
        let table = b.parameter("weight", &[positions, width], Role::Weight, Init::Normal(1.0));
        b.op(Slice { input: table.shape, start: 0, length: steps, axis: 0 }, &[table])
    }
}
