//! The way of optimizer state from host memory into staging buffers and back, on two streams beside that of the step: one for each
//! direction, since a bus takes both at once.
//!
//! A piece arrives as soon as the one before it in its buffer has left; its update waits for that; it leaves as soon as it is updated. At the
//! end the step waits for whatever is under way, so that the next one finds all of it where it belongs.

use super::arena::{Arena, Pinned};
use crate::calls::passage::{Copy, Passage};
use crate::calls::{Argument, place};
use crate::error::failure;
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use gpumem_core::error::Error;
use gpumem_core::memory::place::{Placed, on_host};
use gpumem_core::program::Piece;
use std::ffi::c_void;
use std::sync::Arc;

/// Page-locked memory for what lies with the host, and the streams that copy it.
#[derive(Debug)]
pub(super) struct Lanes {
    arriving: Arc<CudaStream>,
    leaving: Arc<CudaStream>,
    buffers: [Events; Piece::BUFFERS],
    /// Behind what the step was given when a piece sets out.
    begun: CudaEvent,
    host: Pinned,
}

/// Of a staging buffer: behind the piece that arrived last, its update, and its way back.
#[derive(Debug)]
struct Events {
    fetched: CudaEvent,
    updated: CudaEvent,
    stored: CudaEvent,
}

impl Lanes {
    /// With so many bytes of the host's memory.
    ///
    /// # Errors
    /// [`Error::Device`] that says what to do if the host does not give them.
    pub(super) fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<Lanes, Error> {
        let size = usize::try_from(bytes).map_err(|_| Error::Damaged("host memory of 2^32 bytes or more"))?;
        let host = Pinned::new(context, size).map_err(|error| unpinned(bytes, &error))?;
        let stream = || context.new_stream().map_err(failure("making a stream"));
        let event = || context.new_event(None).map_err(failure("making an event"));
        let events = || Ok::<Events, Error>(Events { fetched: event()?, updated: event()?, stored: event()? });
        let buffers = [events()?, events()?, events()?];
        Ok(Lanes { arriving: stream()?, leaving: stream()?, buffers, begun: event()?, host })
    }

    /// Waits for all copies: the step waits for them, but one that failed may not have come so far.
    fn settle(&self) -> Result<(), Error> {
        let wait = |stream: &CudaStream| stream.synchronize().map_err(failure("copying optimizer state"));
        wait(&self.arriving).and(wait(&self.leaving))
    }

    /// Writes to host memory, where the stream of the step has come to its end.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.settle()?;
        let to = self.host.address(self.at(offset, bytes.len())?, bytes.len())?.cast::<u8>();
        // SAFETY: `address` found the range inside the allocation; the copies are over, and only this thread starts others.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Reads from host memory, where the stream of the step has come to its end.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.settle()?;
        let at = self.at(offset, bytes.len())?;
        // SAFETY: copies are over, and only this thread starts others.
        bytes.copy_from_slice(unsafe { self.host.slice(at, bytes.len()) }?);
        Ok(())
    }

    fn at(&self, offset: u64, length: usize) -> Result<usize, Error> {
        usize::try_from(offset).map_err(|_| Error::Range { offset, length: length as u64, arena: u64::MAX })
    }
}

/// What is said where the host has no page-locked memory.
fn unpinned(bytes: u64, error: &Error) -> Error {
    let gib = bytes as f64 / f64::from(1u32 << 30);
    let what = format!(
        "`offload: OptimizerState` needs {gib:.2} GiB of the host's memory page-locked; close what takes the host's memory, raise its limit of \
         locked memory, or leave `offload` out: {error}"
    );
    Error::failed("CUDA", what)
}

/// A copy with its addresses.
#[derive(Clone, Copy, Debug)]
struct BoundCopy {
    host: *mut c_void,
    arena: CUdeviceptr,
    bytes: usize,
}

/// A passage with its addresses.
#[derive(Debug)]
pub(super) struct BoundPassage {
    lanes: Arc<Lanes>,
    kind: Kind,
    copies: Vec<BoundCopy>,
}

// SAFETY: the addresses are of memory that `lanes` and the session's arena own; what is copied is enqueued by the thread that has the session.
unsafe impl Send for BoundPassage {}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// With whether something was stored from the buffer before, in this program.
    Fetch {
        buffer: usize,
        follows: bool,
    },
    Await {
        buffer: usize,
    },
    Store {
        buffer: usize,
    },
    Settle {
        /// Whether something was stored.
        follows: Option<usize>,
    },
}

