//! The programs of networks that were built, each with its plans and its place in reports.

use crate::Failure;
use crate::network::Network;
use crate::options::Settings;
use gpumem_core::cards::Card;
use gpumem_core::lower::{Blueprint, Steps};
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::memory::refusal::Remedies;
use gpumem_core::report::{Advice, Adviser, Cheaper, Cost, Device, Extent, NotPlanned, Planned, Written};
use gpumem_core::train::{Ranks, Shard, not_split_over_ranks};
use gpumem_core::{Half, Precision};
use rayon::prelude::*;
use std::borrow::Cow;

/// One of a network's programs, with its settings.
pub struct PlannedProgram {
    /// The network's name, with `(inference)` after it if the network has both programs.
    pub title: String,
    /// The title in tables. It contains the package or the place if another network has the same name.
    pub label: String,
    pub package: Option<String>,
    /// True for the first program of its network, which `fits!` asks about.
    pub is_primary: bool,
    pub file: String,
    pub line: u64,
    pub plan: Planned,
}

/// A change with which a program fits on a device that is too small for it.
pub struct Alternative {
    /// The change, as it is written in `TRAIN` or in `forward`, with its price.
    pub change: String,
    /// Bytes that the device then needs.
    pub total: u64,
}

/// Returns the programs of a network that its constants ask for.
pub fn steps(network: &Network, settings: &Settings) -> Result<Vec<PlannedProgram>, Failure> {
    let mut steps = Vec::new();
    let both = network.train.is_some() && network.infer.is_some();
    for (written, training) in [(&network.train, true), (&network.infer, false)] {
        if let Some(written) = written {
            let mut step = step(network, written, training, settings)?;
            step.is_primary = steps.is_empty();
            if both && !training {
                step.title += " (inference)";
                step.label += " (inference)";
            }
            steps.push(step);
        }
    }
    Ok(steps)
}

/// Returns one program of a network. Of several training steps, this is the one with the largest arena.
pub fn step(
    network: &Network,
    written: &Written,
    training: bool,
    settings: &Settings,
) -> Result<PlannedProgram, Failure> {
    if !training || network.is_largest || network.blueprint.parts.all.len() < 2 {
        return one_step(network, written, training, settings);
    }
    let mut largest: Option<(u64, PlannedProgram)> = None;
    for blueprint in network.blueprint.steps() {
        let network = Network { blueprint, ..network.clone() };
        let step = one_step(&network, written, training, settings)?;
        let arena = step.budget(&step.plan.cards)?[Line::Arena];
        if largest.as_ref().is_none_or(|(most, _)| arena > *most) {
            largest = Some((arena, step));
        }
    }
    let none = || format!("`{}` has no training step", network.name);
    Ok(largest.ok_or_else(none)?.1)
}

fn one_step(
    network: &Network,
    written: &Written,
    training: bool,
    settings: &Settings,
) -> Result<PlannedProgram, Failure> {
    let name = &network.name;
    // The largest batch is searched from a plan of any.
    let any = settings.takes_largest().then_some(1);
    let batch = settings.samples().or(written.batch).or(any).ok_or_else(|| {
        format!("`{name}` is generic over its batch: give one with `--batch`, or check an instance with `fits!({name}<64>);`")
    })?;
    let written = Written { precision: settings.precision.unwrap_or(written.precision), ..written.clone() };
    let blueprint = on_ranks(&network.blueprint, name, batch, settings)?;
    let plan = Planned::new(&blueprint, &written, batch, [training, network.infer.is_some()])
        .map_err(|error| failure(name, &error))?;
    let mut label =
        plan.step.as_ref().map_or_else(|| network.label.clone(), |step| format!("{} (step {step})", network.label));
    label += &ranks(plan.ranks()).map(|ranks| format!(" ({ranks})")).unwrap_or_default();
    Ok(PlannedProgram {
        title: name.clone(),
        label,
        package: network.package.clone(),
        is_primary: true,
        file: network.file.clone(),
        line: network.line,
        plan,
    })
}

/// Returns a network as the ranks of these settings share it, and checks that the batch splits over them.
fn on_ranks<'b>(
    blueprint: &'b Blueprint,
    name: &str,
    batch: u64,
    settings: &Settings,
) -> Result<Cow<'b, Blueprint>, Failure> {
    let mut blueprint = Cow::Borrowed(blueprint);
    if settings.ranks.is_some() || settings.shard.is_some() {
        let parts = blueprint.to_mut();
        let steps = parts.parts.all.iter_mut().map(|part| &mut part.steps).chain(&mut parts.training);
        for Ranks { count, shard, .. } in steps.map(|steps| &mut steps.descent.ranks) {
            (*count, *shard) = (settings.ranks.unwrap_or(*count), settings.shard.unwrap_or(*shard));
        }
    }
    let Some(Steps { descent, .. }) = &blueprint.training else { return Ok(blueprint) };
    if descent.ranks.is_alone() && settings.shard.is_some_and(|shard| shard != Shard::None) {
        return Err(format!("`{name}` has one rank, which has nothing to share; say how many, as `--ranks 8`").into());
    }
    // The largest batch is a multiple of all parts.
    if !settings.takes_largest() && !descent.ranks.is_alone() && !batch.is_multiple_of(descent.parts()) {
        let said = not_split_over_ranks::<256>(batch, descent.ranks.count, descent.micro_batches);
        return Err(format!("`{name}`: {}", said.as_str()).into());
    }
    Ok(blueprint)
}

/// Returns ranks in words, such as `8 ranks, shard: Parameters`. `None` for one rank.
pub fn ranks(ranks: Ranks) -> Option<String> {
    let shard = Some(ranks.shard).filter(|&shard| shard != Shard::None);
    let shard = shard.map(|shard| format!(", shard: {}", shard.name())).unwrap_or_default();
    (!ranks.is_alone()).then(|| format!("{} ranks{shard}", ranks.count))
}

