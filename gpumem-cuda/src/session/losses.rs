//! The transfer of training losses to the host: a kernel writes them into mapped host memory. If a card cannot do that, they are copied during the
//! backward pass.

use super::arena::{Arena, Mapped, Pinned};
use crate::error::failure;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result};
use gpumem_core::error::Error;
use std::borrow::Cow;
use std::sync::Arc;

/// Words of the ring, as in `kernels/loss/loss.cu`: the steps that may be enqueued before the loss of the first has arrived.
const WORDS: u64 = 8;

/// Reads of a word before the driver is asked if the step is still running.
const LOOKS: u32 = 1000;

/// A placeholder for a copied loss that has not arrived: a NaN that arithmetic does not produce.
const UNKNOWN: u32 = u32::MAX;

/// The losses of a step's two programs, one for each half of the double buffer.
#[derive(Debug)]
pub(super) enum Losses {
    /// Written by the kernel that ends the loss.
    Ring(Ring),
    /// Copied from the arena.
    Copied(Copied),
}

/// The way in which a program's loss reaches the host.
#[derive(Debug)]
pub(super) enum LossTransfer {
    /// Written into the ring, whose address on the card this is.
    Ring(CUdeviceptr),
    /// Copied from the arena.
    Copy(LossCopy),
}

impl Losses {
    /// Returns the way in which the loss of a half's program reaches the host.
    pub(super) fn way(&self, half: usize) -> Result<LossTransfer, Error> {
        match self {
            Losses::Ring(ring) => Ok(LossTransfer::Ring(ring.words.address)),
            Losses::Copied(Copied { words, from, stream }) => {
                Ok(LossTransfer::Copy(LossCopy::new(*from, words[half % 2], stream)?))
            }
        }
    }

    /// Prepares for the loss of a step on a half. `done` are the events after the last step on that half, and after the last step of all.
    pub(super) fn make_room(&mut self, half: usize, done: (&CudaEvent, Option<&CudaEvent>)) -> Result<(), Error> {
        match self {
            Losses::Ring(ring) => ring.make_room(done.1),
            Losses::Copied(copied) => {
                // The previous loss of this half may not have arrived yet.
                done.0.synchronize().map_err(failure("waiting for an earlier step"))?;
                // SAFETY: the word is in pinned memory that outlives this value, and no running step writes it.
                unsafe { copied.words[half % 2].write_volatile(UNKNOWN) };
                Ok(())
            }
        }
    }

    /// Records that the prepared step has been enqueued.
    pub(super) fn given(&mut self) {
        if let Losses::Ring(ring) = self {
            ring.last = ring.numbered;
        }
    }

    /// Returns the loss of the last step, which was on this half, as soon as it has arrived; `None` if it must be read from the arena. `done` is
    /// the event after the step.
    pub(super) fn wait(&self, half: usize, done: &CudaEvent) -> Result<Option<f32>, Error> {
        match self {
            Losses::Ring(ring) => ring.wait(ring.last, done),
            Losses::Copied(copied) => {
                // SAFETY: the word is in pinned memory that outlives this value; the card writes it at once.
                let bits = || unsafe { copied.words[half % 2].read_volatile() };
                let known = wait_for(done, || Some(bits()).filter(|&bits| bits != UNKNOWN))?;
                Ok(Some(f32::from_bits(known.unwrap_or_else(bits))))
            }
        }
    }

    /// Returns the place of the card's counter of the losses that it sends, and the counter's value after all enqueued steps; `None` if losses are
    /// copied.
    pub(super) fn count(&self) -> Option<(u64, [u8; 4])> {
        match self {
            Losses::Ring(ring) => Some((ring.counter, (ring.numbered as u32).to_le_bytes())),
            Losses::Copied(_) => None,
        }
    }

    /// Returns the bytes to write to the arena at `offset`, with the card's count unchanged if they overlap it.
    pub(super) fn keep_count<'a>(&self, offset: u64, bytes: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        match self.count() {
            Some((counter, count)) => replaced((offset, bytes), counter, &count),
            None => bytes,
        }
    }
}

/// Returns the bytes to write to the arena at `offset`. Those at the place of `own`, at offset `place`, are replaced by `own`.
pub(super) fn replaced<'a>((offset, mut bytes): (u64, Cow<'a, [u8]>), place: u64, own: &[u8]) -> Cow<'a, [u8]> {
    for (place, &byte) in (place..).zip(own) {
        let index = place.checked_sub(offset).and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|&index| index < bytes.len()) {
            bytes.to_mut()[index] = byte;
        }
    }
    bytes
}

