//! Memory of a session: the arena on the card, and pinned host memory.

use crate::card::Card;
use crate::context::bind;
use crate::error::failure;
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, result};
use gpumem_core::error::Error;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The one allocation on the card.
#[derive(Debug)]
pub(super) struct Arena {
    start: CUdeviceptr,
    pub(super) bytes: u64,
    context: Arc<CudaContext>,
}

impl Arena {
    pub(super) fn new(card: &Card, bytes: u64) -> Result<Arena, Error> {
        bind(&card.context)?;
        let size = usize::try_from(bytes).map_err(|_| card.shortage(bytes, None))?;
        // SAFETY: the context is bound; the allocation is freed in `drop` and nowhere else.
        let start = unsafe { result::malloc_sync(size) }.map_err(|_| card.shortage(bytes, None))?;
        Ok(Arena { start, bytes, context: card.context.clone() })
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the address of a range; an error if it is not inside the arena.
    pub(super) fn address(&self, offset: u64, length: u64) -> Result<CUdeviceptr, Error> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(self.start + offset),
            _ => Err(Error::Range { offset, length, arena: self.bytes }),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: allocated in `new`; graphs and launches that use it were dropped before, and freeing waits for them.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Pinned host memory, which the card can read and write directly.
#[derive(Debug)]
pub(super) struct Pinned {
    start: *mut u8,
    bytes: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to this value alone, and the driver frees it from any thread.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference gives out read-only slices, or addresses whose users prevent races themselves.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Pinned, Error> {
        Pinned::with(context, bytes, 0)
    }

    fn with(context: &Arc<CudaContext>, bytes: usize, flags: c_uint) -> Result<Pinned, Error> {
        bind(context)?;
        // SAFETY: the context is bound; the allocation is freed in `drop` and nowhere else.
        let start =
            unsafe { result::malloc_host(bytes.max(1), flags) }.map_err(failure("pinning memory of the host"))?;
        Ok(Pinned { start: start.cast(), bytes, context: context.clone() })
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`Error::Range`] if they do not fit.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.fill(offset, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// Lets `put` write the bytes from `offset` on. Until then they have the values of the last write.
    ///
    /// # Errors
    /// [`Error::Range`] if the range is outside the memory.
    pub(super) fn fill(&mut self, offset: usize, length: usize, put: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        self.check(offset, length)?;
        // SAFETY: `check` found the range inside the allocation, of which no other slice is alive: slices for the card end before the next call.
        // Bytes that were never written have some value, since the driver allocated them, not Rust.
        put(unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), length) });
        Ok(())
    }

    /// Returns the bytes from `offset` on, for the card to read.
    ///
    /// # Safety
    /// Nothing writes them while the slice is alive.
    pub(super) unsafe fn slice(&self, offset: usize, length: usize) -> Result<&[u8], Error> {
        self.check(offset, length)?;
        // SAFETY: `check` found the range inside the allocation; the caller prevents writes.
        Ok(unsafe { std::slice::from_raw_parts(self.start.add(offset), length) })
    }

    /// Returns the address of a range, for the card to copy.
    pub(super) fn address(&self, offset: usize, length: usize) -> Result<*mut c_void, Error> {
        self.check(offset, length)?;
        // SAFETY: `check` found the range inside the allocation.
        Ok(unsafe { self.start.add(offset) }.cast())
    }

    /// Returns the address of the 32-bit word at `offset`, a multiple of 4.
    pub(super) fn word(&self, offset: usize) -> Result<*mut u32, Error> {
        self.check(offset, 4)?;
        // SAFETY: `check` found the word inside the allocation, which starts at a page.
        Ok(unsafe { self.start.add(offset) }.cast())
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), Error> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::Range { offset: offset as u64, length: length as u64, arena: self.bytes as u64 }),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: allocated in `new`; freeing waits for copies in flight.
            let _ = unsafe { result::free_host(self.start.cast::<c_void>()) };
        }
    }
}

/// Words of host memory that kernels write directly. They are 0 until then.
#[derive(Debug)]
pub(super) struct Mapped {
    memory: Pinned,
    count: usize,
    /// Their address on the card.
    pub(super) address: CUdeviceptr,
}

impl Mapped {
    /// Returns `count` words of 64 bits, for a card that supports mapped memory.
    pub(super) fn new(context: &Arc<CudaContext>, count: usize) -> Result<Mapped, Error> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut memory = Pinned::with(context, 8 * count, flags)?;
        memory.fill(0, 8 * count, |words| words.fill(0))?;
        let mut address = 0;
        // SAFETY: the memory was just allocated as mapped, and `address` is a valid place for the value that is written.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, memory.start.cast::<c_void>(), 0) }
            .result()
            .map_err(failure("mapping memory of the host"))?;
        Ok(Mapped { memory, count, address })
    }

    /// Returns the current value of a word; `index` wraps around. It is the complete last write of the card, or the value before it.
    pub(super) fn read(&self, index: usize) -> u64 {
        // SAFETY: the words start at a page and were written before the card knew them. From then on they are never used as plain memory: the card
        // writes each word at once, and the host reads it as an atomic.
        unsafe { AtomicU64::from_ptr(self.memory.start.cast::<u64>().add(index % self.count)) }.load(Ordering::Acquire)
    }
}
