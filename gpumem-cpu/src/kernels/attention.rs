//! Attention, here with `causal`, where a step sees itself and those before it; without, `j` goes over all steps. In each head `y[i] = sum over j <= i of p[i, j] * v[j]` with
//! `p[i, :] = softmax over j <= i of q[i] . k[j] / sqrt(S)`. T steps, S = D / heads elements of a head; queries, keys and
//! values lie side by side in rows of D + 2 * K, where K = D for as many heads of keys as of queries; with fewer, heads of queries
//! that follow each other share one.
//!
//! Rows are worked on [`ROWS`] at a time, against all keys that they may see, so that there is never a T x T tensor; the
//! forward pass leaves `lse[i] = log(sum over j of exp(q[i] . k[j] / sqrt(S)))`, from which the backward pass recomputes
//! `p = exp(q . k / sqrt(S) - lse)`. With dropout, `p` is multiplied by the draw's factor `f[i, j]` after the softmax.
//!
//! Backward, with `delta[i] = dy[i] . y[i]` and `s = p * (f * (dy . v) - delta)`:
//! `dv[j] = sum of f * p * dy[i]`, `dq[i] = sum of s * k[j] / sqrt(S)`, `dk[j] = sum of s * q[i] / sqrt(S)`.

use super::exponential::exp;
use super::mask::Draws;
use super::max_pool::required;
use super::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product};
use crate::operands::{Operands, count};
use crate::parallel::{largest, sum, sum_of_pairs, with_scratch};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Attention;
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are worked on together.
const ROWS: usize = 64;

#[derive(Clone, Copy)]
struct Sizes {
    samples: usize,
    heads: usize,
    /// Heads of queries for each head of keys and values.
    group: usize,
    steps: usize,
    /// D, over all heads.
    features: usize,
    /// Elements of a row of queries, keys and values.
    pitch: usize,
    causal: bool,
}

/// Queries, keys and values of one head of one sample, each `[T, S]`.
struct Head<'a> {
    parts: [Matrix<'a>; 3],
    scale: f32,
    /// Steps that there are, and whether one sees only itself and those before it.
    steps: usize,
    causal: bool,
    /// Number of the dropout draw of the head's element `[0, 0]`.
    first_draw: u64,
}

impl Sizes {
    fn new(op: &Attention, operands: &Operands<'_>) -> Result<Sizes, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("attention has no heads, or keys that serve no whole number of them"));
        }
        let [samples, heads, steps, features] =
            [operands.batch(), op.heads, op.steps, op.features()].map(|size| count(&[size]));
        let [group, pitch] = [op.heads / op.kv_heads, op.input_features()].map(|size| count(&[size]));
        Ok(Sizes { samples, heads, group, steps, features, pitch, causal: op.causal })
    }

    /// Lengths of input, output and log-sum-exp.
    fn lengths(&self) -> [usize; 3] {
        let rows = self.samples.saturating_mul(self.steps);
        let output = rows.saturating_mul(self.features);
        [rows.saturating_mul(self.pitch), output, rows.saturating_mul(self.heads)]
    }

    fn width(&self) -> usize {
        self.features / self.heads
    }

    /// Elements of a row of the keys, and of the values.
    fn shared_features(&self) -> usize {
        self.features / self.group
    }

    fn head<'a>(&self, input: &'a [f32], sample: usize, head: usize) -> Head<'a> {
        let Sizes { heads, steps, features, pitch, .. } = *self;
        let sample_input = &input[sample * steps * pitch..][..steps * pitch];
        let all = Matrix::new(sample_input, steps, pitch, pitch);
        let part = |first: usize, head: usize| {
            let first = first + head * self.width();
            all.columns(first..first + self.width())
        };
        let shared = head / self.group;
        Head {
            parts: [part(0, head), part(features, shared), part(features + self.shared_features(), shared)],
            scale: (1.0 / (self.width() as f64).sqrt()) as f32,
            steps,
            causal: self.causal,
            first_draw: ((sample * heads + head) * steps * steps) as u64,
        }
    }
}

impl Head<'_> {
    /// Keys that one of the steps before `end` sees, and no more than those.
    fn seen(&self, end: usize) -> usize {
        if self.causal { end } else { self.steps }
    }
}

/// The rows of a head, [`ROWS`] at a time.
fn row_blocks(steps: usize) -> impl Iterator<Item = Range<usize>> {
    (0..steps).step_by(ROWS).map(move |start| start..steps.min(start + ROWS))
}

