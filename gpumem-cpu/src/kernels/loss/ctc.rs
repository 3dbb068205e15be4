//! Connectionist temporal classification (CTC). There are `T` time steps and `C` classes. A target of `n` labels has `L = 2 n + 1` states: a blank,
//! and after it each label followed by another blank.
//!
//! ```text
//! a[t, s] = x[t, s] + log sum of exp(a[t - 1, s']) over s' = s, s - 1, and s - 2 where that is another label
//! b[t, s] = log sum of exp(b[t + 1, s'] + x[t + 1, s']) over s' = s, s + 1, and s + 2 where that is another label
//! loss    = -log(exp(a[T - 1, L - 1]) + exp(a[T - 1, L - 2]))
//! dx[t, c] = exp(x[t, c]) - share of the states of class c in the sum over s of exp(a[t, s] + b[t, s])
//! ```
//!
//! This is the gradient of logits before a log-softmax, whose own gradient leaves it unchanged. The largest element is subtracted from each row of
//! `a` and `b`. So the numbers that matter most are small for sequences of any length. The subtraction does not change the shares.

use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::math::{exp, exp_double, exponentials, log_double};
use crate::operands::{Operands, Source, count};
use crate::parallel::{self, with_scratch};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::program::criterion::EXTRA_ROWS;
use gpumem_core::program::loss::Reduction;
use gpumem_core::program::{Criterion, Slot};
use rayon::prelude::*;

const NONE: f32 = f32::NEG_INFINITY;

struct Ctc {
    steps: usize,
    classes: usize,
    /// States of the longest target.
    states: usize,
    blank: usize,
    zero_infinity: bool,
    /// True if a sample's loss is divided by the length of its target.
    averages: bool,
    /// The factor of the loss and of all gradients.
    share: f64,
    labels: Source<u32>,
    lengths: Option<Source<u32>>,
    /// Factors of the terms.
    weights: Weights,
}

/// The target of a sample, and the number of time steps that count.
struct Sample<'a> {
    labels: &'a [u32],
    steps: usize,
    blank: usize,
}

impl Sample<'_> {
    fn states(&self) -> usize {
        2 * self.labels.len() + 1
    }

    fn class(&self, state: usize) -> usize {
        if state % 2 == 1 { self.labels[state / 2] as usize } else { self.blank }
    }

    /// Returns 0 if a path may skip the blank before this state, else negative infinity.
    fn skip(&self, state: usize) -> f32 {
        let skips = state % 2 == 1 && state > 1 && self.class(state) != self.class(state - 2);
        if skips { 0.0 } else { NONE }
    }

    /// Copies the elements of the states' classes.
    fn gather(&self, x: &[f32], to: &mut [f32]) {
        to.fill(x[self.blank]);
        to.iter_mut().skip(1).step_by(2).zip(self.labels).for_each(|(to, &label)| *to = x[label as usize]);
    }
}

/// Returns `log(sum(exp(x)))`: negative infinity if no `x` is larger.
#[inline(always)]
fn log_sum(x: [f32; 3]) -> f64 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let largest = larger(larger(larger(NONE, x[0]), x[1]), x[2]);
    let base = f64::from(if largest == NONE { 0.0 } else { largest });
    let [a, b, c] = x.map(|x| exp_double(f64::from(x) - base));
    base + log_double(a + b + c)
}

/// The logarithms of sums over the three ways into each state: `out = log_sum(ways) + x`.
struct Ways<'a> {
    /// The rows that the ways come from, each moved by its number of states. The last one's skips are added to it.
    rows: [&'a [f32]; 3],
    /// 0 where a path may skip the blank between two labels, else negative infinity.
    skips: &'a [f32],
    x: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Loop for Ways<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Ways { rows: [stay, next, skip], skips, x, out } = self;
        let ways = stay.iter().zip(next).zip(skip).zip(skips);
        match x {
            Some(x) => {
                for ((out, (((&stay, &next), &skip), skips)), &x) in out.iter_mut().zip(ways).zip(x) {
                    *out = (log_sum([stay, next, skip + skips]) + f64::from(x)) as f32;
                }
            }
            None => {
                for (out, (((&stay, &next), &skip), skips)) in out.iter_mut().zip(ways) {
                    *out = log_sum([stay, next, skip + skips]) as f32;
                }
            }
        }
    }
}

