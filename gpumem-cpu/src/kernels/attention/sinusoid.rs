//! Sinusoidal embedding: sines and cosines of numbers at several frequencies, `y[t, i] = sin(t * f_i)`, and the same with cosines.
//!
//! Backward: `dt` is the sum of `dy * f_i * cos(t * f_i)` over the sines and of `dy * -f_i * sin(t * f_i)` over the cosines.

use crate::kernels::attention::positions::Position;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Angles, Sinusoid};

/// The function that computes one element of a row.
struct Place {
    frequency: f32,
    is_cosine: bool,
    /// True if the angle's number is the row in a grid, rather than the column.
    is_down: bool,
}

fn places(op: &Sinusoid) -> Vec<Place> {
    let frequencies = op.frequencies(f64::powf);
    let (count, features) = (frequencies.len(), op.features() as usize);
    let is_split = features < op.shape.last() as usize;
    let place = |element: usize| {
        let own = element % features;
        let (index, is_second) = if op.interleaved { (own / 2, own % 2 == 1) } else { (own % count, own >= count) };
        Place {
            frequency: frequencies[index],
            is_cosine: is_second != op.cosines_first,
            is_down: (element >= features) != op.rows_first && is_split,
        }
    };
    (0..op.shape.last() as usize).map(place).collect()
}

/// The source of the numbers.
enum Numbers {
    Given(Source),
    Indices(Source<u32>),
    Steps { rows: usize, width: usize, parts: [[f32; 2]; 2] },
    Following { rows: usize, before: Position },
}

impl Numbers {
    fn of(&self, row: usize, is_down: bool) -> f32 {
        match self {
            Numbers::Given(numbers) => numbers.get()[row],
            Numbers::Indices(numbers) => numbers.get()[row] as f32,
            Numbers::Steps { rows, width, parts } => {
                let step = row % rows;
                let (place, [more, times]) = if is_down { (step / width, parts[0]) } else { (step % width, parts[1]) };
                (place as f32 + more) * times
            }
            Numbers::Following { rows, before } => before.get().wrapping_add((row % rows) as u64) as f32,
        }
    }
}

/// Computes `y` from the numbers.
pub(in crate::kernels) fn forward(op: &Sinusoid, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("sines and cosines that are not whole pairs"));
    }
    let rows = count(&[operands.batch(), op.rows()]);
    let features = op.shape.last() as usize;
    let numbers = match op.angles {
        Angles::Numbers => Numbers::Given(operands.source(Slot::Input(0), rows)?),
        Angles::Indices => Numbers::Indices(operands.words(Slot::Input(0), rows)?),
        Angles::Steps | Angles::Parts => {
            Numbers::Steps { rows: count(&[op.rows()]), width: count(&[op.grid[1]]), parts: op.parts() }
        }
        Angles::Following => Numbers::Following { rows: count(&[op.rows()]), before: Position::new(operands)? },
    };
    let mut output = operands.target(Slot::Output, rows.saturating_mul(features))?;
    let places = places(op);
    kernel(move |_| {
        parallel::pieces(None, output.get(), features, |row, _, y| {
            for (y, place) in y.iter_mut().zip(&places) {
                let angle = f64::from(numbers.of(row, place.is_down) * place.frequency);
                *y = if place.is_cosine { angle.cos() } else { angle.sin() } as f32;
            }
            0.0
        });
    })
}

/// Computes the gradient of the numbers.
pub(in crate::kernels) fn backward(op: &Sinusoid, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() || op.angles != Angles::Numbers {
        return Err(Error::Damaged("sines and cosines whose numbers have no gradient"));
    }
    let rows = count(&[operands.batch(), op.rows()]);
    let features = op.shape.last() as usize;
    let gradient = operands.source(Slot::Gradient, rows.saturating_mul(features))?;
    let numbers = operands.source(Slot::Input(0), rows)?;
    let out = operands.gradient(Slot::InputGradient(0), rows)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    let places = places(op);
    kernel(move |_| {
        let rows = gradient.get().chunks_exact(features).zip(numbers.get());
        for (out_row, (dy, &number)) in out.target.get().iter_mut().zip(rows) {
            let term = |(dy, place): (&f32, &Place)| {
                let angle = f64::from(number * place.frequency);
                let slope = if place.is_cosine { -angle.sin() } else { angle.cos() };
                f64::from(*dy) * f64::from(place.frequency) * slope
            };
            let sum: f64 = dy.iter().zip(&places).map(term).sum();
            *out_row = if out.accumulate { *out_row + sum as f32 } else { sum as f32 };
        }
    })
}
