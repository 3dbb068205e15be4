//! Packed copies of parameters, which an inference program keeps from one run to the next.

use super::Operands;
use crate::matrix::Matrix;
use crate::packed::Packed;
use crate::parallel::grown;
use gpumem_core::program::{Class, Slot};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The most floats of the copies that a program keeps, 256 MiB.
const MOST: usize = 64 << 20;

/// The memory that is left for copies while a program is bound, and the bytes of the parameters that have one.
pub(crate) struct CopyRoom {
    left: Cell<usize>,
    ranges: RefCell<Vec<Range<usize>>>,
}

impl CopyRoom {
    /// Returns the memory of a program that is about to be bound.
    pub(crate) fn new() -> CopyRoom {
        CopyRoom { left: Cell::new(MOST), ranges: RefCell::new(Vec::new()) }
    }

    /// Returns the bytes of the parameters that have a copy.
    pub(crate) fn into_ranges(self) -> Vec<Range<usize>> {
        self.ranges.into_inner()
    }
}

impl<'a> Operands<'a> {
    /// Returns these tensors in a program that keeps copies of parameters.
    pub(crate) fn with_copies(self, copies: Option<&'a CopyRoom>) -> Operands<'a> {
        Operands { copies, ..self }
    }

    /// Returns a place for a packed copy, of `floats` floats, of the matrix that is read as `slot`. `None` if the program may change the matrix,
    /// if copies would take too much memory, or in a program that keeps none.
    pub(crate) fn packed_copy(&self, slot: Slot, floats: usize) -> Option<PackedCopy> {
        let (room, id) = (self.copies?, self.operation.read(slot)?);
        let tensor = self.program.tensor(id);
        let is_whole = tensor.class == Class::Parameter && tensor.layout.is_dense();
        let is_written =
            || self.program.operations.iter().any(|operation| operation.writes.iter().any(|write| write.tensor == id));
        if !is_whole || is_written() {
            return None;
        }
        room.left.set(room.left.get().checked_sub(floats)?);
        room.ranges.borrow_mut().push(self.ranges[id as usize].clone());
        Some(PackedCopy { floats: Vec::new(), version: None })
    }
}

/// A packed copy of a parameter.
pub(crate) struct PackedCopy {
    floats: Vec<f32>,
    /// The version of the parameters of which this is a copy. `None` before the first.
    version: Option<u64>,
}

impl PackedCopy {
    /// Returns the copy of a matrix. It packs the matrix if the parameters have changed since the last time.
    pub(crate) fn get(&mut self, version: u64, matrix: Matrix<'_>) -> Packed<'_> {
        let room = grown(&mut self.floats, Packed::room(matrix.height(), matrix.width()));
        if self.version == Some(version) {
            return Packed::kept(matrix.height(), matrix.width(), room);
        }
        self.version = Some(version);
        Packed::new(matrix, room)
    }
}
