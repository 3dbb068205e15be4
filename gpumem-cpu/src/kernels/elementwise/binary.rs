//! Functions of two values for each pair of elements, with broadcasting. The output may overwrite an input of its size.
//!
//! ```text
//! sum         y = a + b    da = dy        db = dy
//! difference  y = a - b    da = dy        db = -dy
//! product     y = a * b    da = dy * b    db = dy * a
//! quotient    y = a / b    da = dy / b    db = -dy * a / b^2
//! rectified   y = a        da = dy        db = 0               where a > 0
//!             y = a * b    da = dy * b    db = dy * a          elsewhere
//! maximum     y = a        da = dy        db = 0               where a is the larger one; minimum likewise. Of equal ones each has half
//! ```
//!
//! The gradient of a broadcast value is the sum over its repetitions, in double precision.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Axis, Binary, BinaryFunction};

fn value(function: BinaryFunction, a: f32, b: f32) -> f32 {
    match function {
        BinaryFunction::Add => a + b,
        BinaryFunction::Subtract => a - b,
        BinaryFunction::Multiply => a * b,
        BinaryFunction::Divide => a / b,
        BinaryFunction::Rectify => {
            if a > 0.0 {
                a
            } else {
                a * b
            }
        }
        BinaryFunction::Maximum => {
            if a > b || a.is_nan() {
                a
            } else {
                b
            }
        }
        BinaryFunction::Minimum => {
            if a < b || a.is_nan() {
                a
            } else {
                b
            }
        }
    }
}

/// Returns the share of the gradient that `a` gets from a maximum: 1 if it is larger or NaN, half if they are equal.
fn share_of(a: f32, b: f32) -> f32 {
    if a < b {
        0.0
    } else if a == b {
        0.5
    } else {
        1.0
    }
}

/// Returns the derivative with respect to an input.
fn slope(function: BinaryFunction, input: u8, a: f32, b: f32) -> f32 {
    match (function, input) {
        (BinaryFunction::Add, _) | (BinaryFunction::Subtract, 0) => 1.0,
        (BinaryFunction::Subtract, _) => -1.0,
        (BinaryFunction::Multiply, 0) => b,
        (BinaryFunction::Multiply, _) => a,
        (BinaryFunction::Divide, 0) => 1.0 / b,
        (BinaryFunction::Divide, _) => -(a / b) / b,
        (BinaryFunction::Rectify, input) => match (a > 0.0, input) {
            (true, 0) => 1.0,
            (true, _) => 0.0,
            (false, 0) => b,
            (false, _) => a,
        },
        (BinaryFunction::Maximum, 0) | (BinaryFunction::Minimum, 1) => share_of(a, b),
        (BinaryFunction::Maximum, _) | (BinaryFunction::Minimum, _) => share_of(b, a),
    }
}

/// The axes of the output, with the stride of each input along them, which is 0 if the input is broadcast.
#[derive(Clone, Debug)]
struct Axes {
    lengths: Vec<usize>,
    strides: [Vec<usize>; 2],
    /// Elements of each input.
    elements: [usize; 2],
}

impl Axes {
    fn new(op: &Binary, operands: &Operands<'_>) -> Result<Axes, Error> {
        let damaged = Error::Damaged("two values do not fit each other");
        let samples = operands.batch();
        // The length of an input tells if it differs between samples. If the operation does not read an input, its length is that of its gradient.
        let each = [op.left, op.right].map(|shape| count(shape.dims()));
        let batched = [0, 1].map(|input| {
            let slots = [Slot::Input(input), Slot::InputGradient(input)];
            slots
                .into_iter()
                .find_map(|slot| operands.any_length(slot))
                .is_none_or(|length| length != each[input as usize])
        });
        let axes = op.axes(samples, batched).ok_or(damaged)?;
        let strides = |input: usize| {
            let mut stride = 1usize;
            let mut strides = vec![0; axes.len()];
            for (axis, place) in axes.iter().zip(&mut strides).rev().filter(|(axis, _)| axis.has[input]) {
                *place = stride;
                stride = stride.saturating_mul(count(&[axis.length]));
            }
            (strides, stride)
        };
        let ((left, a), (right, b)) = (strides(0), strides(1));
        let lengths = axes.iter().map(|axis: &Axis| count(&[axis.length])).collect();
        Ok(Axes { lengths, strides: [left, right], elements: [a, b] })
    }

