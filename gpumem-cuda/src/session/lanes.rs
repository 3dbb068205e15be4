//! The way between host memory and the arena, on two streams beside that of the step: one for each direction, since a bus takes both at once.
//!
//! A piece of optimizer state arrives in a staging buffer as soon as the one before it there has left; its update waits for that; it leaves as
//! soon as it is updated. At the end the step waits for whatever is under way, so that the next one finds all of it where it belongs.
//!
//! An activation leaves behind the operations that the step was given before, which made it or read it, and the step waits for that before it
//! is given what may lie in the activation's place. It comes back to another place: behind all that the step was given before, and with it the
//! copies that the step has waited for, so that nobody is there any more. The step waits for it before it is given what reads it. So a tensor
//! has its place to itself from the operation that the plan calls its first to the one that it calls its last.

use super::arena::{Arena, Pinned};
use crate::calls::passage::{Copy, Passage};
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

/// Page-locked memory for what lies with the host, and the streams that copy it.
#[derive(Debug)]
pub(super) struct Lanes {
    arriving: Arc<CudaStream>,
    leaving: Arc<CudaStream>,
    buffers: [Events; Piece::BUFFERS],
    /// Of each activation that leaves: behind the copy of it that was last enqueued.
    parked: Vec<CudaEvent>,
    /// Behind what the step was given when a copy sets out.
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
    /// For what of a step lies in host memory.
    ///
    /// # Errors
    /// [`Error::Device`] that says what to do if the host does not give so much.
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

    /// Waits for all copies: the step waits for them, but one that failed may not have come so far.
    fn settle(&self) -> Result<(), Error> {
        let wait = |stream: &CudaStream| {
            stream.synchronize().map_err(failure("copying between the host's memory and the card"))
        };
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
    /// A leg of the activation of this number.
    Park {
        leg: Leg,
        number: usize,
    },
}

/// The passages of a program, bound in their order.
#[derive(Debug, Default)]
pub(super) struct Passages {
    /// Whether something was stored from each buffer.
    stored: [bool; Piece::BUFFERS],
    last: Option<usize>,
    /// How far each activation has come, by the number of its tensor in host memory.
    legs: BTreeMap<TensorId, Leg>,
}

impl Passages {
    /// The next one, with its addresses.
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

    /// The next leg of the activation with this tensor in host memory. Each waits for what the one before it has recorded.
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

    /// Whether all that has left is back: a step ends with no copy under way.
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
    /// Lets what a lane is given from now on come after all that the step was given, and brings the lane into a capture of it.
    fn follow(&self, lane: &CudaStream, stream: &CudaStream) -> Result<(), Error> {
        record(&self.begun, stream)?;
        wait(lane, &self.begun)
    }
}

impl BoundPassage {
    /// Enqueues it, seen from the stream of the step.
    pub(super) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let Lanes { arriving, leaving, buffers, parked, .. } = &*self.lanes;
        match self.kind {
            Kind::Fetch { buffer, follows } => {
                // The first piece of a buffer comes where the step had something else.
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
            // What left last came after all others.
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

    /// Enqueues the copies into the arena, behind what the lane waits for.
    fn arrive(&self) -> Result<(), Error> {
        let lane = self.lanes.arriving.cu_stream();
        self.copies.iter().try_for_each(|copy| {
            // SAFETY: both ranges were checked to lie inside their memory, which outlives the streams' work. The lane comes after whatever
            // was in the arena's range, be it a kernel's or a copy's: see `launch`. What reads it comes after the event behind the copy, and
            // so does what lies there next.
            unsafe { sys::cuMemcpyHtoDAsync_v2(copy.arena, copy.host, copy.bytes, lane) }
                .result()
                .map_err(failure("copying from the host's memory to the card"))
        })
    }

    /// Enqueues the copies out of it.
    fn leave(&self) -> Result<(), Error> {
        let lane = self.lanes.leaving.cu_stream();
        self.copies.iter().try_for_each(|copy| {
            // SAFETY: as above, for what wrote the arena's range and for what overwrites it. The host looks at its memory only after it has
            // waited for the step, which waits for this.
            unsafe { sys::cuMemcpyDtoHAsync_v2(copy.host, copy.arena, copy.bytes, lane) }
                .result()
                .map_err(failure("copying from the card to the host's memory"))
        })
    }
}
