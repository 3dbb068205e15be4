//! Advice: changes of a program that save memory or time on a card. Each is lowered and planned, and has its price.

use super::planned::{NotPlanned, Planned};
use super::roofline::{Rates, Spent, spent};
use crate::cards::Card;
use crate::lower::{Blueprint, ChosenStep, OwnedTables, Sizes, Variant, sent, tables};
use crate::memory::budget::{BUS_BYTES, Line, budget_at};
use crate::memory::place::Placed;
use crate::memory::refusal::{InChunks, Remedy};
use crate::memory::target_cards::TargetCards;
use crate::number::{Half, Precision};
use crate::program::loss::Chunks;
use crate::train::optim::{Optimizer, whole_states};
use crate::train::{Checkpoint, Offload, Ranks, Shard, Update};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The memory and the least time of a planned program on one card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Samples in a step, of all ranks.
    pub batch: u64,
    /// The number formats.
    pub precision: Precision,
    /// Bytes of the card: the arena, the reserve and the memory of communication.
    pub total: u64,
    /// True if that, with the headroom, is at most what the card has.
    pub fits: bool,
    /// The least milliseconds of the operations of a step, by the card's bandwidth and arithmetic: see [`roofline`](mod@super::roofline).
    pub ms: f64,
    /// The milliseconds of a step's copies over the bus, to host memory and to other ranks, at [`BUS_BYTES`] a second. They may overlap operations.
    pub bus_ms: f64,
}

impl Cost {
    /// Returns the milliseconds of a sample, as if copies overlapped nothing.
    pub fn ms_a_sample(&self) -> f64 {
        (self.ms + self.bus_ms) / self.batch.max(1) as f64
    }
}

/// A change of a program, planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The change, as it is written in `TRAIN` or in the network.
    pub change: String,
    /// The other consequences of the change. Empty if the step computes what it did before.
    pub note: &'static str,
    /// The cost with the change.
    pub cost: Cost,
}

impl Advice {
    /// Returns the bytes that the change saves; negative if it takes more.
    pub fn saved(&self, now: &Cost) -> i128 {
        i128::from(now.total) - i128::from(self.cost.total)
    }

    /// Returns the time of a sample that the change adds, as a part of the time now. Negative if it saves time.
    pub fn added_time(&self, now: &Cost) -> f64 {
        self.cost.ms_a_sample() / now.ms_a_sample().max(f64::MIN_POSITIVE) - 1.0
    }

    /// Returns the bytes that it saves for each percent of time that it adds, with at least a tenth of a percent.
    fn worth(&self, now: &Cost) -> f64 {
        self.saved(now) as f64 / (100.0 * self.added_time(now)).max(0.1)
    }
}

/// The least share of the time that a change must save to be listed for it alone.
const LEAST_TIME: f64 = 0.005;

/// Multiples of the number of micro-batches that are tried.
const MORE_PARTS: [u64; 3] = [2, 4, 8];

/// Numbers of chunks of the logits that are tried.
const CHUNKS: [u64; 3] = [2, 8, 32];

/// The share of the step's memory that is tried with `checkpoint: Budget`.
const SHARE: f64 = 0.5;

/// The number of ranks that is tried for a step of one.
const TWO_RANKS: u64 = 2;

/// A changed program that is not planned yet.
struct Change {
    text: String,
    note: &'static str,
    blueprint: Blueprint,
    precision: Precision,
    batch: u64,
    /// True if the leanest of the programs between which memory decides is taken, rather than the first that fits.
    is_leanest: bool,
}

/// A card, and the bytes of it that stay free.
struct Aim<'p> {
    planned: &'p Planned,
    card: &'static Card,
    headroom: u64,
}

