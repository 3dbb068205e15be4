//! Recurrent layer with its input projection. It computes the products and the recurrence one after the other, as separate operations would.

use super::{Direction, Parameters, Rooms, Sizes, sum_bias, sum_weight, walk, walk_back};
use crate::kernels::matmul::linear::{add_bias, sum_rows};
use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Gradient, Operands, Source, count};
use crate::parallel::grown;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Cell, WholeRecurrence};

/// The input projection of one direction.
struct Map {
    rows: usize,
    inputs: usize,
    width: usize,
    x: Source,
    weight: Source,
}

impl Map {
    fn new(op: &WholeRecurrence, direction: u8, sizes: &Sizes, operands: &Operands<'_>) -> Result<Map, Error> {
        let (rows, inputs, width) = (sizes.samples * sizes.steps, count(&[op.in_features]), sizes.width);
        let x = operands.source(Slot::Input(0), rows.saturating_mul(inputs))?;
        let weight = operands.source(Slot::Input(op.map(direction)), width.saturating_mul(inputs))?;
        Ok(Map { rows, inputs, width, x, weight })
    }

    fn arriving(&self) -> Matrix<'_> {
        Matrix::new(self.x.get(), self.rows, self.inputs, self.inputs)
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix::new(self.weight.get(), self.width, self.inputs, self.inputs)
    }
}

/// Returns the elements of the tensor for the gates of all directions. `gates` counts those of one direction.
fn room(op: &WholeRecurrence, operands: &Operands<'_>, gates: usize) -> Result<usize, Error> {
    let all = gates.saturating_mul(count(&[op.directions]));
    let room = operands.any_length(Slot::Saved(0)).filter(|&room| room >= all);
    room.ok_or(Error::Damaged("a recurrence has no room for its gates"))
}

/// One direction of the forward pass.
struct Forth {
    way: Direction,
    map: Map,
    map_bias: Option<Source>,
    parameters: Parameters,
}

/// Computes the output, and the gates, which are kept in the memory of cuDNN's reserve.
pub(in crate::kernels) fn forward(op: &WholeRecurrence, operands: &mut Operands<'_>) -> Bound {
    let inner = op.recurrence();
    let sizes = Sizes::new(&inner, operands)?;
    let [gates, output] = sizes.lengths();
    let mut directions = Vec::new();
    for (direction, way) in sizes.ways() {
        let map = Map::new(op, direction, &sizes, operands)?;
        let map_bias = operands.source_if(op.bias, Slot::Input(op.map_bias(direction)), sizes.width)?;
        let parameters = Parameters::new(&inner, &sizes, operands, op.map(direction), true)?;
        directions.push(Forth { way, map, map_bias, parameters });
    }
    let mut kept = operands.target(Slot::Saved(0), room(op, operands, gates)?)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |frame| {
        for (Forth { way, map, map_bias, parameters }, gates) in directions.iter().zip(kept.get().chunks_mut(gates)) {
            let mapped = MatrixMut::new(gates, map.rows, map.width, map.width);
            product_parallel(mapped, map.arriving(), map.matrix().t(), false);
            if let Some(bias) = map_bias {
                add_bias(gates, bias.get());
            }
            // The gate of a plain cell is its output.
            let gates = if inner.cell.is_plain() { (Some(&*gates), None) } else { (None, Some(gates)) };
            walk(&sizes, *way, gates, parameters, output.get(), frame);
        }
    })
}

/// One direction of the backward pass.
struct Back {
    way: Direction,
    /// The elements of the gates of earlier directions.
    start: usize,
    map: Map,
    parameters: Parameters,
    map_weight: Option<Gradient>,
    map_bias: Option<Gradient>,
    weight: Option<Gradient>,
    bias: Option<Gradient>,
    projection: Option<Gradient>,
}

impl Back {
    fn new(
        op: &WholeRecurrence,
        (direction, way): (u8, Direction),
        sizes: &Sizes,
        operands: &mut Operands<'_>,
    ) -> Result<Back, Error> {
        let (inner, first, [gates, _]) = (op.recurrence(), op.map(direction), sizes.lengths());
        let map = Map::new(op, direction, sizes, operands)?;
        let parameters = Parameters::new(&inner, sizes, operands, first, op.cell == Cell::Gru)?;
        let mut gradient = |is_there: bool, input: u8, length: usize| match is_there {
            true => operands.gradient(Slot::InputGradient(input), length),
            false => Ok(None),
        };
        let map_weight = gradient(true, first, map.width.saturating_mul(map.inputs))?;
        let map_bias = gradient(op.bias, op.map_bias(direction), sizes.width)?;
        let weight = gradient(true, first + 1, sizes.weight())?;
        let bias = gradient(op.bias, first + 2, sizes.width)?;
        let projection = gradient(inner.is_projected(), first + inner.projection(), sizes.projection())?;
        let start = usize::from(direction).saturating_mul(gates);
        Ok(Back { way, start, map, parameters, map_weight, map_bias, weight, bias, projection })
    }
}

/// Computes all gradients. The reverse direction comes first, as in a plan with separate products.
pub(in crate::kernels) fn backward(op: &WholeRecurrence, operands: &mut Operands<'_>) -> Bound {
    let inner = op.recurrence();
    let sizes = Sizes::new(&inner, operands)?;
    let [gates, output] = sizes.lengths();
    let ways: Vec<_> = sizes.ways().collect();
    let directions = ways.into_iter().rev().map(|way| Back::new(op, way, &sizes, operands));
    let mut directions = directions.collect::<Result<Vec<_>, _>>()?;
    let kept = operands.source(Slot::Saved(0), room(op, operands, gates)?)?;
    let (dy, y) = (operands.source(Slot::Gradient, output)?, operands.source(Slot::Output, output)?);
    let arriving = sizes.samples.saturating_mul(sizes.steps).saturating_mul(count(&[op.in_features]));
    let mut dx = operands.gradient(Slot::InputGradient(0), arriving)?;
    kernel(move |frame| {
        let is_plain = inner.cell.is_plain();
        let rows: usize = if is_plain { 0 } else { sizes.rows().iter().sum() };
        let scratch = grown(frame.scratch, gates + rows + sizes.scratch_back());
        let (dp, rest) = scratch.split_at_mut(gates);
        let (rows, rest) = rest.split_at_mut(rows);
        for (index, back) in directions.iter_mut().enumerate() {
            let Back { way, start, map, parameters, map_weight, map_bias, weight, bias, projection } = back;
            if !is_plain {
                dp.copy_from_slice(&kept.get()[*start..][..gates]);
            }
            let rooms = Rooms::new(&sizes, rows, rest);
            let read = (Some(dy.get()), y.get());
            let [rows, projected] = walk_back(&sizes, *way, read, dp, parameters, rooms);
            sum_weight(&sizes, *way, weight, y.get(), dp, rows);
            sum_bias(&sizes, bias, dp, rows);
            sizes.sum_projection(projection, projected, rows);
            let dp = &*dp;
            let matrix = Matrix::new(dp, map.rows, map.width, map.width);
            if let Some(out) = &mut dx {
                let adds = out.accumulate || index > 0;
                let dx = MatrixMut::new(out.target.get(), map.rows, map.inputs, map.inputs);
                product_parallel(dx, matrix, map.matrix(), adds);
            }
            if let Some(out) = map_weight {
                let dw = MatrixMut::new(out.target.get(), map.width, map.inputs, map.inputs);
                product_parallel(dw, matrix.t(), map.arriving(), out.accumulate);
            }
            if let Some(out) = map_bias {
                sum_rows(out, map.rows, dp);
            }
        }
    })
}
