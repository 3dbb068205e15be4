//! Actions: what each operation of a program does.

use super::encoding::{Reader, Wire, wire_enum, wire_struct};
use super::{Criterion, Op, Phase};
use alloc::vec::Vec;

/// The pass in which an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pass {
    /// Computes `Output` from the `Input`s; in training also `Saved` and the updated `Buffer`s.
    Forward,
    /// Computes the `InputGradient`s that are written, from `Gradient` and the operands that the operation's rule names.
    Backward,
    /// Recomputes the forward pass, for the backward pass of others. An operation that runs again
    /// [from saved tensors](super::op::Rule::runs_again_from_saved) reads those, and has neither buffers nor a workspace.
    Again,
    /// Runs the forward pass of a chunk of the logits, between the terms of other chunks: see
    /// [`LossOptions::chunks`](super::loss::LossOptions::chunks).
    Chunk,
}
wire_enum!(Pass { Forward, Backward, Again, Chunk });

/// The action of an operation in a program, on the tensors of its slots.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Runs an operation, forward or backward.
    Run {
        /// The operation.
        op: Op,
        /// The pass.
        pass: Pass,
    },
    /// Computes `Loss` from `Input(0)` and `Target`, and the gradient of `Input(0)` into `InputGradient(0)` if anything before it is trained.
    /// That gradient may overwrite `Input(0)`, and it includes the division of a mean. If `Loss` is also read, the term is added to it.
    /// `Workspace` has an f32 for each term that is summed: see [`Criterion::terms`]. `Saved(0)` is a [saved tensor](Criterion::saved). If it
    /// is read and not written, it holds, once for each sample, the sum of the [weights](Criterion::weight_of) of all targets of the batch,
    /// which the host computes. A loss of pairs has `Input(1)` and `InputGradient(1)` as well. A loss of sequences may read their lengths as
    /// `Input(1)`. `Target` is that of the whole value, even if the loss compares only a [part](Criterion::part_of) of it.
    Loss(Criterion),
    /// Records in `State` if an element of `ParameterGradient` is not finite. The step then updates nothing.
    Check,
    /// Squares `ParameterGradient`, without the loss scale of `State`, in pieces of [`Clip::PIECE`](crate::train::Clip::PIECE) elements. For each
    /// piece it writes `sqrt(sum of squares / PIECE)` to `Workspace`, from this index on. It does not write the sum, which could be infinite.
    /// All gradients share one workspace. Those of which a rank has a shard share a second one `[ranks, sums]`, of which the rank writes its
    /// own row. Each row is a shard, which may have padding after it.
    Squares(u64),
    /// Computes the norm of all gradients from the sums of [`Action::Squares`] in `Workspace`, and in `Input(0)` those of sharded gradients, and
    /// the factor that clips by norm. Both are words of `State`:
    /// see [`StateWord::Norm`](super::StateWord::Norm) and [`StateWord::Clip`](super::StateWord::Clip). A program that
    /// [skips](crate::train::Descent::skips) steps also records there that the norm is not finite. The step then updates nothing.
    Norm,
    /// Updates `Parameter` and its `Moment`s from `ParameterGradient`, by the network's optimizer. It has a `Workspace` if
    /// [`scratch`](crate::train::optim::scratch) asks for one. Consecutive updates share one workspace, in which each has a part.
    Update,
    /// Adds `Input(0)` to `Output`, element by element.
    Accumulate,
    /// Adds `Gradient`, a parameter's gradient of one micro-batch, to `ParameterGradient`, the sum over all of them. The sum is in f32 even if
    /// the gradient has 16 bits.
    Collect,
    /// Copies `Input(0)` to `Output`.
    Copy,
    /// Sums `Gradient` over the batch into `InputGradient(0)`, which all samples share.
    SumBatch,
    /// Increments the step counter in `State`: the last operation of a training step.
    Advance,
    /// Copies a piece of the optimizer state of `Parameter` from host memory into the arena. These elements of each `Moment` that is read go to
    /// the start of the `Moment` that is written. Elements of the master copy, if there is one, go to `Master`.
    Fetch(Piece),
    /// Does what [`Action::Update`] does, to these elements of `Parameter` and `ParameterGradient`, whose state was fetched.
    UpdatePiece(Piece),
    /// Copies a piece back to host memory: the reverse of [`Action::Fetch`].
    Store(Piece),
    /// Waits for all copies between host memory and the `Input`s.
    Settle,
    /// Starts or awaits a copy of an activation to host memory or back.
    Park(Leg),
    /// Copies the running statistic `Buffer(0)` to `Saved(0)`, from this element on, before the first operation of a step that may be
    /// skipped. With micro-batches, that is before the first of them. All running statistics share one such tensor.
    SaveStatistics(u64),
    /// Copies the statistic back from this element on to `Buffer(0)`, if `State` says that the step is skipped.
    RestoreStatistics(u64),
    /// Updates the moving average `Average` from `Parameter` after its update, or from the master copy if there is one. It does so in
    /// those steps that [`Ema::is_due`](crate::train::Ema::is_due) names and that are not skipped.
    Average,
    /// Does what [`Action::Average`] does, to these elements. If there is a master copy, they are at the start of `Master`.
    AveragePiece(Piece),
    /// Starts an exchange of all `Sent` with the other ranks. What it brings goes to the `Received` of the same number, which may be the same
    /// tensor. Until the exchange [has ended](Action::EndExchange), no operation touches these tensors.
    Exchange(Exchange),
    /// Waits until the exchange with these `Sent` and `Received` has ended.
    EndExchange(Exchange),
}

