//! Offloading: copies between host memory and the arena on two streams besides the step's. Each direction has one, since a bus transfers both at
//! once.
//!
//! A piece of optimizer state is copied into a staging buffer as soon as the previous piece there has been copied out. Its update waits for the
//! copy. It is copied out as soon as it is updated. At the end the step waits for all copies, so that the next step finds every piece in its place.
//!
//! An activation is copied out after the operations enqueued before, which wrote or read it. The step waits for the copy before it enqueues
//! operations that may use the activation's memory. The activation is copied back to another offset, after all operations enqueued before and the
//! copies that the step has waited for, so that nothing uses that memory any more. The step waits for this copy before it enqueues operations that
//! read the activation. So a tensor has its memory to itself for its whole live range in the plan.

use super::arena::{Arena, Pinned};
use crate::calls::host_copy::{Copy, Passage};
use crate::calls::{Argument, place};
use crate::error::failure;
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use gpumem_core::error::Error;
use gpumem_core::memory::place::{Placed, on_host};
use gpumem_core::program::{Class, Leg, Piece, TensorId};
use gpumem_core::train::Offload;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// Page-locked memory for tensors in host memory, and the streams that copy them.
#[derive(Debug)]
pub(super) struct Lanes {
    arriving: Arc<CudaStream>,
    leaving: Arc<CudaStream>,
    buffers: [Events; Piece::BUFFERS],
    /// For each activation that leaves: recorded after the latest copy of it.
    parked: Vec<CudaEvent>,
    /// Recorded after the step's earlier work when a copy is enqueued.
    begun: CudaEvent,
    host: Pinned,
}

/// Events of a staging buffer, recorded after the latest piece's copy into it, its update, and its copy out of it.
#[derive(Debug)]
struct Events {
    fetched: CudaEvent,
    updated: CudaEvent,
    stored: CudaEvent,
}

impl Lanes {
    /// Allocates host memory for the tensors of a step that are stored there.
    ///
    /// # Errors
    /// [`Error::Device`] that says what to do if the host cannot allocate so much.
    pub(super) fn new(context: &Arc<CudaContext>, placed: &Placed) -> Result<Lanes, Error> {
        let bytes = placed.host();
        let size = usize::try_from(bytes).map_err(|_| Error::Damaged("host memory of 2^32 bytes or more"))?;
        let host = Pinned::new(context, size);
        let host = host.map_err(|error| unpinned(placed.program.descent.offload, bytes, &error))?;
        let stream = || context.new_stream().map_err(failure("making a stream"));
        let event = || context.new_event(None).map_err(failure("making an event"));
        let events = || Ok::<Events, Error>(Events { fetched: event()?, updated: event()?, stored: event()? });
        let buffers = [events()?, events()?, events()?];
        let parked = placed.program.of_class(Class::Host).map(|_| event()).collect::<Result<_, Error>>()?;
        Ok(Lanes { arriving: stream()?, leaving: stream()?, buffers, parked, begun: event()?, host })
    }

    /// Waits for all copies. A step waits for its own, but one that failed may not have got that far.
    fn settle(&self) -> Result<(), Error> {
        let wait = |stream: &CudaStream| {
            stream.synchronize().map_err(failure("copying between the host's memory and the card"))
        };
        wait(&self.arriving).and(wait(&self.leaving))
    }

    /// Writes to host memory. The step's stream must have ended its work.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.settle()?;
        let to = self.host.address(self.at(offset, bytes.len())?, bytes.len())?.cast::<u8>();
        // SAFETY: `address` found the range inside the allocation; copies have ended, and only this thread starts others.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Reads from host memory. The step's stream must have ended its work.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.settle()?;
        let at = self.at(offset, bytes.len())?;
        // SAFETY: copies have ended, and only this thread starts others.
        bytes.copy_from_slice(unsafe { self.host.slice(at, bytes.len()) }?);
        Ok(())
    }

    fn at(&self, offset: u64, length: usize) -> Result<usize, Error> {
        usize::try_from(offset).map_err(|_| Error::Range { offset, length: length as u64, arena: u64::MAX })
    }
}

/// Returns the error that the host cannot allocate page-locked memory.
fn unpinned(offload: Offload, bytes: u64, error: &Error) -> Error {
    let gib = bytes as f64 / f64::from(1u32 << 30);
    let what = format!(
        "`offload: {}` needs {gib:.2} GiB of the host's memory page-locked; close what takes the host's memory, raise its limit of \
         locked memory, or leave `offload` out: {error}",
        offload.name()
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

/// A host copy, or the wait for one, with its addresses.
#[derive(Debug)]
pub(super) struct BoundPassage {
    lanes: Arc<Lanes>,
    kind: Kind,
    copies: Vec<BoundCopy>,
}

// SAFETY: the addresses are of memory that `lanes` and the session's arena own; copies are enqueued by the thread that has the session.
unsafe impl Send for BoundPassage {}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `follows` is true if this program has stored from the buffer before.
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
        /// The buffer that was stored last; `None` if nothing was stored.
        follows: Option<usize>,
    },
    /// A leg of the activation with this index.
    Park {
        leg: Leg,
        number: usize,
    },
}

/// State while the passages of a program are bound in order.
#[derive(Debug, Default)]
pub(super) struct Passages {
    /// True for each buffer from which something was stored.
    stored: [bool; Piece::BUFFERS],
    last: Option<usize>,
    /// The last leg of each activation, by the number of its tensor in host memory.
    legs: BTreeMap<TensorId, Leg>,
}

