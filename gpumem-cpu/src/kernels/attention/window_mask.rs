//! Mask of window attention: it hides pairs of positions in different regions of the map.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{HIDDEN, WindowMask};
use rayon::prelude::*;

/// Returns the region of each position of a window.
fn regions(op: &WindowMask, window: u64) -> Vec<[u64; 2]> {
    let across = op.size[1] / op.window[1];
    let first = [window / across * op.window[0], window % across * op.window[1]];
    let places = (0..op.window[0]).flat_map(|row| (0..op.window[1]).map(move |column| [row, column]));
    places.map(|[row, column]| [op.region(0, first[0] + row), op.region(1, first[1] + column)]).collect()
}

/// Computes the mask.
pub(in crate::kernels) fn forward(op: &WindowMask, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("windows that are no whole parts of their map"));
    }
    let length = count(&[op.output().elements().unwrap_or(0)]);
    let mut output = operands.target(Slot::Output, length)?;
    let op = op.clone();
    kernel(move |_| {
        let positions = count(&[op.counts()[1]]);
        output.get().par_chunks_mut(positions * positions).enumerate().for_each(|(window, mask)| {
            let regions = regions(&op, window as u64);
            for (row, query) in mask.chunks_exact_mut(positions).zip(&regions) {
                row.iter_mut().zip(&regions).for_each(|(y, key)| *y = if key == query { 0.0 } else { HIDDEN });
            }
        });
    })
}
