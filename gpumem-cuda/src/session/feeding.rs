//! Training steps and what they are fed: inputs and targets go from pinned memory of the host into the half of the double
//! buffer that no step reads, on a stream of their own; the loss comes back into pinned memory behind the operation that
//! computes it.

use super::arena::{Arena, Pinned};
use super::prepared::{Binding, LossCopy, Prepared};
use crate::error::failure;
use crate::steps::Step;
use cudarc::driver::{CudaEvent, CudaStream, result};
use gpumem_core::error::Error;
use gpumem_core::memory::budget::padded;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Class;
use std::sync::Arc;

/// What stands where the loss will be: a NaN that no arithmetic gives.
const UNKNOWN: u32 = u32::MAX;

/// The training step, once for each half of the double buffer. It works for a thread whose context is bound.
#[derive(Debug)]
pub(super) struct Feeding {
    // Graphs are dropped before the pinned memory that they write to.
    halves: [Half; 2],
    staging: Pinned,
    copies: Arc<CudaStream>,
    /// Behind the last copy.
    copied: CudaEvent,
    /// Byte offset of the first half in the arena.
    start: u64,
    /// Bytes of a half.
    length: u64,
    /// The half that the next step reads.
    current: usize,
    /// The half that the last step read.
    last: Option<usize>,
    /// What has been fed since, by its offset.
    fed: Vec<u64>,
}

#[derive(Debug)]
struct Half {
    program: Prepared,
    /// Behind the last step that read this half.
    done: CudaEvent,
    /// Where its loss comes.
    loss: *mut u32,
}

// SAFETY: `loss` points into the pinned memory beside it, which is this value's own.
unsafe impl Send for Half {}

impl Feeding {
    pub(super) fn new(binding: Binding<'_>, placed: &Placed, steps: &[Step]) -> Result<Feeding, Error> {
        let context = &binding.card.context;
        let fed = |id: &usize| matches!(placed.program.tensors[*id].class, Class::Input | Class::Target);
        let fed: Vec<usize> = (0..placed.program.tensors.len()).filter(fed).collect();
        let start = fed.iter().map(|&id| placed.offsets[id]).min().unwrap_or(0);
        let length = fed.iter().map(|&id| padded(placed.bytes[id])).fold(0, u64::saturating_add);
        binding.arena.address(start, length.saturating_mul(2))?;
        let too_much = Error::Damaged("a batch does not fit the memory of the host");
        let staged = usize::try_from(length).ok().and_then(|length| length.checked_mul(2)).ok_or(too_much)?;
        // The two losses lie behind the two halves.
        let staging = Pinned::new(context, staged + 8)?;
        let from = binding.arena.address(placed.offsets[placed.program.results[0] as usize], 4)?;
        let losses = context.new_stream().map_err(failure("making a stream"))?;
        let half = |index: u64| {
            let to = staging.word(staged + 4 * index as usize)?;
            let program =
                Prepared::new(binding, placed, steps, index * length, Some(LossCopy::new(from, to, &losses)?))?;
            let done = context.new_event(None).map_err(failure("making an event"))?;
            Ok::<Half, Error>(Half { program, done, loss: to })
        };
        let halves = [half(0)?, half(1)?];
        let copies = context.new_stream().map_err(failure("making a stream"))?;
        let copied = context.new_event(None).map_err(failure("making an event"))?;
        Ok(Feeding { halves, staging, copies, copied, start, length, current: 0, last: None, fed: Vec::new() })
    }

    /// The distance to the other place of the input or target at `offset`, if it is one.
    pub(super) fn other_half(&self, offset: u64) -> Option<u64> {
        (self.start..self.start.saturating_add(self.length)).contains(&offset).then_some(self.length)
    }

    /// Copies what `put` writes to the input or target whose first place is at `offset`, for the next step, unless `check` finds
    /// fault with it.
    pub(super) fn feed(
        &mut self,
        arena: &Arena,
        (offset, length): (u64, usize),
        put: &dyn Fn(&mut [u8]),
        check: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.other_half(offset).is_none() {
            return Err(Error::Range { offset, length: length as u64, arena: arena.bytes });
        }
        // A half that a step has read is not filled again before the other.
        if self.last == Some(self.current) {
            self.current = 1 - self.current;
        }
        // The step before the last read this half, and what was staged for it has been copied by then.
        self.halves[self.current].done.synchronize().map_err(failure("waiting for an earlier step"))?;
        if self.fed.contains(&offset) {
            self.copied.synchronize().map_err(failure("waiting for an earlier copy"))?;
        } else {
            self.fed.push(offset);
        }
        let shift = self.current as u64 * self.length;
        let address = arena.address(offset + shift, length as u64)?;
        let at = (offset - self.start + shift) as usize;
        self.staging.fill(at, length, put)?;
        // SAFETY: the next write to these bytes waits for `copied`, or for a step that waited for it.
        let staged = unsafe { self.staging.slice(at, length) }?;
        check(staged)?;
        // SAFETY: `address` checked the range; no step reads this half now; pinned memory outlives the stream's work.
        unsafe { result::memcpy_htod_async(address, staged, self.copies.cu_stream()) }
            .map_err(failure("copying to the card"))?;
        self.copied.record(&self.copies).map_err(failure("recording an event"))
    }

    /// Captures the step for each half.
    pub(super) fn capture(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        self.halves.iter_mut().try_for_each(|half| half.program.capture(stream))
    }

    /// Back to launching call by call.
    pub(super) fn discard_graphs(&mut self) {
        self.halves.iter_mut().for_each(|half| half.program.discard_graph());
    }

    /// Enqueues a step on what was fed last.
    pub(super) fn run(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.lead(stream)?;
        let half = &mut self.halves[self.current];
        // Its loss may be on the way still.
        half.done.synchronize().map_err(failure("waiting for an earlier step"))?;
        // SAFETY: the word is in pinned memory of this value, and no step that writes it is running.
        unsafe { half.loss.write_volatile(UNKNOWN) };
        half.program.run(stream)?;
        half.done.record(stream).map_err(failure("recording an event"))?;
        self.fed.clear();
        self.last = Some(self.current);
        Ok(())
    }

    /// The loss of the last step, as soon as it has arrived; `None` before the first step.
    pub(super) fn loss(&self) -> Option<Result<f32, Error>> {
        let half = &self.halves[self.last?];
        loop {
            // SAFETY: the word is in pinned memory of this value; the card writes it whole.
            let bits = unsafe { half.loss.read_volatile() };
            if bits != UNKNOWN {
                return Some(Ok(f32::from_bits(bits)));
            }
            match half.done.try_is_complete().map_err(failure("running a training step")) {
                Err(error) => return Some(Err(error)),
                Ok(false) => std::thread::yield_now(),
                // It may have come between the two questions.
                // SAFETY: as above.
                Ok(true) => return Some(Ok(f32::from_bits(unsafe { half.loss.read_volatile() }))),
            }
        }
    }

    /// Lets all that `stream` is given from now on come after what has been fed.
    pub(super) fn lead(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.copied).map_err(failure("waiting for the input"))
    }

    /// Waits for the copies.
    pub(super) fn wait(&self) -> Result<(), Error> {
        self.copies.synchronize().map_err(failure("copying to the card"))
    }
}
