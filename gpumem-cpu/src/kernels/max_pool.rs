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

/// The maxima of a row of windows, and their places if there is room for them. A NaN counts as larger than anything, as in
/// PyTorch.
fn maxima(window: &Window, plane: &[f32], row: usize, y: &mut [f32], mut places: Option<&mut [u32]>) {
    let step = window.stride[1];
    y.fill(f32::NEG_INFINITY);
    if let Some(places) = &mut places {
        places.fill(u32::MAX);
    }
    for ky in 0..window.kernel[0] {
        let Some(line) = window.coordinate(0, row, ky).map(|y| y * window.image[1]) else { continue };
        for kx in 0..window.kernel[1] {
            let (inside, first) = window.inside(1, kx);
            if inside.is_empty() {
                continue;
            }
            let pixels = plane[line + first..].iter().step_by(step);
            let best = y[inside.clone()].iter_mut().zip(pixels);
            match &mut places {
                None => best.for_each(|(best, &x)| *best = if x > *best || x.is_nan() { x } else { *best }),
                Some(places) => {
                    let at = (line + first..).step_by(step);
                    for (((best, &x), place), at) in best.zip(&mut places[inside]).zip(at) {
                        // The first has a place even where nothing is larger than nothing.
                        let better = x > *best || x.is_nan() || *place == u32::MAX;
                        (*best, *place) = if better { (x, at as u32) } else { (*best, *place) };
                    }
                }
            }
        }
    }
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
                for (row, (y, places)) in y.chunks_mut(width).zip(places.chunks_mut(width)).enumerate() {
                    maxima(&window, x, row, y, Some(places));
                }
            }),
            None => planes.for_each(|(y, x)| {
                y.chunks_mut(width).enumerate().for_each(|(row, y)| maxima(&window, x, row, y, None));
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
