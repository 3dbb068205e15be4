//! Losses that compare all vectors of a batch: `x[i]` and `y[i]` of D elements, each with those of all samples. `r` are the vectors of one side, `c`
//! those of the side that they are compared with.
//!
//! ```text
//! s[i, j]      = scale * r[i] c[j] + bias
//! Contrastive  l[i] = log(sum over j of exp(s[i, j]))       loss = sum of (l[i] - s[i, i]) / 2 over both sides
//!              g[i, j] = (exp(s[i, j] - l[i]) + exp(s[i, j] - l[j])) / 2 - [i = j]
//! NtXent       the same over the vectors of both sides but the row's own, where the right one is of the other side
//! Siglip       loss = sum of log(1 + exp(-z s[i, j])) / 2 over both sides, z = 1 where i = j and -1 elsewhere
//!              g[i, j] = -z / (1 + exp(z s[i, j]))
//! dr[i]        = scale * sum over j of g[i, j] c[j]
//! dscale       = sum of g (s - bias) / 2, dbias = sum of g / 2 over both sides, dscale that of the scale's logarithm
//! ```
//!
//! The loss is divided by the number of samples. Products are computed one tile at a time, and recomputed for the gradients.

use crate::kernels::loss::{Logits, Total};
use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product};
use crate::operands::{Gradient, Operands, Source, count};
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Measure, Slot};
use std::ops::Range;

/// Rows and columns of a tile of products.
const TILE: usize = 64;

/// Products of the rows of a tile with as many vectors.
type Tile = [[f32; TILE]; TILE];

/// A number of the loss, and its gradient if it is learned.
struct Number {
    constant: f64,
    learned: Option<(Source, Option<Gradient>)>,
}

impl Number {
    fn new(operands: &mut Operands<'_>, constant: f64, input: Option<u8>) -> Result<Number, Error> {
        let learned = |number: u8| {
            let gradient = operands.gradient(Slot::InputGradient(number), 1)?;
            Ok((operands.source(Slot::Input(number), 1)?, gradient))
        };
        Ok(Number { constant, learned: input.map(learned).transpose()? })
    }

    fn learned(&self) -> Option<f64> {
        self.learned.as_ref().map(|(source, _)| f64::from(source.get()[0]))
    }

    fn put(&mut self, gradient: f64) {
        if let Some((_, Some(target))) = &mut self.learned {
            target.put(0, gradient as f32);
        }
    }
}

/// The vectors that are compared, and the numbers of the comparison.
struct Compared<'a> {
    kind: Measure,
    /// Elements of a vector.
    length: usize,
    /// Vectors of each side.
    sides: [&'a [f32]; 2],
    scale: f64,
    bias: f64,
}

/// A range of samples on one side.
#[derive(Clone)]
struct Place {
    side: usize,
    samples: Range<usize>,
}

