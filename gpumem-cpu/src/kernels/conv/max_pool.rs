//! Max pooling: `y[o] = max over k of x[at(o, k)]`, and for the backward pass the index k of each maximum in its window.
//!
//! Windows slide, or in adaptive pooling there are as many as the output has elements. Maps are volumes of one plane.
//!
//! Backward: `dx[at(o, place[o])] += dy[o]`.

use crate::element::Element;
use crate::kernels::movement::window::Window;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, Target, count};
use crate::simd::{Loop, wide};
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{MaxPool, of_volume};
use rayon::prelude::*;
use std::ops::Range;

fn resolve<const N: usize>(op: &MaxPool<N>, operands: &Operands<'_>) -> Result<(Windows, [usize; 2]), Error> {
    let volumes = [op.input, op.output].map(|size| of_volume(size, 1));
    let window = Window::new(volumes, &op.window.of_volume())?;
    let length = |[depth, height, width]: [u64; 3]| count(&[operands.batch(), op.channels, depth, height, width]);
    let columns = if op.adaptive { 0 } else { window.kernel[2] };
    let columns = (0..columns).map(|kx| window.inside(2, kx)).collect();
    Ok((Windows { window, columns, adaptive: op.adaptive }, volumes.map(length)))
}

/// The positions of the windows.
#[derive(Clone)]
struct Windows {
    window: Window<3>,
    /// For each column of windows that slide, the positions at which it is inside the image, and the pixel that the first of them reads.
    columns: Vec<(Range<usize>, usize)>,
    adaptive: bool,
}

impl Windows {
    /// Returns the coordinates of an adaptive window along an axis.
    fn range(&self, axis: usize, o: usize) -> Range<usize> {
        let (input, output) = (self.window.image[axis], self.window.positions[axis]);
        o * input / output..((o + 1) * input).div_ceil(output)
    }

    /// Computes the maxima of a row of windows: see [`Row`]. Rows are counted through all planes.
    fn maxima<P: Place>(&self, volume: &[f32], row: usize, y: &mut [f32], mut places: Option<&mut [P]>) {
        let [_, tall, _] = self.window.positions;
        let at = [row / tall, row % tall];
        if !self.adaptive {
            let Windows { window, columns, .. } = self;
            return wide(Row { window, columns, volume, at, y, places });
        }
        let [_, height, width] = self.window.image;
        let [_, kernel_height, kernel_width] = self.window.kernel;
        let (planes, rows) = (self.range(0, at[0]), self.range(1, at[1]));
        for (column, y) in y.iter_mut().enumerate() {
            let columns = self.range(2, column);
            let (mut best, mut place) = (f32::NEG_INFINITY, 0);
            for (kz, plane) in planes.clone().enumerate() {
                for (ky, row) in rows.clone().enumerate() {
                    let line = &volume[(plane * height + row) * width..][columns.clone()];
                    for (kx, &x) in line.iter().enumerate() {
                        if x > best || x.is_nan() {
                            (best, place) = (x, (kz * kernel_height + ky) * kernel_width + kx);
                        }
                    }
                }
            }
            *y = best;
            if let Some(places) = &mut places {
                places[column] = P::new(place);
            }
        }
    }

    /// Returns the index of the first element of the window at a position, plus `before`. The caller subtracts `before`, because that
    /// element may be in the padding.
    fn first(&self, position: [usize; 3]) -> usize {
        let [_, height, width] = self.window.image;
        let [z, y, x] = [0, 1, 2].map(|axis| {
            let o = position[axis];
            if self.adaptive { self.range(axis, o).start } else { o * self.window.stride[axis] }
        });
        (z * height + y) * width + x
    }
}

/// The type in which the index of a maximum is stored. Its largest value means that nothing has been found yet.
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

/// A row of windows that slide. Its maxima are computed, and their indices if `places` is given.
///
/// As in PyTorch, a NaN counts as larger than any number.
struct Row<'a, P> {
    window: &'a Window<3>,
    /// For each column of the windows, the positions at which it is inside the image, and the pixel that the first of them reads.
    columns: &'a [(Range<usize>, usize)],
    volume: &'a [f32],
    /// The plane and the row of the windows.
    at: [usize; 2],
    y: &'a mut [f32],
    places: Option<&'a mut [P]>,
}

impl<P: Place> Loop for Row<'_, P> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Row { window, columns, volume, at, y, mut places } = self;
        let ([depth, tall, wide], [_, height, width]) = (window.kernel, window.image);
        y.fill(f32::NEG_INFINITY);
        if let Some(places) = &mut places {
            places.fill(P::NONE);
        }
        for (kz, ky) in (0..depth).flat_map(|kz| (0..tall).map(move |ky| (kz, ky))) {
            let row = window.coordinate(0, at[0], kz).zip(window.coordinate(1, at[1], ky));
            let Some(line) = row.map(|(plane, row)| (plane * height + row) * width) else { continue };
            for (kx, (inside, first)) in columns.iter().enumerate() {
                if inside.is_empty() {
                    continue;
                }
                let places = places.as_deref_mut().map(|places| &mut places[inside.clone()]);
                let here = P::new((kz * tall + ky) * wide + kx);
                compare(&mut y[inside.clone()], &volume[line + first..], window.stride[2], places, here);
            }
        }
    }
}

