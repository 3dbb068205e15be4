use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Gather, PaddedPositions, SegmentPositions, Slice};
use alloc::format;

/// `PositionEmbedding(positions, embedding_dim)`: one row of a table for each position. On a sequence, `PositionEmbedding(positions)` takes
/// its width.
///
/// * Option: `padding_idx`, the token that is padding. Padding has the row `padding_idx`; other tokens are counted from `padding_idx + 1`
///   on, as if there were no padding. The table needs at least `padding_idx + 1 + T` rows.
/// * Input tokens `[T]` or a sequence `[T, D]`; only the length matters. Output `[T, embedding_dim]`, the first T rows of the table, one
///   for the whole batch. Add it to the tokens' rows: `Add(Embedding(V, D), PositionEmbedding(T, D))`. With `padding_idx` the input are
///   tokens, and each sample has rows of its own.
/// * Inside `segments` positions are counted from the beginning of each document, and each sample has rows of its own.
/// * Parameters: `weight` `[positions, embedding_dim]`, normal with mean 0 and deviation 1; 0 in row `padding_idx`, which gets no gradient.
/// * Backward keeps nothing; with `padding_idx` the positions, four bytes for each.
///
/// PyTorch: `torch.nn.Embedding(positions, embedding_dim)(torch.arange(T))`; with `padding_idx`, `RobertaEmbeddings` of
/// `transformers.models.roberta.modeling_roberta`.
#[derive(Clone, Debug)]
pub struct PositionEmbedding {
    positions: u64,
    embedding_dim: Option<u64>,
    padding_idx: Option<u64>,
}

impl Layer for PositionEmbedding {
    const NAME: &'static str = "PositionEmbedding";

    fn read(from: &mut Arguments<'_>) -> PositionEmbedding {
        PositionEmbedding {
            positions: from.required("positions").positive(),
            embedding_dim: from.trailing("embedding_dim").positive_if_any(),
            padding_idx: from.option("padding_idx").integer(),
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
        let segments = b.segments_of(&x[0]);
        if let Some(padding) = self.padding_idx {
            if segments.is_some() {
                let text =
                    "counts tokens from the beginning of a row, whatever document they are of; leave `padding_idx` out";
                return Err(Mistake::of("padding_idx", text));
            }
            return self.following(b, x[0], width, padding);
        }
        let mut positions = self.positions;
        if positions < steps {
            b.report(Mistake::of("positions", format!("has {positions} positions, but its input has {steps} steps")));
            positions = steps;
        }
        let table = b.parameter("weight", &[positions, width], Role::Weight, Init::Normal(1.0));
        if let Some(segments) = segments {
            let positions = b.op(SegmentPositions { count: steps }, &[segments])?;
            let rows = table.shape.dims()[0];
            return b.op(Gather { rows, width, count: steps, padding: None }, &[positions, table]);
        }
        b.op(Slice { input: table.shape, start: 0, length: steps, axis: 0 }, &[table])
    }
}

impl PositionEmbedding {
    /// Returns the rows of positions that do not count padding.
    fn following(&self, b: &mut Builder<'_>, x: Value, width: u64, padding: u64) -> Result<Value, Mistake> {
        let (&[steps], Elements::Indices) = (x.shape.dims(), x.elements) else {
            let text =
                format!("has `padding_idx`, which is one of tokens [T], but the previous layer produces {}", x.shape);
            return Err(Mistake::of("padding_idx", text));
        };
        let mut rows = self.positions;
        let needed = padding.saturating_add(1).saturating_add(steps);
        if rows < needed {
            let text = format!(
                "has {rows} positions, but {steps} steps after row {padding} of padding need {needed}; write so many"
            );
            b.report(Mistake::of("positions", text));
            rows = needed;
        }
        if needed > 1 << 31 {
            let text = format!("has padding_idx = {padding} and {steps} steps; use no more than 2^31 positions");
            return Err(Mistake::of("padding_idx", text));
        }
        let init = Init::NormalWithZeros { deviation: 1.0, zeros: [padding.saturating_mul(width), width] };
        let table = b.parameter("weight", &[rows, width], Role::Weight, init);
        let positions = b.op(PaddedPositions { count: steps, padding }, &[x])?;
        b.op(Gather { rows, width, count: steps, padding: Some(padding) }, &[positions, table])
    }
}
