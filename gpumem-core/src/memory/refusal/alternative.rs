//! Alternatives to a step that is refused: other programs of it, which were planned while the network was lowered.

use super::{Text, append_label, append_remedy};
use crate::number::Coding;
use crate::train::{Offload, Shard};

/// The alternatives to a step that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedies {
    /// The changes that the refused step makes of itself; `None` if the cards do not decide which program runs.
    pub leanest: Option<Leanest>,
    /// Alternatives that fit, the cheapest first; `None` after the last one.
    pub planned: [Option<Remedy>; Remedies::MOST],
    /// Bytes of the arena of an f32 step under `precision: Mixed(Bf16)`. `None` unless its batch is split and it was planned.
    pub mixed: Option<u64>,
}

impl Remedies {
    /// The most alternatives that are printed.
    pub const MOST: usize = 3;

    /// No alternatives.
    pub const UNKNOWN: Remedies = Remedies { leanest: None, planned: [None; Remedies::MOST], mixed: None };

    /// Appends alternatives that fit into `room` bytes: either those that offload something or those that do not. `found` were printed before,
    /// and there are at most [`Remedies::MOST`] with these. Returns the new number.
    pub(super) const fn append(&self, text: &mut Text, offloads: bool, room: u64, mut found: usize) -> usize {
        let mut i = 0;
        while i < Remedies::MOST && found < Remedies::MOST {
            if let Some(remedy) = &self.planned[i]
                && remedy.offload.is_some() == offloads
                && remedy.arena <= room
            {
                append_remedy(text, found);
                remedy.append(text, true);
                found += 1;
            }
            i += 1;
        }
        found
    }

    /// Appends a line about a step that is the leanest of several, on a card that takes `reserve` bytes.
    pub(super) const fn append_leanest(&self, text: &mut Text, reserve: u64) {
        let Some(Leanest { without, recomputes, chunks }) = self.leanest else { return };
        append_label(text, if recomputes { "checkpoint" } else { "chunks" });
        if recomputes {
            text.text("all that helps is computed a second time");
        }
        if chunks > 1 {
            text.text(if recomputes { ", and " } else { "" }).text("logits are in ").number(chunks);
            text.text(if recomputes { " chunks" } else { " chunks, and more do not help" });
        }
        let both = recomputes && chunks > 1;
        text.text(if both { "; without both it needs " } else { "; without that it needs " });
        text.bytes(without.saturating_add(reserve));
    }
}

/// A step that is the leanest of those between which memory decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leanest {
    /// Bytes of the arena of the step as the user wrote it.
    pub without: u64,
    /// True if it recomputes all that helps.
    pub recomputes: bool,
    /// The number of chunks of its logits; 1 if they are whole.
    pub chunks: u64,
}

/// An alternative: a planned step with one change, or several if none alone is enough. A change that it does not make is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Bytes of an arena in which the step fits. A smaller one may exist.
    pub arena: u64,
    /// `InplaceAbn` for each `BatchNorm2d` and the `LeakyRelu` after it.
    pub in_place: Option<Slopes>,
    /// The chunks of the logits.
    pub chunks: Option<InChunks>,
    /// The micro-batches of the batch.
    pub split: Option<Split>,
    /// The format of quantized weights inside `lora`, instead of the network's format.
    pub base: Option<Coding>,
    /// The tensors that are in host memory.
    pub offload: Option<Offloaded>,
    /// The tensors of which a rank keeps its shard, and the number of ranks.
    pub shared: Option<Shared>,
    /// The cost of `checkpoint: Auto`, if that is needed: floating-point operations and time, in thousandths of the step. See
    /// [`Leaner::more`](crate::lower::Leaner).
    pub more: Option<[u64; 2]>,
}

