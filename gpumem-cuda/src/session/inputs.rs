//! Training steps and their input. Inputs and targets are copied from pinned host memory into the half of the double buffer that no step reads, on
//! a separate stream. The loss returns to the host during the backward pass.

use super::arena::{Arena, Pinned};
use super::checks::{IndexChecks, Reader};
use super::graph::{Binding, Prepared};
use super::losses::{Copied, Losses, Ring};
use crate::error::failure;
use crate::program_calls::OperationCalls;
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

/// The training step, once for each half of the double buffer. The calling thread must have bound the context.
#[derive(Debug)]
pub(super) struct Feeding {
    /// Its index among the network's training steps.
    number: usize,
    // Graphs are dropped before the host memory that they write to.
    halves: [Half; 2],
    losses: Losses,
    staging: Pinned,
    copies: Arc<CudaStream>,
    /// Recorded after the last copy.
    copied: CudaEvent,
    /// Recorded after the previous step, if that is another one of several training steps.
    given: CudaEvent,
    /// Byte offset of the first half in the arena.
    start: u64,
    /// Bytes of a half.
    length: u64,
    /// The half that the next step reads.
    current: usize,
    /// The half that the last step read.
    last: Option<usize>,
    /// Ranges that were fed after the last step: offset and bytes of each.
    fed: Vec<(u64, u64)>,
    /// State of a batch that is split into micro-batches or over ranks. `None` if it is not.
    split: Option<Split>,
}

/// A batch that is split: into micro-batches, which run one after the other, or over ranks.
#[derive(Debug)]
struct Split {
    /// Micro-batches of a batch, on this rank.
    parts: u64,
    /// The number of the first one among those of all ranks.
    first: u32,
    /// Micro-batches of the current step that have been enqueued.
    done: u64,
    /// Addresses and bytes of the sums that are set to 0 before the first micro-batch.
    sums: Vec<(CUdeviceptr, usize)>,
    /// Address of the word of the state with the number of the micro-batch.
    number: CUdeviceptr,
}

impl Split {
    fn new(arena: &Arena, placed: &Placed, rank: u64) -> Result<Option<Split>, Error> {
        const TOO_MANY: Error = Error::Damaged("a batch has 2^32 parts or more");
        let descent = placed.program.descent;
        if descent.parts() < 2 {
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
            parts: descent.micro_batches,
            first: u32::try_from(rank.saturating_mul(descent.micro_batches)).map_err(|_| TOO_MANY)?,
            done: 0,
            sums: sums.collect::<Result<_, Error>>()?,
            number,
        }))
    }

    /// Prepares the state for a micro-batch, after the work in `stream`. Before the first, all sums are set to 0.
    fn begin(&self, part: u64, stream: &CudaStream) -> Result<(), Error> {
        let sums = if part == 0 { &self.sums[..] } else { &[] };
        let stream = stream.cu_stream();
        // SAFETY: the ranges were checked to be inside the arena, which outlives the stream's work. Work enqueued earlier in the stream has ended
        // before the memory is set.
        let zeros = sums.iter().try_for_each(|&(at, bytes)| unsafe { result::memset_d8_async(at, 0, bytes, stream) });
        zeros.map_err(failure("setting gradients to 0"))?;
        // SAFETY: as above, for one word.
        unsafe { sys::cuMemsetD32Async(self.number, self.first.wrapping_add(part as u32), 1, stream) }
            .result()
            .map_err(failure("counting the parts of a batch"))
    }
}

/// Merges ranges that are adjacent in the arena, not counting the padding at the end of each tensor: offset and bytes of each.
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
    /// The program that runs for each micro-batch but the last; `None` if there is one micro-batch.
    part: Option<Prepared>,
    /// Recorded after the last step that read this half.
    done: CudaEvent,
}

/// Returns the groups of calls that run for each micro-batch.
///
/// # Errors
/// [`Error::Damaged`] if one of them also has an operation that runs once a step.
fn repeated(placed: &Placed, steps: &[OperationCalls]) -> Result<Vec<OperationCalls>, Error> {
    let count = placed.program.repeated();
    let (repeated, once): (Vec<&OperationCalls>, Vec<&OperationCalls>) =
        steps.iter().partition(|step| step.operations()[0] < count);
    let is_mixed = repeated.iter().any(|step| step.operations().iter().any(|&at| at >= count));
    let follows = once.iter().map(|step| step.first).min() >= repeated.iter().map(|step| step.first).max();
    if is_mixed || !follows {
        return Err(Error::Damaged("an update runs together with what comes before the last part of a batch"));
    }
    Ok(repeated.into_iter().cloned().collect())
}

