//! Maximum over windows, `y[o] = max over k of x[at(o, k)]`, with the number k of each maximum in its window: one that slides, or as
//! many as the output has elements.
//!
//! Backward: `dx[at(o, place[o])] += dy[o]`.

use super::window::Window;
use super::{Bound, kernel};
use crate::operands::{Element, Operands, Source, Target, count};
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::MaxPool;
use rayon::prelude::*;
use std::ops::Range;

fn resolve(op: &MaxPool, operands: &Operands<'_>) -> Result<(Windows, [usize; 2]), Error> {
    let maps = [op.input, op.output];
    let window = Window::new(maps, &op.window)?;
    let length = |[height, width]: [u64; 2]| count(&[operands.batch(), op.channels, height, width]);
    Ok((Windows { window, adaptive: op.adaptive }, maps.map(length)))
}

/// Where the windows lie.
#[derive(Clone, Copy)]
struct Windows {
    window: Window,
    adaptive: bool,
}

impl Windows {
    /// The coordinates of an adaptive window.
    fn range(&self, axis: usize, o: usize) -> Range<usize> {
        let (input, output) = (self.window.image[axis], self.window.positions[axis]);
        o * input / output..((o + 1) * input).div_ceil(output)
    }

    /// The maxima of a row of windows: see [`maxima`].
    fn maxima<P: Place>(&self, plane: &[f32], row: usize, y: &mut [f32], mut places: Option<&mut [P]>) {
        if !self.adaptive {
            return maxima(&self.window, plane, row, y, places);
        }
        let rows = self.range(0, row);
        for (column, y) in y.iter_mut().enumerate() {
            let columns = self.range(1, column);
            let (mut best, mut place) = (f32::NEG_INFINITY, 0);
            for (ky, line) in rows.clone().enumerate() {
                for (kx, &x) in plane[line * self.window.image[1]..][columns.clone()].iter().enumerate() {
                    if x > best || x.is_nan() {
                        (best, place) = (x, ky * self.window.kernel[1] + kx);
                    }
                }
            }
            *y = best;
            if let Some(places) = &mut places {
                places[column] = P::new(place);
            }
        }
    }

    /// The first element of the window at a position, counted from `before` elements in front of the plane.
    fn first(&self, row: usize, column: usize) -> usize {
        let width = self.window.image[1];
        if self.adaptive {
            return self.range(0, row).start * width + self.range(1, column).start;
        }
        row * self.window.stride[0] * width + column * self.window.stride[1]
    }
}

/// What a place is kept as. The largest one is none: nothing has been found yet.
trait Place: Element + Eq {
    const NONE: Self;

    fn new(place: usize) -> Self;

    fn get(self) -> usize;
}

impl Place for u8 {
    const NONE: u8 = u8::MAX;

    fn new(place: usize) -> u8 {
        place as u8
    }

    fn get(self) -> usize {
        self.into()
    }
}

impl Place for u32 {
    const NONE: u32 = u32::MAX;

    fn new(place: usize) -> u32 {
        place as u32
    }

    fn get(self) -> usize {
        self as usize
    }
}

/// The maxima of a row of windows, and their places if there is room for them. A NaN counts as larger than anything, as in
/// PyTorch.
fn maxima<P: Place>(window: &Window, plane: &[f32], row: usize, y: &mut [f32], mut places: Option<&mut [P]>) {
    let step = window.stride[1];
    y.fill(f32::NEG_INFINITY);
    if let Some(places) = &mut places {
        places.fill(P::NONE);
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
                    let here = P::new(ky * window.kernel[1] + kx);
                    for ((best, &x), place) in best.zip(&mut places[inside]) {
                        // The first has a place even where nothing is larger than nothing.
                        let better = x > *best || x.is_nan() || *place == P::NONE;
                        (*best, *place) = if better { (x, here) } else { (*best, *place) };
                    }
                }
            }
        }
    }
}

/// `y` from `x`; in training also the places.
pub(super) fn forward(op: &MaxPool, operands: &mut Operands<'_>) -> Bound {
    let (_, [_, output]) = resolve(op, operands)?;
    if !operands.writes(Slot::Saved(0)) {
        return forward_to::<u8>(op, operands, None);
    }
    if op.place_role() == Role::Byte {
        let places = operands.byte_target(Slot::Saved(0), output)?;
        return forward_to(op, operands, Some(places));
    }
    let places = operands.word_target(Slot::Saved(0), output)?;
    forward_to(op, operands, Some(places))
}

fn forward_to<P: Place>(op: &MaxPool, operands: &mut Operands<'_>, mut places: Option<Target<P>>) -> Bound {
    let (windows, [input, output]) = resolve(op, operands)?;
    let window = windows.window;
    let input = operands.source(Slot::Input(0), input)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |_| {
        let (area, width) = (window.positions_area(), window.positions[1]);
        let planes = output.get().par_chunks_mut(area).zip(input.get().par_chunks(window.image_area()));
        match &mut places {
            Some(places) => planes.zip(places.get().par_chunks_mut(area)).for_each(|((y, x), places)| {
                for (row, (y, places)) in y.chunks_mut(width).zip(places.chunks_mut(width)).enumerate() {
                    windows.maxima(x, row, y, Some(places));
                }
            }),
            None => planes.for_each(|(y, x)| {
                y.chunks_mut(width).enumerate().for_each(|(row, y)| windows.maxima::<P>(x, row, y, None));
            }),
        }
    })
}

/// `dx` from `dy` and the places.
pub(super) fn backward(op: &MaxPool, operands: &mut Operands<'_>) -> Bound {
    let (_, [_, output]) = resolve(op, operands)?;
    if op.place_role() == Role::Byte {
        let places = operands.bytes(Slot::Saved(0), output)?;
        return backward_from(op, operands, places);
    }
    let places = operands.words(Slot::Saved(0), output)?;
    backward_from(op, operands, places)
}

/// A place outside the plane, which only a wrong plan could bring about, is passed over.
fn backward_from<P: Place>(op: &MaxPool, operands: &mut Operands<'_>, places: Source<P>) -> Bound {
    let (windows, [input, output]) = resolve(op, operands)?;
    let window = windows.window;
    let gradient = operands.source(Slot::Gradient, output)?;
    let (accumulate, mut target) = required(operands, input)?;
    kernel(move |_| {
        let (area, [across, width]) = (window.positions_area(), [window.kernel[1], window.image[1]]);
        // From the first element of a window, which may lie in the padding, to each of them.
        let steps: Vec<usize> = (0..window.kernel_area())
            .map(|place| place / across * window.dilation[0] * width + place % across * window.dilation[1])
            .collect();
        let before = window.padding[0] * width + window.padding[1];
        let planes = gradient.get().par_chunks(area).zip(places.get().par_chunks(area));
        target.get().par_chunks_mut(window.image_area()).zip(planes).for_each(|(dx, (dy, places))| {
            if !accumulate {
                dx.fill(0.0);
            }
            let rows = dy.chunks(window.positions[1]).zip(places.chunks(window.positions[1]));
            for (row, (dy, places)) in rows.enumerate() {
                for (column, (dy, place)) in dy.iter().zip(places).enumerate() {
                    let at = steps.get(place.get()).map(|step| windows.first(row, column) + step);
                    if let Some(dx) = at.and_then(|at| dx.get_mut(at.checked_sub(before)?)) {
                        *dx += dy;
                    }
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