/// Logits in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InChunks {
    /// The number of chunks.
    pub count: u64,
    /// The time that they add, in thousandths of the step: see [`Leaner::more`](crate::lower::Leaner).
    pub time: u64,
    /// True if logits are computed twice, for the gradient of a weight that the head shares. Only `chunks: Auto` does so.
    pub twice: bool,
}

/// The slopes of `LeakyRelu`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slopes {
    /// All slopes are the default.
    Default,
    /// Some slopes are not the default.
    Written,
}

/// A batch that is split into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The number of micro-batches.
    pub micro_batches: u64,
    /// True if batch normalisation then takes its statistics over micro-batches.
    pub has_statistics: bool,
}

/// A step whose ranks keep shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The number of ranks; `None` if it is the one that the user wrote.
    pub ranks: Option<u64>,
    /// The tensors of which each rank keeps its shard; `None` if they are those that the user wrote.
    pub shard: Option<Shard>,
    /// Bytes that each rank sends in a step: see [`Ranks::sent`](crate::train::Ranks::sent).
    pub sent: u64,
}

/// Tensors that are in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloaded {
    /// The kind of these tensors.
    pub what: Offload,
    /// Bytes that cross the bus in each step, both directions together.
    pub moved: u64,
    /// The least milliseconds that this takes: see [`Budget::bus_ms`](crate::memory::budget::Budget::bus_ms).
    pub ms: u64,
}

impl Remedy {
    /// Returns the step without any change, in an arena of this many bytes.
    pub const fn as_written(arena: u64) -> Remedy {
        Remedy { arena, in_place: None, chunks: None, split: None, base: None, offload: None, shared: None, more: None }
    }

    /// Returns the time that chunks and recomputation add, in thousandths of the step.
    pub fn time(&self) -> u64 {
        self.chunks.map_or(0, |chunks| chunks.time) + self.more.map_or(0, |[_, time]| time)
    }

    /// Returns the text that the user is to write, with its price.
    pub const fn text(&self) -> Text {
        let mut text = Text::new();
        self.append(&mut text, true);
        text
    }

    /// Returns the text that the user is to write, without its price.
    pub const fn change(&self) -> Text {
        let mut text = Text::new();
        self.append(&mut text, false);
        text
    }

    /// Appends the text that the user is to write, and with `priced` its price.
    const fn append(&self, text: &mut Text, priced: bool) {
        let mut between = "";
        if let Some(slopes) = self.in_place {
            text.text(match slopes {
                Slopes::Default => "InplaceAbn for BatchNorm2d and LeakyRelu",
                Slopes::Written => "InplaceAbn(activation_param = slope) for BatchNorm2d and LeakyRelu(slope)",
            });
            between = " and ";
        }
        if let Some(InChunks { count, time, twice }) = self.chunks {
            text.text(between).text("CrossEntropy { chunks: ");
            if twice {
                text.text("Auto }");
            } else {
                text.number(count).text(" }");
            }
            if priced && time > 0 {
                text.text(" (about +").number(time.div_ceil(10)).text(" % time)");
            }
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
        if let Some(Shared { ranks, shard, sent }) = self.shared {
            if let Some(ranks) = ranks {
                text.text(between).text("ranks: ").number(ranks);
                between = " and ";
            }
            if let Some(shard) = shard {
                text.text(between).text("shard: ").text(shard.name());
                between = " and ";
            }
            if priced {
                text.text(" (").bytes(sent).text(" each rank sends in a step)");
            }
        }
        if let Some(Offloaded { what, moved, ms }) = self.offload {
            text.text(between).text("offload: ").text(what.name());
            if priced {
                text.text(" (").bytes(moved).text(" over the bus each step, about ").time(ms).text(")");
            }
            between = " and ";
        }
        if let Some([flops, time]) = self.more {
            text.text(between).text("checkpoint: Auto");
            if priced {
                text.text(" (+").number(flops.div_ceil(10)).text(" % FLOPs, about +");
                text.number(time.div_ceil(10)).text(" % time)");
            }
        }
    }
}