    /// Returns the elements of the output.
    fn output(&self) -> usize {
        self.lengths.iter().fold(1, |product: usize, &length| product.saturating_mul(length))
    }

    /// Returns the length of the innermost axis.
    fn inner(&self) -> usize {
        self.lengths[self.lengths.len() - 1]
    }

    /// Returns where a row of the output, along its innermost axis, begins in an input, and the stride of its elements there.
    fn row(&self, input: usize, mut row: usize) -> (usize, usize) {
        let (strides, last) = (&self.strides[input], self.lengths.len() - 1);
        let mut at = 0;
        for axis in (0..last).rev() {
            at += row % self.lengths[axis] * strides[axis];
            row /= self.lengths[axis];
        }
        (at, strides[last])
    }

    /// Returns the axes from the innermost one on: the length, the step, and true if the elements of an input are repeated along it.
    fn steps(&self, input: usize) -> impl Iterator<Item = (usize, Places, bool)> {
        let mut distance = 1;
        (0..self.lengths.len()).rev().map(move |axis| {
            let step = Places { output: distance, inputs: [0, 1].map(|input| self.strides[input][axis]) };
            distance *= self.lengths[axis];
            (self.lengths[axis], step, self.strides[input][axis] == 0)
        })
    }

    /// Returns the axes along which the elements of an input are repeated.
    fn repeated(&self, input: usize) -> Vec<(usize, Places)> {
        self.steps(input).filter(|&(.., repeats)| repeats).map(|(length, step, _)| (length, step)).collect()
    }

    /// Calls `each` with runs of the positions at which an element is repeated, along the axes `repeated`. A run is along the innermost of them.
    fn repetitions(
        &self,
        (input, repeated): (usize, &[(usize, Places)]),
        mut element: usize,
        mut each: impl FnMut(EvenPlaces),
    ) {
        let mut first = Places::default();
        for (length, step, _) in self.steps(input).filter(|&(.., repeats)| !repeats) {
            first = first.plus(element % length, step);
            element /= length;
        }
        let Some((&(count, step), outer)) = repeated.split_first() else {
            return each(EvenPlaces { first, step: Places::default(), count: 1 });
        };
        let rows: usize = outer.iter().map(|(length, _)| length).product();
        for mut row in 0..rows {
            let mut at = first;
            for &(length, step) in outer {
                at = at.plus(row % length, step);
                row /= length;
            }
            each(EvenPlaces { first: at, step, count });
        }
    }
}

/// A position in the output, and the corresponding positions in both inputs.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    output: usize,
    inputs: [usize; 2],
}

impl Places {
    fn plus(self, times: usize, step: Places) -> Places {
        let inputs = [0, 1].map(|input| self.inputs[input] + times * step.inputs[input]);
        Places { output: self.output + times * step.output, inputs }
    }
}

/// Positions with a constant step between them.
#[derive(Clone, Copy, Debug)]
struct EvenPlaces {
    first: Places,
    step: Places,
    count: usize,
}

/// Computes `y` from both inputs.
pub(in crate::kernels) fn forward(op: &Binary, operands: &mut Operands<'_>) -> Bound {
    let axes = Axes::new(op, operands)?;
    let function = op.function;
    let own = [0, 1].map(|input| operands.aliases(Slot::Input(input), Slot::Output));
    let length = axes.output();
    if own.into_iter().zip(axes.elements).any(|(own, elements)| own && elements != length) {
        return Err(Error::Damaged("a repeated value cannot be overwritten"));
    }
    let other = |input: usize| operands.source_if(!own[input], Slot::Input(input as u8), axes.elements[input]);
    let (a, b) = (other(0)?, other(1)?);
    let mut output = operands.target(Slot::Output, length)?;
    kernel(move |_| {
        let [a, b] = [&a, &b].map(|source| source.as_ref().map(Source::get));
        parallel::pieces(None, output.get(), axes.inner(), |row, _, y| {
            let at = |input, x: Option<&[f32]>| x.map(|_| axes.row(input, row));
            match (a.zip(at(0, a)), b.zip(at(1, b))) {
                // Contiguous rows have a faster loop of their own.
                (Some((a, (from, 1))), Some((b, (start, 1)))) => {
                    let pairs = a[from..].iter().zip(&b[start..]);
                    y.iter_mut().zip(pairs).for_each(|(y, (&a, &b))| *y = value(function, a, b));
                }
                (Some((a, (from, by))), Some((b, (start, step)))) => {
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = value(function, a[from + i * by], b[start + i * step]);
                    }
                }
                (None, Some((b, (start, step)))) => {
                    y.iter_mut().enumerate().for_each(|(i, y)| *y = value(function, *y, b[start + i * step]));
                }
                (Some((a, (from, by))), None) => {
                    y.iter_mut().enumerate().for_each(|(i, y)| *y = value(function, a[from + i * by], *y));
                }
                (None, None) => y.iter_mut().for_each(|y| *y = value(function, *y, *y)),
            }
            0.0
        });
    })
}

