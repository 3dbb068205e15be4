//! Changes that are tried, and programs with them.

use super::Adviser;
use crate::lower::{Blueprint, Steps, Variant};
use crate::memory::refusal::{InChunks, Remedy};
use crate::number::{Coding, Half, Precision};
use crate::program::loss::Chunks;
use crate::report::planned::Device;
use crate::train::optim::{Optimizer, whole_states};
use crate::train::{Checkpoint, Offload, Ranks, Shard, Update};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::replace;

/// Multiples of the number of micro-batches that are tried.
const MORE_PARTS: [u64; 3] = [2, 4, 8];

/// Numbers of chunks of the logits that are tried.
const CHUNKS: [u64; 3] = [2, 8, 32];

/// The share of the step's memory that is tried with `checkpoint: Budget`.
const SHARE: f64 = 0.5;

/// The factor by which more ranks are tried.
const MORE_RANKS: u64 = 2;

/// One change of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    Precision(Precision),
    Batch(u64),
    /// The largest batch that fits.
    LargestBatch,
    /// `InplaceAbn` for norms and their activations.
    InPlace,
    Chunks(u64),
    MicroBatches(u64),
    Offload(Offload),
    /// The format of frozen weights in each `lora` without a `base`.
    Base(Coding),
    /// So many times the ranks, and what each keeps a shard of.
    Ranks(u64, Shard),
    Checkpoint(Checkpoint),
    Optimizer(&'static Optimizer),
    Update(Update),
}

impl Edit {
    /// True if the step still treats as many samples on as many cards.
    pub(super) fn keeps_the_task(&self) -> bool {
        !matches!(self, Edit::Batch(_) | Edit::LargestBatch | Edit::Ranks(..))
    }

    /// True if the step runs on more cards.
    pub(super) fn takes_cards(&self) -> bool {
        matches!(self, Edit::Ranks(times, _) if *times > 1)
    }
}

/// A program with some changes, which is not planned yet.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    /// The changes, as they are written, joined by `and`. Empty without a change.
    pub(super) text: String,
    /// Their other consequences: see [`Advice::note`](super::Advice::note).
    pub(super) note: String,
    pub(super) blueprint: Blueprint,
    pub(super) precision: Precision,
    pub(super) batch: u64,
    /// True if the leanest of the programs between which memory decides is taken, rather than the first that fits.
    pub(super) is_leanest: bool,
}

impl Changed {
    /// Returns a program without a change.
    pub(super) fn nothing(blueprint: &Blueprint, precision: Precision, batch: u64) -> Changed {
        let (text, note) = (String::new(), String::new());
        Changed { text, note, blueprint: blueprint.clone(), precision, batch, is_leanest: false }
    }

    pub(super) fn ranks(&self) -> Ranks {
        self.blueprint.training.as_ref().map_or(Ranks::ALONE, |steps| steps.descent.ranks)
    }

    pub(super) fn micro_batches(&self) -> u64 {
        self.blueprint.training.as_ref().map_or(1, |steps| steps.descent.micro_batches)
    }

