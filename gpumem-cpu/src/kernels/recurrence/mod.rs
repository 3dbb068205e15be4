//! Recurrent layers without their input projection. With `p` [B, T, G H] (the projected input), `s[t] = h[t - 1] W^T + b` and `h` the output
//! (0 before the first step), a cell computes `h[t]` from `p[t]` and `s[t]`. G gates, H hidden units. The D directions are side by side in the
//! output [B, T, D H]; the second one runs from the last step to the first. With a projection to P outputs, a cell computes `u[t]` (H units),
//! and `h[t] = u[t] W_r^T` (P outputs).
//!
//! Backward, in the opposite order of steps: `dh[t] = dy[t] + ds[t + 1] W`, plus the gradient inside the cell. From it follow the gates'
//! gradients `dp[t]`, which equal `ds[t]` except for a GRU's n: `ds_n = dp_n * r`. Then `dW = sum of ds[t]^T h[t - 1]`, `db = sum of ds[t]`.
//! With a projection, the cell receives `du[t] = dh[t] W_r`, and `dW_r = sum of dh[t]^T u[t]`.

pub(in crate::kernels) mod cached;
mod cells;
mod projection;
pub(in crate::kernels) mod selective_scan;
mod walk;
mod walk_back;
pub(in crate::kernels) mod whole;

use super::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Gradient, Operands, Pair, Source, Target, count};
use crate::packed::Packed;
use crate::parallel::{self, grown, with_scratch};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::op::{Rule, Work};
use gpumem_core::program::ops::{Cell, Recurrence};
use walk::walk;
use walk_back::{Rooms, walk_back};

/// The sizes of a recurrence.
#[derive(Clone, Copy)]
struct Sizes {
    samples: usize,
    steps: usize,
    hidden: usize,
    /// The numbers that each step outputs in one direction: H, or P with a projection.
    outputs: usize,
    /// The numbers of all gates, G H.
    width: usize,
    /// The outputs of all directions.
    features: usize,
    cell: Cell,
}

/// One direction: its columns in the output, and its order of steps.
#[derive(Clone, Copy)]
struct Direction {
    /// The first of its columns in the output.
    column: usize,
    reverse: bool,
}

impl Sizes {
    fn new(op: &Recurrence, operands: &Operands<'_>) -> Result<Sizes, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged(
                "a recurrence has no units or steps, other outputs than its cell, or more than two directions",
            ));
        }
        let sizes = [operands.batch(), op.steps, op.hidden, op.outputs];
        let [samples, steps, hidden, outputs] = sizes.map(|size| count(&[size]));
        let [width, features] = [count(&[op.width()]), count(&[op.directions, op.outputs])];
        Ok(Sizes { samples, steps, hidden, outputs, width, features, cell: op.cell })
    }

    /// Returns the elements of the gates of one direction and of the output.
    fn lengths(&self) -> [usize; 2] {
        let rows = self.samples.saturating_mul(self.steps);
        [rows.saturating_mul(self.width), rows.saturating_mul(self.features)]
    }

    /// Returns the elements of one direction's weight.
    fn weight(&self) -> usize {
        self.width.saturating_mul(self.outputs)
    }

    /// Returns the weight as a matrix [G H, P].
    fn matrix<'a>(&self, weight: &'a [f32]) -> Matrix<'a> {
        Matrix::new(weight, self.width, self.outputs, self.outputs)
    }

    /// Returns step `t` of all samples, for rows of `row` elements: `columns` elements of each row, from `column` on.
    fn step<'a>(&self, data: &'a [f32], t: usize, row: usize, [column, columns]: [usize; 2]) -> Matrix<'a> {
        Matrix::new(&data[t * row + column..], self.samples, columns, self.steps * row)
    }

    /// Returns the steps in the order of the forward pass.
    fn order(&self, reverse: bool) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let last = self.steps - 1;
        (0..self.steps).map(move |step| if reverse { last - step } else { step })
    }

    /// Returns the step before `t` in the forward pass. `None` for its first step.
    fn before(&self, t: usize, reverse: bool) -> Option<usize> {
        if reverse { Some(t + 1).filter(|&t| t < self.steps) } else { t.checked_sub(1) }
    }

    /// Returns the number of parts of the samples whose steps are computed at the same time. Each number is computed in the same way however many
    /// there are. The product with a projection has sums whose order depends on the number of samples, so it has one part.
    fn parts(&self) -> usize {
        let products = [self.samples, self.steps, self.width, self.outputs]
            .iter()
            .fold(1, |all: usize, of| all.saturating_mul(*of));
        if self.outputs < self.hidden || products < LEAST_PRODUCTS {
            return 1;
        }
        rayon::current_num_threads().min(self.samples / LEAST_SAMPLES).max(1)
    }

    /// Returns the sizes of the first `samples` and those of the others.
    fn split(&self, samples: usize) -> [Sizes; 2] {
        [samples, self.samples - samples].map(|samples| Sizes { samples, ..*self })
    }

    fn ways(&self) -> impl Iterator<Item = (u8, Direction)> + use<> {
        let outputs = self.outputs;
        (0..(self.features / outputs) as u8)
            .map(move |index| (index, Direction { column: usize::from(index) * outputs, reverse: index == 1 }))
    }
}