/// Returns the changes that [`Adviser::advice`] lists. Several are planned at once.
pub fn advice(adviser: &Adviser, now: &Cost, extent: Extent) -> Vec<Advice> {
    adviser.advice(now, extent, |count, plan| (0..count).into_par_iter().with_max_len(1).map(plan).collect())
}

/// Returns the error for a network that has no plan.
fn failure(name: &str, error: &NotPlanned) -> Failure {
    match error {
        NotPlanned::Lower(_) | NotPlanned::NoBatch | NotPlanned::NoRates(_) => format!("`{name}`: {error}").into(),
        NotPlanned::Untrained => format!("`{name}` has no training step").into(),
        NotPlanned::Plan(..) => format!("`{name}` {error}").into(),
    }
}

impl PlannedProgram {
    /// Returns `train` or `infer`.
    pub fn program_name(&self) -> &'static str {
        if self.plan.training { "train" } else { "infer" }
    }

    /// Returns the bytes that a budget comes to on a device, with its reserve and the memory of the communication library.
    pub fn total(&self, budget: Budget, device: Device) -> u64 {
        budget.with_reserve(device.reserve()).with_communication(device.communication(self.plan.ranks()))[Line::Total]
    }

    /// Returns the bytes of a device that the arena may have.
    pub fn room(&self, device: Device, headroom: u64) -> u64 {
        device.room(headroom, self.plan.ranks())
    }

    /// Returns the budget that the compiler plans for the cards of the network: see [`Planned::written`].
    pub fn written(&self) -> Result<Budget, Failure> {
        self.named(self.plan.written())
    }

    /// Returns the budget for these target cards, with a reserve of 0.
    pub fn budget(&self, aim: &[&Card]) -> Result<Budget, Failure> {
        self.named(self.plan.budget(aim))
    }

    /// Returns the budget and the largest batch on a device, planned for the target cards `aim`: see [`Planned::within`].
    pub fn within(&self, aim: &[&'static Card], device: Device, headroom: u64) -> Result<(Budget, u64), Failure> {
        self.named(self.plan.within(aim, device, headroom))
    }

    /// Returns the budget and the largest batch on a device, planned as the compiler did: see [`Planned::as_written`].
    pub fn as_written(&self, device: Device, headroom: u64) -> Result<(Budget, u64), Failure> {
        self.named(self.plan.as_written(device, headroom))
    }

    /// Returns a change with which less is recomputed: see [`Planned::cheaper_within`].
    pub fn cheaper_within(
        &self,
        aim: &[&'static Card],
        device: Device,
        headroom: u64,
    ) -> Result<Option<Cheaper>, Failure> {
        self.named(self.plan.cheaper_within(aim, device, headroom))
    }

    /// Returns a change with which less is recomputed: see [`Planned::cheaper_as_written`].
    pub fn cheaper_as_written(&self) -> Result<Option<Cheaper>, Failure> {
        self.named(self.plan.cheaper_as_written())
    }

    /// Returns changes with which the program fits on a device, each with the bytes of [`PlannedProgram::total`]. The cheapest come first.
    ///
    /// They are those of a refusal: other programs of a step, and other number formats for one in f32.
    pub fn alternatives_within(&self, aim: &[&'static Card], device: Device, headroom: u64) -> Vec<Alternative> {
        let beside = device.reserve().saturating_add(device.communication(self.plan.ranks()));
        let remedies = self.plan.alternatives_within(aim, device, headroom).unwrap_or_default();
        let found = remedies.iter().map(|remedy| Alternative {
            change: remedy.text().as_str().into(),
            total: remedy.arena.saturating_add(beside),
        });
        let mut found: Vec<Alternative> = found.collect();
        if found.len() < Remedies::MOST && self.plan.precision == Precision::F32 {
            let mixed = Some(Precision::Mixed(Half::Bf16)).filter(|_| self.plan.training);
            let tried = mixed.into_iter().chain([Precision::Bf16]);
            found.extend(tried.filter_map(|it| self.in_precision(it, (aim, device, headroom))).next());
        }
        found
    }

    /// Returns another precision as a change, if the program fits on a device then.
    fn in_precision(
        &self,
        precision: Precision,
        (aim, device, headroom): (&[&'static Card], Device, u64),
    ) -> Option<Alternative> {
        let other = self.plan.in_precision(precision).ok()?;
        let total = self.total(other.within(aim, device, headroom).ok()?.0, device);
        let change = format!("precision: {}", precision.name());
        (total.saturating_add(headroom) <= device.usable()).then_some(Alternative { change, total })
    }

    /// Returns the longest cache that fits: see [`Planned::longest_cache`].
    pub fn longest_cache(&self, aim: &[&Card], room: u64) -> Option<u64> {
        self.plan.longest_cache(aim, room)
    }

    /// Returns the program at the largest batch that fits all these devices, planned for the target cards `aim`. At batch 1 if none fits.
    pub fn at_largest(
        &self,
        aim: &[&'static Card],
        devices: &[Device],
        headroom: u64,
    ) -> Result<PlannedProgram, Failure> {
        let mut least = u64::MAX;
        for device in devices {
            least = least.min(self.within(aim, *device, headroom)?.1);
        }
        let plan = self.named(self.plan.at(least.max(1)))?;
        Ok(PlannedProgram {
            title: self.title.clone(),
            label: self.label.clone(),
            package: self.package.clone(),
            file: self.file.clone(),
            plan,
            ..*self
        })
    }

    fn named<T>(&self, planned: Result<T, NotPlanned>) -> Result<T, Failure> {
        planned.map_err(|error| failure(&self.title, &error))
    }
}