    /// Returns the program with one more change. `None` if it cannot have it, or has it already.
    pub(super) fn with(&self, edit: Edit, adviser: &Adviser) -> Option<Changed> {
        match edit {
            Edit::Precision(precision) => {
                let text = format!("precision: {}", precision.name());
                Some(Changed { precision, ..self.clone() }.told(&text, "rounds to 16 bits"))
            }
            Edit::Batch(batch) => self.at_batch(batch, adviser.training),
            Edit::LargestBatch => self.at_batch(adviser.largest_batch(self)?, adviser.training),
            Edit::InPlace => self.varied("", |step| step.in_place(), adviser),
            Edit::Chunks(count) => self.in_chunks(count),
            Edit::MicroBatches(1) => {
                self.set("micro_batches: 1", "", |steps| replace(&mut steps.descent.micro_batches, 1) != 1)
            }
            Edit::MicroBatches(count) => {
                let is_possible = |step: &Variant| step.parts(self.batch).contains(&count);
                self.varied("", |step| is_possible(&step).then(|| step.in_parts(count)), adviser)
            }
            Edit::Offload(Offload::None) => self
                .set("offload: None", "", |steps| replace(&mut steps.descent.offload, Offload::None) != Offload::None),
            Edit::Offload(what) => {
                self.varied("takes host memory", |step| step.offloading(what, self.precision), adviser)
            }
            Edit::Base(coding) => self.varied("rounds frozen weights", |step| step.coded(coding), adviser),
            Edit::Ranks(times, shard) if self.ranks().is_alone() => self.on_ranks(times, shard),
            Edit::Ranks(times, shard) => {
                let note = if times > 1 { "takes twice as many cards" } else { "" };
                self.varied(note, |step| step.shared(times, shard, self.batch), adviser)
            }
            Edit::Checkpoint(checkpoint) => self.recomputing(checkpoint),
            Edit::Optimizer(optimizer) => {
                let (text, moments) = (format!("optimizer: {}", optimizer.row().name), optimizer.moments());
                // States in host memory have one entry for each element.
                let is_possible = |steps: &Steps| !(steps.descent.offloads() && whole_states(moments).1);
                let set = |steps: &mut Steps| is_possible(steps) && replace(&mut steps.moments, moments) != moments;
                self.set(&text, "another optimizer: choose its rate anew", set)
            }
            Edit::Update(update) => {
                let text = format!("update: {update:?}");
                self.set(&text, "", |steps| replace(&mut steps.update, update) != update)
            }
        }
    }

    /// Adds to the text and to the note.
    fn told(mut self, text: &str, note: &str) -> Changed {
        for (all, between, more) in [(&mut self.text, " and ", text), (&mut self.note, ", ", note)] {
            if !all.is_empty() && !more.is_empty() {
                all.push_str(between);
            }
            all.push_str(more);
        }
        self
    }

    /// Changes settings of training. `set` returns true if they were otherwise.
    fn set(&self, text: &str, note: &str, set: impl Fn(&mut Steps) -> bool) -> Option<Changed> {
        let mut other = self.clone();
        let Blueprint { training, parts, .. } = &mut other.blueprint;
        let is_another = set(training.as_mut()?);
        // Programs of all named steps declare the states of each.
        if let Some(part) = parts.all.get_mut(parts.at) {
            set(&mut part.steps);
        }
        is_another.then(|| other.told(text, note))
    }

    /// Returns the program with a change that a refusal may name, too.
    fn varied(&self, note: &str, vary: impl FnOnce(Variant) -> Option<Variant>, adviser: &Adviser) -> Option<Changed> {
        let Variant { blueprint, remedy, .. } = vary(Variant::as_written(&self.blueprint, adviser.tables.clone()))?;
        Some(Changed { blueprint, ..self.clone() }.told(remedy.change().as_str(), note))
    }

    fn at_batch(&self, batch: u64, training: bool) -> Option<Changed> {
        let parts = self.blueprint.training.as_ref().map_or(1, |steps| steps.descent.parts()).max(1);
        let is_another = batch > 0 && batch != self.batch && batch.is_multiple_of(parts);
        let note = if training { "another batch: choose the learning rate anew" } else { "another batch" };
        is_another.then(|| Changed { batch, ..self.clone() }.told(&format!("batch: {batch}"), note))
    }

    /// Returns the step with its logits in chunks. `None` if its loss cannot have so many, or has some.
    fn in_chunks(&self, count: u64) -> Option<Changed> {
        let automatic = self.blueprint.with_automatic_chunks()?;
        automatic.chunk_counts().contains(&count).then_some(())?;
        let chunks = Some(InChunks { count, time: 0, twice: false });
        let text = Remedy { chunks, ..Remedy::as_written(0) }.change();
        let blueprint = automatic.in_chunks(Chunks::Count(count));
        Some(Changed { blueprint, ..self.clone() }.told(text.as_str(), ""))
    }

