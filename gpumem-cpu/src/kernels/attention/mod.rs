//! Scaled dot-product attention.
//!
//! In each head `y[i] = sum over j of p[i, j] * v[j]` with `p[i, :] = softmax over j of scale * q[i] . k[j] + bias[i, j]`. Here `j` goes over the
//! time steps of the keys. `causal` limits it to `j <= i`, and a window to steps near `i`. Lengths limit it to the first `n` steps of a sample, and
//! segments to the segment of `i`. Consecutive heads of queries may share one head of keys and values. Queries, keys and values are parts of the rows
//! of one input, or three inputs. The bias may be one row that all queries share: `bias[j]`.
//!
//! A query sees no key if there is none within its bounds (the keys are not read then), or if its scores are all -infinity. Then `p[i, :]` and
//! `y[i]` are 0, and `lse[i]` is +infinity. So the backward pass, too, has `exp(-infinity) = 0` for each of its weights.
//!
//! Rows are computed [`ROWS`] at a time, against all keys that they may see, so there is never a [T, M] tensor. The forward pass saves
//! `lse[i] = log(sum over j of exp(score[i, j]))`, from which the backward pass recomputes `p = exp(score - lse)`. With dropout, `p` is
//! multiplied by the factor `f[i, j]` after the softmax.
//!
//! Backward, with `delta[i] = dy[i] . y[i]` and `s = p * (f * (dy . v) - delta)`: `dv[j] = sum of f * p * dy[i]`,
//! `dq[i] = scale * sum of s * k[j]`, `dk[j] = scale * sum of s * q[i]`, and `dbias = s`, summed over all that share it.

pub(in crate::kernels) mod cached;
mod gradients;
pub(in crate::kernels) mod padded_positions;
pub(in crate::kernels) mod positions;
pub(in crate::kernels) mod relative_bias;
pub(in crate::kernels) mod rotary;
pub(in crate::kernels) mod segment_positions;
pub(in crate::kernels) mod sequence_mask;
pub(in crate::kernels) mod sinusoid;
pub(in crate::kernels) mod window_mask;

pub(in crate::kernels) use gradients::backward;

use super::elementwise::dropout::Draws;
use super::{Bound, kernel};
use crate::math::exponentials;
use crate::matrix::{Matrix, MatrixMut, product};
use crate::operands::{Gradient, Operands, Source, count};
use crate::parallel::{largest, sum, sum_of_pairs, with_scratch};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Attention, Seen};
use rayon::prelude::*;
use std::ops::Range;

/// The number of rows that are computed together.
const ROWS: usize = 64;

/// The largest usable log-sum-exp, in absolute value. A larger one has too few digits for the weights of its row, for example if a mask adds -1e9
/// to all of its scores. The backward pass then sums the scores again.
const FAR: f32 = 1024.0;

#[derive(Clone, Copy)]
struct Sizes {
    /// Sequences in the whole batch. A sample may have several.
    sequences: usize,
    /// Sequences in a sample.
    each: usize,
    heads: usize,
    /// Heads of queries for each head of keys and values.
    group: usize,
    steps: usize,
    keys: usize,
    /// Elements of a head of queries and of keys. The next field is that of a head of values.
    width: usize,
    values: usize,
    scale: f32,
    causal: bool,
    window: usize,
    apart: bool,
    /// The number of matrices that are added, and the number of consecutive heads that share one.
    bias: [usize; 2],
    /// Rows of each added matrix.
    bias_rows: usize,
    /// The rule for which keys a query may see.
    seen: Seen,
}

/// The keys that the queries of a head may see by lengths or segments. `causal` and a window may hide more.
#[derive(Clone, Copy)]
pub(super) enum Within<'a> {
    /// This many keys, from the first on.
    First(usize),
    /// The keys of the query's segment. The slice has the segment of each time step, in ascending order.
    Segments(&'a [u32]),
}

