//! An operation's tensors: found by slot, checked once, and returned as slices that cannot overlap.
//!
//! This rule makes the kernels safe code: within one operation, a written tensor is returned exactly once, as a [`Target`]. All other tensors
//! are a [`Source`], and distinct tensors occupy disjoint bytes. If an operation works in place, one [`Target`] represents both input and
//! output. [`Pair`] lets one kernel serve both cases.

mod copies;
mod shards;

pub(crate) use copies::CopyRoom;
pub(crate) use shards::Rows;

use crate::DEVICE;
use crate::arena::Arena;
use crate::element::Element;
use crate::parallel::{self, PIECE};
use crate::ranks::Group;
use crate::simd::wide;
use crate::staging::{Move, Staging};
use gpumem_core::error::Error;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Operand, Operation, Piece, Program, Slot, Tensor, TensorId};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use gpumem_core::train::ranks::Sharding;
use gpumem_core::{Precision, Role};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A tensor that an operation only reads.
pub(crate) struct Source<T = f32> {
    arena: Arc<Arena>,
    offset: usize,
    length: usize,
    elements: PhantomData<T>,
}

impl<T: Element> Source<T> {
    /// Returns the elements.
    pub(crate) fn get(&self) -> &[T] {
        let start = self.arena.pointer::<T>(self.offset, self.length);
        // SAFETY: `pointer` checked bounds and alignment, the memory is initialised, and `Operands` returns no `Target` of the same operation
        // over these bytes. Operations run one at a time.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }
}

/// A tensor that an operation writes, and possibly reads.
pub(crate) struct Target<T = f32> {
    arena: Arc<Arena>,
    offset: usize,
    length: usize,
    elements: PhantomData<T>,
}

impl<T: Element> Target<T> {
    /// Returns the elements.
    pub(crate) fn get(&mut self) -> &mut [T] {
        let start = self.arena.pointer::<T>(self.offset, self.length);
        // SAFETY: `pointer` checked bounds and alignment, the memory is initialised, and `Operands` returns each written tensor of an
        // operation once, disjoint from all others. Operations run one at a time.
        unsafe { std::slice::from_raw_parts_mut(start, self.length) }
    }
}

/// A gradient that is overwritten or added to.
pub(crate) struct Gradient {
    /// The memory of the gradient.
    pub(crate) target: Target,
    /// True if the kernel adds to the gradient that is already there.
    pub(crate) accumulate: bool,
}

impl Gradient {
    /// Writes one element, or adds to it.
    pub(crate) fn put(&mut self, index: usize, value: f32) {
        let to = &mut self.target.get()[index];
        *to = if self.accumulate { *to + value } else { value };
    }
}

/// An input and an output of one length that may be the same tensor.
pub(crate) enum Pair {
    /// The output overwrites the input.
    InPlace(Target),
    /// Two disjoint tensors.
    Apart(Source, Target),
}

impl Pair {
    /// True if the output overwrites the input.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self, Pair::InPlace(_))
    }

    /// The input and the output; `None` for the input if the output holds it.
    pub(crate) fn get(&mut self) -> (Option<&[f32]>, &mut [f32]) {
        match self {
            Pair::InPlace(target) => (None, target.get()),
            Pair::Apart(source, target) => (Some(source.get()), target.get()),
        }
    }

    /// Computes `y[i] = f(i, x[i])`, or `y[i] += f(i, x[i])`.
    pub(crate) fn map(&mut self, accumulate: bool, f: impl Fn(usize, f32) -> f32 + Sync) {
        let (source, target) = self.get();
        parallel::pieces(source, target, PIECE, |piece, source, target| {
            let first = piece * PIECE;
            match source {
                None => wide(|| target.iter_mut().enumerate().for_each(|(i, y)| *y = f(first + i, *y))),
                Some(source) if accumulate => wide(|| {
                    target.iter_mut().zip(source).enumerate().for_each(|(i, (y, &x))| *y += f(first + i, x));
                }),
                Some(source) => wide(|| {
                    target.iter_mut().zip(source).enumerate().for_each(|(i, (y, &x))| *y = f(first + i, x));
                }),
            }
            0.0
        });
    }