    /// Returns a step of one rank on several.
    fn on_ranks(&self, count: u64, shard: Shard) -> Option<Changed> {
        let of_shard = if shard == Shard::None { String::new() } else { format!(" and shard: {}", shard.name()) };
        let set = |steps: &mut Steps| {
            let splits = self.batch.is_multiple_of(steps.descent.parts().saturating_mul(count));
            steps.descent.ranks = Ranks { count, shard, ..steps.descent.ranks };
            splits
        };
        self.set(&format!("ranks: {count}{of_shard}"), "takes two cards", set)
    }

    fn recomputing(&self, checkpoint: Checkpoint) -> Option<Changed> {
        let is_leanest = checkpoint == Checkpoint::Auto;
        let note = if is_leanest { "the leanest step; Auto recomputes no more than a card needs" } else { "" };
        let set = |steps: &mut Steps| replace(&mut steps.checkpoint, checkpoint) != checkpoint;
        let changed = self.set(&format!("checkpoint: {checkpoint:?}"), note, set)?;
        Some(Changed { is_leanest, ..changed })
    }
}

impl Adviser {
    /// Returns every change that is tried. The program cannot have all of them.
    pub(super) fn edits(&self) -> Vec<Edit> {
        let batch = self.written.batch;
        let mut found = self.precisions();
        found.extend([Edit::Batch(batch / 2), Edit::Batch(batch.saturating_mul(2)), Edit::LargestBatch]);
        if !self.training {
            return found;
        }
        found.push(Edit::InPlace);
        found.extend(CHUNKS.map(Edit::Chunks));
        let now = self.written.micro_batches();
        found.extend(MORE_PARTS.map(|times| Edit::MicroBatches(now.saturating_mul(times))));
        found.extend([Offload::OptimizerState, Offload::Activations, Offload::All].map(Edit::Offload));
        found.extend(Coding::ALL.map(Edit::Base));
        if self.written.ranks().is_alone() {
            found.extend(Shard::ALL.map(|shard| Edit::Ranks(MORE_RANKS, shard)));
        } else {
            found.extend(Shard::ALL.map(|shard| Edit::Ranks(1, shard)));
            found.push(Edit::Ranks(MORE_RANKS, Shard::Parameters));
        }
        found.extend(self.checkpoints().iter().copied().map(Edit::Checkpoint));
        // Optimizers that keep no tensor as large as a parameter.
        let small = Optimizer::DEFAULTS.iter().filter(|optimizer| whole_states(optimizer.moments()).0 == 0);
        found.extend(small.map(Edit::Optimizer));
        // Settings that save memory at the cost of time.
        found.extend([
            Edit::Update(Update::Fused),
            Edit::Checkpoint(Checkpoint::None),
            Edit::Offload(Offload::None),
            Edit::MicroBatches(1),
        ]);
        found
    }

    fn precisions(&self) -> Vec<Edit> {
        // Tensor cores before Ampere have no bfloat16.
        let half = match self.device {
            Some(Device::Known(card)) if card.compute_capability < (8, 0) => Half::F16,
            _ => Half::Bf16,
        };
        let narrow = match half {
            Half::Bf16 => Precision::Bf16,
            Half::F16 => Precision::F16,
        };
        let all: &[Precision] = match (self.written.precision, self.training) {
            (Precision::F32, true) => &[Precision::Mixed(half), narrow],
            (Precision::Mixed(_), true) | (Precision::F32, false) => &[narrow],
            _ => &[],
        };
        all.iter().copied().map(Edit::Precision).collect()
    }

    /// Returns choices that recompute more than the program does.
    fn checkpoints(&self) -> &'static [Checkpoint] {
        const ALL: [Checkpoint; 4] =
            [Checkpoint::Norms, Checkpoint::Cheap, Checkpoint::Budget(SHARE), Checkpoint::Auto];
        match self.written.blueprint.checkpoint() {
            Checkpoint::None => &ALL,
            Checkpoint::Norms => &ALL[1..],
            Checkpoint::Cheap => &ALL[2..],
            Checkpoint::Auto | Checkpoint::Budget(_) => &[],
        }
    }
}
