//! Staging of tensors in non-dense layouts. They are copied to dense order before their operation and back after it, so that each kernel has
//! one loop for all layouts. Programs with only dense tensors do not need it.

use crate::arena::{ALIGNMENT, Arena};
use crate::element::Element;
use gpumem_core::error::Error;
use gpumem_core::program::{Program, Strides, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Memory for the tensors of one operation at a time.
pub(crate) struct Staging {
    arena: Arc<Arena>,
}

/// Returns the bytes of a tensor in dense order, rounded up to the alignment.
fn bytes(tensor: &Tensor, batch: u64) -> Result<u64, Error> {
    let bytes = tensor.elements(batch).and_then(|elements| elements.checked_mul(each(tensor)));
    let padded = bytes.and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT as u64));
    padded.ok_or(Error::Damaged("a tensor's size exceeds 64 bits"))
}

/// Returns the bytes of an element.
fn each(tensor: &Tensor) -> u64 {
    if u8::holds(tensor.role) { 1 } else { 4 }
}

impl Staging {
    /// Allocates as much memory as the most demanding operation of `program` needs.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub(crate) fn new(program: &Program, batch: u64) -> Result<Staging, Error> {
        let mut most = 0u64;
        for operation in &program.operations {
            let mut sum = 0u64;
            for id in operation.tensors() {
                let missing = Error::Damaged("an operation names a tensor that does not exist");
                let tensor = program.tensors.get(id as usize).ok_or(missing)?;
                if !tensor.layout.is_dense() {
                    sum = sum.saturating_add(bytes(tensor, batch)?);
                }
            }
            most = most.max(sum);
        }
        Ok(Staging { arena: Arc::new(Arena::new(most)?) })
    }

    /// Returns the memory.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns a place for a tensor from `end` on, after the operation's earlier tensors. It moves `end` to the end of that place.
    pub(crate) fn place(&self, end: &mut u64, tensor: &Tensor, batch: u64) -> Result<usize, Error> {
        let range = self.arena.range(*end, bytes(tensor, batch)?)?;
        *end = range.end as u64;
        Ok(range.start)
    }
}

/// A tensor in the arena and its place in the staging memory.
pub(crate) struct Move {
    /// The bytes in the arena.
    stored: Range<usize>,
    staged: usize,
    /// True if elements are bytes rather than words.
    bytes: bool,
    samples: usize,
    /// Channels, rows and columns of a sample. A shape other than a map has one channel.
    sizes: [usize; 3],
    strides: Strides,
}

impl Move {
    /// Returns the copy between these bytes of the arena and this place.
    ///
    /// # Errors
    /// Returns an error for a layout that does not fit the bytes.
    pub(crate) fn new(tensor: &Tensor, samples: u64, stored: Range<usize>, staged: usize) -> Result<Move, Error> {
        let damaged = || Error::Damaged("a tensor's length does not match its layout");
        let (sizes, strides) = tensor.layout.places(tensor.shape).ok_or_else(damaged)?;
        let elements = tensor.layout.elements(tensor.shape).and_then(|each| each.checked_mul(samples));
        let bytes = elements.and_then(|elements| elements.checked_mul(each(tensor)));
        if bytes != Some(stored.len() as u64) {
            return Err(damaged());
        }
        // For a weight, the samples are its filters.
        let samples = elements.and_then(|elements| elements.checked_div(strides.sample)).ok_or_else(damaged)?;
        let samples = usize::try_from(samples).map_err(|_| damaged())?;
        let bytes = u8::holds(tensor.role);
        Ok(Move { stored, staged, bytes, samples, sizes: sizes.map(|size| size as usize), strides })
    }

    /// Calls `each` with every dense row of every sample, and the index of the row's first element in the arena.
    fn rows<T: Element>(&self, dense: &mut [T], each: impl Fn(&mut [T], usize) + Sync) {
        let [channels, height, width] = self.sizes;
        let Strides { sample, channel, row, .. } = self.strides;
        dense.par_chunks_mut(width).enumerate().for_each(|(index, line)| {
            let (y, plane) = (index % height, index / height);
            let at = [(plane / channels, sample), (plane % channels, channel), (y, row)];
            each(line, at.into_iter().map(|(count, stride)| count * stride as usize).sum());
        });
    }

    /// Returns the tensor's elements in the arena and in the staging memory.
    ///
    /// # Safety
    /// No slice over either arena is alive while the result is.
    #[expect(clippy::mut_from_ref, reason = "an arena hands out its memory through shared references")]
    unsafe fn sides<'a, T: Element>(&self, arena: &'a Arena, staging: &'a Arena) -> (&'a mut [T], &'a mut [T]) {
        let dense = self.samples * self.sizes.iter().product::<usize>();
        let count = self.stored.len() / size_of::<T>();
        let (stored, staged) = (arena.pointer(self.stored.start, count), staging.pointer(self.staged, dense));
        // SAFETY: `pointer` checked bounds and alignment, every pattern is valid, and the arenas are two allocations.
        unsafe { (std::slice::from_raw_parts_mut(stored, count), std::slice::from_raw_parts_mut(staged, dense)) }
    }

    /// Copies the tensor into the staging memory.
    ///
    /// # Safety
    /// No slice over either arena is alive.
    pub(crate) unsafe fn load(&self, arena: &Arena, staging: &Arena) {
        // SAFETY: the caller's.
        unsafe { if self.bytes { self.load_of::<u8>(arena, staging) } else { self.load_of::<u32>(arena, staging) } }
    }

    /// # Safety
    /// As for `load`.
    unsafe fn load_of<T: Element>(&self, arena: &Arena, staging: &Arena) {
        // SAFETY: the caller's.
        let (stored, staged) = unsafe { self.sides::<T>(arena, staging) };
        let (stored, step) = (&*stored, self.strides.column as usize);
        self.rows(staged, |line, first| {
            line.iter_mut().enumerate().for_each(|(x, to)| *to = stored[first + x * step]);
        });
    }

    /// Copies the tensor out of the staging memory. The bytes between the elements stay as they are.
    ///
    /// # Safety
    /// No slice over either arena is alive.
    pub(crate) unsafe fn store(&self, arena: &Arena, staging: &Arena) {
        // SAFETY: the caller's.
        unsafe { if self.bytes { self.store_of::<u8>(arena, staging) } else { self.store_of::<u32>(arena, staging) } }
    }

    /// # Safety
    /// As for `store`.
    unsafe fn store_of<T: Element>(&self, arena: &Arena, staging: &Arena) {
        // SAFETY: the caller's.
        let (stored, staged) = unsafe { self.sides::<T>(arena, staging) };
        let [channels, height, width] = self.sizes;
        let Strides { sample, channel, row, column } = self.strides;
        let [channel, row, column] = [channel, row, column].map(|stride| stride as usize);
        let samples = stored.par_chunks_mut(sample as usize).zip(staged.par_chunks(channels * height * width));
        samples.for_each(|(stored, staged)| {
            for (index, line) in staged.chunks(width).enumerate() {
                let first = index / height * channel + index % height * row;
                line.iter().enumerate().for_each(|(x, value)| stored[first + x * column] = *value);
            }
        });
    }
}
