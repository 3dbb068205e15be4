//! The steps of the backward pass.

use super::cells::{self, Handed};
use super::{Direction, Parameters, Sizes};
use crate::matrix::{Matrix, MatrixMut};
use crate::operands::Source;
use crate::packed::Packed;
use gpumem_core::program::ops::Cell;

/// Scratch memory of the backward pass.
pub(super) struct Rooms<'a> {
    /// Values for each step, [B, T, H]: an LSTM's c, or a GRU's `ds_n`. With a projection, `u` replaces c once a step is done.
    rows: &'a mut [f32],
    /// The gradients of the steps' outputs [B, T, P], with a projection.
    projected: &'a mut [f32],
    /// The gradient that reaches the previous step through the product with the weight, [B, H].
    handed: &'a mut [f32],
    /// The gradient that reaches the previous step inside the cell, [B, H].
    direct: &'a mut [f32],
    /// A GRU's `s_n`, [B, H].
    sums: &'a mut [f32],
    /// The packed weight.
    packed: &'a mut [f32],
}

impl<'a> Rooms<'a> {
    pub(super) fn new(sizes: &Sizes, rows: &'a mut [f32], rest: &'a mut [f32]) -> Rooms<'a> {
        let each = sizes.samples * sizes.hidden;
        let (handed, rest) = rest.split_at_mut(each);
        let (direct, rest) = rest.split_at_mut(each);
        let (sums, packed) = rest.split_at_mut(each);
        // A plain cell has no rows.
        let [of_rows, of_projected] = if rows.is_empty() { [0, 0] } else { sizes.rows() };
        let (rows, others) = rows.split_at_mut(of_rows);
        Rooms { rows, projected: &mut others[..of_projected], handed, direct, sums, packed }
    }
}

/// The direction, and what all samples read.
struct Weights<'a> {
    way: Direction,
    shared: Packed<'a>,
    /// Those of a GRU's last gate, for the product with its gradient and for the one with the previous output.
    of_n: Option<[Packed<'a>; 2]>,
    /// The bias of a GRU's last gate.
    bias: Option<&'a [f32]>,
    projection: Option<&'a [f32]>,
}

impl<'a> Weights<'a> {
    fn new(sizes: &Sizes, way: Direction, parameters: &'a Parameters, room: &'a mut [f32]) -> Weights<'a> {
        let [first, second, third] = sizes.packed();
        let (shared, of_n) = parameters.weight.get().split_at(sizes.shared() * sizes.outputs);
        let (room, rest) = room.split_at_mut(first);
        let shared = Packed::new(Matrix::new(shared, sizes.shared(), sizes.outputs, sizes.outputs), room);
        let of_n = (sizes.cell == Cell::Gru).then(|| {
            let (back, forth) = rest.split_at_mut(second);
            let of_n = Matrix::new(of_n, sizes.hidden, sizes.hidden, sizes.hidden);
            [Packed::new(of_n, back), Packed::new(of_n.t(), &mut forth[..third])]
        });
        let bias = parameters.bias.as_ref().map(|bias| &bias.get()[sizes.width - sizes.hidden..]);
        Weights { way, shared, of_n, bias, projection: parameters.projection.as_ref().map(Source::get) }
    }
}

/// Computes the gradients of one direction's gates in place of the gates. Returns [`Rooms::rows`] and [`Rooms::projected`].
///
/// `dy` is `None` if the gates' memory holds it.
pub(super) fn walk_back<'r>(
    sizes: &Sizes,
    way: Direction,
    (dy, y): (Option<&[f32]>, &[f32]),
    gates: &mut [f32],
    parameters: &Parameters,
    rooms: Rooms<'r>,
) -> [&'r mut [f32]; 2] {
    let Rooms { rows, projected, handed, direct, sums, packed } = rooms;
    let weights = Weights::new(sizes, way, parameters, packed);
    handed.fill(0.0);
    direct.fill(0.0);
    SamplesBack { sizes: *sizes, dy, y, gates, rows, projected, handed, direct, sums }.walk(&weights, sizes.parts());
    [rows, projected]
}

/// The tensors of some samples.
struct SamplesBack<'a> {
    /// The sizes, with the number of these samples.
    sizes: Sizes,
    dy: Option<&'a [f32]>,
    y: &'a [f32],
    gates: &'a mut [f32],
    rows: &'a mut [f32],
    projected: &'a mut [f32],
    handed: &'a mut [f32],
    direct: &'a mut [f32],
    sums: &'a mut [f32],
}

impl<'a> SamplesBack<'a> {
    /// Divides the samples into the first `samples` and the others.
    fn split(self, samples: usize) -> [SamplesBack<'a>; 2] {
        let SamplesBack { sizes, dy, y, gates, rows, projected, handed, direct, sums } = self;
        let Sizes { steps, width, hidden, features, .. } = sizes;
        let [first, second] = sizes.split(samples);
        let (dy_first, dy_second) = dy.map(|all| all.split_at(samples * steps * features)).unzip();
        let (y_first, y_second) = y.split_at(samples * steps * features);
        let (gates_first, gates_second) = gates.split_at_mut(samples * steps * width);
        // A plain cell has no rows.
        let of_first = if rows.is_empty() { 0 } else { samples * steps * hidden };
        let (rows_first, rows_second) = rows.split_at_mut(of_first);
        // Samples with a projection are not divided.
        let (projected_first, projected_second) = projected.split_at_mut(0);
        let (handed_first, handed_second) = handed.split_at_mut(samples * hidden);
        let (direct_first, direct_second) = direct.split_at_mut(samples * hidden);
        let (sums_first, sums_second) = sums.split_at_mut(samples * hidden);
        [
            SamplesBack {
                sizes: first,
                dy: dy_first,
                y: y_first,
                gates: gates_first,
                rows: rows_first,
                projected: projected_first,
                handed: handed_first,
                direct: direct_first,
                sums: sums_first,
            },
            SamplesBack {
                sizes: second,
                dy: dy_second,
                y: y_second,
                gates: gates_second,
                rows: rows_second,
                projected: projected_second,
                handed: handed_second,
                direct: direct_second,
                sums: sums_second,
            },
        ]
    }