/// The fewest samples of a part: with fewer, products mostly read the weight.
const LEAST_SAMPLES: usize = 8;

/// The number of multiplications below which another thread does not pay off.
const LEAST_PRODUCTS: usize = 1 << 20;

/// The weight, bias and projection of a direction.
struct Parameters {
    weight: Source,
    bias: Option<Source>,
    /// W_r, the weight of the projection.
    projection: Option<Source>,
}

impl Parameters {
    fn new(
        op: &Recurrence,
        sizes: &Sizes,
        operands: &Operands<'_>,
        first: u8,
        bias: bool,
    ) -> Result<Parameters, Error> {
        let weight = operands.source(Slot::Input(first + 1), sizes.weight())?;
        let bias = operands.source_if(bias && op.bias, Slot::Input(first + 2), sizes.width)?;
        let slot = Slot::Input(first + op.projection());
        let projection = operands.source_if(op.is_projected(), slot, sizes.projection())?;
        Ok(Parameters { weight, bias, projection })
    }
}

/// The storage of a direction's gates: the projected input, and the gates computed from it.
enum Gates {
    /// Kept for the backward pass, in place of the projected input or not.
    Kept(Pair),
    /// Only read: the gates are not kept.
    Read(Source),
    /// The projected input is in the memory of the output, which overwrites it.
    Output,
}

/// The projected input, and the kept gates. If only the gates are given, they hold the projected input already.
type Arriving<'a> = (Option<&'a [f32]>, Option<&'a mut [f32]>);

impl Gates {
    fn get(&mut self) -> Arriving<'_> {
        match self {
            Gates::Kept(pair) => {
                let (source, target) = pair.get();
                (source, Some(target))
            }
            Gates::Read(source) => (Some(source.get()), None),
            Gates::Output => (None, None),
        }
    }
}

/// Computes the output, and the gates if they are kept.
pub(super) fn forward(op: &Recurrence, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let [gates, output] = sizes.lengths();
    let mut directions = Vec::new();
    for (index, way) in sizes.ways() {
        let first = op.first_input(index);
        let (slot, saved) = (Slot::Input(first), Slot::Saved(index));
        let arriving = if operands.writes(saved) {
            Gates::Kept(operands.pair(slot, saved, gates)?)
        } else if operands.aliases(slot, Slot::Output) && gates == output {
            Gates::Output
        } else {
            Gates::Read(operands.source(slot, gates)?)
        };
        directions.push((way, arriving, Parameters::new(op, &sizes, operands, first, true)?));
    }
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |frame| {
        for (way, gates, parameters) in &mut directions {
            walk(&sizes, *way, gates.get(), parameters, output.get(), frame);
        }
    })
}

/// One direction of the backward pass.
struct Back {
    way: Direction,
    gates: Option<Pair>,
    /// The gradient of a plain cell's gates if it does not overwrite `dy`.
    apart: Option<Target>,
    parameters: Parameters,
    weight: Option<Gradient>,
    bias: Option<Gradient>,
    projection: Option<Gradient>,
}

/// Computes the gradients of gates, weights and biases.
pub(super) fn backward(op: &Recurrence, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let [gates, output] = sizes.lengths();
    let is_plain = op.cell.is_plain();
    let mut directions = Vec::new();
    let mut dy = None;
    for (index, way) in sizes.ways() {
        let first = op.first_input(index);
        let slot = Slot::InputGradient(first);
        if operands.accumulates(slot) {
            return Err(Error::Damaged("the gradient of a recurrence's gates is added to another one"));
        }
        let parameters = Parameters::new(op, &sizes, operands, first, op.cell == Cell::Gru)?;
        let weight = operands.gradient(Slot::InputGradient(first + 1), sizes.weight())?;
        let bias = if op.bias { operands.gradient(Slot::InputGradient(first + 2), sizes.width)? } else { None };
        let slot_of_projection = Slot::InputGradient(first + op.projection());
        let projection = match op.is_projected() {
            true => operands.gradient(slot_of_projection, sizes.projection())?,
            false => None,
        };
        let (mut kept, mut apart) = (None, None);
        if !is_plain {
            kept = Some(operands.pair(Slot::Saved(index), slot, gates)?);
        } else if operands.aliases(Slot::Gradient, slot) && gates == output {
            dy = Some(operands.pair(Slot::Gradient, slot, output)?);
        } else {
            apart = Some(operands.target(slot, gates)?);
        }
        directions.push(Back { way, gates: kept, apart, parameters, weight, bias, projection });
    }
    let mut dy = match dy {
        Some(dy) => Incoming::Overwritten(dy),
        None => Incoming::Read(operands.source(Slot::Gradient, output)?),
    };
    let y = operands.source(Slot::Output, output)?;
    let workspace =
        op.workspace(Work::Gradient(0)).map(|of| count(&[operands.batch()]).saturating_mul(count(of.shape.dims())));
    let mut rows = workspace.map(|length| operands.target(Slot::Workspace, length)).transpose()?;
    kernel(move |frame| {
        let y = y.get();
        for back in &mut directions {
            let Back { way, gates, apart, parameters, weight, bias, projection } = back;
            let rows = rows.as_mut().map_or(&mut [] as &mut [f32], |rows| rows.get());
            let rooms = Rooms::new(&sizes, rows, grown(frame.scratch, sizes.scratch_back()));
            let (dy, gates) = match (&mut dy, gates, apart) {
                (Incoming::Read(dy), Some(pair), _) => {
                    let (source, target) = pair.get();
                    if let Some(source) = source {
                        target.copy_from_slice(source);
                    }
                    (Some(dy.get()), target)
                }
                (Incoming::Read(dy), None, Some(apart)) => (Some(dy.get()), apart.get()),
                (Incoming::Overwritten(pair), ..) => (None, pair.get().1),
                (Incoming::Read(_), None, None) => continue,
            };
            let [rows, projected] = walk_back(&sizes, *way, (dy, y), gates, parameters, rooms);
            sum_weight(&sizes, *way, weight, y, gates, rows);
            sum_bias(&sizes, bias, gates, rows);
            sizes.sum_projection(projection, projected, rows);
        }
    })
}