    /// Computes `y[i] = f(x[i], k[i])`, or `y[i] += f(x[i], k[i])`, with `k` computed piece by piece. `make` takes the number of a piece's first
    /// element.
    pub(crate) fn zip_made(
        &mut self,
        accumulate: bool,
        make: impl Fn(usize, &mut [f32]) + Sync,
        f: impl Fn(f32, f32) -> f32 + Sync,
    ) {
        let (source, target) = self.get();
        parallel::pieces(source, target, PIECE, |piece, source, target| {
            let mut made = [0.0; PIECE];
            let made = &mut made[..target.len()];
            make(piece * PIECE, made);
            zip_piece(accumulate, (source, target), made, &f);
            0.0
        });
    }
}

/// Computes `y[i] = f(x[i], k[i])`, or `y[i] += f(x[i], k[i])`. Without a source, `x` is `y`.
fn zip_piece(
    accumulate: bool,
    (source, target): (Option<&[f32]>, &mut [f32]),
    kept: &[f32],
    f: &impl Fn(f32, f32) -> f32,
) {
    match source {
        None => wide(|| target.iter_mut().zip(kept).for_each(|(y, &k)| *y = f(*y, k))),
        Some(source) if accumulate => wide(|| {
            target.iter_mut().zip(source).zip(kept).for_each(|((y, &x), &k)| *y += f(x, k));
        }),
        Some(source) => wide(|| {
            target.iter_mut().zip(source).zip(kept).for_each(|((y, &x), &k)| *y = f(x, k));
        }),
    }
}

/// Returns the product of `factors`. If it does not fit, it returns `usize::MAX`, which is the length of no tensor.
pub(crate) fn count(factors: &[u64]) -> usize {
    factors
        .iter()
        .fold(1usize, |product, &factor| product.saturating_mul(usize::try_from(factor).unwrap_or(usize::MAX)))
}

/// The tensors of one operation while it is bound.
pub(crate) struct Operands<'a> {
    program: &'a Program,
    operation: &'a Operation,
    /// The bytes of each tensor of the program, checked to be inside the arena.
    ranges: &'a [Range<usize>],
    arena: &'a Arc<Arena>,
    batch: u64,
    taken: Vec<TensorId>,
    /// The samples of a tensor with a batch axis.
    samples: u64,
    staging: &'a Staging,
    staged: RefCell<Staged>,
    operations: &'static Operations,
    /// The other ranks. `None` if there are none.
    peers: Option<&'a Group>,
    /// The memory for packed copies of parameters. `None` if the program keeps none.
    copies: Option<&'a CopyRoom>,
}

/// The copies before and after an operation, and the end of the staging memory in use.
#[derive(Default)]
struct Staged {
    moves: Moves,
    end: u64,
}

/// The copies of tensors to dense order before an operation, and back after it.
#[derive(Default)]
pub(crate) struct Moves {
    /// The copies before the operation.
    pub(crate) before: Vec<Move>,
    /// The copies after the operation.
    pub(crate) after: Vec<Move>,
}

