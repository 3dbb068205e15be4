//! Training steps and what they are fed: inputs and targets go from pinned memory of the host into the half of the double
//! buffer that no step reads, on a stream of their own; the loss comes back beside the backward pass.

use super::arena::{Arena, Pinned};
use super::checks::{IndexChecks, Reader};
use super::losses::{Copied, Losses, Ring};
use super::prepared::{Binding, Prepared};
use crate::error::failure;
use crate::steps::Step;
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaEvent, CudaStream, result};
use gpumem_core::error::Error;
use gpumem_core::memory::budget::padded;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Class, StateWord};
use gpumem_core::run::device::Fill;
use std::borrow::Cow;
use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// The training step, once for each half of the double buffer. It works for a thread whose context is bound.
#[derive(Debug)]
pub(super) struct Feeding {
    /// Its number among the network's training steps.
    number: usize,
    // Graphs are dropped before the host's memory that they write to.
    halves: [Half; 2],
    losses: Losses,
    staging: Pinned,
    copies: Arc<CudaStream>,
    /// Behind the last copy.
    copied: CudaEvent,
    /// Behind the step before this one, where that is another of several.
    given: CudaEvent,
    /// Byte offset of the first half in the arena.
    start: u64,
    /// Bytes of a half.
    length: u64,
    /// The half that the next step reads.
    current: usize,
    /// The half that the last step read.
    last: Option<usize>,
    /// Ranges that were fed after the last step: offsets and bytes.
    fed: Vec<(u64, u64)>,
    /// State that the parts of a batch share. `None` if the batch is not split.
    split: Option<Split>,
}

/// A batch whose parts run one after the other.
#[derive(Debug)]
struct Split {
    /// Parts of a batch.
    parts: u64,
    /// Parts that the step under way has had.
    done: u64,
    /// Addresses and bytes of what is 0 before the first part.
    sums: Vec<(CUdeviceptr, usize)>,
    /// The word of the state with the number of the part.
    number: CUdeviceptr,
}

impl Split {
    fn new(arena: &Arena, placed: &Placed) -> Result<Option<Split>, Error> {
        if !placed.program.descent.accumulates() {
            return Ok(None);
        }
        let state = placed.program.state();
        let state = state.ok_or(Error::Damaged("a step whose batch is split has no state"))?;
        let number = arena.address(placed.offsets[state as usize] + 4 * StateWord::PART as u64, 4)?;
        let sums = placed.program.accumulators().map(|id| (placed.offsets[id as usize], placed.bytes[id as usize]));
        let sums = adjoining(sums.collect()).into_iter().map(|(offset, bytes)| {
            let length =
                usize::try_from(bytes).map_err(|_| Error::Damaged("a gradient exceeds the host's addresses"))?;
            Ok((arena.address(offset, bytes)?, length))
        });
        Ok(Some(Split {
            parts: placed.program.descent.micro_batches,
            done: 0,
            sums: sums.collect::<Result<_, Error>>()?,
            number,
        }))
    }

    /// Brings the state to a part, behind what `stream` was given; before the first, all sums become 0.
    fn begin(&self, part: u64, stream: &CudaStream) -> Result<(), Error> {
        let sums = if part == 0 { &self.sums[..] } else { &[] };
        let stream = stream.cu_stream();
        // SAFETY: the ranges were checked to lie inside the arena, which outlives the stream's work, and what the stream was given before
        // has come to its end there.
        let zeros = sums.iter().try_for_each(|&(at, bytes)| unsafe { result::memset_d8_async(at, 0, bytes, stream) });
        zeros.map_err(failure("setting gradients to 0"))?;
        // SAFETY: as above, of one word.
        unsafe { sys::cuMemsetD32Async(self.number, part as u32, 1, stream) }
            .result()
            .map_err(failure("counting the parts of a batch"))
    }
}

/// Ranges that follow each other in the arena, but for what the plan ends each tensor with, as one: offsets and bytes.
fn adjoining(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in ranges {
        match all.last_mut() {
            Some((start, length)) if *start + padded(*length) == offset => *length = offset - *start + bytes,
            _ => all.push((offset, bytes)),
        }
    }
    all
}

#[derive(Debug)]
struct Half {
    program: Prepared,
    /// What of it runs for each part of a batch but the last, where it is split.
    part: Option<Prepared>,
    /// Behind the last step that read this half.
    done: CudaEvent,
}