impl Planned {
    /// Returns the cost of the program on a card that leaves `headroom` bytes to others.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn cost(&self, card: &'static Card, headroom: u64) -> Result<Cost, NotPlanned> {
        let aim = Aim { planned: self, card, headroom };
        Ok(aim.planned(&aim.unchanged())?.1)
    }

    /// Returns the work of each layer on a card, in the order in which it runs.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn spent(&self, card: &'static Card, headroom: u64) -> Result<Vec<Spent>, NotPlanned> {
        let aim = Aim { planned: self, card, headroom };
        let change = aim.unchanged();
        let (step, _) = aim.planned(&change)?;
        aim.spent(&change, &step)
    }

    /// Returns changes of the program that save memory or time on a card, the best first: those that save most bytes for each percent of time, and
    /// then those that take more memory and save time.
    ///
    /// Each is one change. A change that saves neither is left out, and so is one that cannot be planned.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn advice(&self, card: &'static Card, headroom: u64) -> Result<Vec<Advice>, NotPlanned> {
        let aim = Aim { planned: self, card, headroom };
        let now = self.cost(card, headroom)?;
        let mut found: Vec<Advice> = aim.changes()?.iter().filter_map(|change| aim.advice(change)).collect();
        found.retain(|it| it.saved(&now) > 0 || it.added_time(&now) < -LEAST_TIME);
        let saves = |it: &Advice| it.saved(&now) > 0;
        found.sort_by(|a, b| {
            let order = match saves(a) && saves(b) {
                true => b.worth(&now).total_cmp(&a.worth(&now)),
                false => a.added_time(&now).total_cmp(&b.added_time(&now)),
            };
            saves(b).cmp(&saves(a)).then(order)
        });
        Ok(found)
    }
}

