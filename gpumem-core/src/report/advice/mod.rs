//! Advice: changes of a program that save memory or time on a device. Each is lowered and planned, and has its price.
//!
//! First every change is planned alone. Of two changes at once only the likeliest few are planned: [`pairs`] estimates them from the costs of the
//! changes alone.

mod edit;
mod pairs;

use super::planned::{Device, NotPlanned, Planned, Written, room_within, tables_in};
use super::roofline::{Rates, Spent, spent};
use crate::cards::Card;
use crate::lower::{ChosenStep, OwnedTables, Sizes, sent};
use crate::memory::budget::{BUS_BYTES, Budget, Line, budget_at};
use crate::memory::place::Placed;
use crate::memory::target_cards::TargetCards;
use crate::number::Precision;
use crate::program::Phase;
use crate::train::Ranks;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use edit::{Changed, Edit};

/// The memory and the least time of a planned program on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Samples in a step, of all ranks.
    pub batch: u64,
    /// The number formats.
    pub precision: Precision,
    /// The budget, with the reserve of the device and the memory of communication.
    pub budget: Budget,
    /// True if its total, with the headroom, is at most what the device has. True without a device.
    pub fits: bool,
    /// Operations that run a second time for the backward pass.
    pub recomputed: usize,
    /// The least milliseconds of the operations of a step, by the card's bandwidth and arithmetic: see [`roofline`](mod@super::roofline). 0 if
    /// its rates are unknown.
    pub ms: f64,
    /// The milliseconds of a step's copies over the bus, to host memory and to other ranks, at [`Device::host_rate`]. They may overlap operations.
    pub bus_ms: f64,
}

impl Cost {
    /// Returns the bytes of the device: the arena, the reserve and the memory of communication.
    pub fn total(&self) -> u64 {
        self.budget[Line::Total]
    }

    /// Returns the milliseconds of a sample, as if copies overlapped nothing.
    pub fn ms_a_sample(&self) -> f64 {
        (self.ms + self.bus_ms) / self.batch.max(1) as f64
    }

    /// Returns the time of a sample beyond that of `now`, as a part of it. Negative for less time, and 0 if the device's rates are unknown.
    fn added_time(&self, now: &Cost) -> f64 {
        if now.ms > 0.0 { self.ms_a_sample() / now.ms_a_sample() - 1.0 } else { 0.0 }
    }

    /// Returns the bytes that it needs less than `now`; negative for more.
    fn saved(&self, now: &Cost) -> i128 {
        i128::from(now.total()) - i128::from(self.total())
    }

    /// Returns the bytes that it saves for each percent of time that it adds, with at least a tenth of a percent.
    fn worth(&self, now: &Cost) -> f64 {
        self.saved(now) as f64 / (100.0 * self.added_time(now)).max(0.1)
    }
}

/// One change of a program or two at once, planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The change, as it is written in `TRAIN` or in the network. Two are joined by `and`.
    pub change: String,
    /// The other consequences of the change. Empty if the step computes what it did before.
    pub note: String,
    /// The cost with the change.
    pub cost: Cost,
}

impl Advice {
    /// Returns the bytes that the change saves; negative if it takes more.
    pub fn saved(&self, now: &Cost) -> i128 {
        self.cost.saved(now)
    }

    /// Returns the time of a sample that the change adds, as a part of the time now. Negative if it saves time.
    pub fn added_time(&self, now: &Cost) -> f64 {
        self.cost.added_time(now)
    }
}

/// The changes that an [`Adviser`] plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One change at a time, on as many cards as now.
    Single,
    /// Those, more cards, and two changes at once, which takes much longer.
    All,
}

/// The least share of the time that a change must save to be listed for it alone.
const LEAST_TIME: f64 = 0.005;

/// A program, and the device on which changes of it are planned. Threads may share it.
#[derive(Debug)]
pub struct Adviser {
    /// The program as the user wrote it.
    written: Changed,
    training: bool,
    /// True if the network has `INFER`.
    infers: bool,
    /// The tables of the program.
    tables: OwnedTables,
    /// The number of layers.
    layers: usize,
    convolution_workspace: u64,
    cards: Vec<&'static Card>,
    device: Option<Device>,
    headroom: u64,
}