    /// Computes the gradients of all steps of these samples, in so many parts at the same time.
    fn walk(mut self, weights: &Weights<'_>, parts: usize) {
        if parts > 1 {
            let samples = self.sizes.samples * (parts / 2) / parts;
            let [first, second] = self.split(samples);
            rayon::join(|| first.walk(weights, parts / 2), || second.walk(weights, parts - parts / 2));
            return;
        }
        let Sizes { samples, steps, hidden, cell, .. } = self.sizes;
        if cell == Cell::Lstm {
            cells::states(self.gates, self.rows, [steps, hidden], weights.way.reverse);
        }
        let mut after: Option<usize> = None;
        for t in self.sizes.order(weights.way.reverse).rev() {
            if let Some(after) = after {
                self.hand_on(weights, after);
            }
            if let (Some(projection), Some(dy)) = (weights.projection, self.dy) {
                self.sizes.project_back(t, &dy[weights.way.column..], projection, self.handed, self.projected);
            }
            self.sum(weights, t);
            for sample in 0..samples {
                self.step(weights, t, sample);
            }
            after = Some(t);
        }
    }

    /// Computes the gradient of the output of the step before `after` from the gates' gradients of `after`: `ds W`.
    fn hand_on(&mut self, weights: &Weights<'_>, after: usize) {
        let Sizes { samples, hidden, outputs, width, .. } = self.sizes;
        let ds = self.sizes.step(self.gates, after, width, [0, self.sizes.shared()]);
        let handed = &mut self.handed[..samples * outputs];
        weights.shared.multiply(MatrixMut::new(handed, samples, outputs, outputs), ds, false);
        // The gradient of a GRU's last gate differs before and after the product, so it has its own rows.
        if let Some([of_n, _]) = &weights.of_n {
            let ds = self.sizes.step(self.rows, after, hidden, [0, hidden]);
            of_n.multiply(MatrixMut::new(handed, samples, hidden, hidden), ds, true);
        }
    }

    /// Computes a GRU's `s_n` of a step.
    fn sum(&mut self, weights: &Weights<'_>, t: usize) {
        let Sizes { samples, hidden, features, .. } = self.sizes;
        let Some([_, of_n]) = &weights.of_n else { return };
        match self.sizes.before(t, weights.way.reverse) {
            Some(before) => {
                let h = self.sizes.step(self.y, before, features, [weights.way.column, hidden]);
                of_n.multiply(MatrixMut::new(self.sums, samples, hidden, hidden), h, false);
            }
            None => self.sums.fill(0.0),
        }
        if let Some(bias) = weights.bias {
            let add = |row: &mut [f32]| row.iter_mut().zip(bias).for_each(|(s, bias)| *s += bias);
            self.sums.chunks_exact_mut(hidden).for_each(add);
        }
    }

    /// Computes the gradients of the gates of a step of one sample, in place of the gates.
    fn step(&mut self, weights: &Weights<'_>, t: usize, sample: usize) {
        let Sizes { steps, hidden, outputs, width, features, cell, .. } = self.sizes;
        let (dy, y, way) = (self.dy, self.y, weights.way);
        let before = self.sizes.before(t, way.reverse);
        let is_projected = weights.projection.is_some();
        let step = |t: usize, row: usize| (sample * steps + t) * row;
        let at = |t: usize| step(t, features) + way.column;
        let own = sample * hidden..(sample + 1) * hidden;
        let handed = &mut self.handed[own.clone()];
        if let Some(dy) = dy.filter(|_| !is_projected) {
            handed.iter_mut().zip(&dy[at(t)..]).for_each(|(dh, dy)| *dh += dy);
        }
        let gates = &mut self.gates[step(t, width)..][..width];
        let row = step(t, hidden)..step(t, hidden) + hidden;
        if is_projected {
            cells::lstm_units(gates, &self.rows[row.clone()], &mut self.sums[own.clone()]);
        }
        let before_c = before.map(|before| step(before, hidden));
        let back = Handed {
            dh: handed,
            direct: &mut self.direct[own.clone()],
            s: &self.sums[own.clone()],
            h: &y[at(t)..][..outputs],
            before: before.map(|before| &y[at(before)..][..outputs]),
        };
        match cell {
            Cell::Lstm => {
                let before = before_c.map(|c| &self.rows[c..][..hidden]);
                cells::lstm_back(gates, back, &self.rows[row.clone()], before);
            }
            Cell::Gru => cells::gru_back(gates, back, &mut self.rows[row.clone()]),
            Cell::Tanh | Cell::Relu => cells::plain_back(cell, gates, back, dy.is_none()),
        }
        if is_projected {
            self.rows[row].copy_from_slice(&self.sums[own]);
        }
    }
}