impl Compared<'_> {
    fn vectors(&self, of: &Place) -> Matrix<'_> {
        let Range { start, end } = of.samples.clone();
        Matrix::new(&self.sides[of.side][start * self.length..end * self.length], end - start, self.length, self.length)
    }

    /// Calls `each` with every tile of the products of some rows. The products have neither scale nor bias.
    fn tiles(&self, rows: &Place, mut each: impl FnMut(&Place, &mut Tile)) {
        let mut tile = [[0.0; TILE]; TILE];
        let samples = self.sides[0].len() / self.length;
        for side in [0, 1] {
            if side == rows.side && self.kind != Measure::NtXent {
                continue;
            }
            for first in (0..samples).step_by(TILE) {
                let columns = Place { side, samples: first..samples.min(first + TILE) };
                let out = MatrixMut::new(tile.as_flattened_mut(), rows.samples.len(), columns.samples.len(), TILE);
                product(out, self.vectors(rows), self.vectors(&columns).t(), 1.0, false);
                each(&columns, &mut tile);
            }
        }
    }

    /// Returns `s` without the bias for each compared pair of vectors of a tile. A flag is true if the two belong to one sample.
    fn pairs<'t>(
        &self,
        rows: &Place,
        columns: &Place,
        i: usize,
        tile: &'t Tile,
    ) -> impl Iterator<Item = (usize, f64, bool)> + 't {
        let (own, first, scale) = (rows.samples.start + i, columns.samples.start, self.scale);
        let is_same_side = rows.side == columns.side;
        let products = tile[i][..columns.samples.len()].iter().enumerate();
        products
            .filter(move |(j, _)| !(is_same_side && first + j == own))
            .map(move |(j, &product)| (j, scale * f64::from(product), !is_same_side && first + j == own))
    }

    /// Computes the terms of some rows, and the logarithms that the gradients need.
    fn terms(&self, rows: Place, logarithms: &mut [f32]) -> f64 {
        let Range { start, end } = rows.samples;
        if end - start > TILE {
            let middle = start + (end - start).div_ceil(TILE) / 2 * TILE;
            let (left, right) = logarithms.split_at_mut((middle - start).min(logarithms.len()));
            let part = |samples, logarithms| self.terms(Place { samples, ..rows }, logarithms);
            let (a, b) = rayon::join(|| part(start..middle, left), || part(middle..end, right));
            return a + b;
        }
        let mut sum = 0.0;
        let (mut largest, mut sums) = ([f64::NEG_INFINITY; TILE], [0.0; TILE]);
        self.tiles(&rows, |columns, tile| {
            for i in 0..rows.samples.len() {
                if self.kind == Measure::Siglip {
                    let term = |(_, s, is_right): (usize, f64, bool)| {
                        softplus(if is_right { -s - self.bias } else { s + self.bias })
                    };
                    sum += self.pairs(&rows, columns, i, tile).map(term).sum::<f64>();
                    continue;
                }
                let before = largest[i];
                largest[i] = self.pairs(&rows, columns, i, tile).map(|(_, s, _)| s).fold(before, f64::max);
                if before > f64::NEG_INFINITY {
                    sums[i] *= (before - largest[i]).exp();
                }
                for (_, s, is_right) in self.pairs(&rows, columns, i, tile) {
                    sums[i] += (s - largest[i]).exp();
                    sum -= if is_right { s } else { 0.0 };
                }
            }
        });
        for ((to, largest), sums) in logarithms.iter_mut().zip(largest).zip(sums) {
            let logarithm = largest + sums.ln();
            sum += logarithm;
            *to = logarithm as f32;
        }
        sum / 2.0
    }

    /// Returns `g` of a product: see the [module](self).
    fn slope(&self, s: f64, is_right: bool, logarithms: [f32; 2]) -> f64 {
        if self.kind == Measure::Siglip {
            let s = s + self.bias;
            return if is_right { -1.0 / (1.0 + s.exp()) } else { 1.0 / (1.0 + (-s).exp()) };
        }
        let shares: f64 = logarithms.iter().map(|&logarithm| (s - f64::from(logarithm)).exp()).sum();
        shares / 2.0 - if is_right { 1.0 } else { 0.0 }
    }

    /// Computes the gradient of some rows, times `share`. Returns the sums of `g * (s - bias)` and of `g`.
    fn gradients(
        &self,
        rows: Place,
        logarithms: [&[f32]; 2],
        mut gradient: Option<(&mut [f32], bool)>,
        share: f64,
    ) -> [f64; 2] {
        let Range { start, end } = rows.samples;
        if end - start > TILE {
            let middle = start + (end - start).div_ceil(TILE) / 2 * TILE;
            let (left, right) = gradient
                .map(|(gradient, adds)| {
                    let (left, right) = gradient.split_at_mut((middle - start) * self.length);
                    ((left, adds), (right, adds))
                })
                .unzip();
            let part = |samples, gradient| self.gradients(Place { samples, ..rows }, logarithms, gradient, share);
            let (a, b) = rayon::join(|| part(start..middle, left), || part(middle..end, right));
            return [a[0] + b[0], a[1] + b[1]];
        }
        let mut sums = [0.0; 2];
        let mut adds = gradient.as_ref().is_some_and(|(_, adds)| *adds);
        self.tiles(&rows, |columns, tile| {
            for i in 0..rows.samples.len() {
                let own = logarithms[rows.side].get(start + i).copied().unwrap_or(0.0);
                let mut slopes = [0.0; TILE];
                for (j, s, is_right) in self.pairs(&rows, columns, i, tile) {
                    let other = logarithms[columns.side].get(columns.samples.start + j).copied().unwrap_or(0.0);
                    let slope = self.slope(s, is_right, [own, other]);
                    sums[0] += slope * s;
                    sums[1] += slope;
                    slopes[j] = (slope * self.scale * share) as f32;
                }
                tile[i] = slopes;
            }
            if let Some((gradient, _)) = &mut gradient {
                let (height, width) = (rows.samples.len(), columns.samples.len());
                let out = MatrixMut::new(gradient, height, self.length, self.length);
                let slopes = Matrix::new(tile.as_flattened(), height, width, TILE);
                product(out, slopes, self.vectors(columns), 1.0, adds);
                adds = true;
            }
        });
        sums
    }
}

