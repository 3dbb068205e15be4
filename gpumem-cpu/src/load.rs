//! Loading: it turns a placed program into a list of kernels. All errors of a program are found here, so running it cannot fail.

use crate::arena::{ALIGNMENT, Arena};
use crate::kernels::{self, Frame, Kernel};
use crate::operands::{CopyRoom, Moves, Operands, Source, count};
use crate::ranks::Group;
use crate::staging::Staging;
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::number::Format;
use gpumem_core::operation::Operations;
use gpumem_core::program::indices::Indices;
use gpumem_core::program::{Operation, Part, Program, Slot, StateWord, TensorId};
use gpumem_core::run::device::Inspected;
use gpumem_core::train::optim::{Extent, Optimizer, extent_of, state_count};
use std::ops::Range;
use std::sync::Arc;

/// A bound operation, and the bytes of the tensors whose lifetime ends with it.
struct BoundOperation {
    kernel: Kernel,
    moves: Moves,
    dead: Vec<Range<usize>>,
    /// The tensors of numbers that the operation writes, and their bytes.
    written: Vec<(TensorId, Range<usize>)>,
}

/// Indices from the user, and their allowed values.
struct IndexCheck {
    indices: Source<u32>,
    rule: Indices,
}

impl IndexCheck {
    fn run(&self) -> Result<(), Error> {
        self.rule.check(self.indices.get().iter().copied())
    }
}

/// A program that is ready to run.
pub(crate) struct Loaded {
    steps: Vec<BoundOperation>,
    checks: Vec<IndexCheck>,
    transients: Vec<Range<usize>>,
    /// The number of steps that run for each part of a batch, if the batch is split.
    repeated: usize,
    /// The tensors that are set to 0 before the first part.
    accumulators: Vec<Range<usize>>,
    /// The state word with the number of the part. `None` if the batch is not split.
    part: Option<Range<usize>>,
    /// The number of this rank's first part among those of all ranks.
    first_part: u32,
    /// True if it has an exchange between ranks, so that all of them run it together.
    exchanges: bool,
    staging: Staging,
    /// The bytes of the parameters of which kernels keep a copy.
    copied: Vec<Range<usize>>,
    /// The number of optimizer states that every update has.
    moments: u64,
    /// The program's set of optimizer states.
    states: u64,
}

/// Returns the bytes of each tensor. It checks that they are inside the arena and of the size that the kernels expect.
fn ranges(placed: &Placed, arena: &Arena, batch: u64) -> Result<Vec<Range<usize>>, Error> {
    let Placed { program, offsets, bytes, .. } = placed;
    if offsets.len() != program.tensors.len() || bytes.len() != offsets.len() {
        return Err(Error::Damaged("the plan has another number of tensors than the program"));
    }
    let mut ranges = Vec::with_capacity(offsets.len());
    for ((tensor, &offset), &planned) in program.tensors.iter().zip(offsets).zip(bytes) {
        let each = tensor.role.bytes(Precision::F32);
        let is_workspace = tensor.role.is_workspace();
        let bytes = if is_workspace {
            // A cap may shorten a workspace. No kernel of this backend reads a shortened one.
            Some(planned)
        } else {
            tensor.stored(batch).and_then(|elements| elements.checked_mul(each))
        };
        let bytes = bytes.ok_or(Error::Damaged("a tensor's size exceeds 64 bits"))?;
        if bytes == 0 && !is_workspace && each > 0 {
            return Err(Error::Damaged("a tensor has no elements"));
        }
        if offset % ALIGNMENT as u64 != 0 {
            return Err(Error::Damaged("the plan places a tensor at an offset that is no multiple of 256"));
        }
        ranges.push(arena.range(offset, bytes)?);
    }
    Ok(ranges)
}

/// Returns the state word with the number of the part of a batch.
fn part(program: &Program, ranges: &[Range<usize>]) -> Result<Option<Range<usize>>, Error> {
    let state = program.state().map(|id| &ranges[id as usize]);
    let word = state.map(|range| range.start + 4 * StateWord::PART..range.start + 4 * StateWord::PART + 4);
    match (word, state) {
        (Some(word), Some(state)) if word.end <= state.end => Ok(Some(word)),
        _ => Err(Error::Damaged("a step whose batch is split has no state")),
    }
}

