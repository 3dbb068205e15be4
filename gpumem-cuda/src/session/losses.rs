//! How the losses of training steps reach the host: a kernel writes them into the host's memory, or, where a card cannot do that,
//! they are copied there beside the backward pass.

use super::arena::{Arena, Mapped, Pinned};
use crate::error::failure;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result};
use gpumem_core::error::Error;
use std::borrow::Cow;
use std::sync::Arc;

/// Words of the ring, as in `kernels/loss.cu`: so many steps may be given to the card before the loss of the first has come.
const WORDS: u64 = 8;

/// Looks at a word before the driver is asked whether the step still runs.
const LOOKS: u32 = 1000;

/// What stands where a copied loss will be: a NaN that no arithmetic gives.
const UNKNOWN: u32 = u32::MAX;

/// The losses of the two programs of a step.
#[derive(Debug)]
pub(super) enum Losses {
    /// Written by the kernel that ends the loss.
    Ring(Ring),
    /// Copied.
    Copied(Copied),
}

/// How a program's loss goes to the host.
#[derive(Debug)]
pub(super) enum Way {
    /// Into the ring that the card has at this address.
    Ring(CUdeviceptr),
    /// Copied.
    Copy(LossCopy),
}

impl Losses {
    /// How the loss of a half's program goes to the host.
    pub(super) fn way(&self, half: usize) -> Result<Way, Error> {
        match self {
            Losses::Ring(ring) => Ok(Way::Ring(ring.words.address)),
            Losses::Copied(Copied { words, from, stream }) => {
                Ok(Way::Copy(LossCopy::new(*from, words[half % 2], stream)?))
            }
        }
    }

    /// Makes room for the loss of a step on a half: `done` are the events behind the last step on it, and behind the last of all.
    pub(super) fn make_room(&mut self, half: usize, done: (&CudaEvent, Option<&CudaEvent>)) -> Result<(), Error> {
        match self {
            Losses::Ring(ring) => ring.make_room(done.1),
            Losses::Copied(copied) => {
                // Its loss may be on the way still.
                done.0.synchronize().map_err(failure("waiting for an earlier step"))?;
                // SAFETY: the word is in pinned memory that lives as long as this, and no step that writes it is running.
                unsafe { copied.words[half % 2].write_volatile(UNKNOWN) };
                Ok(())
            }
        }
    }

    /// The step that room was made for has been given to the card.
    pub(super) fn given(&mut self) {
        if let Losses::Ring(ring) = self {
            ring.last = ring.numbered;
        }
    }

    /// The loss of the last step, which was one on this half, as soon as it has come; `None` if it has to be read where it was computed.
    /// `done` is behind the step.
    pub(super) fn wait(&self, half: usize, done: &CudaEvent) -> Result<Option<f32>, Error> {
        match self {
            Losses::Ring(ring) => ring.wait(ring.last, done),
            Losses::Copied(copied) => {
                // SAFETY: the word is in pinned memory that lives as long as this; the card writes it whole.
                let bits = || unsafe { copied.words[half % 2].read_volatile() };
                let known = wait_for(done, || Some(bits()).filter(|&bits| bits != UNKNOWN))?;
                Ok(Some(f32::from_bits(known.unwrap_or_else(bits))))
            }
        }
    }

    /// Where the card counts what it sends, and what it has counted once it has done all that it was given.
    pub(super) fn count(&self) -> Option<(u64, [u8; 4])> {
        match self {
            Losses::Ring(ring) => Some((ring.counter, (ring.numbered as u32).to_le_bytes())),
            Losses::Copied(_) => None,
        }
    }

    /// What is to be written to the arena at `offset`, with the card's count where that lies.
    pub(super) fn keep_count<'a>(&self, offset: u64, bytes: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        match self.count() {
            Some((counter, count)) => replaced((offset, bytes), counter, &count),
            None => bytes,
        }
    }
}

/// Returns the bytes to write to the arena at `offset`. Those that would lie where `own` lies, at `place`, are replaced by `own`.
pub(super) fn replaced<'a>((offset, mut bytes): (u64, Cow<'a, [u8]>), place: u64, own: &[u8]) -> Cow<'a, [u8]> {
    for (place, &byte) in (place..).zip(own) {
        let index = place.checked_sub(offset).and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|&index| index < bytes.len()) {
            bytes.to_mut()[index] = byte;
        }
    }
    bytes
}