/// Returns `log(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The vectors of a side. Then their gradient, if it is wanted, with a flag that is true if it is added to.
type Side<'a> = (&'a [f32], Option<(&'a mut [f32], bool)>);

fn side(of: &mut Logits) -> Side<'_> {
    match of {
        Logits::Alone(source) => (source.get(), None),
        Logits::Pair(pair, accumulate) => {
            let (source, target) = pair.get();
            // `bind` has checked that gradients do not overwrite the vectors.
            (source.unwrap_or(&[]), Some((target, *accumulate)))
        }
    }
}

/// Binds the loss.
pub(in crate::kernels) fn bind(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    x: Logits,
    mut loss: Total,
) -> Bound {
    let (kind, length, samples) = (criterion.kind, count(&[criterion.classes]), count(&[operands.batch()]));
    let mut sides = [x, Logits::new(operands, 1, count(&[operands.batch(), criterion.classes]))?];
    if sides.iter().any(|side| matches!(side, Logits::Pair(pair, _) if pair.is_in_place())) {
        return Err(Error::Damaged("the gradient of a loss of a batch overwrites what others are compared with"));
    }
    if length == 0 {
        return Err(Error::Damaged("a loss of a batch compares vectors without elements"));
    }
    let mut scale = Number::new(operands, 1.0 / criterion.number(), criterion.scale_input())?;
    let mut bias = Number::new(operands, criterion.second(), criterion.bias_input())?;
    let mut saved = match &*criterion.saved() {
        [] => None,
        _ => Some(operands.target(criterion.own_saved(), 2 * samples)?),
    };
    // Sums are computed in double precision, without the scratch memory.
    if operands.writes(Slot::Workspace) {
        let each = criterion.terms().0.elements().unwrap_or(0);
        operands.target(Slot::Workspace, count(&[operands.batch(), each]))?;
    }
    let share = criterion.weight / criterion.divisor(operands.batch()) as f64;
    kernel(move |_| {
        let [(x, dx), (y, dy)] = sides.each_mut().map(side);
        let compared = Compared {
            kind,
            length,
            sides: [x, y],
            scale: scale.learned().map_or(scale.constant, f64::exp),
            bias: bias.learned().unwrap_or(bias.constant),
        };
        let logarithms = saved.as_mut().map_or(&mut [][..], |saved| saved.get());
        let (first, second) = logarithms.split_at_mut(logarithms.len() / 2);
        let place = |side| Place { side, samples: 0..samples };
        let term = compared.terms(place(0), first) + compared.terms(place(1), second);
        let logarithms = [&*first, &*second];
        let is_learned = [&scale, &bias].iter().any(|number| matches!(number.learned, Some((_, Some(_)))));
        let mut sums = [0.0; 2];
        for (side, gradient) in [dx, dy].into_iter().enumerate() {
            if gradient.is_some() || is_learned {
                let of_side = compared.gradients(place(side), logarithms, gradient, share);
                sums = [sums[0] + of_side[0], sums[1] + of_side[1]];
            }
        }
        scale.put(sums[0] / 2.0 * share);
        bias.put(sums[1] / 2.0 * share);
        loss.put(term * share);
    })
}
