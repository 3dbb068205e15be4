//! The places of weights and biases in the library's single weight buffer.

use super::descriptors::{Description, Tensor};
use crate::calls::Recurrence;
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::program::ops::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A contiguous piece of a weight or a bias: its place in the tensor, its place in the buffer, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WeightPiece {
    /// The direction and the index of the weight in [`Each`](crate::calls::recurrence::Each); `at` is the offset in that tensor, in bytes.
    pub(super) of: [usize; 2],
    pub(super) at: u64,
    /// Offset in the buffer of all weights, in bytes.
    pub(super) packed: u64,
    pub(super) bytes: usize,
}

impl WeightPiece {
    /// Returns the entry of `all` for this piece's weight.
    pub(super) fn among<'a, T>(&self, all: &'a [[T; 5]; 2]) -> &'a T {
        &all[self.of[0]][self.of[1]]
    }
}

/// Returns the pieces of the weights and biases of each gate of each direction, for a buffer of `bytes` bytes at `start`. Gates have the network's
/// order. Input weights come first, then recurrent weights. `None` if the library has one outside the buffer.
pub(super) fn of(
    description: &Description,
    handle: sys::cudnnHandle_t,
    call: &Recurrence,
    bytes: usize,
    start: CUdeviceptr,
) -> Result<Option<Vec<WeightPiece>>, CudnnError> {
    let (gates, mut pieces) = (call.cell.gates(), Vec::new());
    let [of_map, of_steps, of_bias] = call.gate_bytes();
    for (direction, weights) in (0..call.directions.min(2)).zip(&call.weights) {
        for number in 0..2 * gates + u64::from(call.cell == Cell::Lstm) {
            let [matrix_at, bias_at] = find(description, handle, [direction, number], (start, bytes))?;
            let (side, gate) = ((number / gates) as usize, number % gates);
            // After the gates of both weights comes the projection, which has no bias.
            let found = match side {
                0 | 1 => [Some((side, matrix_at, [of_map, of_steps][side])), Some((2 + side, bias_at, of_bias))],
                _ => [Some((4, matrix_at, of_steps)), None],
            };
            let wanted = found.into_iter().flatten().filter(|(of, ..)| weights[*of].is_some());
            for (of, address, length) in wanted {
                let packed = address.checked_sub(start).filter(|_| address != 0);
                let is_inside = |packed: &u64| packed.checked_add(length).is_some_and(|end| end <= bytes as u64);
                let Some(packed) = packed.filter(is_inside) else { return Ok(None) };
                pieces.push(WeightPiece {
                    of: [direction as usize, of],
                    at: gate * length,
                    packed,
                    bytes: length as usize,
                });
            }
        }
    }
    Ok(Some(joined(pieces)))
}

/// Returns the addresses at which the library has matrix `number` of a direction, and its bias; 0 for an absent one.
fn find(
    description: &Description,
    handle: sys::cudnnHandle_t,
    [direction, number]: [u64; 2],
    (start, bytes): (CUdeviceptr, usize),
) -> Result<[CUdeviceptr; 2], CudnnError> {
    let [matrix, bias] = [Tensor::empty()?, Tensor::empty()?];
    let (mut matrix_at, mut bias_at) = (null_mut(), null_mut());
    // SAFETY: handle and descriptors are alive, and both are valid places for an address. The library only adds offsets to the address of the
    // weights and reads nothing there.
    unsafe {
        sys::cudnnGetRNNWeightParams(
            handle,
            description.layer.0,
            direction as i32,
            bytes,
            start as *const c_void,
            number as i32,
            matrix.0,
            &raw mut matrix_at,
            bias.0,
            &raw mut bias_at,
        )
    }
    .result()?;
    Ok([matrix_at, bias_at].map(|address| address as CUdeviceptr))
}

/// Joins pieces that are adjacent both in their tensor and in the buffer.
fn joined(mut pieces: Vec<WeightPiece>) -> Vec<WeightPiece> {
    pieces.sort_by_key(|piece| (piece.of, piece.at));
    let mut all: Vec<WeightPiece> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last)
                if last.of == piece.of
                    && last.at + last.bytes as u64 == piece.at
                    && last.packed + last.bytes as u64 == piece.packed =>
            {
                last.bytes += piece.bytes;
            }
            _ => all.push(piece),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_follow_each_other_are_one() {
        let piece = |of, at, packed, bytes| WeightPiece { of: [0, of], at, packed, bytes };
        // Gates are in the order in which the library is asked for them: a weight and a bias each.
        let asked =
            vec![piece(0, 0, 0, 8), piece(2, 0, 32, 4), piece(0, 8, 8, 8), piece(2, 4, 36, 4), piece(1, 0, 16, 8)];
        assert_eq!(joined(asked), [piece(0, 0, 0, 16), piece(1, 0, 16, 8), piece(2, 0, 32, 8)]);
        // A different order in the library's buffer is kept.
        let turned = vec![piece(0, 0, 8, 8), piece(0, 8, 0, 8)];
        assert_eq!(joined(turned.clone()), turned);
        // Pieces of different directions are not joined.
        let other = WeightPiece { of: [1, 0], ..piece(0, 8, 8, 8) };
        assert_eq!(joined(vec![other, piece(0, 0, 0, 8)]), [piece(0, 0, 0, 8), other]);
    }
}