/// Replaces maxima by every `step`th pixel that is larger, and their indices by `here`.
#[inline(always)]
fn compare<P: Place>(best: &mut [f32], pixels: &[f32], step: usize, places: Option<&mut [P]>, here: P) {
    match step {
        1 => compare_each(best, pixels.iter().copied(), places, here),
        2 => {
            // Pairs of a known length, so that the compiler vectorises them. The last pixel may be the last one of the image.
            let (pairs, rest) = pixels.as_chunks::<2>();
            let at = best.len().min(pairs.len());
            let (best, last) = best.split_at_mut(at);
            let (places, last_place) = places.map(|places| places.split_at_mut(at)).unzip();
            compare_each(best, pairs.iter().map(|pair| pair[0]), places, here);
            compare_each(last, rest.iter().copied(), last_place, here);
        }
        _ => compare_each(best, pixels.iter().copied().step_by(step), places, here),
    }
}

/// Replaces maxima by pixels that are larger, and their indices by `here`.
#[inline(always)]
fn compare_each<P: Place>(best: &mut [f32], pixels: impl Iterator<Item = f32>, places: Option<&mut [P]>, here: P) {
    let best = best.iter_mut().zip(pixels);
    match places {
        None => best.for_each(|(best, x)| *best = if x > *best || x.is_nan() { x } else { *best }),
        Some(places) => {
            for ((best, x), place) in best.zip(places) {
                // The first element has an index even if it is -infinity.
                let better = x > *best || x.is_nan() || *place == P::NONE;
                (*best, *place) = if better { (x, here) } else { (*best, *place) };
            }
        }
    }
}

/// Computes `y` from `x` and, in training, the indices of the maxima.
pub(in crate::kernels) fn forward<const N: usize>(op: &MaxPool<N>, operands: &mut Operands<'_>) -> Bound {
    let (_, [_, output]) = resolve(op, operands)?;
    if !operands.writes(Slot::Saved(0)) {
        return forward_to::<u8, N>(op, operands, None);
    }
    if op.place_role() == Role::Byte {
        let places = operands.byte_target(Slot::Saved(0), output)?;
        return forward_to(op, operands, Some(places));
    }
    let places = operands.word_target(Slot::Saved(0), output)?;
    forward_to(op, operands, Some(places))
}

fn forward_to<P: Place, const N: usize>(
    op: &MaxPool<N>,
    operands: &mut Operands<'_>,
    mut places: Option<Target<P>>,
) -> Bound {
    let (windows, [input, output]) = resolve(op, operands)?;
    let window = windows.window;
    let input = operands.source(Slot::Input(0), input)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |_| {
        let (area, width) = (window.positions_area(), window.positions[2]);
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

/// Computes `dx` from `dy` and the indices.
pub(in crate::kernels) fn backward<const N: usize>(op: &MaxPool<N>, operands: &mut Operands<'_>) -> Bound {
    let (_, [_, output]) = resolve(op, operands)?;
    if op.place_role() == Role::Byte {
        let places = operands.bytes(Slot::Saved(0), output)?;
        return backward_from(op, operands, places);
    }
    let places = operands.words(Slot::Saved(0), output)?;
    backward_from(op, operands, places)
}

/// Binds the backward pass for one type of index. An index outside the volume, which only a damaged program has, is skipped.
fn backward_from<P: Place, const N: usize>(op: &MaxPool<N>, operands: &mut Operands<'_>, places: Source<P>) -> Bound {
    let (windows, [input, output]) = resolve(op, operands)?;
    let window = windows.window;
    let gradient = operands.source(Slot::Gradient, output)?;
    let (accumulate, mut target) = required(operands, input)?;
    let (area, [_, tall, across]) = (window.positions_area(), window.positions);
    let ([_, height, width], [_, kernel_height, kernel_width]) = (window.image, window.kernel);
    let line = move |plane: usize, row: usize, column: usize| (plane * height + row) * width + column;
    // Distances from the first element of a window, which may be in the padding, to each of its elements.
    let steps: Vec<usize> = (0..window.kernel_area())
        .map(|place| {
            let k = [place / kernel_width / kernel_height, place / kernel_width % kernel_height, place % kernel_width];
            let [z, y, x] = [0, 1, 2].map(|axis| k[axis] * window.dilation[axis]);
            line(z, y, x)
        })
        .collect();
    kernel(move |_| {
        let before = line(window.padding[0], window.padding[1], window.padding[2]);
        let planes = gradient.get().par_chunks(area).zip(places.get().par_chunks(area));
        target.get().par_chunks_mut(window.image_area()).zip(planes).for_each(|(dx, (dy, places))| {
            if !accumulate {
                dx.fill(0.0);
            }
            let rows = dy.chunks(across).zip(places.chunks(across));
            for (row, (dy, places)) in rows.enumerate() {
                for (column, (dy, place)) in dy.iter().zip(places).enumerate() {
                    let first = windows.first([row / tall, row % tall, column]);
                    let at = steps.get(place.get()).map(|step| first + step);
                    if let Some(dx) = at.and_then(|at| dx.get_mut(at.checked_sub(before)?)) {
                        *dx += dy;
                    }
                }
            }
        });
    })
}

/// Returns the gradient of the only input, and true if it is added to.
pub(in crate::kernels) fn required(operands: &mut Operands<'_>, length: usize) -> Result<(bool, Target), Error> {
    let gradient = operands.gradient(Slot::InputGradient(0), length)?;
    let gradient = gradient.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    Ok((gradient.accumulate, gradient.target))
}