impl<'a> Operands<'a> {
    /// Returns the tensors of `operation`.
    ///
    /// # Errors
    /// Returns an error if two tensors of the operation share bytes, or if a tensor's layout is not supported.
    pub(crate) fn new(
        program: &'a Program,
        operation: &'a Operation,
        ranges: &'a [Range<usize>],
        arena: &'a Arc<Arena>,
        (staging, operations): (&'a Staging, &'static Operations),
        samples: u64,
    ) -> Result<Operands<'a>, Error> {
        if !program.takes_layouts(operation) {
            let what = "a tensor in another layout than its shape is written in, for this operation".into();
            return Err(Error::Unsupported { device: DEVICE, what });
        }
        let mut tensors: Vec<TensorId> = operation.tensors().collect();
        tensors.sort_unstable();
        tensors.dedup();
        if tensors.last().is_some_and(|&tensor| tensor as usize >= ranges.len()) {
            return Err(Error::Damaged("an operation names a tensor that does not exist"));
        }
        let mut spans: Vec<_> = tensors.iter().map(|&tensor| ranges[tensor as usize].clone()).collect();
        // A tensor without bytes overlaps nothing.
        spans.retain(|range| !range.is_empty());
        spans.sort_unstable_by_key(|range| range.start);
        if spans.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(Error::Damaged("the plan lets two tensors of one operation overlap"));
        }
        // The batch is one sample if the operation's output has no batch.
        let slots = [operation.written(Slot::Output), operation.read(Slot::Gradient), operation.read(Slot::Input(0))];
        let leading = slots.into_iter().flatten().next();
        let batch = if leading.is_some_and(|tensor| !program.tensor(tensor).batched) { 1 } else { samples };
        let (taken, staged) = (Vec::new(), RefCell::default());
        Ok(Operands {
            program,
            operation,
            ranges,
            arena,
            batch,
            taken,
            samples,
            staging,
            staged,
            operations,
            peers: None,
            copies: None,
        })
    }

    /// Returns the number of samples that the operation processes.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// Returns the functions of the operations that the user declared.
    pub(crate) fn operations(&self) -> &'static Operations {
        self.operations
    }

    /// True if the program is a training step.
    pub(crate) fn training(&self) -> bool {
        self.program.training
    }

    /// Returns the row of the layer.
    pub(crate) fn row(&self) -> u32 {
        self.operation.row
    }

    /// True if the tensor read as `slot` differs between samples.
    pub(crate) fn batched(&self, slot: Slot) -> bool {
        self.operation.read(slot).is_some_and(|tensor| self.program.tensor(tensor).batched)
    }

    /// True if the operation reads this slot.
    pub(crate) fn reads(&self, slot: Slot) -> bool {
        self.operation.read(slot).is_some()
    }

    /// True if the operation writes this slot.
    pub(crate) fn writes(&self, slot: Slot) -> bool {
        self.operation.written(slot).is_some()
    }

    /// True if the operation reads `slot` from the tensor that it writes as `output`.
    pub(crate) fn aliases(&self, slot: Slot, output: Slot) -> bool {
        self.operation.read(slot).is_some_and(|tensor| self.operation.written(output) == Some(tensor))
    }

    /// Returns the branch whose gradient a join's backward operation writes.
    pub(crate) fn branch(&self) -> Result<u8, Error> {
        let branch = self.operation.writes.iter().find_map(|operand| match operand.slot {
            Slot::InputGradient(branch) => Some(branch),
            _ => None,
        });
        branch.ok_or(MISSING)
    }

    /// Returns the elements of the tensor that is read or written as `slot`. `None` if there is none.
    pub(crate) fn any_length(&self, slot: Slot) -> Option<usize> {
        let tensor = self.operation.read(slot).or_else(|| self.operation.written(slot))?;
        Some(self.elements(tensor))
    }

    /// Returns the elements of the tensor read as `slot`.
    pub(crate) fn length(&self, slot: Slot) -> Result<usize, Error> {
        self.operation.read(slot).map(|tensor| self.elements(tensor)).ok_or(MISSING)
    }

    /// Returns the shape of the tensor written as `slot`.
    pub(crate) fn shape(&self, slot: Slot) -> Result<Shape, Error> {
        self.operation.written(slot).map(|tensor| self.program.tensor(tensor).shape).ok_or(MISSING)
    }

    /// Returns the treatment of gradients and of the learning rate before an update.
    pub(crate) fn descent(&self) -> Descent {
        self.program.descent
    }

    /// Returns the optimizer states that the program has for each parameter.
    pub(crate) fn moments(&self) -> u64 {
        self.program.moments
    }

    /// Returns the elements of a tensor, without gaps. For a tensor of bits, it returns the bytes.
    fn elements(&self, id: TensorId) -> usize {
        let tensor = self.program.tensor(id);
        // Operations work on whole tensors, without the padding of shards.
        if matches!(tensor.sharding, Sharding::Gathered(_)) {
            return tensor.elements(self.samples).map_or(0, |count| count as usize);
        }
        // Master copies that do not exist have no bytes.
        let stored =
            self.ranges[id as usize].len().checked_div(tensor.role.bytes(Precision::F32) as usize).unwrap_or(0);
        if tensor.layout.is_dense() || tensor.role == Role::Bit {
            stored
        } else {
            tensor.elements(self.samples).map_or(0, |count| count as usize)
        }
    }

    /// Returns the place of a tensor for the kernel, in the arena or in the staging memory.
    fn check<T: Element>(&self, tensor: TensorId, length: usize) -> Result<(&Arc<Arena>, usize), Error> {
        if !T::holds(self.program.tensor(tensor).role) {
            return Err(Error::Damaged("an operation takes numbers, indices or bytes for one another"));
        }
        if self.elements(tensor) != length {
            return Err(Error::Damaged("a tensor's length does not match the layer that uses it"));
        }
        let range = &self.ranges[tensor as usize];
        // Bits are in the order in which their kernel had the elements, which never changes.
        let Tensor { layout, role, .. } = self.program.tensor(tensor);
        if layout.is_dense() || *role == Role::Bit {
            return Ok((self.arena, range.start));
        }
        Ok((self.staging.arena(), self.stage(tensor)?))
    }

    /// Returns a place in the staging memory for a tensor, and records the copies that it needs.
    fn stage(&self, id: TensorId) -> Result<usize, Error> {
        let tensor = self.program.tensor(id);
        let samples = if tensor.batched { self.samples } else { 1 };
        let mut staged = self.staged.borrow_mut();
        let place = self.staging.place(&mut staged.end, tensor, self.samples)?;
        let make = || Move::new(tensor, samples, self.ranges[id as usize].clone(), place);
        if self.operation.reads.iter().any(|operand| operand.tensor == id) {
            staged.moves.before.push(make()?);
        }
        if self.operation.writes.iter().any(|operand| operand.tensor == id) {
            staged.moves.after.push(make()?);
        }
        Ok(place)
    }

    /// Returns the tensor that is read as `slot` and not written.
    fn read_only(&self, slot: Slot) -> Result<TensorId, Error> {
        let tensor = self.operation.read(slot).ok_or(MISSING)?;
        if self.operation.writes.iter().any(|operand| operand.tensor == tensor) {
            return Err(Error::Damaged("an operation overwrites a tensor that its kernel still reads"));
        }
        Ok(tensor)
    }

    /// Returns the offset in bytes of a piece of a tensor, and its number of elements.
    fn piece_of(&self, tensor: TensorId, piece: Piece) -> Result<(usize, usize), Error> {
        const OUTSIDE: Error = Error::Damaged("a piece of a parameter is none of its elements");
        if !f32::holds(self.program.tensor(tensor).role) {
            return Err(Error::Damaged("an operation takes numbers, indices or bytes for one another"));
        }
        let range = &self.ranges[tensor as usize];
        let end = piece.end().and_then(|end| usize::try_from(end).ok()).ok_or(OUTSIDE)?;
        if end > range.len() / size_of::<f32>() {
            return Err(OUTSIDE);
        }
        Ok((range.start + piece.first as usize * size_of::<f32>(), piece.count as usize))
    }

    /// Returns a piece of the numbers that are read as `slot`, in their order in memory.
    pub(crate) fn source_piece(&self, slot: Slot, piece: Piece) -> Result<Source, Error> {
        let tensor = self.read_only(slot)?;
        let (offset, length) = self.piece_of(tensor, piece)?;
        Ok(Source { arena: self.arena.clone(), offset, length, elements: PhantomData })
    }

    /// Returns a piece of the numbers that are written as `slot`, in their order in memory.
    pub(crate) fn target_piece(&mut self, slot: Slot, piece: Piece) -> Result<Target, Error> {
        let tensor = self.operation.written(slot).ok_or(MISSING)?;
        if self.taken.contains(&tensor) {
            return Err(Error::Damaged("an operation writes one tensor in two roles"));
        }
        let (offset, length) = self.piece_of(tensor, piece)?;
        self.taken.push(tensor);
        Ok(Target { arena: self.arena.clone(), offset, length, elements: PhantomData })
    }

    fn read<T: Element>(&self, slot: Slot, length: usize) -> Result<Source<T>, Error> {
        let tensor = self.read_only(slot)?;
        let (arena, offset) = self.check::<T>(tensor, length)?;
        Ok(Source { arena: arena.clone(), offset, length, elements: PhantomData })
    }

    fn write<T: Element>(&mut self, slot: Slot, length: usize) -> Result<Target<T>, Error> {
        let tensor = self.operation.written(slot).ok_or(MISSING)?;
        if self.taken.contains(&tensor) {
            return Err(Error::Damaged("an operation writes one tensor in two roles"));
        }
        let (arena, offset) = self.check::<T>(tensor, length)?;
        let target = Target { arena: arena.clone(), offset, length, elements: PhantomData };
        self.taken.push(tensor);
        Ok(target)
    }

    /// Returns the `length` numbers that are read as `slot`.
    pub(crate) fn source(&self, slot: Slot, length: usize) -> Result<Source, Error> {
        self.read(slot, length)
    }

    /// Returns the numbers of [`source`](Operands::source). `None` if they are not wanted.
    pub(crate) fn source_if(&self, wanted: bool, slot: Slot, length: usize) -> Result<Option<Source>, Error> {
        if wanted { self.read(slot, length).map(Some) } else { Ok(None) }
    }

    /// Returns the `length` words of indices or state that are read as `slot`.
    pub(crate) fn words(&self, slot: Slot, length: usize) -> Result<Source<u32>, Error> {
        self.read(slot, length)
    }

    /// Returns the `length` bytes that are read as `slot`.
    pub(crate) fn bytes(&self, slot: Slot, length: usize) -> Result<Source<u8>, Error> {
        self.read(slot, length)
    }

    /// Returns the `length` numbers that are written as `slot`.
    pub(crate) fn target(&mut self, slot: Slot, length: usize) -> Result<Target, Error> {
        self.write(slot, length)
    }

    /// Returns the numbers of [`target`](Operands::target). `None` if the operation does not write the slot.
    pub(crate) fn target_if_any(&mut self, slot: Slot, length: usize) -> Result<Option<Target>, Error> {
        if self.writes(slot) { self.write(slot, length).map(Some) } else { Ok(None) }
    }

    /// Returns the `length` words of indices or state that are written as `slot`.
    pub(crate) fn word_target(&mut self, slot: Slot, length: usize) -> Result<Target<u32>, Error> {
        self.write(slot, length)
    }

    /// Returns the `length` bytes that are written as `slot`.
    pub(crate) fn byte_target(&mut self, slot: Slot, length: usize) -> Result<Target<u8>, Error> {
        self.write(slot, length)
    }

    /// Returns the name of the tensor that is written as `slot`. It is empty if there is none.
    pub(crate) fn name(&self, slot: Slot) -> &'a str {
        let tensor = self.operation.written(slot).and_then(|id| self.program.tensors.get(id as usize));
        tensor.map_or("", |tensor| &tensor.name)
    }

    /// True if the operation adds to `slot`: it accumulates, and reads the tensor that it writes there.
    pub(crate) fn accumulates(&self, slot: Slot) -> bool {
        self.operation.accumulate && self.aliases(slot, slot)
    }

    /// Returns the gradient that is written as `slot`. `None` if the operation does not write it.
    pub(crate) fn gradient(&mut self, slot: Slot, length: usize) -> Result<Option<Gradient>, Error> {
        let accumulate = self.accumulates(slot);
        let target = self.target_if_any(slot, length)?;
        Ok(target.map(|target| Gradient { target, accumulate }))
    }

    /// Returns the tensors read as `input` and written as `output`, which may be the same one.
    pub(crate) fn pair(&mut self, input: Slot, output: Slot, length: usize) -> Result<Pair, Error> {
        let in_place = self.aliases(input, output);
        let target = self.target(output, length)?;
        Ok(if in_place { Pair::InPlace(target) } else { Pair::Apart(self.source(input, length)?, target) })
    }

    /// Returns the gradients of the output and of input `branch`, which may be the same tensor. The flag is true if the latter is added
    /// to.
    pub(crate) fn gradients(&mut self, branch: u8, length: usize) -> Result<(Pair, bool), Error> {
        let slot = Slot::InputGradient(branch);
        let accumulate = self.accumulates(slot);
        if accumulate && self.aliases(Slot::Gradient, slot) {
            return Err(Error::Damaged("an operation adds to the gradient that it overwrites"));
        }
        Ok((self.pair(Slot::Gradient, slot, length)?, accumulate))
    }

    /// Ends the binding and returns the copies before and after the operation.
    ///
    /// # Errors
    /// Returns an error for a tensor that the operation writes but its kernel does not use.
    pub(crate) fn finish(self) -> Result<Moves, Error> {
        // Scratch memory is for backends that need it, and f32 has no master copies.
        let known = |operand: &Operand| {
            matches!(operand.slot, Slot::Workspace | Slot::Master) || self.taken.contains(&operand.tensor)
        };
        let all = self.operation.writes.iter().all(known);
        let moves = self.staged.into_inner().moves;
        if all { Ok(moves) } else { Err(Error::Damaged("an operation writes a tensor that its kernel does not know")) }
    }
}

/// The error of an operation without a tensor that its kernel needs.
const MISSING: Error = Error::Damaged("an operation lacks a tensor that its kernel needs");