/// Words that the card writes losses into. Word `n % 8` holds the loss of step `n` in its lower half and `n` in its upper half.
///
/// Steps are numbered from 1 on; a word holds the lower 32 bits of the number. The card counts them in a word of the state, which the host keeps at
/// the number of the last step.
#[derive(Debug)]
pub(super) struct Ring {
    words: Mapped,
    /// Offset of that word in the arena, in bytes.
    counter: u64,
    /// The number of the last step that was enqueued.
    last: u64,
    /// The last number that was assigned, to that step or to a later one that failed.
    numbered: u64,
}

impl Ring {
    /// Makes the ring for a card that counts at `counter` in the arena, from 0 on.
    pub(super) fn new(context: &Arc<CudaContext>, counter: u64) -> Result<Ring, Error> {
        Ok(Ring { words: Mapped::new(context, WORDS as usize)?, counter, last: 0, numbered: 0 })
    }

    /// Assigns the next number. Waits until the step that used its word before has sent its loss, or has ended with `done`.
    fn make_room(&mut self, done: Option<&CudaEvent>) -> Result<(), Error> {
        let next = self.numbered + 1;
        if let Some((before, done)) = next.checked_sub(WORDS).filter(|&before| before > 0).zip(done) {
            self.wait(before, done)?;
        }
        self.numbered = next;
        Ok(())
    }

    /// Returns the loss of a step as soon as it has arrived; `None` if the step has ended with `done` and sent nothing.
    fn wait(&self, number: u64, done: &CudaEvent) -> Result<Option<f32>, Error> {
        wait_for(done, || {
            let word = self.words.read((number % WORDS) as usize);
            (word >> 32 == number & u64::from(u32::MAX)).then(|| f32::from_bits(word as u32))
        })
    }
}

/// Returns the result of `look` as soon as it has one; `None` if it has none even after the event `done`.
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
            // The loss may have arrived between the two questions.
            true => return Ok(look()),
        }
    }
}

/// Two words of pinned memory, one for each half, that losses are copied to.
#[derive(Debug)]
pub(super) struct Copied {
    words: [*mut u32; 2],
    from: CUdeviceptr,
    stream: Arc<CudaStream>,
}

// SAFETY: the words are in pinned memory that belongs to the owner of this value, and moves with it.
unsafe impl Send for Copied {}

impl Copied {
    /// Prepares copies from `offset` in the arena to the two words of pinned memory at `at`, which outlives this value.
    pub(super) fn new(arena: &Arena, offset: u64, (memory, at): (&Pinned, usize)) -> Result<Copied, Error> {
        let stream = arena.context().new_stream().map_err(failure("making a stream"))?;
        let words = [memory.word(at)?, memory.word(at + 4)?];
        Ok(Copied { words, from: arena.address(offset, 4)?, stream })
    }
}

/// A copy of the loss to the host that overlaps with later work: only the end of the program waits for it.
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
    /// Makes a copy from the arena to a word of pinned memory, on a separate stream.
    fn new(from: CUdeviceptr, to: *mut u32, stream: &Arc<CudaStream>) -> Result<LossCopy, Error> {
        let event = || stream.context().new_event(None).map_err(failure("making an event"));
        Ok(LossCopy { from, to, stream: stream.clone(), computed: event()?, copied: event()? })
    }

    /// Enqueues the copy, after the work in `stream` so far.
    pub(super) fn start(&self, stream: &CudaStream) -> Result<(), Error> {
        self.computed.record(stream).map_err(failure("recording an event"))?;
        self.stream.wait(&self.computed).map_err(failure("waiting for the loss"))?;
        // SAFETY: the word is in pinned memory that the session keeps until the stream has ended, and the host only reads it, as a volatile word,
        // until then.
        let to = unsafe { std::slice::from_raw_parts_mut(self.to, 1) };
        // SAFETY: the loss is a 4-byte tensor in the arena that lives until the end of the program, and `to` has that length.
        unsafe { result::memcpy_dtoh_async(to, self.from, self.stream.cu_stream()) }
            .map_err(failure("copying the loss"))?;
        self.copied.record(&self.stream).map_err(failure("recording an event"))
    }

    /// Makes later work in `stream` wait for the copy.
    pub(super) fn join(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.copied).map_err(failure("waiting for the copy of the loss"))
    }
}
