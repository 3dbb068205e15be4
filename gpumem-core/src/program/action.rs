//! What the entries of a program do.

use super::encoding::{Reader, Wire, wire_enum, wire_struct};
use super::{Criterion, Op};
use alloc::vec::Vec;

/// Which way an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pass {
    /// `Output` from `Input`s; in training also `Saved` and the updated `Buffer`s.
    Forward,
    /// The `InputGradient`s that are written, from `Gradient` and what the operation declares.
    Backward,
    /// The forward pass a second time, for the backward pass of others. What runs again
    /// [from what it saved](super::op::Rule::runs_again_from_saved) reads that, and has neither buffers nor a workspace.
    Again,
    /// The forward pass of a chunk of what the loss measures, between the terms of others: see
    /// [`LossOptions::chunks`](super::loss::LossOptions::chunks).
    Chunk,
}
wire_enum!(Pass { Forward, Backward, Again, Chunk });

/// What an entry of a program does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// An operation, forward or backward.
    Run {
        /// The operation.
        op: Op,
        /// Which way.
        pass: Pass,
    },
    /// `Loss` from `Input(0)` and `Target`, and the gradient of `Input(0)` into `InputGradient(0)`, if anything before it is
    /// trained; it may be the same tensor as `Input(0)`. The mean over the batch is part of the gradient. Where `Loss` is read
    /// too, the term is added to those before it. `Workspace` has an f32 for each position whose loss is summed: see
    /// [`Criterion::terms`]. `Saved(0)` is room for what it [keeps](Criterion::saved); where it is
    /// read and not written, the host has put there, for each sample, what all targets of a batch [come to](Criterion::weight_of). A loss of pairs has `Input(1)` and
    /// `InputGradient(1)` as well, and one of sequences may read their lengths as `Input(1)`. `Target` is that of the whole, of which a
    /// [part](Criterion::part_of) may be compared.
    Loss(Criterion),
    /// Notes in `State` whether an element of `ParameterGradient` is not finite: the step then updates nothing.
    Check,
    /// Squares `ParameterGradient`, without the loss scale of `State`, in pieces of [`Clip::PIECE`](crate::train::Clip::PIECE) elements, and
    /// leaves in `Workspace`, from this number on, for each piece the root of its sum of squares over that number of elements: the sum itself
    /// could be infinite. All gradients have one workspace.
    Squares(u64),
    /// From what all [squares](Action::Squares) left in `Workspace`, the norm of all gradients, and where they are clipped by it what updates
    /// multiply them with, in `State`: see [`StateWord::Norm`](super::StateWord::Norm) and [`StateWord::Clip`](super::StateWord::Clip). In a
    /// program that [skips](crate::train::Descent::skips) steps it notes there, too, if the norm is not finite: the step then updates nothing.
    Norm,
    /// `Parameter` and its `Moment`s from `ParameterGradient`; the optimizer is the network's. `Workspace` is there where
    /// [`scratch`](crate::train::optim::scratch) says so: updates that follow each other have one, in which each has a part.
    Update,
    /// Adds `Input(0)` to `Output`, element by element.
    Accumulate,
    /// Adds `Gradient`, that of a parameter in a part of a batch, to `ParameterGradient`, the sum over all parts, which has f32 where the
    /// gradient has 16 bits.
    Collect,
    /// Copies `Input(0)` to `Output`.
    Copy,
    /// Sums `Gradient` over the batch into `InputGradient(0)`, which has no batch.
    SumBatch,
    /// Increments the step counter in `State`: the last operation of a training step.
    Advance,
    /// Brings a piece of what is kept of `Parameter` in host memory into the arena: of each `Moment` that is read these elements, to where
    /// the `Moment` that is written begins, and those of the master copy, if there is one, to `Master`.
    Fetch(Piece),
    /// [`Action::Update`] of these elements of `Parameter` and `ParameterGradient`, whose states and master copy were fetched.
    UpdatePiece(Piece),
    /// Takes a piece back to host memory: what [`Action::Fetch`] does, the other way round.
    Store(Piece),
    /// Waits for all that is on its way between host memory and the `Input`s.
    Settle,
    /// A step of an activation on its way to host memory and back.
    Park(Leg),
    /// Copies the running statistic `Buffer(0)` to `Saved(0)`, from element number this on, before the first operation of a step that may be
    /// skipped; where a batch is split, before that of its first part. All running statistics have one such tensor.
    SaveStatistics(u64),
    /// Copies from there, from element number this on, to the running statistic `Buffer(0)`, if `State` says that the step is skipped.
    RestoreStatistics(u64),
    /// `Average` goes on with `Parameter`, which was updated, or with its master copy if it has one, in the steps that
    /// [`Ema::is_due`](crate::train::Ema::is_due) says and that are not skipped.
    Average,
    /// [`Action::Average`] of these elements, of which a master copy lies at the beginning of `Master`.
    AveragePiece(Piece),
}