/// Computes the gradient of one input from `dy` and the inputs that it depends on.
pub(in crate::kernels) fn backward(op: &Binary, operands: &mut Operands<'_>) -> Bound {
    let axes = Axes::new(op, operands)?;
    let (function, input) = (op.function, operands.branch()?);
    if input > 1 {
        return Err(Error::Damaged("a function of two values has no third"));
    }
    let reads = |slot: u8| operands.any_length(Slot::Input(slot)).is_some();
    let [a, b] =
        [0, 1].map(|slot| operands.source_if(reads(slot), Slot::Input(slot), axes.elements[usize::from(slot)]));
    let (a, b) = (a?, b?);
    // An input that is not read may be missing, and does not matter then.
    let at = |x: Option<&[f32]>, place: usize| x.map_or(0.0, |x| x[place]);
    let own = usize::from(input);
    if axes.elements[own] == axes.output() {
        let (mut pair, accumulate) = operands.gradients(input, axes.output())?;
        return kernel(move |_| {
            let [a, b] = [&a, &b].map(|source| source.as_ref().map(Source::get));
            let (dy, dx) = pair.get();
            parallel::pieces(dy, dx, axes.inner(), |row, dy, dx| {
                let ((from, by), (start, step)) = (axes.row(0, row), axes.row(1, row));
                let slope = |i: usize| slope(function, input, at(a, from + i * by), at(b, start + i * step));
                match dy {
                    None => dx.iter_mut().enumerate().for_each(|(i, dx)| *dx *= slope(i)),
                    Some(dy) => parallel::store(dx, accumulate, |i| dy[i] * slope(i)),
                }
                0.0
            });
        });
    }
    let gradient = operands.source(Slot::Gradient, axes.output())?;
    let lacking = Error::Damaged("a function of two values lacks a gradient");
    let mut target = operands.gradient(Slot::InputGradient(input), axes.elements[own])?.ok_or(lacking)?;
    let repeated = axes.repeated(own);
    kernel(move |_| {
        let [a, b] = [&a, &b].map(|source| source.as_ref().map(Source::get));
        let (dy, accumulate) = (gradient.get(), target.accumulate);
        parallel::pieces(None, target.target.get(), 64, |piece, _, dx| {
            parallel::store(dx, accumulate, |i| {
                let mut sum = 0.0f64;
                axes.repetitions((own, &repeated), piece * 64 + i, |run| {
                    for k in 0..run.count {
                        let Places { output, inputs: [left, right] } = run.first.plus(k, run.step);
                        let slope = slope(function, input, at(a, left), at(b, right));
                        sum += f64::from(dy[output]) * f64::from(slope);
                    }
                });
                sum as f32
            });
            0.0
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case of a divisor whose square does not fit in an f32.
    #[test]
    fn slopes_of_very_small_and_large_divisors() {
        let slope = |a, b| slope(BinaryFunction::Divide, 1, a, b);
        assert_eq!(slope(0.0, 1e-23), 0.0);
        assert_eq!(slope(1e-23, 1e-23), -1.0 / 1e-23);
        assert_eq!(slope(1e20, 1e20), -1.0 / 1e20);
        assert_eq!(slope(3.0, 2.0), -0.75);
    }
}