impl Passages {
    /// Binds the next passage to its addresses.
    pub(super) fn bind(
        &mut self,
        passage: &Passage,
        lanes: Option<&Arc<Lanes>>,
        (arena, placed): (&Arena, &Placed),
    ) -> Result<BoundPassage, Error> {
        let lanes = lanes.ok_or(Error::Damaged("a step has no host memory for what lies there"))?.clone();
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
            Passage::Leave { copy } => self.leg(placed, copy.host, Leg::Leave)?,
            Passage::Left { host } => self.leg(placed, host, Leg::Left)?,
            Passage::Return { copy } => self.leg(placed, copy.host, Leg::Return)?,
            Passage::Returned { host } => self.leg(placed, host, Leg::Returned)?,
        };
        let copies = passage.copies().iter().map(|copy| bound(copy, &lanes, arena, placed));
        let copies = copies.collect::<Result<Vec<BoundCopy>, Error>>()?;
        Ok(BoundPassage { lanes, kind, copies })
    }

    /// Returns the next leg of the activation with this tensor in host memory. Each leg waits for an event that the previous one recorded.
    fn leg(&mut self, placed: &Placed, host: Argument, leg: Leg) -> Result<Kind, Error> {
        let expected = match self.legs.insert(host, leg) {
            None => Some(Leg::Leave),
            Some(Leg::Leave) => Some(Leg::Left),
            Some(Leg::Left) => Some(Leg::Return),
            Some(Leg::Return) => Some(Leg::Returned),
            Some(Leg::Returned) => None,
        };
        let number = placed.program.of_class(Class::Host).position(|id| id == host);
        match number.filter(|_| expected == Some(leg)) {
            Some(number) => Ok(Kind::Park { leg, number }),
            None => Err(STRAY),
        }
    }

    /// Checks that every activation that left is back, so that a step ends without a copy in flight.
    ///
    /// # Errors
    /// [`Error::Damaged`] otherwise.
    pub(super) fn end(&self) -> Result<(), Error> {
        if self.legs.values().all(|leg| *leg == Leg::Returned) { Ok(()) } else { Err(STRAY) }
    }
}

const STRAY: Error = Error::Damaged("an activation leaves without coming back, or comes back without having left");

fn bound(copy: &Copy, lanes: &Lanes, arena: &Arena, placed: &Placed) -> Result<BoundCopy, Error> {
    let damaged = || Error::Damaged("what lies in host memory has no place there, or none in the arena");
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

fn record(event: &CudaEvent, stream: &CudaStream) -> Result<(), Error> {
    event.record(stream).map_err(failure("recording an event"))
}

fn wait(stream: &CudaStream, event: &CudaEvent) -> Result<(), Error> {
    stream.wait(event).map_err(failure("waiting for a copy"))
}

impl Lanes {
    /// Makes later work in a lane wait for all earlier work of the step. If the step is being captured, the lane joins the capture.
    fn follow(&self, lane: &CudaStream, stream: &CudaStream) -> Result<(), Error> {
        record(&self.begun, stream)?;
        wait(lane, &self.begun)
    }
}

impl BoundPassage {
    /// Enqueues the passage. `stream` is the stream of the step.
    pub(super) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let Lanes { arriving, leaving, buffers, parked, .. } = &*self.lanes;
        match self.kind {
            Kind::Fetch { buffer, follows } => {
                // For the first piece of a buffer, the step may have had other tensors there.
                if follows {
                    wait(arriving, &buffers[buffer].stored)?;
                } else {
                    self.lanes.follow(arriving, stream)?;
                }
                self.arrive()?;
                record(&buffers[buffer].fetched, arriving)
            }
            Kind::Await { buffer } => wait(stream, &buffers[buffer].fetched),
            Kind::Store { buffer } => {
                record(&buffers[buffer].updated, stream)?;
                wait(leaving, &buffers[buffer].updated)?;
                self.leave()?;
                record(&buffers[buffer].stored, leaving)
            }
            // The last piece to leave left after all others.
            Kind::Settle { follows } => match follows {
                Some(buffer) => wait(stream, &buffers[buffer].stored),
                None => Ok(()),
            },
            Kind::Park { leg: Leg::Leave, number } => {
                self.lanes.follow(leaving, stream)?;
                self.leave()?;
                record(&parked[number], leaving)
            }
            Kind::Park { leg: Leg::Return, number } => {
                self.lanes.follow(arriving, stream)?;
                self.arrive()?;
                record(&parked[number], arriving)
            }
            Kind::Park { leg: Leg::Left | Leg::Returned, number } => wait(stream, &parked[number]),
        }
    }

    /// Enqueues the copies into the arena, after the events that the lane waits for.
    fn arrive(&self) -> Result<(), Error> {
        let lane = self.lanes.arriving.cu_stream();
        self.copies.iter().try_for_each(|copy| {
            // SAFETY: both ranges were checked to be inside their memory, which outlives the streams' work. The lane comes after everything that
            // used the arena's range, kernels and copies: see `launch`. Readers of the range, and its next users, come after the event that follows
            // the copy.
            unsafe { sys::cuMemcpyHtoDAsync_v2(copy.arena, copy.host, copy.bytes, lane) }
                .result()
                .map_err(failure("copying from the host's memory to the card"))
        })
    }

    /// Enqueues the copies out of the arena.
    fn leave(&self) -> Result<(), Error> {
        let lane = self.lanes.leaving.cu_stream();
        self.copies.iter().try_for_each(|copy| {
            // SAFETY: as above, for what wrote the arena's range and for what overwrites it. The host reads its memory only after it has waited for
            // the step, which waits for this copy.
            unsafe { sys::cuMemcpyDtoHAsync_v2(copy.host, copy.arena, copy.bytes, lane) }
                .result()
                .map_err(failure("copying from the card to the host's memory"))
        })
    }
}