/// Returns checks for the indices from the user that `operation` uses for look-ups.
fn index_checks(program: &Program, operation: &Operation, operands: &Operands<'_>) -> Result<Vec<IndexCheck>, Error> {
    let check = |rule: Indices| {
        let indices = operands.words(rule.slot, count(&[operands.batch(), rule.each]))?;
        Ok(IndexCheck { indices, rule })
    };
    operation.indices(program).into_iter().map(check).collect()
}

impl Loaded {
    /// Checks a program against its plan and binds its operations. With `copies`, it keeps packed copies of parameters.
    pub(crate) fn new(
        placed: &Placed,
        arena: &Arc<Arena>,
        batch: u64,
        (operations, peers, copies): (&'static Operations, Option<&Group>, bool),
    ) -> Result<Loaded, Error> {
        let program = &placed.program;
        let ranges = ranges(placed, arena, batch)?;
        let accumulators: Vec<TensorId> = program.accumulators().collect();
        // Sums are live from the first part on. So is the copy of running statistics from before the step.
        let lasting: Vec<TensorId> = program.outlives_parts().collect();
        let transients = program.transients().filter(|tensor| !lasting.contains(tensor));
        let transients: Vec<_> = transients.map(|tensor| ranges[tensor as usize].clone()).collect();
        let is_split = program.training && program.descent.parts() > 1;
        let part = if is_split { part(program, &ranges)? } else { None };
        let staging = Staging::new(program, batch)?;
        let mut loaded = Loaded {
            steps: Vec::new(),
            checks: Vec::new(),
            transients,
            repeated: program.repeated(),
            accumulators: accumulators.into_iter().map(|tensor| ranges[tensor as usize].clone()).collect(),
            part,
            first_part: peers.map_or(0, |(peers, _)| peers.rank()) as u32 * program.descent.micro_batches as u32,
            exchanges: program.operations.iter().any(|operation| operation.action.is_exchange()),
            staging,
            copied: Vec::new(),
            moments: Optimizer::MOST_STATES as u64,
            states: program.moments,
        };
        let copies = copies.then(CopyRoom::new);
        for (index, operation) in program.operations.iter().enumerate() {
            let operands = Operands::new(program, operation, &ranges, arena, (&loaded.staging, operations), batch)?;
            let mut operands = operands.with_peers(peers).with_copies(copies.as_ref());
            loaded.checks.extend(index_checks(program, operation, &operands)?);
            if operation.action.is_update() {
                let parameter = operands.shape(Slot::Parameter)?;
                // A vector has no state per column, and a hidden layer's matrix has no state of `Extent::Others`.
                let is_there = |&moment: &u8| {
                    let extent = extent_of(program.moments, moment.into());
                    let may_lack = extent == Extent::Others || extent.shape(parameter).is_none();
                    operands.writes(Slot::Moment(moment)) || may_lack
                };
                let moments = (0..Optimizer::MOST_STATES as u8).take_while(is_there).count();
                loaded.moments = loaded.moments.min(moments as u64);
            }
            let kernel = kernels::bind(&operation.action, &mut operands)?;
            let moves = operands.finish()?;
            // A tensor that lives until the last operation is read after the program.
            let ends = index + 1 < program.operations.len();
            let dead = program.transients().filter(|&tensor| {
                ends && program.tensor(tensor).last as usize == index && !program.results.contains(&tensor)
            });
            let dead = dead.map(|tensor| ranges[tensor as usize].clone()).collect();
            let is_number = |&id: &TensorId| {
                let tensor = program.tensor(id);
                tensor.role.format(Precision::F32) == Format::F32
                    && !matches!(tensor.part, Part::Workspace | Part::Staging)
            };
            let written = operation.writes.iter().map(|operand| operand.tensor).filter(is_number);
            let written = written.map(|id| (id, ranges[id as usize].clone())).collect();
            loaded.steps.push(BoundOperation { kernel, moves, dead, written });
        }
        // If several operations look up the same indices, the message names the smallest limit.
        loaded.checks.sort_by_key(|check| check.rule.limit);
        loaded.copied = copies.map(CopyRoom::into_ranges).unwrap_or_default();
        Ok(loaded)
    }

    /// True if every update of the program has the states that an optimizer needs.
    pub(crate) fn keeps(&self, optimizer: &Optimizer) -> bool {
        let (needed, kept) = (optimizer.moments(), self.states);
        let is_alike = |index| extent_of(needed, index) == extent_of(kept, index);
        state_count(needed) <= self.moments && (0..state_count(needed)).all(is_alike)
    }

    /// Checks the indices among the inputs.
    ///
    /// # Errors
    /// Returns an error for the first index that is too large.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.checks.iter().try_for_each(IndexCheck::run)
    }

