//! Copies between the host and the arena, in the order of the session's stream.
//!
//! The driver's synchronous functions are not used: they run in the default stream, which the session's stream does not wait for, and return as
//! soon as pageable memory is staged, before it has reached the card.

use super::arena::{Arena, Pinned};
use crate::error::failure;
use cudarc::driver::{CudaStream, result};
use gpumem_core::error::Error;
use std::sync::Arc;

/// Bytes of pinned memory for writes that are not waited for. Larger ones are copied directly from the caller's memory.
const STAGED: usize = 256 << 10;

/// Copies to and from the arena, by a thread whose context is bound.
#[derive(Debug)]
pub(super) struct Transfers {
    stream: Arc<CudaStream>,
    staging: Pinned,
    /// Bytes of the staging memory that copies may still be reading.
    used: usize,
}

impl Transfers {
    pub(super) fn new(stream: &Arc<CudaStream>) -> Result<Transfers, Error> {
        Ok(Transfers { stream: stream.clone(), staging: Pinned::new(stream.context(), STAGED)?, used: 0 })
    }

    /// Copies `bytes` to `offset`, and to `other` if there is a second place for them. A small copy may still be in flight when this returns, so
    /// that many small writes wait once.
    pub(super) fn write(&mut self, arena: &Arena, offset: u64, other: Option<u64>, bytes: &[u8]) -> Result<(), Error> {
        let address = |offset| arena.address(offset, bytes.len() as u64);
        let (first, second) = (address(offset)?, other.map(address).transpose()?);
        let is_small = bytes.len() <= STAGED;
        if is_small && self.used + bytes.len() > STAGED {
            self.wait()?;
        }
        let from = if is_small {
            self.staging.write(self.used, bytes)?;
            let at = self.used;
            self.used += bytes.len();
            // SAFETY: these bytes are overwritten only after `wait`.
            unsafe { self.staging.slice(at, bytes.len()) }?
        } else {
            bytes
        };
        let copies = [Some(first), second].into_iter().flatten().try_for_each(|to| {
            // SAFETY: `address` checked that the range is inside the arena; the source does not change until the stream has done the copy: staged
            // bytes because of `used`, others because the copy is waited for below.
            unsafe { result::memcpy_htod_async(to, from, self.stream.cu_stream()) }
        });
        // It waits even if a copy could not be enqueued: the one before it may be reading.
        let waited = if is_small { Ok(()) } else { self.wait() };
        copies.map_err(failure("copying to the card"))?;
        waited
    }

    /// Copies from `offset` into `bytes`, after all earlier work of the stream.
    pub(super) fn read(&mut self, arena: &Arena, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let address = arena.address(offset, bytes.len() as u64)?;
        // SAFETY: `address` checked that the range is inside the arena; `bytes` is not touched before the copy has ended.
        let copied = unsafe { result::memcpy_dtoh_async(bytes, address, self.stream.cu_stream()) };
        let waited = self.wait();
        copied.map_err(failure("copying from the card"))?;
        waited
    }

    /// Waits until the stream has done all its work.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        self.stream.synchronize().map_err(failure("waiting for the card"))?;
        self.used = 0;
        Ok(())
    }
}
