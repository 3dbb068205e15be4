//! Losses of elements in which only the first time steps of each sample count.
//!
//! Elements of other steps have neither term nor gradient, for all values and targets. A mean is divided by the number of elements that count.

use crate::kernels::loss::{Logits, Total};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::loss::Over;
use gpumem_core::program::{Criterion, Slot};

/// The number of time steps of each sample that count, from the first on.
pub(in crate::kernels) struct Counted {
    lengths: Source<u32>,
    steps: usize,
    /// Elements of a time step.
    step: usize,
    weight: f64,
    /// The divisor of the sum. `None` if that is the number of elements that count.
    divisor: Option<f64>,
    /// The number of elements that count in all micro-batches of a batch. `None` if the batch is not split.
    given: Option<Source>,
}

impl Counted {
    /// Returns the counts for a loss. `None` if all steps count.
    pub(in crate::kernels) fn new(
        criterion: &Criterion,
        operands: &mut Operands<'_>,
    ) -> Result<Option<Counted>, Error> {
        let steps = criterion.options.counted;
        if steps == 0 {
            return Ok(None);
        }
        let elements = count(&[criterion.outer, criterion.classes, criterion.inner]);
        let (steps, step) = (count(&[steps]), count(&[criterion.step()]));
        if step == 0 || steps.saturating_mul(step) != elements || criterion.over() != Over::Elements {
            return Err(Error::Damaged("a loss counts other steps than its value has"));
        }
        let given = match criterion.counts() && operands.reads(Slot::Saved(0)) {
            true => Some(operands.source(Slot::Saved(0), count(&[operands.batch()]))?),
            false => None,
        };
        let divisor = (!criterion.counts()).then(|| criterion.divisor(operands.batch()) as f64);
        let lengths = operands.words(Slot::Input(1), count(&[operands.batch()]))?;
        Ok(Some(Counted { lengths, steps, step, weight: criterion.weight, divisor, given }))
    }

    /// Returns the elements of a sample that count.
    fn elements(&self, sample: usize) -> usize {
        (self.lengths.get()[sample] as usize).min(self.steps) * self.step
    }

    /// Returns the factor of each term.
    fn share(&self) -> f64 {
        let own = || (0..self.lengths.get().len()).map(|sample| self.elements(sample) as f64).sum();
        let given = self.given.as_ref().map(|given| f64::from(given.get()[0]));
        self.weight / self.divisor.or(given).unwrap_or_else(own)
    }

    /// Binds a loss with this value and slope. Both get the index of an element in its sample, `x`, and the target.
    pub(in crate::kernels) fn bind(
        self,
        (mut logits, targets, mut loss): (Logits, Option<Source>, Total),
        value: impl Fn(usize, f32, f32) -> f64 + Send + Sync + 'static,
        slope: impl Fn(usize, f32, f32) -> f64 + Send + Sync + 'static,
    ) -> Bound {
        let sample = self.steps * self.step;
        kernel(move |_| {
            let share = self.share();
            let targets = targets.as_ref().map(Source::get);
            let target = |at: usize| targets.map_or(0.0, |targets| targets[at]);
            let sum_of = |index: usize, x: &[f32]| -> f64 {
                let counted = x[..self.elements(index)].iter().enumerate();
                counted.map(|(i, &x)| value(i, x, target(index * sample + i))).sum()
            };
            let sum = match &mut logits {
                Logits::Alone(source) => {
                    source.get().chunks_exact(sample).enumerate().map(|(index, x)| sum_of(index, x)).sum()
                }
                Logits::Pair(pair, accumulate) => {
                    let (source, to) = pair.get();
                    parallel::pieces(source, to, sample, |index, x, dx| {
                        let sum = sum_of(index, x.unwrap_or(&*dx));
                        let slope = |i: usize, x| match i < self.elements(index) {
                            true => (slope(i, x, target(index * sample + i)) * share) as f32,
                            false => 0.0,
                        };
                        match x {
                            None => dx.iter_mut().enumerate().for_each(|(i, dx)| *dx = slope(i, *dx)),
                            Some(x) => parallel::store(dx, *accumulate, |i| slope(i, x[i])),
                        }
                        sum
                    })
                }
            };
            loss.put(sum * share);
        })
    }
}