/// The steps that run for each part of a batch.
///
/// # Errors
/// [`Error::Damaged`] if something that runs once is among them.
fn repeated(placed: &Placed, steps: &[Step]) -> Result<Vec<Step>, Error> {
    let count = placed.program.repeated();
    let (repeated, once): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| step.operations()[0] < count);
    let is_mixed = repeated.iter().any(|step| step.operations().iter().any(|&at| at >= count));
    let follows = once.iter().map(|step| step.first).min() >= repeated.iter().map(|step| step.first).max();
    if is_mixed || !follows {
        return Err(Error::Damaged("an update runs together with what comes before the last part of a batch"));
    }
    Ok(repeated.into_iter().cloned().collect())
}

impl Feeding {
    /// The training step of this number.
    pub(super) fn new(binding: Binding<'_>, number: usize, placed: &Placed, steps: &[Step]) -> Result<Feeding, Error> {
        let context = &binding.card.context;
        let fed = |id: &usize| matches!(placed.program.tensors[*id].class, Class::Input | Class::Target);
        let fed: Vec<usize> = (0..placed.program.tensors.len()).filter(fed).collect();
        let start = fed.iter().map(|&id| placed.offsets[id]).min().unwrap_or(0);
        let length = fed.iter().map(|&id| padded(placed.bytes[id])).fold(0, u64::saturating_add);
        binding.arena.address(start, length.saturating_mul(2))?;
        let too_much = Error::Damaged("a batch does not fit the memory of the host");
        let staged = usize::try_from(length).ok().and_then(|length| length.checked_mul(2)).ok_or(too_much)?;
        // Two losses that are copied lie behind the two halves.
        let staging = Pinned::new(context, staged + 8)?;
        let offset = |id: u32| placed.offsets[id as usize];
        let losses = match placed.program.state().filter(|_| binding.card.maps) {
            Some(state) => Losses::Ring(Ring::new(context, offset(state) + 4 * StateWord::Losses as u64)?),
            None => Losses::Copied(Copied::new(binding.arena, offset(placed.program.results[0]), (&staging, staged))?),
        };
        let split = Split::new(binding.arena, placed)?;
        let repeated = split.as_ref().map(|_| repeated(placed, steps)).transpose()?;
        let half = |index: u64| {
            let way = losses.way(index as usize)?;
            let program = Prepared::new(binding, placed, steps, index * length, Some(way))?;
            let part = repeated.as_deref().map(|steps| Prepared::new(binding, placed, steps, index * length, None));
            let done = context.new_event(None).map_err(failure("making an event"))?;
            Ok::<Half, Error>(Half { program, part: part.transpose()?, done })
        };
        let halves = [half(0)?, half(1)?];
        let copies = context.new_stream().map_err(failure("making a stream"))?;
        let event = || context.new_event(None).map_err(failure("making an event"));
        let (copied, given) = (event()?, event()?);
        let (current, last, fed) = (0, None, Vec::new());
        Ok(Feeding { number, halves, losses, staging, copies, copied, given, start, length, current, last, fed, split })
    }

    /// Passes of recurrent layers that go to cuDNN.
    pub(super) fn recurrences(&self) -> usize {
        self.halves[0].program.recurrences()
    }

    /// Returns the part of `length` bytes from `offset` on that lies in the first half of the double buffer, and the distance to its place
    /// in the second, or `None` if there is no such part.
    pub(super) fn in_first_half(&self, offset: u64, length: u64) -> Option<(Range<usize>, u64)> {
        let from = offset.max(self.start);
        let to = offset.saturating_add(length).min(self.start.saturating_add(self.length));
        let within = |place: u64| usize::try_from(place - offset).ok();
        if from <= to { Some((within(from)?..within(to)?, self.length)) } else { None }
    }

    /// Returns whether a range overlaps either half of the double buffer.
    pub(super) fn is_fed(&self, offset: u64, length: u64) -> bool {
        let end = self.start.saturating_add(self.length.saturating_mul(2));
        offset < end && self.start < offset.saturating_add(length)
    }

    /// Bytes of a half of the double buffer.
    pub(super) fn half_bytes(&self) -> u64 {
        self.length
    }

    /// The step that runs next, if nothing is fed before it.
    pub(super) fn reader(&self) -> Reader {
        Reader::Train(self.number, self.current)
    }

    /// Makes the next part the first of a batch, after one that could not run.
    pub(super) fn restart(&mut self) {
        if let Some(split) = &mut self.split {
            split.done = 0;
        }
    }