/// The passages of a program, bound in their order.
#[derive(Debug, Default)]
pub(super) struct Passages {
    /// Whether something was stored from each buffer.
    stored: [bool; Piece::BUFFERS],
    last: Option<usize>,
}

impl Passages {
    /// The next one, with its addresses.
    pub(super) fn bind(
        &mut self,
        passage: &Passage,
        lanes: Option<&Arc<Lanes>>,
        (arena, placed): (&Arena, &Placed),
    ) -> Result<BoundPassage, Error> {
        let lanes = lanes.ok_or(Error::Damaged("a step has no host memory for its optimizer state"))?.clone();
        let known = |buffer: usize| {
            if buffer < Piece::BUFFERS { Ok(buffer) } else { Err(Error::Damaged("there is no such staging buffer")) }
        };
        let kind = match *passage {
            Passage::Fetch { buffer, .. } => Kind::Fetch { buffer, follows: self.stored[known(buffer)?] },
            Passage::Await { buffer } => Kind::Await { buffer: known(buffer)? },
            Passage::Store { buffer, .. } => {
                self.stored[known(buffer)?] = true;
                self.last = Some(buffer);
                Kind::Store { buffer }
            }
            Passage::Settle => Kind::Settle { follows: self.last },
        };
        let copies = passage.copies().iter().map(|copy| bound(copy, &lanes, arena, placed));
        let copies = copies.collect::<Result<Vec<BoundCopy>, Error>>()?;
        Ok(BoundPassage { lanes, kind, copies })
    }
}

fn bound(copy: &Copy, lanes: &Lanes, arena: &Arena, placed: &Placed) -> Result<BoundCopy, Error> {
    let damaged = || Error::Damaged("a piece of optimizer state has no place");
    let bytes = usize::try_from(copy.bytes).map_err(|_| damaged())?;
    let at = |argument: Argument| place(placed, argument);
    let (host, length) = at(copy.host)?;
    let offset = on_host(host).ok_or_else(damaged)?;
    if copy.at.checked_add(copy.bytes).is_none_or(|end| end > length) {
        return Err(damaged());
    }
    let offset = offset.checked_add(copy.at).and_then(|offset| usize::try_from(offset).ok()).ok_or_else(damaged)?;
    let (staging, room) = at(copy.arena)?;
    if copy.bytes > room {
        return Err(damaged());
    }
    Ok(BoundCopy { host: lanes.host.address(offset, bytes)?, arena: arena.address(staging, copy.bytes)?, bytes })
}

impl BoundPassage {
    /// Enqueues it, seen from the stream of the step.
    pub(super) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let Lanes { arriving, leaving, buffers, begun, .. } = &*self.lanes;
        let record =
            |event: &CudaEvent, stream: &CudaStream| event.record(stream).map_err(failure("recording an event"));
        let wait = |stream: &CudaStream, event: &CudaEvent| stream.wait(event).map_err(failure("waiting for a copy"));
        match self.kind {
            Kind::Fetch { buffer, follows } => {
                // The first piece of a buffer comes where the step had something else, and brings the stream into a capture.
                if follows {
                    wait(arriving, &buffers[buffer].stored)?;
                } else {
                    record(begun, stream)?;
                    wait(arriving, begun)?;
                }
                for copy in &self.copies {
                    // SAFETY: both ranges were checked to lie inside their memory, which outlives the streams' work; the stream comes
                    // after whatever used the buffer, and the update and the way back come after it.
                    unsafe { sys::cuMemcpyHtoDAsync_v2(copy.arena, copy.host, copy.bytes, arriving.cu_stream()) }
                        .result()
                        .map_err(failure("copying optimizer state to the card"))?;
                }
                record(&buffers[buffer].fetched, arriving)
            }
            Kind::Await { buffer } => wait(stream, &buffers[buffer].fetched),
            Kind::Store { buffer } => {
                record(&buffers[buffer].updated, stream)?;
                wait(leaving, &buffers[buffer].updated)?;
                for copy in &self.copies {
                    // SAFETY: as above; the host looks at its memory only after it has waited for the step, which waits for this.
                    unsafe { sys::cuMemcpyDtoHAsync_v2(copy.host, copy.arena, copy.bytes, leaving.cu_stream()) }
                        .result()
                        .map_err(failure("copying optimizer state from the card"))?;
                }
                record(&buffers[buffer].stored, leaving)
            }
            // What left last came after all others.
            Kind::Settle { follows } => match follows {
                Some(buffer) => wait(stream, &buffers[buffer].stored),
                None => Ok(()),
            },
        }
    }
}
