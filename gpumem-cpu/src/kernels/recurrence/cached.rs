//! Current time steps of a recurrent layer in generation. The last outputs are kept (step t in row `t % 2`), and an LSTM's c.

use super::cells::{self, Addends};
use super::{Parameters, Sizes};
use crate::kernels::attention::positions::Position;
pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Operands, count};
use crate::parallel::grown;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{CachedRecurrence, Cell};

/// Computes the output of the steps that belong to the sequence, and 0 after them.
pub(in crate::kernels) fn forward(op: &CachedRecurrence, operands: &mut Operands<'_>) -> Bound {
    let whole = op.whole();
    let sizes = Sizes::new(&whole, operands)?;
    let Sizes { samples, steps, hidden, outputs, width, cell, .. } = sizes;
    let [gates, output] = sizes.lengths();
    let arriving = operands.source(Slot::Input(0), gates)?;
    let parameters = Parameters::new(&whole, &sizes, operands, 0, true)?;
    let position = Position::new(operands)?;
    let mut kept = operands.target(Slot::Cache(0), count(&[operands.batch(), 2, op.outputs]))?;
    let mut kept_cells = match op.cell {
        Cell::Lstm => Some(operands.target(Slot::Cache(1), count(&[operands.batch(), op.hidden]))?),
        Cell::Gru | Cell::Tanh | Cell::Relu => None,
    };
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |frame| {
        let (before, at_hand) = (position.get(), position.at_hand(steps));
        let (p, weight, kept, y) = (arriving.get(), sizes.matrix(parameters.weight.get()), kept.get(), output.get());
        let scratch = grown(frame.scratch, samples * (width + 2 * hidden));
        let (sums, others) = scratch.split_at_mut(samples * width);
        let (others, units) = others.split_at_mut(samples * hidden);
        // The state of a cell: an LSTM's c, or a GRU's previous output.
        let states = kept_cells.as_mut().map_or(others, |cells| cells.get());
        y.fill(0.0);
        if before == 0 {
            states.fill(0.0);
        }
        for t in 0..at_hand {
            let step = before.wrapping_add(t as u64);
            let [row, last] = [step % 2, step.wrapping_add(1) % 2].map(|row| row as usize * outputs);
            if step > 0 {
                let h = Matrix::new(&kept[last..], samples, outputs, 2 * outputs);
                product_parallel(MatrixMut::new(sums, samples, width, width), h, weight.t(), false);
            } else {
                sums.fill(0.0);
            }
            for sample in 0..samples {
                let sums = &mut sums[sample * width..][..width];
                if let Some(bias) = &parameters.bias {
                    sums.iter_mut().zip(bias.get()).for_each(|(s, bias)| *s += bias);
                }
                let state = &mut states[sample * hidden..][..hidden];
                if cell == Cell::Gru && step > 0 {
                    state.copy_from_slice(&kept[sample * 2 * outputs + last..][..hidden]);
                }
                let at = sample * steps + t;
                let h = match parameters.projection {
                    Some(_) => &mut units[sample * hidden..][..hidden],
                    None => &mut y[at * hidden..][..hidden],
                };
                cells::forward(cell, Addends::Sums(&p[at * width..][..width], sums), state, h);
            }
            if let Some(projection) = &parameters.projection {
                let h = MatrixMut::new(&mut y[t * outputs..], samples, outputs, steps * outputs);
                sizes.project(h, units, projection.get());
            }
            for sample in 0..samples {
                let h = &y[(sample * steps + t) * outputs..][..outputs];
                kept[sample * 2 * outputs + row..][..outputs].copy_from_slice(h);
            }
        }
    })
}