/// The gradient of the output.
enum Incoming {
    Read(Source),
    /// Overwritten by the gradient of the gates.
    Overwritten(Pair),
}

impl Sizes {
    /// Returns the numbers of the gates whose gradient is the same before and after the product. That of a GRU's last gate differs.
    fn shared(&self) -> usize {
        if self.cell == Cell::Gru { self.width - self.hidden } else { self.width }
    }

    /// Returns the elements of the packed weight: that of the shared gates, and two of a GRU's last gate.
    fn packed(&self) -> [usize; 3] {
        let of_new = if self.cell == Cell::Gru { Packed::room(self.hidden, self.hidden) } else { 0 };
        [Packed::room(self.shared(), self.outputs), of_new, of_new]
    }

    /// Returns the elements of the scratch memory of the backward pass, without [`Rooms::rows`] and [`Rooms::projected`].
    fn scratch_back(&self) -> usize {
        3 * self.samples * self.hidden + self.packed().iter().sum::<usize>()
    }

    /// Returns the elements of [`Rooms::rows`] and of [`Rooms::projected`].
    fn rows(&self) -> [usize; 2] {
        let projected = if self.outputs < self.hidden { self.outputs } else { 0 };
        [self.hidden, projected].map(|width| self.samples * self.steps * width)
    }
}

/// Rows of all samples that one product of [`sum_weight`] sums: a product of few rows would mostly read and write its result.
const SUMMED: usize = 512;

/// Computes `dW (+)= sum over samples and steps of ds[t]^T h[t - 1]`.
fn sum_weight(sizes: &Sizes, way: Direction, out: &mut Option<Gradient>, y: &[f32], gates: &[f32], rows: &[f32]) {
    let Some(out) = out else { return };
    let Sizes { samples, steps, hidden, outputs, width, features, .. } = *sizes;
    let accumulate = out.accumulate;
    let dw = out.target.get();
    if steps == 1 {
        if !accumulate {
            dw.fill(0.0);
        }
        return;
    }
    let shared = sizes.shared();
    let group = (SUMMED / steps).max(1);
    for first in (0..samples).step_by(group) {
        let count = group.min(samples - first) * steps;
        with_scratch(count * outputs, |before| {
            for (index, before) in before.chunks_exact_mut(outputs).enumerate() {
                let (sample, t) = (first + index / steps, index % steps);
                match sizes.before(t, way.reverse) {
                    Some(t) => {
                        before.copy_from_slice(&y[(sample * steps + t) * features + way.column..][..outputs]);
                    }
                    // The first step of the forward pass has no output before it.
                    None => before.fill(0.0),
                }
            }
            let h = Matrix::new(before, count, outputs, outputs);
            let add = accumulate || first > 0;
            let ds = Matrix::new(&gates[first * steps * width..], count, width, width);
            let (upper, lower) = MatrixMut::new(dw, width, outputs, outputs).split_rows(shared);
            product_parallel(upper, ds.columns(0..shared).t(), h, add);
            if shared < width {
                let ds = Matrix::new(&rows[first * steps * hidden..], count, hidden, hidden);
                product_parallel(lower, ds.t(), h, add);
            }
        });
    }
}

/// Computes `db (+)= sum over samples and steps of ds[t]`.
fn sum_bias(sizes: &Sizes, out: &mut Option<Gradient>, gates: &[f32], rows: &[f32]) {
    let Some(out) = out else { return };
    let Sizes { samples, steps, hidden, width, .. } = *sizes;
    let accumulate = out.accumulate;
    let (shared, rest) = out.target.get().split_at_mut(sizes.shared());
    let sum = |out: &mut [f32], data: &[f32], row: usize| {
        parallel::column_sums(out, accumulate, samples * steps, |index, first, sums| {
            sums.iter_mut().zip(&data[index * row + first..]).for_each(|(sum, &ds)| *sum += f64::from(ds));
        });
    };
    sum(shared, gates, width);
    sum(rest, rows, hidden);
}