/// Subtracts the largest element from a row and returns it. Returns 0 if no path reaches the row.
fn lower(row: &mut [f32]) -> f64 {
    let largest = parallel::largest(row);
    if largest == NONE {
        return 0.0;
    }
    wide(|| row.iter_mut().for_each(|x| *x -= largest));
    f64::from(largest)
}

impl Ctc {
    fn sample(&self, index: usize) -> Sample<'_> {
        let most = self.states / 2;
        let labels = &self.labels.get()[index * most..][..most];
        let is_end = |&label: &u32| label as usize >= self.classes || label as usize == self.blank;
        let end = labels.iter().position(is_end).unwrap_or(most);
        // Lengths were checked before the step.
        let steps = self.lengths.as_ref().map_or(self.steps, |lengths| lengths.get()[index] as usize);
        Sample { labels: &labels[..end], steps: steps.min(self.steps), blank: self.blank }
    }

    /// Returns the loss of a sample with log-probabilities `x`, and computes the rows of `a`.
    fn forward(&self, of: &Sample<'_>, x: &[f32], rows: &mut [f32]) -> f64 {
        let states = of.states();
        if of.steps == 0 {
            return if states == 1 { 0.0 } else { f64::INFINITY };
        }
        let likelihood: f64 = with_scratch(3 * states + 2, |scratch| {
            let (skips, rest) = scratch.split_at_mut(states);
            let (of_classes, before) = rest.split_at_mut(states);
            skips.iter_mut().enumerate().for_each(|(state, skip)| *skip = of.skip(state));
            let steps = rows.chunks_exact_mut(self.states).zip(x.chunks_exact(self.classes)).take(of.steps);
            let of_step = |(step, (row, x)): (usize, (&mut [f32], &[f32]))| {
                let row = &mut row[..states];
                of.gather(x, of_classes);
                if step == 0 {
                    row.copy_from_slice(of_classes);
                    row.iter_mut().skip(2).for_each(|a| *a = NONE);
                    before[..2].fill(NONE);
                } else {
                    let ways = [&before[2..], &before[1..], &before[..]];
                    wide(Ways { rows: ways, skips, x: Some(of_classes), out: row });
                }
                let largest = lower(row);
                before[2..].copy_from_slice(row);
                largest
            };
            steps.enumerate().map(of_step).sum()
        });
        let last = &rows[(of.steps - 1) * self.states..][..states];
        let label = if states > 1 { last[states - 2] } else { NONE };
        -(likelihood + log_sum([last[states - 1], label, NONE]))
    }

    /// Computes the gradient of a time step from the shares of its states.
    fn gradient(
        &self,
        of: &Sample<'_>,
        x: Option<&[f32]>,
        (dx, accumulate): (&mut [f32], bool),
        shares: &[f32],
        scale: f64,
    ) {
        let all = parallel::sum(shares, f64::from);
        exponentials(x, dx, accumulate, [0.0, scale as f32]);
        for (state, &share) in shares.iter().enumerate() {
            dx[of.class(state)] -= (f64::from(share) / all * scale) as f32;
        }
    }

    /// Computes the gradient of a sample. `x` is `None` if it is stored where `dx` will be. Rows of `a` become shares.
    fn backward(
        &self,
        of: &Sample<'_>,
        x: Option<&[f32]>,
        (dx, accumulate): (&mut [f32], bool),
        rows: &mut [f32],
        scale: f64,
    ) {
        let (kept, rest) = rows.split_at_mut(self.steps * self.states);
        let states = of.states();
        let back = &mut rest[..states];
        with_scratch(3 * states + 2, |scratch| {
            let (skips, rest) = scratch.split_at_mut(states);
            let (of_classes, later) = rest.split_at_mut(states);
            // A way leads from a state to the label after the next blank.
            skips.iter_mut().enumerate().for_each(|(state, skip)| {
                *skip = if state + 2 < states { of.skip(state + 2) } else { NONE };
            });
            later[states..].fill(NONE);
            for step in (0..of.steps).rev() {
                let places = step * self.classes..(step + 1) * self.classes;
                let (x, dx) = (x.map(|x| &x[places.clone()]), &mut dx[places]);
                let shares = &mut kept[step * self.states..][..states];
                of.gather(x.unwrap_or(&*dx), of_classes);
                if step + 1 < of.steps {
                    let ways = [&later[..states], &later[1..], &later[2..]];
                    wide(Ways { rows: ways, skips, x: None, out: back });
                } else {
                    back.fill(NONE);
                    back[states.saturating_sub(2)..].fill(0.0);
                }
                let all = shares.iter_mut().zip(&*back);
                wide(|| all.for_each(|(share, back)| *share += back));
                let now = later.iter_mut().zip(&*back).zip(&*of_classes);
                wide(|| now.for_each(|((now, back), x)| *now = back + x));
                lower(&mut later[..states]);
                lower(shares);
                wide(|| shares.iter_mut().for_each(|share| *share = exp(*share)));
                self.gradient(of, x, (dx, accumulate), shares, scale);
            }
        });
    }

    /// Computes the loss of a sample, and its gradient if that is wanted.
    fn run(&self, index: usize, x: Option<&[f32]>, gradient: Option<(&mut [f32], bool)>, rows: &mut [f32]) -> f64 {
        let of = self.sample(index);
        let Some((dx, accumulate)) = gradient else {
            return self.weights.of(index) * self.reduced(&of, self.forward(&of, x.unwrap_or(&[]), rows));
        };
        let loss = self.forward(&of, x.unwrap_or(&*dx), rows);
        let scale =
            self.share * self.weights.of(index) / if self.averages { of.labels.len().max(1) as f64 } else { 1.0 };
        let (counted, rest) = dx.split_at_mut(of.steps * self.classes);
        let is_impossible = loss == f64::INFINITY;
        if is_impossible && !self.zero_infinity {
            counted.fill(f32::NAN);
        } else if !is_impossible {
            self.backward(&of, x, (counted, accumulate), rows, scale);
        } else if !accumulate {
            counted.fill(0.0);
        }
        if !accumulate {
            rest.fill(0.0);
        }
        self.weights.of(index) * self.reduced(&of, loss)
    }

    /// Returns the term that a sample's loss adds to the sum.
    fn reduced(&self, of: &Sample<'_>, loss: f64) -> f64 {
        if self.zero_infinity && loss == f64::INFINITY {
            return 0.0;
        }
        if self.averages { loss / of.labels.len().max(1) as f64 } else { loss }
    }
}