/// An exchange between ranks. All ranks start the same exchanges in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The numbers that it brings.
    pub collective: Collective,
    /// The phase of the operations that need them.
    pub phase: Phase,
}
wire_struct!(Exchange { collective, phase });

/// The numbers that an exchange brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Collective {
    /// The sum over all ranks, added up in the order of ranks. Of a tensor that is not replicated, a rank receives its own shard.
    ///
    /// PyTorch: `torch.distributed.all_reduce` and `reduce_scatter_tensor`.
    Sum,
    /// The shards of all ranks, one after the other.
    ///
    /// PyTorch: `torch.distributed.all_gather_into_tensor`.
    Gather,
    /// The mean over all ranks.
    Mean,
    /// The largest [overflow word](super::StateWord::Overflow) of all ranks. Other words of `State` stay as they are.
    Overflow,
}
wire_enum!(Collective { Sum, Gather, Mean, Overflow });

/// A stage of offloading an activation: see [`Action::Park`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Leg {
    /// Starts to copy `Input(0)` to `Output`, a tensor of [`Class::Host`](super::Class::Host).
    Leave,
    /// Waits until `Input(0)` has been copied to `Input(1)`. Later tensors may then overwrite it.
    Left,
    /// Starts to copy `Input(0)`, a tensor of [`Class::Host`](super::Class::Host), to `Output`.
    Return,
    /// Waits until `Input(0)` has been copied to `Input(1)`, which may then be read.
    Returned,
}
wire_enum!(Leg { Leave, Left, Return, Returned });

/// A range of elements of a parameter, in the order in which they are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the first element.
    pub first: u64,
    /// Number of elements.
    pub count: u64,
    /// Index of the staging buffer that they pass through.
    pub buffer: u64,
}
wire_struct!(Piece { first, count, buffer });

impl Piece {
    /// Most elements of a piece, except for a parameter too large for any host. 4 MiB of each f32 state let a bus run near its full rate.
    pub const MOST: u64 = 1 << 20;

    /// Number of staging buffers, which pieces use in turn: one arrives, one is updated, one leaves.
    pub const BUFFERS: usize = 3;

    /// Returns the index after the last element, or `None` if it exceeds 64 bits.
    pub fn end(self) -> Option<u64> {
        self.first.checked_add(self.count)
    }
}

impl Action {
    /// True if it updates a parameter, or a piece of one.
    pub fn is_update(&self) -> bool {
        matches!(self, Action::Update | Action::UpdatePiece(_))
    }

    /// True if it names a parameter with optimizer state, whole or in pieces, in the arena or on the host.
    pub fn has_states(&self) -> bool {
        self.is_update() || matches!(self, Action::Fetch(_) | Action::Store(_))
    }

    /// True if a card runs many of these in one launch, which gets only the first tensor of each slot.
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

    /// True if it starts an exchange between ranks, or waits for one.
    pub fn is_exchange(&self) -> bool {
        matches!(self, Action::Exchange(_) | Action::EndExchange(_))
    }

    /// True if it names a parameter and tensors with an element for each of its elements: optimizer state, or an average.
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
            Action::Exchange(exchange) => {
                20u64.put(out);
                exchange.put(out);
            }
            Action::EndExchange(exchange) => {
                21u64.put(out);
                exchange.put(out);
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
            20 => Action::Exchange(Wire::take(from)?),
            21 => Action::EndExchange(Wire::take(from)?),
            _ => return None,
        })
    }
}