/// Calls `f` for every head with its part of `outputs`; `cut` cuts outputs after a number of heads.
fn for_heads<T: Send>(
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

/// Some heads' output and log-sum-exp.
type Outputs<'a> = (MatrixMut<'a>, Option<&'a mut [f32]>);

/// The first `columns` columns of the output with the first `rows` of the log-sum-exp, and the rest.
fn cut_outputs<'a>((y, lse): Outputs<'a>, [columns, rows]: [usize; 2]) -> (Outputs<'a>, Outputs<'a>) {
    let (left, right) = y.split_columns(columns);
    let (upper, lower) = lse.map(|lse| lse.split_at_mut(rows)).unzip();
    ((left, upper), (right, lower))
}

/// The first `columns` columns of the gradients of keys and values with `group` times as many of those of queries, and the rest.
fn cut_gradients<'a>(
    [q, k, v]: [MatrixMut<'a>; 3],
    columns: usize,
    group: usize,
) -> ([MatrixMut<'a>; 3], [MatrixMut<'a>; 3]) {
    let [(q0, q1), (k0, k1), (v0, v1)] =
        [(q, columns * group), (k, columns), (v, columns)].map(|(gradient, columns)| gradient.split_columns(columns));
    ([q0, k0, v0], [q1, k1, v1])
}

/// `y` from queries, keys and values; in training also the log-sum-exp.
pub(super) fn forward(op: &Attention, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let [input, output, lse] = sizes.lengths();
    let input = operands.source(Slot::Input(0), input)?;
    let mut output = operands.target(Slot::Output, output)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), lse)?;
    let drops = op.dropout > 0.0 && operands.training();
    let draws = if drops { Some(Draws::new(op.dropout, operands.row(), operands)?) } else { None };
    kernel(move |_| {
        let Sizes { heads, steps, features, .. } = sizes;
        let (width, input) = (sizes.width(), input.get());
        let factor = draws.as_ref().map(Draws::factor);
        let sample = |sample: usize, y: &mut [f32], lse: Option<&mut [f32]>| {
            let y = MatrixMut::new(y, steps, features, features);
            for_heads(
                0..heads,
                (y, lse),
                &|outputs, count| cut_outputs(outputs, [count * width, count * steps]),
                &|head, (y, lse)| {
                    attend(&sizes.head(input, sample, head), steps, factor.as_ref(), y, lse);
                },
            );
        };
        let outputs = output.get().par_chunks_mut(steps * features).enumerate();
        match &mut saved {
            Some(saved) => outputs
                .zip(saved.get().par_chunks_mut(heads * steps))
                .for_each(|((index, y), lse)| sample(index, y, Some(lse))),
            None => outputs.for_each(|(index, y)| sample(index, y, None)),
        }
    })
}

/// The output `[T, S]` of one head.
fn attend(
    head: &Head<'_>,
    steps: usize,
    factor: Option<&impl Fn(u64) -> f32>,
    mut y: MatrixMut<'_>,
    mut lse: Option<&mut [f32]>,
) {
    let [q, k, v] = head.parts;
    with_scratch(ROWS.min(steps) * steps, |scratch| {
        for rows in row_blocks(steps) {
            let seen = head.seen(rows.end);
            let p = &mut scratch[..rows.len() * seen];
            product(
                MatrixMut::new(p, rows.len(), seen, seen),
                q.rows(rows.clone()),
                k.rows(0..seen).t(),
                head.scale,
                false,
            );
            for (p, i) in p.chunks_exact_mut(seen).zip(rows.clone()) {
                let (p, hidden) = p.split_at_mut(head.seen(i + 1));
                hidden.fill(0.0);
                let max = largest(p);
                wide(|| p.iter_mut().for_each(|p| *p = exp(*p - max)));
                let sum = sum(p, f64::from);
                let scale = (1.0 / sum) as f32;
                wide(|| p.iter_mut().for_each(|p| *p *= scale));
                if let Some(lse) = &mut lse {
                    lse[i] = (f64::from(max) + sum.ln()) as f32;
                }
                if let Some(factor) = factor {
                    let first = head.first_draw + (i * steps) as u64;
                    p.iter_mut().zip(first..).for_each(|(p, index)| *p *= factor(index));
                }
            }
            product(y.rows(rows.clone()), Matrix::new(p, rows.len(), seen, seen), v.rows(0..seen), 1.0, false);
        }
    });
}

