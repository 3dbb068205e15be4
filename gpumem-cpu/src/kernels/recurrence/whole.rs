//! A recurrent layer with the map of what arrives: what a product and a recurrence compute one after the other, in their order.

use super::{Parameters, Rooms, Sizes, Way, sum_bias, sum_weight, walk, walk_back};
use crate::kernels::product::{add_bias, sum_rows};
use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Operands, Source, count};
use crate::parallel::grown;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Cell, WholeRecurrence};

/// The only direction.
const WAY: Way = Way { column: 0, reverse: false };

/// The map of what arrives.
struct Map {
    rows: usize,
    inputs: usize,
    width: usize,
    x: Source,
    weight: Source,
}

impl Map {
    fn new(op: &WholeRecurrence, sizes: &Sizes, operands: &Operands<'_>) -> Result<Map, Error> {
        let (rows, inputs, width) = (sizes.samples * sizes.steps, count(&[op.in_features]), sizes.width);
        let x = operands.source(Slot::Input(0), rows.saturating_mul(inputs))?;
        let weight = operands.source(Slot::Input(1), width.saturating_mul(inputs))?;
        Ok(Map { rows, inputs, width, x, weight })
    }

    fn arriving(&self) -> Matrix<'_> {
        Matrix::new(self.x.get(), self.rows, self.inputs, self.inputs)
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix::new(self.weight.get(), self.width, self.inputs, self.inputs)
    }
}

/// Elements of the tensor in which the gates are, so many of them.
fn room(operands: &Operands<'_>, gates: usize) -> Result<usize, Error> {
    let room = operands.any_length(Slot::Saved(0)).filter(|&room| room >= gates);
    room.ok_or(Error::Damaged("a recurrence has no room for its gates"))
}

/// The output, and the gates where cuDNN would have its reserve.
pub(in crate::kernels) fn forward(op: &WholeRecurrence, operands: &mut Operands<'_>) -> Bound {
    let inner = op.recurrence();
    let sizes = Sizes::new(&inner, operands)?;
    let [gates, output] = sizes.lengths();
    let map = Map::new(op, &sizes, operands)?;
    let map_bias = operands.source_if(op.bias, Slot::Input(WholeRecurrence::MAP_BIAS), sizes.width)?;
    let parameters = Parameters::new(&inner, &sizes, operands, 1, true)?;
    let mut kept = operands.target(Slot::Saved(0), room(operands, gates)?)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |frame| {
        let gates = &mut kept.get()[..gates];
        let mapped = MatrixMut::new(gates, map.rows, map.width, map.width);
        product_parallel(mapped, map.arriving(), map.matrix().t(), false);
        if let Some(bias) = &map_bias {
            add_bias(gates, bias.get());
        }
        // The gate of a plain cell is the output.
        let gates = if inner.cell.is_plain() { (Some(&*gates), None) } else { (None, Some(gates)) };
        walk(&sizes, WAY, gates, &parameters, output.get(), frame);
    })
}

/// All gradients.
pub(in crate::kernels) fn backward(op: &WholeRecurrence, operands: &mut Operands<'_>) -> Bound {
    let inner = op.recurrence();
    let sizes = Sizes::new(&inner, operands)?;
    let [gates, output] = sizes.lengths();
    let map = Map::new(op, &sizes, operands)?;
    let parameters = Parameters::new(&inner, &sizes, operands, 1, op.cell == Cell::Gru)?;
    let kept = operands.source(Slot::Saved(0), room(operands, gates)?)?;
    let (dy, y) = (operands.source(Slot::Gradient, output)?, operands.source(Slot::Output, output)?);
    let mut dx = operands.gradient(Slot::InputGradient(0), map.rows.saturating_mul(map.inputs))?;
    let mut map_weight = operands.gradient(Slot::InputGradient(1), map.width.saturating_mul(map.inputs))?;
    let mut weight = operands.gradient(Slot::InputGradient(2), sizes.weight())?;
    let mut bias = operands.gradient(Slot::InputGradient(3), sizes.width)?;
    let mut map_bias = operands.gradient(Slot::InputGradient(WholeRecurrence::MAP_BIAS), sizes.width)?;
    kernel(move |frame| {
        let is_plain = inner.cell.is_plain();
        let rows = if is_plain { 0 } else { sizes.rows()[0] };
        let scratch = grown(frame.scratch, gates + rows + 3 * sizes.samples * sizes.hidden);
        let (dp, rest) = scratch.split_at_mut(gates);
        let (rows, rest) = rest.split_at_mut(rows);
        if !is_plain {
            dp.copy_from_slice(&kept.get()[..gates]);
        }
        let rooms = Rooms::new(&sizes, rows, rest);
        let Rooms { rows, .. } = walk_back(&sizes, WAY, (Some(dy.get()), y.get()), dp, &parameters, rooms);
        sum_weight(&sizes, WAY, &mut weight, y.get(), dp, rows);
        sum_bias(&sizes, &mut bias, dp, rows);
        let dp = &*dp;
        let matrix = Matrix::new(dp, map.rows, map.width, map.width);
        if let Some(out) = &mut dx {
            let dx = MatrixMut::new(out.target.get(), map.rows, map.inputs, map.inputs);
            product_parallel(dx, matrix, map.matrix(), out.accumulate);
        }
        if let Some(out) = &mut map_weight {
            let dw = MatrixMut::new(out.target.get(), map.width, map.inputs, map.inputs);
            product_parallel(dw, matrix.t(), map.arriving(), out.accumulate);
        }
        if let Some(out) = &mut map_bias {
            sum_rows(out, map.rows, dp);
        }
    })
}