    /// True if kernels keep copies of parameters among these bytes.
    pub(crate) fn copies(&self, bytes: &Range<usize>) -> bool {
        self.copied.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
    }

    /// True if all ranks run it together.
    pub(crate) fn exchanges(&self) -> bool {
        self.exchanges
    }

    /// True if a batch is split, into micro-batches or over ranks.
    pub(crate) fn is_split(&self) -> bool {
        self.part.is_some()
    }

    /// True if gradients are added up over micro-batches.
    pub(crate) fn accumulates(&self) -> bool {
        !self.accumulators.is_empty()
    }

    /// Sets the number of the part in the state, among those of all ranks. Before the first part, it also sets all accumulated tensors to 0.
    pub(crate) fn begin(&mut self, arena: &Arena, part: u32) -> Result<(), Error> {
        // SAFETY: kernels return before this runs, and the slices they make end with them. `&mut self` keeps others from running kernels now.
        unsafe {
            if part == 0 {
                self.accumulators.iter().for_each(|range| arena.fill(range, 0));
            }
            let part = self.first_part + part;
            self.part.iter().try_for_each(|word| arena.write(word.start as u64, &part.to_ne_bytes()))
        }
    }

    /// Runs all operations, or with `repeated` only those that run for each part of a batch. With `poison`, memory without a live tensor is filled
    /// with NaN. If `inspected` is given, it records the first numbers that are not finite.
    pub(crate) fn run(
        &mut self,
        arena: &Arena,
        mut frame: Frame<'_>,
        (repeated, poison): (bool, bool),
        mut inspected: Option<&mut Inspected>,
    ) {
        let count = if repeated { self.repeated } else { self.steps.len() };
        let fill = |ranges: &[Range<usize>]| {
            for range in ranges.iter().filter(|_| poison) {
                // SAFETY: kernels return before this runs, and the slices they make end with them. `&mut self` keeps others from running
                // kernels now.
                unsafe { arena.fill(range, 0xFF) }
            }
        };
        fill(&self.transients);
        for (index, step) in self.steps[..count].iter_mut().enumerate() {
            for tensor in &step.moves.before {
                // SAFETY: as in `fill`.
                unsafe { tensor.load(arena, self.staging.arena()) }
            }
            (step.kernel)(&mut frame);
            for tensor in &step.moves.after {
                // SAFETY: as in `fill`.
                unsafe { tensor.store(arena, self.staging.arena()) }
            }
            if let Some(inspected) = &mut inspected {
                inspect(arena, index, &step.written, inspected);
            }
            fill(&step.dead);
        }
    }
}

/// Records the first NaN and the first infinity that operation `index` has written, unless an earlier operation wrote one.
fn inspect(arena: &Arena, index: usize, written: &[(TensorId, Range<usize>)], inspected: &mut Inspected) {
    for (tensor, range) in written {
        let numbers = arena.pointer::<f32>(range.start, range.len() / 4);
        // SAFETY: `pointer` checked the range, all bytes of the arena have been given a value, and no kernel runs.
        let numbers = unsafe { std::slice::from_raw_parts(numbers, range.len() / 4) };
        let place = Some((index, *tensor));
        if inspected.nan.is_none() && numbers.iter().any(|number| number.is_nan()) {
            inspected.nan = place;
        }
        if inspected.infinite.is_none() && numbers.iter().any(|number| number.is_infinite()) {
            inspected.infinite = place;
        }
    }
}