/// Queries, keys and values of one head of one sample.
pub(super) struct Head<'a> {
    /// Queries [T, S], keys [M, S] and values [M, V].
    pub(super) parts: [Matrix<'a>; 3],
    /// The matrix that is added to scores, [T, M].
    pub(super) bias: Option<Matrix<'a>>,
    pub(super) scale: f32,
    /// The time steps of the keys. `within` selects those that count, `before` precede the first query, `causal` hides later ones, `window` far ones.
    pub(super) keys: usize,
    pub(super) within: Within<'a>,
    pub(super) before: usize,
    pub(super) causal: bool,
    pub(super) window: usize,
    /// The index of the dropout draw of the head's element [0, 0].
    pub(super) first_draw: u64,
}

impl Sizes {
    fn new(op: &Attention, operands: &Operands<'_>) -> Result<Sizes, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("attention has sizes that do not fit each other"));
        }
        let [each, heads, steps, keys, width, values] =
            [op.sequences(), op.heads, op.steps(), op.keys, op.width, op.values].map(|size| count(&[size]));
        let group = count(&[op.heads / op.kv_heads]);
        let bias = op.bias.map(|size| count(&[size]));
        let sequences = count(&[operands.batch(), op.sequences()]);
        let window = if op.window == 0 { usize::MAX } else { count(&[op.window]) };
        let bias_rows = count(&[op.bias_rows]);
        let (scale, causal, apart) = (op.scale as f32, op.causal, op.apart);
        Ok(Sizes {
            sequences,
            each,
            heads,
            group,
            steps,
            keys,
            width,
            values,
            scale,
            causal,
            window,
            apart,
            bias,
            bias_rows,
            seen: op.seen,
        })
    }

    /// Returns the rows of queries, keys and values in a sequence.
    fn rows(&self) -> [usize; 3] {
        [self.steps, self.keys, self.keys]
    }

    /// Returns the elements of a row of queries, keys and values, over all heads.
    fn features(&self) -> [usize; 3] {
        let shared = self.heads / self.group;
        [self.heads.saturating_mul(self.width), shared.saturating_mul(self.width), shared.saturating_mul(self.values)]
    }

    /// Returns the elements of a row of the output.
    fn output(&self) -> usize {
        self.heads.saturating_mul(self.values)
    }

    /// Returns the elements of a sequence in each input, without the bias.
    fn inputs(&self) -> Vec<usize> {
        let [q, k, v] = self.features();
        if self.apart {
            self.rows().into_iter().zip([q, k, v]).map(|(rows, row)| rows.saturating_mul(row)).collect()
        } else {
            vec![self.steps.saturating_mul(q.saturating_add(k).saturating_add(v))]
        }
    }

    /// Returns the elements of the inputs, the output and the log-sum-exp.
    fn lengths(&self) -> (Vec<usize>, usize, usize) {
        let all = |each: usize| each.saturating_mul(self.sequences);
        let inputs = self.inputs().into_iter().map(all).collect();
        (inputs, all(self.steps.saturating_mul(self.output())), all(self.heads.saturating_mul(self.steps)))
    }

    /// Returns the elements of an added matrix.
    fn matrix(&self) -> usize {
        self.bias_rows.saturating_mul(self.keys)
    }

    /// Returns the elements from the bias of one query to that of the next: 0 if all share a row.
    fn bias_pitch(&self) -> usize {
        if self.bias_rows == 1 { 0 } else { self.keys }
    }
}

/// A bias that is added to the scores: matrices [T, M] or [1, M], for all samples or, with `batched`, for each.
struct Bias {
    data: Source,
    batched: bool,
}

/// The inputs of an operation.
struct Inputs {
    parts: Vec<Source>,
    bias: Option<Bias>,
    /// Lengths or segments of each sample. `None` if all keys are seen.
    seen: Option<Source<u32>>,
}