/// The gradient of queries, keys and values from `dy`, the input, the output and the log-sum-exp.
pub(super) fn backward(op: &Attention, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let [input_length, output, lse] = sizes.lengths();
    let gradient = operands.source(Slot::Gradient, output)?;
    let input = operands.source(Slot::Input(0), input_length)?;
    let output = operands.source(Slot::Output, output)?;
    let saved = operands.source(Slot::Saved(0), lse)?;
    let draws = if op.dropout > 0.0 { Some(Draws::new(op.dropout, operands.row(), operands)?) } else { None };
    let (accumulate, mut target) = required(operands, input_length)?;
    kernel(move |_| {
        let Sizes { heads, group, steps, features, pitch, .. } = sizes;
        let (input, dy, y, lse) = (input.get(), gradient.get(), output.get(), saved.get());
        let factor = draws.as_ref().map(Draws::factor);
        target.get().par_chunks_mut(steps * pitch).enumerate().for_each(|(sample, dx)| {
            if !accumulate {
                dx.fill(0.0);
            }
            let (dq, rest) = MatrixMut::new(dx, steps, pitch, pitch).split_columns(features);
            let (dk, dv) = rest.split_columns(sizes.shared_features());
            // The heads of queries that share keys add to the same gradients, one after the other.
            for_heads(
                0..heads / group,
                [dq, dk, dv],
                &|outputs, count| cut_gradients(outputs, count * sizes.width(), group),
                &|shared, [mut dq, mut dk, mut dv]| {
                    for (at, head) in (shared * group..(shared + 1) * group).enumerate() {
                        let range = sample * steps * features..(sample + 1) * steps * features;
                        let columns = head * sizes.width()..(head + 1) * sizes.width();
                        let strip = |data| Matrix::new(data, steps, features, features).columns(columns.clone());
                        let lse = &lse[(sample * heads + head) * steps..][..steps];
                        let outputs = [strip(&dy[range.clone()]), strip(&y[range])];
                        let own = at * sizes.width()..(at + 1) * sizes.width();
                        let gradients = [dq.columns(own), dk.rows(0..steps), dv.rows(0..steps)];
                        attend_back(&sizes.head(input, sample, head), outputs, lse, factor.as_ref(), gradients);
                    }
                },
            );
        });
    })
}

/// Adds to the gradients `[T, S]` of one head's queries, keys and values.
fn attend_back(
    head: &Head<'_>,
    [dy, y]: [Matrix<'_>; 2],
    lse: &[f32],
    factor: Option<&impl Fn(u64) -> f32>,
    [mut dq, mut dk, mut dv]: [MatrixMut<'_>; 3],
) {
    let [q, k, v] = head.parts;
    let steps = lse.len();
    let length = ROWS.min(steps) * steps;
    with_scratch(2 * length, |scratch| {
        let (probabilities, slopes) = scratch.split_at_mut(length);
        for rows in row_blocks(steps) {
            let seen = head.seen(rows.end);
            let (queries, dy_rows) = (q.rows(rows.clone()), dy.rows(rows.clone()));
            let p = &mut probabilities[..rows.len() * seen];
            let s = &mut slopes[..rows.len() * seen];
            product(MatrixMut::new(p, rows.len(), seen, seen), queries, k.rows(0..seen).t(), head.scale, false);
            product(MatrixMut::new(s, rows.len(), seen, seen), dy_rows, v.rows(0..seen).t(), 1.0, false);
            for ((p, s), i) in p.chunks_exact_mut(seen).zip(s.chunks_exact_mut(seen)).zip(rows.clone()) {
                let delta = sum_of_pairs(dy.row(i), y.row(i), |dy, y| f64::from(dy) * f64::from(y)) as f32;
                let own = head.seen(i + 1);
                p[own..].fill(0.0);
                s[own..].fill(0.0);
                let first = head.first_draw + (i * steps) as u64;
                let (p, s) = (&mut p[..own], &mut s[..own]);
                let sum = lse[i];
                wide(|| p.iter_mut().for_each(|p| *p = exp(*p - sum)));
                match factor {
                    None => wide(|| s.iter_mut().zip(&*p).for_each(|(s, p)| *s = p * (*s - delta))),
                    Some(factor) => s.iter_mut().zip(p).zip(first..).for_each(|((s, p), index)| {
                        let f = factor(index);
                        *s = *p * (f * *s - delta);
                        *p *= f;
                    }),
                }
            }
            let (p, s) = (Matrix::new(p, rows.len(), seen, seen), Matrix::new(s, rows.len(), seen, seen));
            product(dv.rows(0..seen), p.t(), dy_rows, 1.0, true);
            product(dq.rows(rows.clone()), s, k.rows(0..seen), head.scale, true);
            product(dk.rows(0..seen), s.t(), queries, head.scale, true);
        }
    });
}