/// Binds the loss to its operands.
pub(in crate::kernels) fn bind(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    mut logits: Logits,
    mut loss: Total,
) -> Bound {
    let Criterion { outer, classes, weight, .. } = *criterion;
    let (batch, states) = (operands.batch(), criterion.states());
    let options = &criterion.options;
    let lengths = operands.reads(Slot::Input(1)).then(|| operands.words(Slot::Input(1), count(&[batch])));
    let it = Ctc {
        steps: count(&[outer]),
        classes: count(&[classes]),
        states: count(&[states]),
        blank: options.blank as usize,
        zero_infinity: options.zero_infinity,
        averages: options.reduction == Reduction::Mean,
        share: weight / criterion.divisor(batch) as f64,
        labels: operands.words(Slot::Target, count(&[batch, options.target_length]))?,
        lengths: lengths.transpose()?,
        weights: Weights::new(criterion, operands)?,
    };
    if it.blank >= it.classes {
        return Err(Error::Damaged("the blank of a loss is none of its classes"));
    }
    let each = count(&[outer.saturating_add(EXTRA_ROWS), states]);
    let mut rows = operands.target(Slot::Saved(0), count(&[batch, each as u64]))?;
    let mut terms = operands.target(Slot::Workspace, count(&[batch]))?;
    let slab = count(&[outer, classes]);
    kernel(move |_| {
        let samples = (rows.get().par_chunks_mut(each), terms.get().par_iter_mut()).into_par_iter().enumerate();
        match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                samples.for_each(|(index, (rows, term))| {
                    *term = it.run(index, Some(&x[index * slab..][..slab]), None, rows) as f32;
                });
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (x, dx) = pair.get();
                samples.zip(dx.par_chunks_mut(slab)).for_each(|((index, (rows, term)), dx)| {
                    let x = x.map(|x| &x[index * slab..][..slab]);
                    *term = it.run(index, x, Some((dx, accumulate)), rows) as f32;
                });
            }
        }
        let sum: f64 = terms.get().iter().map(|&term| f64::from(term)).sum();
        loss.put(sum * it.share);
    })
}