impl Inputs {
    fn new(sizes: &Sizes, op: &Attention, operands: &Operands<'_>) -> Result<Inputs, Error> {
        let (lengths, ..) = sizes.lengths();
        let part = |(index, length): (u8, usize)| operands.source(Slot::Input(index), length);
        let parts: Result<Vec<Source>, Error> = (0..).zip(lengths).map(part).collect();
        let bias = match op.added() {
            None => None,
            Some(input) => {
                let (batched, length) = added(sizes, operands, Slot::Input(input));
                Some(Bias { data: operands.source(Slot::Input(input), length)?, batched })
            }
        };
        let numbers = count(&[operands.batch(), op.seen_elements()]);
        let seen = op.seen_by().map(|input| operands.words(Slot::Input(input), numbers)).transpose()?;
        Ok(Inputs { parts: parts?, bias, seen })
    }

    /// Returns one head of one sequence of the batch.
    fn head(&self, sizes: &Sizes, sequence: usize, head: usize) -> Head<'_> {
        let features = sizes.features();
        let shared = head / sizes.group;
        let strips = [(head, sizes.width), (shared, sizes.width), (shared, sizes.values)];
        let part = |part: usize| {
            let (index, width) = strips[part];
            let strip = index * width..(index + 1) * width;
            let (input, before) = if sizes.apart { (part, 0) } else { (0, features[..part].iter().sum()) };
            let row = if sizes.apart { features[part] } else { features.iter().sum() };
            let rows = sizes.rows()[part];
            let data = &self.parts[input].get()[sequence * rows * row..][..rows * row];
            Matrix::new(data, rows, row, row).columns(before + strip.start..before + strip.end)
        };
        let bias = self.bias.as_ref().map(|bias| {
            let first = bias_number(sizes, bias.batched, sequence, head) * sizes.matrix();
            Matrix::new(&bias.data.get()[first..][..sizes.matrix()], sizes.steps, sizes.keys, sizes.bias_pitch())
        });
        let sample = sequence / sizes.each;
        let within = match (&self.seen, sizes.seen) {
            (Some(numbers), Seen::Segments) => Within::Segments(&numbers.get()[sample * sizes.keys..][..sizes.keys]),
            (Some(numbers), _) => Within::First((numbers.get()[sample] as usize).min(sizes.keys)),
            (None, _) => Within::First(sizes.keys),
        };
        Head {
            parts: [part(0), part(1), part(2)],
            bias,
            scale: sizes.scale,
            keys: sizes.keys,
            within,
            before: 0,
            causal: sizes.causal,
            window: sizes.window,
            first_draw: ((sequence * sizes.heads + head) * sizes.steps * sizes.keys) as u64,
        }
    }
}

/// Returns true if the bias differs between samples, and its elements.
fn added(sizes: &Sizes, operands: &Operands<'_>, slot: Slot) -> (bool, usize) {
    let batched = operands.batched(slot);
    let samples = if batched { sizes.sequences / sizes.each } else { 1 };
    (batched, samples.saturating_mul(sizes.bias[0]).saturating_mul(sizes.matrix()))
}

/// Returns the index of the matrix that is added to the scores of a head of a sequence of the batch.
fn bias_number(sizes: &Sizes, batched: bool, sequence: usize, head: usize) -> usize {
    let [matrices, sharing] = sizes.bias;
    let own = (sequence % sizes.each * sizes.heads + head) / sharing % matrices;
    if batched { sequence / sizes.each * matrices + own } else { own }
}

