//! The steps of the forward pass.

use super::cells::{self, Addends};
use super::{Arriving, Direction, Parameters, Sizes};
use crate::kernels::Frame;
use crate::matrix::{Matrix, MatrixMut};
use crate::operands::Source;
use crate::packed::Packed;
use crate::parallel::{self, grown};

/// Computes all steps of one direction.
pub(super) fn walk(
    sizes: &Sizes,
    way: Direction,
    (source, kept): Arriving<'_>,
    parameters: &Parameters,
    y: &mut [f32],
    frame: &mut Frame<'_>,
) {
    let Sizes { samples, steps, hidden, outputs, width, .. } = *sizes;
    // The first step has no product.
    let packed = if steps > 1 { width } else { 0 };
    let scratch = grown(frame.scratch, samples * (width + 2 * hidden) + Packed::room(outputs, packed));
    let (sums, rest) = scratch.split_at_mut(samples * width);
    let (states, rest) = rest.split_at_mut(samples * hidden);
    let (units, room) = rest.split_at_mut(samples * hidden);
    states.fill(0.0);
    let weights = Weights {
        way,
        shared: Packed::new(Matrix::new(parameters.weight.get(), packed, outputs, outputs).t(), room),
        bias: parameters.bias.as_ref().map(Source::get),
        projection: parameters.projection.as_ref().map(Source::get),
    };
    Samples { sizes: *sizes, source, kept, y, sums, states, units }.walk(&weights, sizes.parts());
}

/// The direction, and what all samples read.
struct Weights<'a> {
    way: Direction,
    shared: Packed<'a>,
    bias: Option<&'a [f32]>,
    projection: Option<&'a [f32]>,
}

/// The tensors of some samples.
struct Samples<'a> {
    /// The sizes, with the number of these samples.
    sizes: Sizes,
    source: Option<&'a [f32]>,
    kept: Option<&'a mut [f32]>,
    y: &'a mut [f32],
    /// The addends of the gates from the step before, [B, G H].
    sums: &'a mut [f32],
    /// An LSTM's c, or a GRU's previous output, [B, H].
    states: &'a mut [f32],
    /// The outputs of a step before their projection, [B, H].
    units: &'a mut [f32],
}

impl<'a> Samples<'a> {
    /// Divides the samples into the first `samples` and the others.
    fn split(self, samples: usize) -> [Samples<'a>; 2] {
        let Samples { sizes, source, kept, y, sums, states, units } = self;
        let Sizes { steps, width, hidden, features, .. } = sizes;
        let [first, second] = sizes.split(samples);
        let (of_first, of_second) = source.map(|all| all.split_at(samples * steps * width)).unzip();
        let (kept_first, kept_second) = kept.map(|all| all.split_at_mut(samples * steps * width)).unzip();
        let (y_first, y_second) = y.split_at_mut(samples * steps * features);
        let (sums_first, sums_second) = sums.split_at_mut(samples * width);
        let (states_first, states_second) = states.split_at_mut(samples * hidden);
        let (units_first, units_second) = units.split_at_mut(samples * hidden);
        [
            Samples {
                sizes: first,
                source: of_first,
                kept: kept_first,
                y: y_first,
                sums: sums_first,
                states: states_first,
                units: units_first,
            },
            Samples {
                sizes: second,
                source: of_second,
                kept: kept_second,
                y: y_second,
                sums: sums_second,
                states: states_second,
                units: units_second,
            },
        ]
    }

    /// Computes all steps of these samples, in so many parts at the same time.
    fn walk(mut self, weights: &Weights<'_>, parts: usize) {
        if parts > 1 {
            let samples = self.sizes.samples * (parts / 2) / parts;
            let [first, second] = self.split(samples);
            rayon::join(|| first.walk(weights, parts / 2), || second.walk(weights, parts - parts / 2));
            return;
        }
        for t in self.sizes.order(weights.way.reverse) {
            self.sum(weights, t);
            for sample in 0..self.sizes.samples {
                self.step(weights, t, sample);
            }
            if let Some(projection) = weights.projection {
                let Sizes { samples, steps, outputs, features, .. } = self.sizes;
                let first = t * features + weights.way.column;
                let h = MatrixMut::new(&mut self.y[first..], samples, outputs, steps * features);
                self.sizes.project(h, self.units, projection);
            }
        }
    }

    /// Computes the addends of a step's gates from the step before.
    fn sum(&mut self, weights: &Weights<'_>, t: usize) {
        let Sizes { samples, outputs, width, features, .. } = self.sizes;
        match self.sizes.before(t, weights.way.reverse) {
            Some(before) => {
                let h = self.sizes.step(self.y, before, features, [weights.way.column, outputs]);
                weights.shared.multiply(MatrixMut::new(self.sums, samples, width, width), h, false);
            }
            None => self.sums.fill(0.0),
        }
        if let Some(bias) = weights.bias {
            parallel::pieces(None, self.sums, width, |_, _, row| {
                row.iter_mut().zip(bias).for_each(|(s, bias)| *s += bias);
                0.0
            });
        }
    }

    /// Computes the gates, the state and the output of a step of one sample.
    fn step(&mut self, weights: &Weights<'_>, t: usize, sample: usize) {
        let Sizes { steps, hidden, width, features, cell, .. } = self.sizes;
        let row = (sample * steps + t) * width..(sample * steps + t + 1) * width;
        let at = (sample * steps + t) * features + weights.way.column;
        let sums = &mut self.sums[sample * width..][..width];
        let own = sample * hidden..(sample + 1) * hidden;
        let state = &mut self.states[own.clone()];
        let h = if weights.projection.is_some() { &mut self.units[own] } else { &mut self.y[at..][..hidden] };
        match (&mut self.kept, self.source) {
            (Some(kept), source) => {
                let gates = &mut kept[row.clone()];
                if let Some(source) = source {
                    gates.copy_from_slice(&source[row]);
                }
                cells::forward(cell, Addends::Arriving(gates, sums), state, h);
            }
            (None, Some(source)) => cells::forward(cell, Addends::Sums(&source[row], sums), state, h),
            (None, None) => cells::forward_plain(cell, sums, h),
        }
    }
}