impl Aim<'_> {
    /// Returns the program as the user wrote it.
    fn unchanged(&self) -> Change {
        Change {
            text: String::new(),
            note: "",
            blueprint: self.planned.blueprint.clone(),
            precision: self.planned.precision,
            batch: self.planned.batch,
            is_leanest: false,
        }
    }

    fn target_cards<'c>(&self, card: &'c [Card], ranks: Ranks) -> TargetCards<'c> {
        TargetCards { headroom: self.headroom, ranks, ..TargetCards::at(card) }
    }

    fn sizes(&self, change: &Change) -> Sizes {
        let (card, convolution) = ([*self.card], self.planned.convolution_workspace);
        Sizes::of(&self.target_cards(&card, ranks(&change.blueprint)), change.batch, change.precision, convolution)
    }

    /// Lowers and plans a change.
    fn planned(&self, change: &Change) -> Result<(ChosenStep, Cost), NotPlanned> {
        let (sizes, ranks, card) = (self.sizes(change), ranks(&change.blueprint), [*self.card]);
        let room = if change.is_leanest { 0 } else { self.target_cards(&card, ranks).room() };
        let step = match self.planned.training {
            true => change.blueprint.choices(&sizes)?.ok_or(NotPlanned::Untrained)?.step(room)?,
            false => ChosenStep { program: change.blueprint.inference()?, chunks: None, more: None },
        };
        let tables = self.tables(change, &step);
        let limited = tables.as_tables().with_workspaces(sizes.workspaces);
        let budget = budget_at(&limited, change.batch, change.precision);
        let budget = budget.map_err(|error| NotPlanned::Plan(change.batch, error))?;
        let budget = budget.with_reserve(self.card.reserve()).with_communication(ranks.communication(Some(self.card)));
        let total = budget[Line::Total];
        let ms = self.spent(change, &step)?.iter().map(|spent| spent.ms).sum();
        let copied = budget.fetched.saturating_add(sent(&step.program, change.precision));
        let cost = Cost {
            batch: change.batch,
            precision: change.precision,
            total,
            fits: total.saturating_add(self.headroom) <= self.card.usable(),
            ms,
            bus_ms: copied as f64 * 1e3 / BUS_BYTES as f64,
        };
        Ok((step, cost))
    }

    fn tables(&self, change: &Change, step: &ChosenStep) -> OwnedTables {
        let mut owned = OwnedTables { micro_batches: micro_batches(&change.blueprint), ..tables(&step.program) };
        owned.ranks = owned.as_tables().on_ranks(ranks(&change.blueprint).count).ranks;
        owned
    }

    /// Returns the work of a changed program.
    fn spent(&self, change: &Change, step: &ChosenStep) -> Result<Vec<Spent>, NotPlanned> {
        let rates = Rates::of(self.card, change.precision, false);
        let rates = rates.map_err(|_| NotPlanned::NoRates(self.card.short_name))?;
        let tables = self.tables(change, step);
        let samples = tables.as_tables().samples(change.batch);
        let placed = Placed::unplaced(step.program.clone(), &Sizes { batch: samples, ..self.sizes(change) });
        let parts = if self.planned.training { tables.micro_batches } else { 1 };
        Ok(spent(&placed, parts, samples.saturating_mul(parts), self.planned.layers.len(), &rates))
    }

    /// Plans a change. `None` if it has no plan.
    fn advice(&self, change: &Change) -> Option<Advice> {
        let (_, cost) = self.planned(change).ok()?;
        Some(Advice { change: change.text.clone(), note: change.note, cost })
    }

    /// Returns every change that is tried.
    fn changes(&self) -> Result<Vec<Change>, NotPlanned> {
        let mut found = self.precisions();
        found.extend(self.batches());
        if self.planned.training {
            found.extend(self.variants());
            found.extend(self.checkpoints());
            found.extend(self.optimizers());
            found.extend(self.undone());
        }
        Ok(found)
    }

    fn precisions(&self) -> Vec<Change> {
        // Tensor cores before Ampere have no bfloat16.
        let half = if self.card.compute_capability >= (8, 0) { Half::Bf16 } else { Half::F16 };
        let narrow = match half {
            Half::Bf16 => Precision::Bf16,
            Half::F16 => Precision::F16,
        };
        let all = match (self.planned.precision, self.planned.training) {
            (Precision::F32, true) => Vec::from([Precision::Mixed(half), narrow]),
            (Precision::Mixed(_), true) | (Precision::F32, false) => Vec::from([narrow]),
            _ => Vec::new(),
        };
        let change = |precision: Precision| Change {
            text: format!("precision: {}", precision.name()),
            note: "rounds to 16 bits",
            precision,
            ..self.unchanged()
        };
        all.into_iter().map(change).collect()
    }

    fn batches(&self) -> Vec<Change> {
        let (batch, parts) = (self.planned.batch, self.planned.tables.as_tables().parts.max(1));
        let largest = self.planned.within(&[self.card], super::Device::Known(self.card), self.headroom);
        let largest = largest.map_or(0, |(_, largest)| largest);
        let mut all = Vec::from([batch / 2, batch.saturating_mul(2), largest]);
        all.retain(|&other| other > 0 && other != batch && other <= largest.max(batch) && other.is_multiple_of(parts));
        all.dedup();
        let note = if self.planned.training { "another batch: choose the learning rate anew" } else { "another batch" };
        let change = |batch| Change { text: format!("batch: {batch}"), note, batch, ..self.unchanged() };
        all.into_iter().map(change).collect()
    }

    /// Returns the changes that a refusal may name, whether the step fits or not.
    fn variants(&self) -> Vec<Change> {
        let (planned, change) = (self.planned, self.unchanged());
        let written = Variant::as_written(&planned.blueprint, planned.tables.clone());
        let of = |way: Variant, note| Change {
            text: way.remedy.change().as_str().into(),
            blueprint: way.blueprint,
            note,
            ..self.unchanged()
        };
        let mut found: Vec<Change> = Vec::new();
        found.extend(written.in_place().map(|way| of(way, "")));
        found.extend(self.chunks());
        let numbers = written.parts(change.batch);
        let now = micro_batches(&planned.blueprint);
        let more = MORE_PARTS.into_iter().map(|times| now.saturating_mul(times)).filter(|more| numbers.contains(more));
        found.extend(more.map(|more| of(written.in_parts(more), "")));
        let offloads = [Offload::OptimizerState, Offload::Activations, Offload::All];
        let offloads = offloads.into_iter().filter_map(|what| written.offloading(what, change.precision));
        found.extend(offloads.map(|way| of(way, "takes host memory")));
        if ranks(&planned.blueprint).is_alone() {
            found.extend(self.two_ranks());
        } else {
            let shards = Shard::ALL.into_iter().filter_map(|shard| written.shared(1, shard, change.batch));
            found.extend(shards.map(|way| of(way, "")));
            let twice = written.shared(2, Shard::Parameters, change.batch);
            found.extend(twice.map(|way| of(way, "takes twice as many cards")));
        }
        found
    }

    /// Returns the step with logits in some numbers of chunks, if its loss can have chunks and has none.
    fn chunks(&self) -> Vec<Change> {
        let Some(automatic) = self.planned.blueprint.with_automatic_chunks() else { return Vec::new() };
        let possible = automatic.chunk_counts();
        let of = |count: u64| {
            let chunks = Some(InChunks { count, time: 0, twice: false });
            let text = Remedy { chunks, ..Remedy::as_written(0) }.change().as_str().into();
            Change { text, blueprint: automatic.in_chunks(Chunks::Count(count)), ..self.unchanged() }
        };
        CHUNKS.into_iter().filter(|count| possible.contains(count)).map(of).collect()
    }

    /// Returns a step of one rank on two, with each kind of shards.
    fn two_ranks(&self) -> Vec<Change> {
        let of = |shard: Shard| {
            let mut change = self.unchanged();
            let steps = change.blueprint.training.as_mut()?;
            let splits = self.planned.batch.is_multiple_of(steps.descent.parts().saturating_mul(TWO_RANKS));
            steps.descent.ranks = Ranks { count: TWO_RANKS, shard, ..steps.descent.ranks };
            let shard = if shard == Shard::None { String::new() } else { format!(" and shard: {}", shard.name()) };
            change.text = format!("ranks: {TWO_RANKS}{shard}");
            change.note = "takes two cards";
            splits.then_some(change)
        };
        Shard::ALL.into_iter().filter_map(of).collect()
    }

    fn checkpoints(&self) -> Vec<Change> {
        let all = match self.planned.blueprint.checkpoint() {
            Checkpoint::None => {
                Vec::from([Checkpoint::Norms, Checkpoint::Cheap, Checkpoint::Budget(SHARE), Checkpoint::Auto])
            }
            Checkpoint::Norms => Vec::from([Checkpoint::Cheap, Checkpoint::Budget(SHARE), Checkpoint::Auto]),
            Checkpoint::Cheap => Vec::from([Checkpoint::Budget(SHARE), Checkpoint::Auto]),
            Checkpoint::Auto | Checkpoint::Budget(_) => Vec::new(),
        };
        let of = |checkpoint: Checkpoint| {
            let mut change = self.unchanged();
            change.blueprint.training.as_mut()?.checkpoint = checkpoint;
            change.is_leanest = checkpoint == Checkpoint::Auto;
            change.text = format!("checkpoint: {checkpoint:?}");
            if change.is_leanest {
                change.note = "the leanest step; Auto recomputes no more than a card needs";
            }
            Some(change)
        };
        all.into_iter().filter_map(of).collect()
    }

    fn optimizers(&self) -> Vec<Change> {
        // Those that keep no tensor as large as a parameter.
        let known = Optimizer::DEFAULTS.iter().filter(|optimizer| whole_states(optimizer.moments()).0 == 0);
        let of = |optimizer: &Optimizer| {
            let mut change = self.unchanged();
            let steps = change.blueprint.training.as_mut()?;
            let is_another = steps.moments != optimizer.moments();
            steps.moments = optimizer.moments();
            change.text = format!("optimizer: {}", optimizer.row().name);
            change.note = "another optimizer: choose its rate anew";
            is_another.then_some(change)
        };
        known.filter_map(of).collect()
    }

    /// Returns the step without settings that save memory at the cost of time, and with updates as soon as gradients are there.
    fn undone(&self) -> Vec<Change> {
        let with = |text: &str, set: &dyn Fn(&mut crate::lower::Steps) -> bool| {
            let mut change = Change { text: text.into(), ..self.unchanged() };
            let is_another = change.blueprint.training.as_mut().is_some_and(set);
            is_another.then_some(change)
        };
        let all = [
            with("update: Fused", &|steps| core::mem::replace(&mut steps.update, Update::Fused) != Update::Fused),
            with("checkpoint: None", &|steps| {
                core::mem::replace(&mut steps.checkpoint, Checkpoint::None) != Checkpoint::None
            }),
            with("offload: None", &|steps| {
                core::mem::replace(&mut steps.descent.offload, Offload::None) != Offload::None
            }),
            with("micro_batches: 1", &|steps| core::mem::replace(&mut steps.descent.micro_batches, 1) != 1),
        ];
        all.into_iter().flatten().collect()
    }
}

fn ranks(blueprint: &Blueprint) -> Ranks {
    blueprint.training.as_ref().map_or(Ranks::ALONE, |steps| steps.descent.ranks)
}

fn micro_batches(blueprint: &Blueprint) -> u64 {
    blueprint.training.as_ref().map_or(1, |steps| steps.descent.micro_batches)
}
