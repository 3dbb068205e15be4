//! Maximum over windows, `y[o] = max over k of x[at(o, k)]`, with the place of each maximum in its H x W plane.
//!
//! Backward: `dx[place[o]] += dy[o]`.

use super::window::Window;
use super::{Bound, kernel};
use crate::operands::{Operands, Target, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::MaxPool;
use rayon::prelude::*;

fn resolve(op: &MaxPool, operands: &Operands<'_>) -> Result<(Window, [usize; 2]), Error> {
    let maps = [op.input, op.output];
    let window = Window::new(maps, &op.window)?;
    let length = |[height, width]: [u64; 2]| count(&[operands.batch(), op.channels, height, width]);
    Ok((window, maps.map(length)))
}

/// The maximum of the window at `[row, column]` and its place. A NaN counts as larger than anything, as in PyTorch.
fn maximum(window: &Window, plane: &[f32], [row, column]: [usize; 2]) -> (f32, u32) {
    let mut best = (f32::NEG_INFINITY, u32::MAX);
    for ky in 0..window.kernel[0] {
        let Some(y) = window.coordinate(0, row, ky) else { continue };
        for kx in 0..window.kernel[1] {
            let Some(x) = window.coordinate(1, column, kx) else { continue };
            let place = y * window.image[1] + x;
            let value = plane[place];
            if value > best.0 || value.is_nan() || best.1 == u32::MAX {
                best = (value, place as u32);
            }
        }
    }
    best
}

/// `y` from `x`; in training also the places.
pub(super) fn forward(op: &MaxPool, operands: &mut Operands<'_>) -> Bound {
    let (window, [input, output]) = resolve(op, operands)?;
    let input = operands.source(Slot::Input(0), input)?;
    let saves = operands.writes(Slot::Saved(0));
    let mut places = saves.then(|| operands.word_target(Slot::Saved(0), output)).transpose()?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |_| {
        let (area, width) = (window.positions_area(), window.positions[1]);
        let planes = output.get().par_chunks_mut(area).zip(input.get().par_chunks(window.image_area()));
        match &mut places {
            Some(places) => planes.zip(places.get().par_chunks_mut(area)).for_each(|((y, x), places)| {
                for (o, (y, place)) in y.iter_mut().zip(places).enumerate() {
                    (*y, *place) = maximum(&window, x, [o / width, o % width]);
                }
            }),
            None => planes.for_each(|(y, x)| {
                y.iter_mut().enumerate().for_each(|(o, y)| *y = maximum(&window, x, [o / width, o % width]).0);
            }),
        }
    })
}

/// `dx` from `dy` and the places. A place outside the plane, which only a wrong plan could bring about, is passed over.
pub(super) fn backward(op: &MaxPool, operands: &mut Operands<'_>) -> Bound {
    let (window, [input, output]) = resolve(op, operands)?;
    let gradient = operands.source(Slot::Gradient, output)?;
    let places = operands.words(Slot::Saved(0), output)?;
    let (accumulate, mut target) = required(operands, input)?;
    kernel(move |_| {
        let area = window.positions_area();
        let planes = gradient.get().par_chunks(area).zip(places.get().par_chunks(area));
        target.get().par_chunks_mut(window.image_area()).zip(planes).for_each(|(dx, (dy, places))| {
            if !accumulate {
                dx.fill(0.0);
            }
            for (dy, &place) in dy.iter().zip(places) {
                if let Some(dx) = dx.get_mut(place as usize) {
                    *dx += dy;
                }
            }
        });
    })
}

/// The gradient of the only input, and whether it is added to.
pub(super) fn required(operands: &mut Operands<'_>, length: usize) -> Result<(bool, Target), Error> {
    let gradient = operands.gradient(Slot::InputGradient(0), length)?;
    let gradient = gradient.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    Ok((gradient.accumulate, gradient.target))
}