    /// Copies what `put` writes to the input or target whose first place is at `offset`, for the next step, unless `checks` refuses it:
    /// nothing of the batch is taken then.
    pub(super) fn feed(
        &mut self,
        arena: &Arena,
        place: (u64, usize),
        put: &Fill<'_>,
        checks: &mut IndexChecks,
    ) -> Result<(), Error> {
        let fed = self.take(arena, place, put, checks);
        match (fed, self.last) {
            (Err(error), Some(last)) => {
                // A step on the last batch finds it where that step found it.
                self.copied.synchronize().map_err(failure("waiting for an earlier copy"))?;
                self.fed.clear();
                self.current = last;
                Err(error)
            }
            (fed, _) => fed,
        }
    }

    fn take(
        &mut self,
        arena: &Arena,
        (offset, length): (u64, usize),
        put: &Fill<'_>,
        checks: &mut IndexChecks,
    ) -> Result<(), Error> {
        // Beyond the half lies what a step may be reading.
        let inside = self.in_first_half(offset, length as u64);
        if inside.is_none_or(|(part, _)| part.len() != length) {
            return Err(Error::Range { offset, length: length as u64, arena: arena.bytes });
        }
        // A half that a step has read is not filled again before the other.
        if self.last == Some(self.current) {
            self.current = 1 - self.current;
        }
        // The step before the last read this half, and what was staged for it has been copied by then.
        self.halves[self.current].done.synchronize().map_err(failure("waiting for an earlier step"))?;
        let place = (offset, length as u64);
        let overlaps = |&(other, bytes): &(u64, u64)| other < offset + length as u64 && offset < other + bytes;
        if self.fed.iter().any(overlaps) {
            self.copied.synchronize().map_err(failure("waiting for an earlier copy"))?;
        }
        if !self.fed.contains(&place) {
            self.fed.push(place);
        }
        let shift = self.current as u64 * self.length;
        let address = arena.address(offset + shift, length as u64)?;
        let at = (offset - self.start + shift) as usize;
        self.staging.fill(at, length, |to| fill(to, put))?;
        // SAFETY: the next write to these bytes waits for `copied`, or for a step that waited for it.
        let staged = unsafe { self.staging.slice(at, length) }?;
        checks.refuse_of(self.number, offset, staged)?;
        checks.forget(offset + shift, length as u64);
        // SAFETY: `address` checked the range; no step reads this half now; pinned memory outlives the stream's work.
        unsafe { result::memcpy_htod_async(address, staged, self.copies.cu_stream()) }
            .map_err(failure("copying to the card"))?;
        checks.written(offset + shift, staged);
        self.copied.record(&self.copies).map_err(failure("recording an event"))
    }

    /// Captures the step for each half.
    pub(super) fn capture(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        let mut programs =
            self.halves.iter_mut().flat_map(|half| [&mut half.program].into_iter().chain(&mut half.part));
        programs.try_for_each(|program| program.capture(stream))
    }

    /// The program of the next step, if nothing is fed before it.
    pub(super) fn program(&self) -> &Prepared {
        &self.halves[self.current].program
    }