impl Planned {
    /// Returns what plans changes of the program for the target cards `aim`: see [`Planned::within`].
    ///
    /// Costs are those on `device`, which leaves `headroom` bytes to others. Without a device, no change has a time, and everything fits.
    pub fn adviser(&self, aim: &[&'static Card], device: Option<Device>, headroom: u64) -> Adviser {
        Adviser {
            written: Changed::nothing(&self.blueprint, self.precision, self.batch),
            training: self.training,
            infers: self.infers,
            tables: self.tables.clone(),
            layers: self.layers.len(),
            convolution_workspace: self.convolution_workspace,
            cards: aim.to_vec(),
            device,
            headroom,
        }
    }
}

impl Adviser {
    /// Returns the cost of the program without a change.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn now(&self) -> Result<Cost, NotPlanned> {
        self.cost(&self.written)
    }

    /// Returns the work of each layer, in the order in which it runs.
    ///
    /// # Errors
    /// See [`NotPlanned`]. A size without a card has no rates.
    pub fn spent(&self) -> Result<Vec<Spent>, NotPlanned> {
        let rates = self.rates(self.written.precision)?;
        Ok(self.work(&self.written, &self.step(&self.written)?, &rates))
    }

    /// Returns changes that save memory or time, the best first: those that save most bytes for each percent of time, and then those that take
    /// more memory and save time. `now` is the cost without a change.
    ///
    /// A change that saves neither is left out, and so is one that cannot be planned. Two changes at once are listed if they fit the device where
    /// none alone does, or if they are better than each alone. `extent` says which changes are planned.
    ///
    /// `each` gets a count and a function, and returns the function's result for each number below the count, in order. A caller with threads may call the
    /// function several times at once.
    pub fn advice(
        &self,
        now: &Cost,
        extent: Extent,
        each: impl Fn(usize, &(dyn Fn(usize) -> Option<Advice> + Sync)) -> Vec<Option<Advice>>,
    ) -> Vec<Advice> {
        let mut edits = self.edits();
        edits.retain(|edit| extent == Extent::All || !edit.takes_cards());
        let alone = each(edits.len(), &|index| self.planned(now, &edits[index..=index]));
        let alone: Vec<(Edit, Advice)> =
            edits.into_iter().zip(alone).filter_map(|(edit, advice)| Some((edit, advice?))).collect();
        let limit = self.device.map_or(u64::MAX, Device::usable).saturating_sub(self.headroom);
        let likely = match extent {
            Extent::Single => Vec::new(),
            Extent::All => pairs::likely(now, &alone, limit, |pair| self.changed(&pair).is_some()),
        };
        let both = each(likely.len(), &|index| self.planned(now, &likely[index].map(|at| alone[at].0)));
        let mut found: Vec<Advice> = Vec::new();
        for (of, both) in likely.iter().zip(both) {
            found.extend(both.filter(|both| pairs::is_worth_both(now, &both.cost, of, &alone)));
        }
        found.extend(alone.into_iter().map(|(_, advice)| advice));
        found.retain(|it| it.saved(now) > 0 || it.added_time(now) < -LEAST_TIME);
        sort(&mut found, now);
        // The largest batch may be half or twice the batch.
        let mut told: BTreeSet<String> = BTreeSet::new();
        found.retain(|it| told.insert(it.change.clone()));
        found
    }

    /// Returns the program with these changes, one after another. `None` if it cannot have them.
    fn changed(&self, edits: &[Edit]) -> Option<Changed> {
        edits.iter().try_fold(self.written.clone(), |changed, edit| changed.with(*edit, self))
    }

    /// Plans a program with these changes. `None` if it cannot have them, or has no plan with them.
    fn planned(&self, now: &Cost, edits: &[Edit]) -> Option<Advice> {
        let changed = self.changed(edits)?;
        let cost = self.cost(&changed).ok()?;
        // A larger batch is of use only if the device has memory for it.
        let is_possible = cost.batch <= now.batch || cost.fits;
        is_possible.then_some(Advice { change: changed.text, note: changed.note, cost })
    }