/// A step of an activation on its way to host memory and back: see [`Action::Park`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Leg {
    /// Begins to copy `Input(0)` to `Output`, a tensor of [`Class::Host`](super::Class::Host).
    Leave,
    /// Waits until `Input(0)` has been copied to `Input(1)`: whatever comes next may lie where it was.
    Left,
    /// Begins to copy `Input(0)`, a tensor of [`Class::Host`](super::Class::Host), to `Output`.
    Return,
    /// Waits until `Input(0)` has been copied to `Input(1)`, which may then be read.
    Returned,
}
wire_enum!(Leg { Leave, Left, Return, Returned });

/// Elements of a parameter that follow each other in memory, as they lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The number of the staging buffer that they pass through.
    pub buffer: u64,
}
wire_struct!(Piece { first, count, buffer });

impl Piece {
    /// The most elements, but of a parameter that no host could keep: 4 MiB of each state in f32, of which a bus takes nearly its full rate.
    pub const MOST: u64 = 1 << 20;

    /// Staging buffers, which pieces take in turn: one arrives, one is updated, one leaves.
    pub const BUFFERS: usize = 3;

    /// The number behind the last; `None` if it exceeds 64 bits.
    pub fn end(self) -> Option<u64> {
        self.first.checked_add(self.count)
    }
}

impl Action {
    /// Whether it updates a parameter, or a piece of one.
    pub fn is_update(&self) -> bool {
        matches!(self, Action::Update | Action::UpdatePiece(_))
    }

    /// Whether it names a parameter with what the optimizer keeps of it, all of it or a piece, wherever that lies.
    pub fn has_states(&self) -> bool {
        self.is_update() || matches!(self, Action::Fetch(_) | Action::Store(_))
    }

    /// True if a card takes many operations of this kind in one launch, which is given the first tensor of each slot alone.
    pub fn is_of_many(&self) -> bool {
        matches!(
            self,
            Action::Update
                | Action::Check
                | Action::Squares(_)
                | Action::SaveStatistics(_)
                | Action::RestoreStatistics(_)
                | Action::Average
        )
    }

    /// True if it names a parameter and a tensor with an element for each of its elements: optimizer state, or an average.
    pub fn has_companions(&self) -> bool {
        self.has_states() || matches!(self, Action::Average | Action::AveragePiece(_))
    }
}

impl Wire for Action {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Action::Run { op, pass } => {
                0u64.put(out);
                op.put(out);
                pass.put(out);
            }
            Action::Loss(criterion) => {
                1u64.put(out);
                criterion.put(out);
            }
            Action::Update => 2u64.put(out),
            Action::Accumulate => 3u64.put(out),
            Action::Copy => 4u64.put(out),
            Action::SumBatch => 5u64.put(out),
            Action::Advance => 6u64.put(out),
            Action::Check => 7u64.put(out),
            Action::Squares(first) => {
                8u64.put(out);
                first.put(out);
            }
            Action::Norm => 9u64.put(out),
            Action::Fetch(piece) => {
                10u64.put(out);
                piece.put(out);
            }
            Action::UpdatePiece(piece) => {
                11u64.put(out);
                piece.put(out);
            }
            Action::Store(piece) => {
                12u64.put(out);
                piece.put(out);
            }
            Action::Settle => 13u64.put(out),
            Action::Collect => 14u64.put(out),
            Action::Park(leg) => {
                15u64.put(out);
                leg.put(out);
            }
            Action::SaveStatistics(first) => {
                16u64.put(out);
                first.put(out);
            }
            Action::RestoreStatistics(first) => {
                17u64.put(out);
                first.put(out);
            }
            Action::Average => 18u64.put(out),
            Action::AveragePiece(piece) => {
                19u64.put(out);
                piece.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Action> {
        Some(match u64::take(from)? {
            0 => Action::Run { op: Wire::take(from)?, pass: Wire::take(from)? },
            1 => Action::Loss(Wire::take(from)?),
            2 => Action::Update,
            3 => Action::Accumulate,
            4 => Action::Copy,
            5 => Action::SumBatch,
            6 => Action::Advance,
            7 => Action::Check,
            8 => Action::Squares(Wire::take(from)?),
            9 => Action::Norm,
            10 => Action::Fetch(Wire::take(from)?),
            11 => Action::UpdatePiece(Wire::take(from)?),
            12 => Action::Store(Wire::take(from)?),
            13 => Action::Settle,
            14 => Action::Collect,
            15 => Action::Park(Wire::take(from)?),
            16 => Action::SaveStatistics(Wire::take(from)?),
            17 => Action::RestoreStatistics(Wire::take(from)?),
            18 => Action::Average,
            19 => Action::AveragePiece(Wire::take(from)?),
            _ => return None,
        })
    }
}
