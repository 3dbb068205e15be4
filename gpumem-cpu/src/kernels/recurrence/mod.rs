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
pub(in crate::kernels) mod whole;

use super::{Bound, Frame, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Gradient, Operands, Pair, Source, Target, count};
use crate::packed::Packed;
use crate::parallel::{self, grown, with_scratch};
use cells::{Addends, Handed};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::op::{Rule, Work};
use gpumem_core::program::ops::{Cell, Recurrence};

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

    fn ways(&self) -> impl Iterator<Item = (u8, Direction)> + use<> {
        let outputs = self.outputs;
        (0..(self.features / outputs) as u8)
            .map(move |index| (index, Direction { column: usize::from(index) * outputs, reverse: index == 1 }))
    }
}

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

/// Computes all steps of one direction.
fn walk(
    sizes: &Sizes,
    way: Direction,
    (source, mut kept): Arriving<'_>,
    parameters: &Parameters,
    y: &mut [f32],
    frame: &mut Frame<'_>,
) {
    let Sizes { samples, steps, hidden, outputs, width, features, cell } = *sizes;
    // The first step has no product.
    let packed = if steps > 1 { Packed::room(outputs, width) } else { 0 };
    let scratch = grown(frame.scratch, samples * (width + 2 * hidden) + packed);
    let (sums, rest) = scratch.split_at_mut(samples * width);
    let (states, rest) = rest.split_at_mut(samples * hidden);
    let (units, room) = rest.split_at_mut(samples * hidden);
    states.fill(0.0);
    let weight = Packed::columns(parameters.weight.get(), outputs, width, room);
    for t in sizes.order(way.reverse) {
        match sizes.before(t, way.reverse) {
            Some(before) => {
                let h = sizes.step(y, before, features, [way.column, outputs]);
                weight.multiply(MatrixMut::new(sums, samples, width, width), h, false);
            }
            None => sums.fill(0.0),
        }
        if let Some(bias) = &parameters.bias {
            let bias = bias.get();
            parallel::pieces(None, sums, width, |_, _, row| {
                row.iter_mut().zip(bias).for_each(|(s, bias)| *s += bias);
                0.0
            });
        }
        for sample in 0..samples {
            let row = (sample * steps + t) * width..(sample * steps + t + 1) * width;
            let at = (sample * steps + t) * features + way.column;
            let sums = &mut sums[sample * width..][..width];
            let own = sample * hidden..(sample + 1) * hidden;
            let state = &mut states[own.clone()];
            let h = if parameters.projection.is_some() { &mut units[own] } else { &mut y[at..][..hidden] };
            match (&mut kept, source) {
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
        if let Some(projection) = &parameters.projection {
            let h = MatrixMut::new(&mut y[t * features + way.column..], samples, outputs, steps * features);
            sizes.project(h, units, projection.get());
        }
    }
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

/// Scratch memory of the backward pass.
struct Rooms<'a> {
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

impl<'a> Rooms<'a> {
    fn new(sizes: &Sizes, rows: &'a mut [f32], rest: &'a mut [f32]) -> Rooms<'a> {
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

/// The packed weight of the backward pass.
struct Weights<'a> {
    shared: Packed<'a>,
    /// Those of a GRU's last gate, for the product with its gradient and for the one with the previous output.
    of_n: Option<[Packed<'a>; 2]>,
}

impl<'a> Weights<'a> {
    fn new(sizes: &Sizes, weight: &[f32], room: &'a mut [f32]) -> Weights<'a> {
        let [first, second, third] = sizes.packed();
        let (shared, of_n) = weight.split_at(sizes.shared() * sizes.outputs);
        let (room, rest) = room.split_at_mut(first);
        let shared = Packed::rows(shared, sizes.shared(), sizes.outputs, room);
        let of_n = (sizes.cell == Cell::Gru).then(|| {
            let (back, forth) = rest.split_at_mut(second);
            let hidden = sizes.hidden;
            [Packed::rows(of_n, hidden, hidden, back), Packed::columns(of_n, hidden, hidden, &mut forth[..third])]
        });
        Weights { shared, of_n }
    }
}

/// Computes the gradients of one direction's gates in place of the gates. Returns [`Rooms::rows`] and [`Rooms::projected`].
///
/// `dy` is `None` if the gates' memory holds it.
fn walk_back<'r>(
    sizes: &Sizes,
    way: Direction,
    (dy, y): (Option<&[f32]>, &[f32]),
    gates: &mut [f32],
    parameters: &Parameters,
    rooms: Rooms<'r>,
) -> [&'r mut [f32]; 2] {
    let Sizes { samples, steps, hidden, outputs, width, features, cell } = *sizes;
    let Rooms { rows, projected, handed, direct, sums, packed } = rooms;
    let weights = Weights::new(sizes, parameters.weight.get(), packed);
    let bias = parameters.bias.as_ref().map(|bias| &bias.get()[width - hidden..]);
    let projection = parameters.projection.as_ref().map(Source::get);
    if cell == Cell::Lstm {
        cells::states(gates, rows, [steps, hidden], way.reverse);
    }
    handed.fill(0.0);
    direct.fill(0.0);
    let mut after: Option<usize> = None;
    for t in sizes.order(way.reverse).rev() {
        let before = sizes.before(t, way.reverse);
        if let Some(after) = after {
            hand_on(sizes, gates, rows, &weights, after, &mut handed[..samples * outputs]);
        }
        if let (Some(projection), Some(dy)) = (projection, dy) {
            sizes.project_back(t, &dy[way.column..], projection, handed, projected);
        }
        if let Some([_, of_n]) = &weights.of_n {
            match before {
                Some(before) => {
                    let h = sizes.step(y, before, features, [way.column, hidden]);
                    of_n.multiply(MatrixMut::new(sums, samples, hidden, hidden), h, false);
                }
                None => sums.fill(0.0),
            }
            if let Some(bias) = bias {
                sums.chunks_exact_mut(hidden).for_each(|row| row.iter_mut().zip(bias).for_each(|(s, bias)| *s += bias));
            }
        }
        for sample in 0..samples {
            let step = |t: usize, row: usize| (sample * steps + t) * row;
            let at = |t: usize| step(t, features) + way.column;
            let own = sample * hidden..(sample + 1) * hidden;
            let handed = &mut handed[own.clone()];
            if let Some(dy) = dy.filter(|_| projection.is_none()) {
                handed.iter_mut().zip(&dy[at(t)..]).for_each(|(dh, dy)| *dh += dy);
            }
            let gates = &mut gates[step(t, width)..][..width];
            let row = step(t, hidden)..step(t, hidden) + hidden;
            if projection.is_some() {
                cells::lstm_units(gates, &rows[row.clone()], &mut sums[own.clone()]);
            }
            let before_c = before.map(|before| step(before, hidden));
            let back = Handed {
                dh: handed,
                direct: &mut direct[own.clone()],
                s: &sums[own.clone()],
                h: &y[at(t)..][..outputs],
                before: before.map(|before| &y[at(before)..][..outputs]),
            };
            match cell {
                Cell::Lstm => {
                    let before = before_c.map(|c| &rows[c..][..hidden]);
                    cells::lstm_back(gates, back, &rows[row.clone()], before);
                }
                Cell::Gru => cells::gru_back(gates, back, &mut rows[row.clone()]),
                Cell::Tanh | Cell::Relu => cells::plain_back(cell, gates, back, dy.is_none()),
            }
            if projection.is_some() {
                rows[row].copy_from_slice(&sums[own]);
            }
        }
        after = Some(t);
    }
    [rows, projected]
}

/// Computes the gradient of the output of the step before `after` from the gates' gradients of `after`: `ds W`.
fn hand_on(sizes: &Sizes, gates: &[f32], rows: &[f32], weights: &Weights<'_>, after: usize, handed: &mut [f32]) {
    let Sizes { samples, hidden, outputs, width, .. } = *sizes;
    let ds = sizes.step(gates, after, width, [0, sizes.shared()]);
    weights.shared.multiply(MatrixMut::new(handed, samples, outputs, outputs), ds, false);
    // The gradient of a GRU's last gate differs before and after the product, so it has its own rows.
    if let Some([of_n, _]) = &weights.of_n {
        let ds = sizes.step(rows, after, hidden, [0, hidden]);
        of_n.multiply(MatrixMut::new(handed, samples, hidden, hidden), ds, true);
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