impl Feeding {
    /// Makes the training step with index `number`.
    pub(super) fn new(
        binding: Binding<'_>,
        number: usize,
        placed: &Placed,
        steps: &[OperationCalls],
    ) -> Result<Feeding, Error> {
        let context = &binding.card.context;
        let fed = |id: &usize| matches!(placed.program.tensors[*id].class, Class::Input | Class::Target);
        let fed: Vec<usize> = (0..placed.program.tensors.len()).filter(fed).collect();
        let start = fed.iter().map(|&id| placed.offsets[id]).min().unwrap_or(0);
        let length = fed.iter().map(|&id| padded(placed.bytes[id])).fold(0, u64::saturating_add);
        binding.arena.address(start, length.saturating_mul(2))?;
        let too_much = Error::Damaged("a batch does not fit the memory of the host");
        let staged = usize::try_from(length).ok().and_then(|length| length.checked_mul(2)).ok_or(too_much)?;
        // Space for two losses, in case they are copied, is after the two halves.
        let staging = Pinned::new(context, staged + 8)?;
        let offset = |id: u32| placed.offsets[id as usize];
        // The kernel that ends the loss knows only the share of this rank.
        let sends = binding.card.maps && placed.program.descent.ranks.is_alone();
        let losses = match placed.program.state().filter(|_| sends) {
            Some(state) => Losses::Ring(Ring::new(context, offset(state) + 4 * StateWord::Losses as u64)?),
            None => Losses::Copied(Copied::new(binding.arena, offset(placed.program.results[0]), (&staging, staged))?),
        };
        let split = Split::new(binding.arena, placed, binding.group.map_or(0, |group| group.rank()))?;
        let accumulates = placed.program.descent.accumulates();
        let repeated = accumulates.then(|| repeated(placed, steps)).transpose()?;
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

    /// Returns the number of passes of recurrent layers that cuDNN computes.
    pub(super) fn recurrences(&self) -> usize {
        self.halves[0].program.recurrences()
    }

    /// Returns the part of the bytes in the double buffer's first half, and the distance to its place in the second half. `None` if there is no
    /// such part. The bytes are `length` bytes from `offset` on.
    pub(super) fn in_first_half(&self, offset: u64, length: u64) -> Option<(Range<usize>, u64)> {
        let from = offset.max(self.start);
        let to = offset.saturating_add(length).min(self.start.saturating_add(self.length));
        let within = |place: u64| usize::try_from(place - offset).ok();
        if from <= to { Some((within(from)?..within(to)?, self.length)) } else { None }
    }

    /// True if a range overlaps either half of the double buffer.
    pub(super) fn is_fed(&self, offset: u64, length: u64) -> bool {
        let end = self.start.saturating_add(self.length.saturating_mul(2));
        offset < end && self.start < offset.saturating_add(length)
    }

    /// Returns the bytes of a half of the double buffer.
    pub(super) fn half_bytes(&self) -> u64 {
        self.length
    }

    /// Returns the step that runs next, if nothing is fed before it.
    pub(super) fn reader(&self) -> Reader {
        Reader::Train(self.number, self.current)
    }

    /// Makes the next micro-batch the first of a batch, after a step that could not run.
    pub(super) fn restart(&mut self) {
        if let Some(split) = &mut self.split {
            split.done = 0;
        }
    }

    /// Copies the bytes that `put` writes to an input or target, for the next step. The offset in `place` is that in the first half. If `checks`
    /// refuses the bytes, the whole new batch is discarded.
    pub(super) fn feed(
        &mut self,
        arena: &Arena,
        place: (u64, usize),
        put: &Fill<'_>,
        checks: &mut IndexChecks,
    ) -> Result<(), Error> {
        let fed = self.take(arena, place, put, checks);
        if fed.is_err() {
            self.discard()?;
        }
        fed
    }

    /// Discards the batch that was fed after the last step. The next step uses that of the last step again, in the half where it was read.
    pub(super) fn discard(&mut self) -> Result<(), Error> {
        if let Some(last) = self.last {
            self.copied.synchronize().map_err(failure("waiting for an earlier copy"))?;
            self.fed.clear();
            self.current = last;
        }
        Ok(())
    }

    /// Returns the half that the next step reads.
    pub(super) fn half(&self) -> usize {
        self.current
    }

    /// Runs the exchanges of all programs alone: see [`Prepared::connect`].
    pub(super) fn connect(&self, stream: &CudaStream) -> Result<(), Error> {
        self.programs().try_for_each(|program| program.connect(stream))
    }

    fn take(
        &mut self,
        arena: &Arena,
        (offset, length): (u64, usize),
        put: &Fill<'_>,
        checks: &mut IndexChecks,
    ) -> Result<(), Error> {
        // Beyond the half is memory that a step may be reading.
        let inside = self.in_first_half(offset, length as u64);
        if inside.is_none_or(|(part, _)| part.len() != length) {
            return Err(Error::Range { offset, length: length as u64, arena: arena.bytes });
        }
        // A half that a step has read is filled again only after the other one.
        if self.last == Some(self.current) {
            self.current = 1 - self.current;
        }
        // The step before the last read this half, and its staged bytes had been copied by then.
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

    /// Returns the program of the next step, if nothing is fed before it.
    pub(super) fn program(&self) -> &Prepared {
        &self.halves[self.current].program
    }

    /// Returns the programs of both halves, and after them the programs of both for a micro-batch, if the batch is split.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Prepared> {
        self.halves.iter().map(|half| &half.program).chain(self.halves.iter().filter_map(|half| half.part.as_ref()))
    }

    /// Discards all graphs, so that calls are launched one by one.
    pub(super) fn discard_graphs(&mut self) {
        let programs = self.halves.iter_mut().flat_map(|half| [&mut half.program].into_iter().chain(&mut half.part));
        programs.for_each(Prepared::discard_graph);
    }

    /// Enqueues the micro-batch with this index, which is not the last, on the input that was fed last.
    ///
    /// # Errors
    /// An error if the batch is not split.
    pub(super) fn accumulate(&mut self, stream: &CudaStream, part: u64) -> Result<(), Error> {
        self.accumulate_by(stream, part, |program| program.run(stream))
    }

    /// Enqueues a micro-batch as [`Feeding::accumulate`] does, with `run` to enqueue the program.
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

    /// Enqueues all micro-batches of a step, each on the input that was fed last.
    pub(super) fn run_all(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.run_all_by(stream, |program| program.run(stream))
    }

    /// Enqueues all micro-batches of a step, with `run` to enqueue the program of a whole batch, or of the last micro-batch.
    pub(super) fn run_all_by(
        &mut self,
        stream: &CudaStream,
        run: impl FnOnce(&Prepared) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let parts = self.split.as_ref().map_or(1, |split| split.parts);
        (0..parts - 1).try_for_each(|part| self.accumulate(stream, part))?;
        self.run_by(stream, run)
    }

    /// Enqueues a step, or the last micro-batch of one, on the input that was fed last.
    pub(super) fn run(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.run_by(stream, |program| program.run(stream))
    }

    /// Enqueues a step as [`Feeding::run`] does, with `run` to enqueue the program.
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

    /// Returns the loss of the last step as soon as it has arrived; `None` before the first step, or if it must be read from the arena.
    pub(super) fn loss(&self) -> Result<Option<f32>, Error> {
        match self.last {
            Some(last) => self.losses.wait(last, &self.halves[last].done),
            None => Ok(None),
        }
    }

    /// Returns the place of the card's counter of the losses that it sends, and the value it must have for the next step; `None` if losses are
    /// copied.
    pub(super) fn count(&self) -> Option<(u64, [u8; 4])> {
        self.losses.count()
    }

    /// Returns the bytes to write to the arena at `offset`, with that count unchanged.
    pub(super) fn keep_count<'a>(&self, offset: u64, bytes: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        self.losses.keep_count(offset, bytes)
    }

    /// Makes later work in `stream` wait for the copies of inputs so far.
    pub(super) fn lead(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.copied).map_err(failure("waiting for the input"))
    }

    /// Makes later copies wait for all work in `stream` so far, since that may use their destinations.
    pub(super) fn follow(&self, stream: &CudaStream) -> Result<(), Error> {
        self.given.record(stream).map_err(failure("recording an event"))?;
        self.copies.wait(&self.given).map_err(failure("waiting for another step"))
    }

    /// Waits for the copies to end.
    pub(super) fn wait(&self) -> Result<(), Error> {
        self.copies.synchronize().map_err(failure("copying to the card"))
    }
}

/// Bytes that a thread writes at a time, a multiple of 64, and the most threads: more of them would wait for memory.
const PIECE: usize = 1 << 20;
const THREADS: usize = 8;

/// Lets `put` write all bytes, in several threads if there are many.
///
/// A batch of images in f32 may be a hundred megabytes to convert. If each step is waited for, only the time of the step after the loss is left for
/// that.
fn fill(to: &mut [u8], put: &Fill<'_>) {
    // Counting the cores reads files, which allocates memory. So it is done once, and not at all for small batches.
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
            // If no thread can be started, the others do its share.
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