/// Words that the card writes losses into: that of step `n` below the number `n`, into word `n % 8`.
///
/// Steps are numbered from 1 on, of which a word holds 32 bits. The card counts them in a word of the state, which the host keeps at
/// the number of the last one.
#[derive(Debug)]
pub(super) struct Ring {
    words: Mapped,
    /// Where the card counts: byte offset in the arena.
    counter: u64,
    /// The number of the last step that was given to the card.
    last: u64,
    /// The last number that was taken: by that step, or by a later one that failed.
    numbered: u64,
}

impl Ring {
    /// For a card that counts at `counter` in the arena, from 0 on.
    pub(super) fn new(context: &Arc<CudaContext>, counter: u64) -> Result<Ring, Error> {
        Ok(Ring { words: Mapped::new(context, WORDS as usize)?, counter, last: 0, numbered: 0 })
    }

    /// Takes the next number. The step that had its word before has sent its loss by then, or has ended with `done`.
    fn make_room(&mut self, done: Option<&CudaEvent>) -> Result<(), Error> {
        let next = self.numbered + 1;
        if let Some((before, done)) = next.checked_sub(WORDS).filter(|&before| before > 0).zip(done) {
            self.wait(before, done)?;
        }
        self.numbered = next;
        Ok(())
    }

    /// The loss of a step, as soon as it has come; `None` if the step has ended with `done` and sent nothing.
    fn wait(&self, number: u64, done: &CudaEvent) -> Result<Option<f32>, Error> {
        wait_for(done, || {
            let word = self.words.read((number % WORDS) as usize);
            (word >> 32 == number & u64::from(u32::MAX)).then(|| f32::from_bits(word as u32))
        })
    }
}

/// What `look` finds, as soon as it does; `None` if it still does not when all is over that `done` stands for.
fn wait_for<T>(done: &CudaEvent, look: impl Fn() -> Option<T>) -> Result<Option<T>, Error> {
    loop {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return Ok(Some(found));
            }
            std::hint::spin_loop();
        }
        match done.try_is_complete().map_err(failure("running a training step"))? {
            false => std::thread::yield_now(),
            // It may have come between the two questions.
            true => return Ok(look()),
        }
    }
}

/// Two words of pinned memory that losses are copied to, for each half one.
#[derive(Debug)]
pub(super) struct Copied {
    words: [*mut u32; 2],
    from: CUdeviceptr,
    stream: Arc<CudaStream>,
}

// SAFETY: the words are in pinned memory that belongs to who has this, and moves with it.
unsafe impl Send for Copied {}

impl Copied {
    /// From `offset` in the arena to the two words of pinned memory at `at`, which lives longer than this.
    pub(super) fn new(arena: &Arena, offset: u64, (memory, at): (&Pinned, usize)) -> Result<Copied, Error> {
        let stream = arena.context().new_stream().map_err(failure("making a stream"))?;
        let words = [memory.word(at)?, memory.word(at + 4)?];
        Ok(Copied { words, from: arena.address(offset, 4)?, stream })
    }
}

/// Where the loss goes on the host, beside what comes behind it: nothing waits for the copy but the end of the program.
#[derive(Debug)]
pub(super) struct LossCopy {
    from: CUdeviceptr,
    /// A word of pinned memory that outlives the program.
    to: *mut u32,
    stream: Arc<CudaStream>,
    computed: CudaEvent,
    copied: CudaEvent,
}

impl LossCopy {
    /// From the arena to a word of pinned memory, on a stream of its own.
    fn new(from: CUdeviceptr, to: *mut u32, stream: &Arc<CudaStream>) -> Result<LossCopy, Error> {
        let event = || stream.context().new_event(None).map_err(failure("making an event"));
        Ok(LossCopy { from, to, stream: stream.clone(), computed: event()?, copied: event()? })
    }

    /// Enqueues the copy behind what `stream` has been given.
    pub(super) fn start(&self, stream: &CudaStream) -> Result<(), Error> {
        self.computed.record(stream).map_err(failure("recording an event"))?;
        self.stream.wait(&self.computed).map_err(failure("waiting for the loss"))?;
        // SAFETY: the word lies in pinned memory that the session keeps until the stream has ended, and the host only reads it, as
        // a volatile word, until then.
        let to = unsafe { std::slice::from_raw_parts_mut(self.to, 1) };
        // SAFETY: the loss is a 4-byte tensor in the arena that lives until the end of the program, and `to` is as long.
        unsafe { result::memcpy_dtoh_async(to, self.from, self.stream.cu_stream()) }
            .map_err(failure("copying the loss"))?;
        self.copied.record(&self.stream).map_err(failure("recording an event"))
    }

    /// Lets what `stream` is given from now on come after the copy.
    pub(super) fn join(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.copied).map_err(failure("waiting for the copy of the loss"))
    }
}
