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
use crate::math::exp;
use crate::operands::{Operands, Source, count};
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

    /// True if a path may skip the blank before this label.
    fn skips(&self, state: usize) -> bool {
        state % 2 == 1 && state > 1 && self.class(state) != self.class(state - 2)
    }
}

/// Returns `log(sum(exp(x)))`.
fn log_sum(x: [f32; 3]) -> f64 {
    let largest = x.into_iter().fold(NONE, f32::max);
    if largest == NONE && !x.iter().any(|x| x.is_nan()) {
        return f64::from(NONE);
    }
    let largest = f64::from(largest);
    largest + x.into_iter().map(|x| (f64::from(x) - largest).exp()).sum::<f64>().ln()
}

/// Subtracts the largest element from a row and returns it. Returns 0 if no path reaches the row.
fn lower(row: &mut [f32]) -> f64 {
    let largest = row.iter().copied().fold(NONE, f32::max);
    if largest == NONE {
        return 0.0;
    }
    row.iter_mut().for_each(|x| *x -= largest);
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
        let mut likelihood = 0.0;
        for step in 0..of.steps {
            let (before, row) = rows.split_at_mut(step * self.states);
            let (x, row) = (&x[step * self.classes..], &mut row[..states]);
            if step == 0 {
                for (state, a) in row.iter_mut().enumerate() {
                    *a = if state < 2 { x[of.class(state)] } else { NONE };
                }
            } else {
                let before = &before[(step - 1) * self.states..];
                let from = |is_way: bool, state: usize, back: usize| if is_way { before[state - back] } else { NONE };
                for (state, a) in row.iter_mut().enumerate() {
                    let ways = [before[state], from(state > 0, state, 1), from(of.skips(state), state, 2)];
                    *a = (log_sum(ways) + f64::from(x[of.class(state)])) as f32;
                }
            }
            likelihood += lower(row);
        }
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
        let all: f64 = shares.iter().map(|&share| f64::from(share)).sum();
        for class in 0..self.classes {
            let slope = exp(x.map_or(dx[class], |x| x[class])) * scale as f32;
            dx[class] = if accumulate { dx[class] + slope } else { slope };
        }
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
        let (mut now, mut later) = rest.split_at_mut(self.states);
        let states = of.states();
        for step in (0..of.steps).rev() {
            let places = step * self.classes..(step + 1) * self.classes;
            let (x, dx) = (x.map(|x| &x[places.clone()]), &mut dx[places]);
            let shares = &mut kept[step * self.states..][..states];
            for (state, share) in shares.iter_mut().enumerate() {
                let to = |ahead: usize, is_way: bool| if is_way { later[state + ahead] } else { NONE };
                let back = if step + 1 < of.steps {
                    let is_label = state + 2 < states && of.skips(state + 2);
                    log_sum([later[state], to(1, state + 1 < states), to(2, is_label)]) as f32
                } else if state + 2 < states {
                    NONE
                } else {
                    0.0
                };
                *share += back;
                now[state] = back + x.unwrap_or(&*dx)[of.class(state)];
            }
            lower(&mut now[..states]);
            lower(shares);
            shares.iter_mut().for_each(|share| *share = share.exp());
            self.gradient(of, x, (dx, accumulate), shares, scale);
            std::mem::swap(&mut now, &mut later);
        }
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