    fn target_cards<'c>(&self, cards: &'c [Card], ranks: Ranks) -> TargetCards<'c> {
        TargetCards { headroom: self.headroom, ranks, ..TargetCards::at(cards) }
    }

    fn sizes(&self, changed: &Changed) -> Sizes {
        let cards: Vec<Card> = self.cards.iter().copied().copied().collect();
        let target_cards = self.target_cards(&cards, changed.ranks());
        Sizes::of(&target_cards, changed.batch, changed.precision, self.convolution_workspace)
    }

    /// Returns the step of a changed program that the compiler would choose.
    fn step(&self, changed: &Changed) -> Result<ChosenStep, NotPlanned> {
        if !self.training {
            return Ok(ChosenStep { program: changed.blueprint.inference()?, chunks: None, more: None });
        }
        let room = match changed.is_leanest {
            true => 0,
            false => room_within(&self.cards, self.device, self.headroom, changed.ranks()),
        };
        let choices = changed.blueprint.choices(&self.sizes(changed))?.ok_or(NotPlanned::Untrained)?;
        Ok(choices.step(room)?)
    }

    /// Lowers and plans a changed program.
    fn cost(&self, changed: &Changed) -> Result<Cost, NotPlanned> {
        let &Changed { batch, precision, .. } = changed;
        let (step, ranks) = (self.step(changed)?, changed.ranks());
        let tables = self.tables(changed, &step);
        let limited = tables.as_tables().with_workspaces(self.sizes(changed).workspaces);
        let budget = budget_at(&limited, batch, precision).map_err(|error| NotPlanned::Plan(batch, error))?;
        let budget = budget
            .with_reserve(self.device.map_or(0, Device::reserve))
            .with_communication(self.device.map_or(0, |device| device.communication(ranks)));
        let rates = self.rates(precision).ok();
        let copied = budget.fetched.saturating_add(sent(&step.program, precision));
        let with_headroom = budget[Line::Total].saturating_add(self.headroom);
        Ok(Cost {
            batch,
            precision,
            budget,
            fits: self.device.is_none_or(|device| with_headroom <= device.usable()),
            recomputed: step.program.operations.iter().filter(|it| it.phase() == Phase::Again).count(),
            ms: rates.map_or(0.0, |rates| self.work(changed, &step, &rates).iter().map(|spent| spent.ms).sum()),
            bus_ms: copied as f64 * 1e3 / self.device.map_or(BUS_BYTES, Device::host_rate) as f64,
        })
    }

    fn tables(&self, changed: &Changed, step: &ChosenStep) -> OwnedTables {
        tables_in(&step.program, changed.micro_batches(), changed.ranks())
    }

    fn rates(&self, precision: Precision) -> Result<Rates, NotPlanned> {
        match self.device {
            Some(Device::Known(card)) => {
                Rates::of(card, precision, false).map_err(|_| NotPlanned::NoRates(card.short_name))
            }
            Some(Device::Size(_)) | None => Err(NotPlanned::NoRates("a size")),
        }
    }

    /// Returns the work of a changed program.
    fn work(&self, changed: &Changed, step: &ChosenStep, rates: &Rates) -> Vec<Spent> {
        let tables = self.tables(changed, step);
        let samples = tables.as_tables().samples(changed.batch);
        let placed = Placed::unplaced(step.program.clone(), &Sizes { batch: samples, ..self.sizes(changed) });
        let parts = if self.training { tables.micro_batches } else { 1 };
        spent(&placed, parts, samples.saturating_mul(parts), self.layers, rates)
    }

    /// Returns the largest batch of a changed program that fits. `None` without a device, or if the program has no plan.
    fn largest_batch(&self, changed: &Changed) -> Option<u64> {
        let written = Written {
            batch: Some(changed.batch),
            precision: changed.precision,
            headroom: self.headroom,
            convolution_workspace: self.convolution_workspace,
            cards: self.cards.clone(),
        };
        let plan = Planned::new(&changed.blueprint, &written, changed.batch, [self.training, self.infers]).ok()?;
        Some(plan.within(&self.cards, self.device?, self.headroom).ok()?.1)
    }
}

/// Sorts advice, the best first.
fn sort(all: &mut [Advice], now: &Cost) {
    let saves = |it: &Advice| it.saved(now) > 0;
    all.sort_by(|a, b| {
        let order = match saves(a) && saves(b) {
            true => b.cost.worth(now).total_cmp(&a.cost.worth(now)),
            false => a.added_time(now).total_cmp(&b.added_time(now)),
        };
        saves(b).cmp(&saves(a)).then(order)
    });
}
