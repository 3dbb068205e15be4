//! What is told of other programs of a step that is refused: which they are was found, and planned, while the network was lowered.

use super::{Text, append_label, append_remedy};
use crate::number::Coding;
use crate::train::Offload;

/// What is known, where a step is refused, of other programs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedies {
    /// Bytes of the arena without recomputation, where all that helps is computed a second time.
    pub without: Option<u64>,
    /// Steps that fit, the cheapest first.
    pub planned: [Option<Remedy>; Remedies::MOST],
    /// Bytes of the arena of a step in f32 under `precision: Mixed(Bf16)`, where its batch is split and it was planned.
    pub mixed: Option<u64>,
}

impl Remedies {
    /// The most that are told.
    pub const MOST: usize = 3;

    /// Nothing.
    pub const UNKNOWN: Remedies = Remedies { without: None, planned: [None; Remedies::MOST], mixed: None };

    /// Appends those that fit into `room` bytes and offload something, or those that do not, behind so many others and up to
    /// [`Remedies::MOST`] with these. Returns how many there are then.
    pub(super) const fn append(&self, text: &mut Text, offloads: bool, room: u64, mut found: usize) -> usize {
        let mut i = 0;
        while i < Remedies::MOST && found < Remedies::MOST {
            if let Some(remedy) = &self.planned[i]
                && remedy.offload.is_some() == offloads
                && remedy.arena <= room
            {
                append_remedy(text, found);
                remedy.append(text);
                found += 1;
            }
            i += 1;
        }
        found
    }

    /// Appends what is told of a step with all recomputation that helps, on a card that takes `reserve` bytes.
    pub(super) const fn append_recomputed(&self, text: &mut Text, reserve: u64) {
        if let Some(without) = self.without {
            append_label(text, "checkpoint");
            text.text("all that helps is computed a second time; without that it needs ");
            text.bytes(without.saturating_add(reserve));
        }
    }
}

/// A step that was planned, by what is written in another way: one thing, or several where none is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Bytes of the arena.
    pub arena: u64,
    /// `InplaceAbn` for each `BatchNorm2d` and the `LeakyRelu` behind it.
    pub in_place: Option<Slopes>,
    /// The number of chunks in which logits are there.
    pub chunks: Option<u64>,
    /// The number of parts that the batch runs in.
    pub split: Option<Split>,
    /// How weights inside `lora` are kept that are in the network's format.
    pub base: Option<Coding>,
    /// What lies in host memory.
    pub offload: Option<Offloaded>,
    /// What `checkpoint: Auto` takes, where that is needed: floating-point operations and time, in thousandths of the step. See
    /// [`Leaner::more`](crate::lower::Leaner).
    pub more: Option<[u64; 2]>,
}

/// The slopes of `LeakyRelu`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slopes {
    /// All are what is meant where none is written.
    Default,
    /// Some are others.
    Written,
}

/// A batch in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// How many.
    pub micro_batches: u64,
    /// Whether batch normalisation then looks at parts.
    pub has_statistics: bool,
}

/// What lies in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloaded {
    /// Which.
    pub what: Offload,
    /// Bytes that go over the bus each step, in and out together.
    pub moved: u64,
    /// Milliseconds that this takes at least: see [`Budget::bus_ms`](crate::memory::budget::Budget::bus_ms).
    pub ms: u64,
}

impl Remedy {
    /// The step as it is written, in an arena of so many bytes.
    pub const fn as_written(arena: u64) -> Remedy {
        Remedy { arena, in_place: None, chunks: None, split: None, base: None, offload: None, more: None }
    }

    /// Appends what is to be written.
    const fn append(&self, text: &mut Text) {
        let mut between = "";
        if let Some(slopes) = self.in_place {
            text.text(match slopes {
                Slopes::Default => "InplaceAbn for BatchNorm2d and LeakyRelu",
                Slopes::Written => "InplaceAbn(activation_param = slope) for BatchNorm2d and LeakyRelu(slope)",
            });
            between = " and ";
        }
        if let Some(chunks) = self.chunks {
            text.text(between).text("CrossEntropy { chunks: ").number(chunks).text(" }");
            between = " and ";
        }
        if let Some(Split { micro_batches, has_statistics }) = self.split {
            text.text(between).text("micro_batches: ").number(micro_batches);
            text.text(if has_statistics { " (BatchNorm looks at each part)" } else { "" });
            between = " and ";
        }
        if let Some(coding) = self.base {
            text.text(between).text("base = ").text(coding.name()).text(" in lora(..)");
            between = " and ";
        }
        if let Some(Offloaded { what, moved, ms }) = self.offload {
            text.text(between).text("offload: ").text(what.name()).text(" (").bytes(moved);
            text.text(" over the bus each step, about ").time(ms).text(")");
            between = " and ";
        }
        if let Some([flops, time]) = self.more {
            text.text(between).text("checkpoint: Auto (+").number(flops.div_ceil(10)).text(" % FLOPs, about +");
            text.number(time.div_ceil(10)).text(" % time)");
        }
    }
}
