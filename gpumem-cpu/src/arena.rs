//! The single allocation that holds every tensor. Tensors that a device keeps in host memory are here after the end of the arena.

use crate::DEVICE;
use gpumem_core::error::Error;
use gpumem_core::memory::place::on_host;
use gpumem_core::run::device::Fill;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;

/// Alignment of the arena and of every tensor in it.
pub(crate) const ALIGNMENT: usize = 256;

/// Bytes of host memory, aligned to 256 bytes.
///
/// They are zeroed, because a slice over memory that was never written would be undefined behaviour. The system hands out zeroed pages lazily, so
/// this costs nothing up front.
pub(crate) struct Arena {
    start: NonNull<u8>,
    layout: Layout,
    /// The byte at which the arena ends, and the part begins that other devices have in host memory.
    end: usize,
}

// SAFETY: the arena owns its memory and has no thread affinity. The callers of its unsafe methods decide who may touch which bytes when.
unsafe impl Send for Arena {}
// SAFETY: as above. Every access through a shared reference is an unsafe call whose contract rules out races.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates an arena of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Result<Arena, Error> {
        Arena::with_host(bytes, 0)
    }

    /// Allocates an arena of `bytes` bytes, and `host` bytes after it.
    pub(crate) fn with_host(bytes: u64, host: u64) -> Result<Arena, Error> {
        let needed = bytes.saturating_add(host);
        let refused =
            Error::Memory { device: DEVICE, needed, beside: None, lasting: 0, free: None, holders: Vec::new() };
        let end = usize::try_from(bytes).ok().and_then(|bytes| bytes.max(1).checked_next_multiple_of(ALIGNMENT));
        let end = end.ok_or_else(|| refused.clone())?;
        let host = usize::try_from(host).map_err(|_| refused.clone())?;
        let size = end.checked_add(host).ok_or_else(|| refused.clone())?;
        let layout = Layout::from_size_align(size, ALIGNMENT).map_err(|_| refused.clone())?;
        // SAFETY: the layout's size is at least `ALIGNMENT`, hence not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(refused)?;
        Ok(Arena { start, layout, end })
    }

    /// Returns the size in bytes, with the part for host memory.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Returns a pointer to `length` elements from byte `offset` on.
    ///
    /// # Panics
    /// A range outside the arena, or one that is not aligned to an element.
    pub(crate) fn pointer<T>(&self, offset: usize, length: usize) -> *mut T {
        let bytes = length.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        assert!(bytes.is_some_and(|end| end <= self.bytes()) && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: `offset` was just found to lie inside the allocation.
        unsafe { self.start.as_ptr().add(offset) }.cast()
    }

    /// Returns the range of `length` bytes at `place`, which is in the arena or in the part for host memory. Fails if it is out of bounds.
    pub(crate) fn range(&self, place: u64, length: u64) -> Result<Range<usize>, Error> {
        let (offset, from, to) = match on_host(place) {
            Some(offset) => (offset, self.end, self.bytes()),
            None => (place, 0, self.end),
        };
        let arena = (to - from) as u64;
        match offset.checked_add(length) {
            Some(end) if end <= arena => Ok(from + offset as usize..from + end as usize),
            _ => Err(Error::Range { offset, length, arena }),
        }
    }

    /// Sets every byte of `range` to `byte`.
    ///
    /// # Safety
    /// No slice over the arena is alive.
    pub(crate) unsafe fn fill(&self, range: &Range<usize>, byte: u8) {
        let start = self.pointer::<u8>(range.start, range.len());
        // SAFETY: `pointer` checked the range, and the caller holds no slice that this could invalidate.
        unsafe { start.write_bytes(byte, range.len()) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Safety
    /// No slice over the arena is alive.
    pub(crate) unsafe fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let range = self.range(offset, bytes.len() as u64)?;
        let start = self.pointer::<u8>(range.start, range.len());
        // SAFETY: `range` checked the bounds; `bytes` cannot overlap, for no slice over the arena is alive.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Calls `put` with the `length` bytes from `offset` on, to fill them.
    ///
    /// # Safety
    /// No slice over the arena is alive.
    pub(crate) unsafe fn write_with(&self, offset: u64, length: u64, put: &Fill<'_>) -> Result<(), Error> {
        let range = self.range(offset, length)?;
        let start = self.pointer::<u8>(range.start, range.len());
        // SAFETY: `range` checked the bounds; all bytes of the arena have been given a value; no other slice is alive.
        put(0, unsafe { std::slice::from_raw_parts_mut(start, range.len()) });
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// # Safety
    /// No mutable slice over the arena is alive.
    pub(crate) unsafe fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let range = self.range(offset, bytes.len() as u64)?;
        let start = self.pointer::<u8>(range.start, range.len());
        // SAFETY: as in `write`, with the roles exchanged.
        unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
