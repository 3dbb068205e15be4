use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{Angles, Permute, SegmentPositions, Sinusoid};
use crate::shape::Shape;
use alloc::format;
use alloc::vec::Vec;

/// The default of `base`: frequencies fall from 1 to its inverse.
const BASE: f64 = 10_000.0;

/// `SinusoidalEmbedding(features, base = 10000.0, shift = 0.0, cosines_first = false)`: sines and cosines of numbers, such as the time
/// step of a diffusion.
///
/// * Options: `base = 10000.0`, at least 1; `shift = 0.0`; `cosines_first = false`.
/// * Input numbers `[.., 1]`, output `[.., features]`; or tokens `[T]`, output `[T, features]`. Tokens are exact in every number format,
///   whereas numbers beyond 256 are not in 16 bits. With `n = features / 2`, number `t` becomes `[sin(t * f_0), .., cos(t * f_0), ..]` with
///   `f_i = base^(-i / (n - shift))`.
/// * Parameters: none.
/// * Backward keeps the input, if its gradient is needed.
///
/// PyTorch: `get_timestep_embedding(t, features, flip_sin_to_cos=cosines_first, downscale_freq_shift=shift, max_period=base)` of
/// `diffusers.models.embeddings`.
#[derive(Clone, Debug)]
pub struct SinusoidalEmbedding {
    features: u64,
    base: f64,
    shift: f64,
    cosines_first: bool,
}

impl Layer for SinusoidalEmbedding {
    const NAME: &'static str = "SinusoidalEmbedding";

    fn read(from: &mut Arguments<'_>) -> SinusoidalEmbedding {
        SinusoidalEmbedding {
            features: from.required("features").positive(),
            base: from.option("base").number_from(BASE, 1.0),
            shift: from.option("shift").finite(0.0),
            cosines_first: from.option("cosines_first").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let SinusoidalEmbedding { base, shift, cosines_first, .. } = *self;
        let features = even(b, self.features, 2);
        let (angles, rows) = match (x[0].shape.dims(), x[0].elements) {
            (&[steps], Elements::Indices) => (Angles::Indices, [steps].to_vec()),
            ([rows @ .., 1], Elements::Numbers) => (Angles::Numbers, rows.to_vec()),
            _ => {
                let text =
                    format!("works on tokens or on numbers [.., 1], but the previous layer produces {}", x[0].shape);
                return Err(Mistake::new(text));
            }
        };
        let dims: Vec<u64> = rows.into_iter().chain([features]).collect();
        let (shape, grid, rows_first, interleaved) = (Shape::new(&dims), [1, 1], false, false);
        let shift = checked_shift(b, shift, features);
        b.op(Sinusoid { angles, shape, grid, base, shift, rows_first, cosines_first, interleaved }, &[x[0]])
    }
}

/// `SinusoidalPositions(embedding_dim)`: sines and cosines of each position. On a sequence, `SinusoidalPositions` takes its width.
///
/// * Options: `size`, height and width of the map whose positions, row after row, are the steps: the first half of the features encodes the
///   column, the second half the row; `rows_first = false`: if true, the halves are swapped; `base = 10000.0`, at least 1; `shift = 0.0`;
///   `interleaved = false`: if true, sines and cosines alternate; `parts = false`: if true, positions are fractions of the whole row or
///   column, times 2 pi.
/// * Input tokens `[T]`, a sequence `[T, D]` or a map `[C, H, W]`; only the length or the size matters. Output `[T, embedding_dim]`, or
///   `[embedding_dim, H, W]` of a map, one for the whole batch, to be added. With `n` frequencies, position `t` becomes
///   `[sin(t * f_0), .., cos(t * f_0), ..]` with `f_i = base^(-i / (n - shift))`. With `parts`, row `t` of `H` is
///   `(t + 1) / (H + 1e-6) * 2 pi`.
/// * Parameters: none, and no table in memory but the output.
/// * Inside `segments` positions are counted from the beginning of each document, and each sample has rows of its own; not with `size` and
///   `parts`.
/// * With `cache` in `INFER`, positions of a sequence continue from the last call; those with `parts` or of several rows do not.
/// * Backward keeps nothing.
///
/// PyTorch: `sinusoids(T, D)` of Whisper with `shift = 1.0`; `PositionalEncoding` of the tutorials with `interleaved`; with `size`,
/// `get_2d_sincos_pos_embed` of `diffusers.models.embeddings`; on a map with `rows_first`, `interleaved` and `parts`,
/// `PositionEmbeddingSine(normalize=True)` of DETR and EdgeNeXt's `PositionalEncodingFourier`, before its projection.
#[derive(Clone, Debug)]
pub struct SinusoidalPositions {
    embedding_dim: Option<u64>,
    size: Option<[u64; 2]>,
    rows_first: bool,
    base: f64,
    shift: f64,
    interleaved: bool,
    parts: bool,
}

impl Layer for SinusoidalPositions {
    const NAME: &'static str = "SinusoidalPositions";