impl Head<'_> {
    /// Returns the keys that at least one of these steps sees. It may be empty.
    fn seen(&self, rows: Range<usize>) -> Range<usize> {
        let first = (self.before + rows.start + 1).saturating_sub(self.window);
        let last = self.before + rows.end - 1;
        let end = if self.causal { last + 1 } else { last.saturating_add(self.window) };
        let within = self.within(rows.start, last);
        let end = end.min(within.end);
        // A step that has no place in a cache sees the cache's last key.
        let first = if matches!(self.within, Within::First(keys) if keys == self.keys) {
            first.min(self.keys - 1)
        } else {
            first
        };
        first.max(within.start).min(end)..end
    }

    /// Returns the keys that count for one of the steps from `first` to `last`.
    fn within(&self, first: usize, last: usize) -> Range<usize> {
        match self.within {
            Within::First(keys) => 0..keys,
            Within::Segments(numbers) => {
                let [first, last] = [numbers[first], numbers[last]];
                numbers.partition_point(|&number| number < first)..numbers.partition_point(|&number| number <= last)
            }
        }
    }

    /// Computes the scores of some rows with all keys that one of them sees.
    fn scores(&self, rows: Range<usize>, scores: &mut [f32]) {
        let [q, k, _] = self.parts;
        let seen = self.seen(rows.clone());
        let out = MatrixMut::new(scores, rows.len(), seen.len(), seen.len());
        product(out, q.rows(rows.clone()), k.rows(seen.clone()).t(), self.scale, false);
        if let Some(bias) = self.bias {
            for (scores, row) in scores.chunks_exact_mut(seen.len()).zip(rows) {
                let bias = &bias.row(row)[seen.clone()];
                wide(|| scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias));
            }
        }
    }
}

/// Returns the keys of a query as a part of those of its block. For a query that sees none, the range is empty.
fn inside(all: &Range<usize>, own: Range<usize>) -> Range<usize> {
    let start = own.start.clamp(all.start, all.end);
    start..own.end.clamp(start, all.end)
}

/// Returns the part of `numbers`, which are those of the keys `all`, for the keys `own`. Sets the others to 0.
fn only<'a>(all: &Range<usize>, own: &Range<usize>, numbers: &'a mut [f32]) -> &'a mut [f32] {
    let (before, rest) = numbers.split_at_mut(own.start - all.start);
    let (numbers, after) = rest.split_at_mut(own.len());
    before.fill(0.0);
    after.fill(0.0);
    numbers
}

/// Splits the rows of a head into blocks of [`ROWS`].
fn row_blocks(steps: usize) -> impl Iterator<Item = Range<usize>> {
    (0..steps).step_by(ROWS).map(move |start| start..steps.min(start + ROWS))
}

/// Calls `f` for every head with its part of `outputs`; `cut` cuts outputs after a number of heads.
pub(super) fn for_heads<T: Send>(
    heads: Range<usize>,
    outputs: T,
    cut: &(impl Fn(T, usize) -> (T, T) + Sync),
    f: &(impl Fn(usize, T) + Sync),
) {
    if heads.len() <= 1 {
        return f(heads.start, outputs);
    }
    let middle = heads.start + heads.len() / 2;
    let (left, right) = cut(outputs, heads.len() / 2);
    rayon::join(|| for_heads(heads.start..middle, left, cut, f), || for_heads(middle..heads.end, right, cut, f));
}

/// The output and the log-sum-exp of some heads.
pub(super) type Outputs<'a> = (MatrixMut<'a>, Option<&'a mut [f32]>);

/// Splits outputs after `columns` columns of the output and `rows` rows of the log-sum-exp.
pub(super) fn cut_outputs<'a>((y, lse): Outputs<'a>, [columns, rows]: [usize; 2]) -> (Outputs<'a>, Outputs<'a>) {
    let (left, right) = y.split_columns(columns);
    let (upper, lower) = lse.map(|lse| lse.split_at_mut(rows)).unzip();
    ((left, upper), (right, lower))
}

/// The gradients of queries, keys and values of some heads. Each is `None` if it is not wanted.
type Gradients<'a> = [Option<MatrixMut<'a>>; 3];

/// Splits gradients after these numbers of columns.
fn cut_gradients<'a>([q, k, v]: Gradients<'a>, columns: [usize; 3]) -> (Gradients<'a>, Gradients<'a>) {
    let cut = |gradient: Option<MatrixMut<'a>>, at| gradient.map(|gradient| gradient.split_columns(at)).unzip();
    let ((q0, q1), (k0, k1), (v0, v1)) = (cut(q, columns[0]), cut(k, columns[1]), cut(v, columns[2]));
    ([q0, k0, v0], [q1, k1, v1])
}