    /// The programs of both halves, and behind them what of each runs for a part of a batch, where it is split.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Prepared> {
        self.halves.iter().map(|half| &half.program).chain(self.halves.iter().filter_map(|half| half.part.as_ref()))
    }

    /// Back to launching call by call.
    pub(super) fn discard_graphs(&mut self) {
        let programs = self.halves.iter_mut().flat_map(|half| [&mut half.program].into_iter().chain(&mut half.part));
        programs.for_each(Prepared::discard_graph);
    }

    /// Enqueues the part of a step of this number on what was fed last, one that is not the last part.
    ///
    /// # Errors
    /// A batch that is not split.
    pub(super) fn accumulate(&mut self, stream: &CudaStream, part: u64) -> Result<(), Error> {
        self.accumulate_by(stream, part, |program| program.run(stream))
    }

    /// As [`Feeding::accumulate`], with the program enqueued by `run`.
    pub(super) fn accumulate_by(
        &mut self,
        stream: &CudaStream,
        part: u64,
        run: impl FnOnce(&Prepared) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.lead(stream)?;
        let half = &self.halves[self.current];
        let unknown = || Error::Unsupported { device: "CUDA", what: "the network takes whole batches".into() };
        let (split, program) = self.split.as_mut().zip(half.part.as_ref()).ok_or_else(unknown)?;
        split.done = 0;
        split.begin(part, stream)?;
        run(program)?;
        half.done.record(stream).map_err(failure("recording an event"))?;
        split.done = part + 1;
        self.fed.clear();
        self.last = Some(self.current);
        Ok(())
    }

    /// Enqueues all parts of a step, each on what was fed last.
    pub(super) fn run_all(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.run_all_by(stream, |program| program.run(stream))
    }

    /// The same, with the program of whole batches, or that of the last part, enqueued by `run`.
    pub(super) fn run_all_by(
        &mut self,
        stream: &CudaStream,
        run: impl FnOnce(&Prepared) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let parts = self.split.as_ref().map_or(1, |split| split.parts);
        (0..parts - 1).try_for_each(|part| self.accumulate(stream, part))?;
        self.run_by(stream, run)
    }

    /// Enqueues a step on what was fed last, or the last part of one.
    pub(super) fn run(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.run_by(stream, |program| program.run(stream))
    }

    /// The same, with the program enqueued by `run`.
    pub(super) fn run_by(
        &mut self,
        stream: &CudaStream,
        run: impl FnOnce(&Prepared) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.lead(stream)?;
        let half = &self.halves[self.current];
        let last = self.last.map(|last| &self.halves[last].done);
        self.losses.make_room(self.current, (&half.done, last))?;
        if let Some(split) = &mut self.split {
            let part = std::mem::take(&mut split.done);
            split.begin(part, stream)?;
        }
        run(&half.program)?;
        half.done.record(stream).map_err(failure("recording an event"))?;
        self.losses.given();
        self.fed.clear();
        self.last = Some(self.current);
        Ok(())
    }

    /// The loss of the last step, as soon as it has come; `None` before the first step, or if it has to be read where it was computed.
    pub(super) fn loss(&self) -> Result<Option<f32>, Error> {
        match self.last {
            Some(last) => self.losses.wait(last, &self.halves[last].done),
            None => Ok(None),
        }
    }

    /// Where the card counts the losses that it sends, and what that has to be for the next step.
    pub(super) fn count(&self) -> Option<(u64, [u8; 4])> {
        self.losses.count()
    }

    /// What is to be written to the arena at `offset`, without a change to that count.
    pub(super) fn keep_count<'a>(&self, offset: u64, bytes: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        self.losses.keep_count(offset, bytes)
    }

    /// Lets all that `stream` is given from now on come after what has been fed.
    pub(super) fn lead(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.copied).map_err(failure("waiting for the input"))
    }

    /// Lets copies from now on come after all that `stream` has been given: what runs there may lie where they go.
    pub(super) fn follow(&self, stream: &CudaStream) -> Result<(), Error> {
        self.given.record(stream).map_err(failure("recording an event"))?;
        self.copies.wait(&self.given).map_err(failure("waiting for another step"))
    }

    /// Waits for the copies.
    pub(super) fn wait(&self) -> Result<(), Error> {
        self.copies.synchronize().map_err(failure("copying to the card"))
    }
}

/// Bytes that a thread writes at a time, a multiple of 64, and threads at most: more of them wait for memory.
const PIECE: usize = 1 << 20;
const THREADS: usize = 8;

/// Lets `put` write all these bytes, many of them in several threads: a batch of images in f32 is a hundred megabytes to convert, which a
/// step that is waited for has no other time for than what is left of it behind the loss.
fn fill(to: &mut [u8], put: &Fill<'_>) {
    // To count the cores reads files, for which memory is allocated: not in each step, and in none of small batches.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = || *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
    let wanted = (to.len() / PIECE).min(THREADS);
    let threads = if wanted > 1 { wanted.min(cores()) } else { 1 };
    if threads == 1 {
        return put(0, to);
    }
    let pieces = Mutex::new(to.chunks_mut(PIECE).enumerate());
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((index, piece)) = next() {
            put(index * PIECE, piece);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where there is no thread to be had, the others do its share.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_byte_is_written_once() {
        for length in [0, 1, PIECE - 1, 2 * PIECE, 5 * PIECE + 12] {
            let (mut bytes, written) = (vec![0; length], AtomicUsize::new(0));
            fill(&mut bytes, &|first, to| {
                written.fetch_add(to.len(), Ordering::Relaxed);
                for (at, byte) in to.iter_mut().enumerate() {
                    *byte = ((first + at) % 251) as u8 + 1;
                }
            });
            assert_eq!(written.into_inner(), length);
            assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8 + 1), "{length} bytes");
        }
    }
}
