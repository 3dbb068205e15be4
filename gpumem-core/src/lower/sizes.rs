//! The sizes at which lowering counts bytes and time.

use crate::lower::liveness::live_bytes;
use crate::memory::plan::ALIGNMENT;
use crate::memory::tables::{Workspaces, samples};
use crate::memory::target_cards::TargetCards;
use crate::number::{Format, Precision, Role};
use crate::program::{Class, Operation, Phase, Program, Slot, Tensor};
use alloc::vec::Vec;

/// The most bytes of a tensor, and of all tensors: sums of some of them stay far below 2^63.
pub(in crate::lower) const MOST: u64 = 1 << 58;

/// The sizes at which bytes and time are counted: batch, precision and scratch limits. Results hold at other sizes, too, and are about as good
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Samples of a step.
    pub batch: u64,
    /// The number formats.
    pub precision: Precision,
    /// The most bytes of one workspace.
    pub workspaces: Workspaces,
    /// True if only operations without multiply-accumulates may run again: normalisations, activations, sums and the like.
    pub only_cheap: bool,
    /// The number of levels that are asked for, besides the step without any.
    pub levels: usize,
    /// True if outputs of normalisations are recomputed when that needs less memory: see [`Checkpoint::Norms`](crate::Checkpoint::Norms). Levels
    /// begin with a step that keeps them.
    pub renormalises: bool,
}

impl Sizes {
    /// The number of levels that is of use: with more of them, hardly any is nearer to the available bytes.
    pub const LEVELS: usize = 12;

    /// Returns the setting of a batch and a precision in which any operation may run again.
    pub fn new(batch: u64, precision: Precision, workspaces: Workspaces) -> Sizes {
        Sizes { batch, precision, workspaces, only_cheap: false, levels: Sizes::LEVELS, renormalises: true }
    }

    /// Returns the sizes of one of so many parts of the batch: only one of them is in the memory of a card at a time.
    pub(in crate::lower) fn of_part(&self, parts: u64) -> Sizes {
        Sizes { batch: samples(self.batch, parts), ..*self }
    }

    /// Returns the sizes of a step for these target cards. One convolution may use `convolution` bytes of scratch.
    pub fn of(cards: &TargetCards<'_>, batch: u64, precision: Precision, convolution: u64) -> Sizes {
        Sizes::new(batch, precision, Workspaces::of(cards, convolution))
    }

    /// Returns the floating-point operations that take as long as moving a byte. The two numbers are what cards can do in 16-bit formats and in
    /// others.
    pub(in crate::lower) fn flops_per_byte(&self) -> u64 {
        match self.precision.narrow() {
            Format::Bf16 | Format::F16 => 150,
            Format::F32 | Format::U32 | Format::U8 => 25,
        }
    }

    /// Returns the bytes of a tensor; `None` if it is too large for any plan.
    pub(in crate::lower) fn bytes(&self, tensor: &Tensor) -> Option<u64> {
        let bytes = tensor.stored(self.batch)?.checked_mul(tensor.role.bytes(self.precision))?;
        let capped = self.workspaces.cap(tensor.role, bytes);
        Some(capped).filter(|&bytes| bytes < MOST)
    }

    /// Returns the bytes that a tensor takes in an arena; `None` if it is too large for any plan.
    pub(in crate::lower) fn padded(&self, tensor: &Tensor) -> Option<u64> {
        Some(self.bytes(tensor)?.next_multiple_of(ALIGNMENT))
    }

    /// Returns the bytes of the tensors inside a step that are live at each operation index, with their padding.
    pub fn live(&self, program: &Program) -> Vec<u64> {
        let sizes = self.of_part(program.descent.parts());
        let transients = program.transients().map(|id| program.tensor(id)).map(|tensor| {
            let range = [tensor.first as usize, tensor.last as usize];
            (range, i128::from(sizes.padded(tensor).unwrap_or(MOST)))
        });
        let live = live_bytes(program.operations.len(), transients);
        live.into_iter().map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX)).collect()
    }

    /// Returns the peak of the tensors inside a step, in bytes.
    pub(in crate::lower) fn peak(&self, program: &Program) -> u64 {
        self.live(program).into_iter().max().unwrap_or(0)
    }

    /// Returns the bytes of the largest output of the forward pass. Each of these outputs is in the arena at some time, whatever is recomputed or
    /// parked.
    pub(in crate::lower) fn widest(&self, program: &Program) -> u64 {
        let sizes = self.of_part(program.descent.parts());
        let forward = program.operations.iter().filter(|operation| operation.phase() == Phase::Forward);
        let outputs = forward.filter_map(|operation| operation.written(Slot::Output)).map(|id| program.tensor(id));
        let transient = outputs.filter(|tensor| tensor.class == Class::Transient);
        transient.map(|tensor| sizes.padded(tensor).unwrap_or(MOST)).max().unwrap_or(0)
    }

    /// Returns the bytes inside a step that live from the forward pass into the backward pass, without scratch.
    pub(crate) fn saved(&self, program: &Program) -> u64 {
        let sizes = self.of_part(program.descent.parts());
        let of = |phase: Phase| move |operation: &Operation| operation.phase() == phase;
        let last_forward = program.operations.iter().rposition(of(Phase::Forward));
        let first_backward = program.operations.iter().position(of(Phase::Backward));
        let (Some(last_forward), Some(first_backward)) = (last_forward, first_backward) else { return 0 };
        let saved = program.transients().map(|id| program.tensor(id)).filter(|tensor| {
            let crosses = tensor.first as usize <= last_forward && tensor.last as usize >= first_backward;
            crosses && !tensor.role.is_workspace()
        });
        saved.map(|tensor| sizes.padded(tensor).unwrap_or(MOST)).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the targets of a training step, which are there twice: one half is filled while the other is read.
    pub(crate) fn targets(&self, program: &Program) -> u64 {
        let sizes = self.of_part(program.descent.parts());
        let targets = program.tensors.iter().filter(|tensor| tensor.class == Class::Target);
        targets.map(|tensor| 2 * sizes.padded(tensor).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    /// Returns the padded bytes of `times` times `elements` elements in an arena. [`MOST`] if they are too many for any plan.
    pub(in crate::lower) fn padded_of(&self, role: Role, times: u64, elements: u64) -> u64 {
        elements.saturating_mul(times).saturating_mul(role.bytes(self.precision)).min(MOST).next_multiple_of(ALIGNMENT)
    }
}