/// Computes `y` from queries, keys and values and, in training, the log-sum-exp.
pub(super) fn forward(op: &Attention, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let (_, output, lse) = sizes.lengths();
    let inputs = Inputs::new(&sizes, op, operands)?;
    let mut output = operands.target(Slot::Output, output)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), lse)?;
    let drops = op.dropout > 0.0 && operands.training();
    let draws =
        if drops { Some(Draws::new(op.dropout, operands.row(), lse * op.keys as usize, operands)?) } else { None };
    kernel(move |_| {
        let Sizes { heads, steps, values, .. } = sizes;
        let features = sizes.output();
        let factor = draws.as_ref().map(Draws::factor);
        let sequence = |sequence: usize, y: &mut [f32], lse: Option<&mut [f32]>| {
            let y = MatrixMut::new(y, steps, features, features);
            for_heads(
                0..heads,
                (y, lse),
                &|outputs, count| cut_outputs(outputs, [count * values, count * steps]),
                &|head, (y, lse)| attend(&inputs.head(&sizes, sequence, head), steps, factor.as_ref(), y, lse),
            );
        };
        let outputs = output.get().par_chunks_mut(steps * features).enumerate();
        match &mut saved {
            Some(saved) => outputs
                .zip(saved.get().par_chunks_mut(heads * steps))
                .for_each(|((index, y), lse)| sequence(index, y, Some(lse))),
            None => outputs.for_each(|(index, y)| sequence(index, y, None)),
        }
    })
}

/// Computes the output [T, V] of one head.
pub(super) fn attend(
    head: &Head<'_>,
    steps: usize,
    factor: Option<&impl Fn(u64) -> f32>,
    mut y: MatrixMut<'_>,
    mut lse: Option<&mut [f32]>,
) {
    let [_, _, v] = head.parts;
    with_scratch(ROWS.min(steps) * head.keys, |scratch| {
        for rows in row_blocks(steps) {
            let seen = head.seen(rows.clone());
            if seen.is_empty() {
                rows.clone().for_each(|i| y.row(i).fill(0.0));
                lse.iter_mut().for_each(|lse| lse[rows.clone()].fill(f32::INFINITY));
                continue;
            }
            let p = &mut scratch[..rows.len() * seen.len()];
            head.scores(rows.clone(), p);
            for (p, i) in p.chunks_exact_mut(seen.len()).zip(rows.clone()) {
                let own = inside(&seen, head.seen(i..i + 1));
                let p = only(&seen, &own, p);
                let log = softmax(p);
                if let Some(lse) = &mut lse {
                    lse[i] = log;
                }
                if let Some(factor) = factor {
                    let first = head.first_draw + (i * head.keys + own.start) as u64;
                    p.iter_mut().zip(first..).for_each(|(p, index)| *p *= factor(index));
                }
            }
            let p = Matrix::new(p, rows.len(), seen.len(), seen.len());
            product(y.rows(rows), p, v.rows(seen), 1.0, false);
        }
    });
}

/// Turns the scores of a query into weights, and returns the logarithm of their sum.
///
/// If all scores are -infinity, all weights are 0 and the logarithm is +infinity.
fn softmax(p: &mut [f32]) -> f32 {
    let largest = largest(p);
    let max = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
    exponentials(None, p, false, [max, 1.0]);
    let sum = sum(p, f64::from);
    // `largest` skips a NaN among the scores, but the sum does not.
    if sum == 0.0 {
        return f32::INFINITY;
    }
    let scale = (1.0 / sum) as f32;
    wide(|| p.iter_mut().for_each(|p| *p *= scale));
    (f64::from(max) + sum.ln()) as f32
}