    fn read(from: &mut Arguments<'_>) -> SinusoidalPositions {
        SinusoidalPositions {
            embedding_dim: from.trailing("embedding_dim").positive_if_any(),
            size: from.option("size").positive_pair_if_any(),
            rows_first: from.option("rows_first").flag(false),
            base: from.option("base").number_from(BASE, 1.0),
            shift: from.option("shift").finite(0.0),
            interleaved: from.option("interleaved").flag(false),
            parts: from.option("parts").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].shape;
        let (steps, arriving, map) = match (shape.dims(), x[0].elements) {
            (&[steps], Elements::Indices) => (steps, None, None),
            (&[steps, width], Elements::Numbers) => (steps, Some(width), None),
            (&[channels, height, width], Elements::Numbers) => {
                (height.saturating_mul(width), Some(channels), Some([height, width]))
            }
            _ => {
                let text = format!(
                    "works on tokens, a sequence [T, D] or a map [C, H, W], but the previous layer produces {shape}"
                );
                return Err(Mistake::new(text));
            }
        };
        let Some(width) = self.embedding_dim.or(arriving) else { return Err(Mistake::new("needs `embedding_dim`")) };
        let whole = map.unwrap_or([1, steps]);
        let mut grid = self.size.unwrap_or(whole);
        if grid[0].saturating_mul(grid[1]) != steps || map.is_some_and(|map| map != grid) {
            let of = match map {
                Some([height, width]) => format!("is a map of {height} x {width}"),
                None => format!("has {steps} steps"),
            };
            let text = format!("has a map of {} x {} positions, but its input {of}", grid[0], grid[1]);
            b.report(Mistake::of("size", text));
            grid = whole;
        }
        let is_split = self.parts || grid[0] > 1;
        let width = even(b, width, if is_split { 4 } else { 2 });
        let SinusoidalPositions { base, interleaved, rows_first, .. } = *self;
        let shift = checked_shift(b, self.shift, if is_split { width / 2 } else { width });
        let shape = Shape::new(&[steps, width]);
        if let Some(segments) = b.segments_of(&x[0]) {
            if is_split || map.is_some() {
                let text = "places steps on a map, which documents in a row are not; leave `size` and `parts` out";
                return Err(Mistake::new(text));
            }
            let positions = b.op(SegmentPositions { count: steps }, &[segments])?;
            let angles = Angles::Indices;
            let op = Sinusoid { angles, shape, grid, base, shift, rows_first, cosines_first: false, interleaved };
            return b.op(op, &[positions]);
        }
        let angles = if self.parts { Angles::Parts } else { Angles::Steps };
        let rows =
            b.op(Sinusoid { angles, shape, grid, base, shift, rows_first, cosines_first: false, interleaved }, &[])?;
        let Some([height, across]) = map else { return Ok(rows) };
        // As a map: channels are the first axis.
        let columns = b.op(Permute { input: shape, order: [1, 0].to_vec() }, &[rows])?;
        Ok(b.view(columns, Shape::new(&[width, height, across])))
    }
}

/// Returns the features if they are a multiple of `of` and at most 2^20; otherwise reports a mistake.
fn even(b: &mut Builder<'_>, features: u64, of: u64) -> u64 {
    if features.is_multiple_of(of) && features <= 1 << 20 {
        return features;
    }
    b.report(Mistake::new(format!("makes {features} sines and cosines; use a multiple of {of} up to 2^20")));
    features.min(1 << 20).next_multiple_of(of)
}

/// Returns the shift if it is below the number of frequencies; otherwise reports a mistake.
fn checked_shift(b: &mut Builder<'_>, shift: f64, features: u64) -> f64 {
    let count = features / 2;
    if shift < count as f64 {
        return shift;
    }
    b.report(Mistake::of("shift", format!("has shift = {shift}, but {count} frequencies; use less than {count}")));
    0.0
}
