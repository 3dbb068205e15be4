//! Plans of a network at any batch, precision and card, made with the functions that the compiler evaluates.

use crate::Failure;
use crate::facts::Written;
use crate::network::Network;
use crate::options::{Device, Settings};
use gpumem_core::Precision;
use gpumem_core::cards::{Card, UNKNOWN_RESERVE, reserve_of_size};
use gpumem_core::lower::{Blueprint, Cached, LayerLine, LowerError, OwnedTables, Sizes, lower_cached, tables};
use gpumem_core::memory::budget::{Budget, Line, PlanError, budget_at};
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::program::Program;
use gpumem_core::report::Arenas;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// One of a network's programs, with its settings.
pub struct PlannedProgram {
    /// The network's name, with `(inference)` after it if the network has both programs.
    pub title: String,
    /// The title in tables. It contains the package or the place if another network has the same name.
    pub label: String,
    pub package: Option<String>,
    pub training: bool,
    /// True for the first program of its network, which `fits!` asks about.
    pub is_primary: bool,
    pub file: String,
    pub line: u64,
    pub batch: u64,
    pub precision: Precision,
    pub headroom: u64,
    /// The cards that the network names.
    pub cards: Vec<&'static Card>,
    pub program: Program,
    pub layers: Vec<LayerLine>,
    tables: OwnedTables,
    convolution_workspace: u64,
    /// The blueprint of a step whose recomputation depends on the cards. `None` for others.
    recomputed: Option<Blueprint>,
    /// The blueprint of a program that keeps a cache. `None` for others.
    cached: Option<Blueprint>,
    /// Budgets that were planned, by the scratch limit of matrix products, which depends on the card, and by batch.
    budgets: RefCell<HashMap<u64, ByBatch>>,
}

/// Budgets by batch.
type ByBatch = BTreeMap<u64, Result<Budget, PlanError>>;

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
        let arena = step.budget(&step.cards)?[Line::Arena];
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
    let precision = settings.precision.unwrap_or(written.precision);
    let batch = settings.batch.or(written.batch).ok_or_else(|| {
        format!("`{name}` is generic over its batch: give one with `--batch`, or check an instance with `fits!({name}<64>);`")
    })?;
    let cards = owned(&written.cards);
    let target_cards = TargetCards { headroom: written.headroom, ..TargetCards::at(&cards) };
    let sizes = Sizes::of(&target_cards, batch, precision, written.convolution_workspace);
    let lowered = match training {
        true => network.blueprint.chosen(&sizes, target_cards.room()).transpose(),
        false => Some(network.blueprint.inference()),
    };
    let program = lowered.ok_or_else(|| format!("`{name}` has no training step"))?;
    let program = program.map_err(|error| format!("`{name}`: {}", error.message))?;
    let layers = network.blueprint.layers(&program);
    // A forward pass at the batch of `TRAIN` takes micro-batches of the same size as training does.
    let parts = network.blueprint.training.as_ref().filter(|_| training || network.infer.is_none());
    let micro_batches = parts.map_or(1, |steps| steps.descent.micro_batches);
    let tables = OwnedTables { micro_batches, ..tables(&program) };
    let constant = network.blueprint.step_name().filter(|_| training);
    let label = constant.map_or_else(|| network.label.clone(), |step| format!("{} (step {step})", network.label));
    Ok(PlannedProgram {
        title: name.clone(),
        label,
        package: network.package.clone(),
        training,
        is_primary: true,
        file: network.file.clone(),
        line: network.line,
        batch,
        precision,
        headroom: written.headroom,
        cards: written.cards.clone(),
        program,
        layers,
        tables,
        convolution_workspace: written.convolution_workspace,
        recomputed: (training && network.blueprint.takes_what_fits()).then(|| network.blueprint.clone()),
        cached: (!training && network.blueprint.cached.is_some()).then(|| network.blueprint.clone()),
        budgets: RefCell::default(),
    })
}

fn owned(cards: &[&Card]) -> Vec<Card> {
    cards.iter().copied().copied().collect()
}

/// Returns the bytes that an arena may have on all of these cards, or the largest number if there are none.
fn room(cards: &[&Card], headroom: u64) -> u64 {
    TargetCards { headroom, ..TargetCards::at(&owned(cards)) }.room()
}

impl PlannedProgram {
    /// Returns `train` or `infer`.
    pub fn program_name(&self) -> &'static str {
        if self.training { "train" } else { "infer" }
    }

    /// Returns the samples that are in memory at once: the batch, or a micro-batch.
    pub fn samples(&self) -> u64 {
        self.tables.as_tables().samples(self.batch)
    }

    /// Returns the sizes for these target cards. Scratch limits depend on the newest of them.
    pub fn sizes(&self, aim: &[&Card]) -> Sizes {
        Sizes::of(&TargetCards::at(&owned(aim)), self.batch, self.precision, self.convolution_workspace)
    }

    /// Returns the budget that the compiler plans for the cards of the network, with the reserve of the first card.
    pub fn written(&self) -> Result<Budget, Failure> {
        let reserve = self.cards.first().map_or(UNKNOWN_RESERVE, |card| card.reserve());
        Ok(self.budget(&self.cards)?.with_reserve(reserve))
    }

    /// Returns the budget for these target cards, with a reserve of 0.
    pub fn budget(&self, aim: &[&Card]) -> Result<Budget, Failure> {
        self.with_arenas(aim, |arenas| arenas.budget(self.batch))
            .map_err(|error| format!("`{}` at batch {}: {error}", self.title, self.batch).into())
    }

    /// Returns the budget, with a reserve of 0, and the largest batch on a device, planned for the target cards `aim`.
    ///
    /// Each card leaves `headroom` bytes to others. If the network recomputes as much as it has to, the smallest target card decides how much: all of
    /// them run one program.
    pub fn within(&self, aim: &[&'static Card], device: Device, headroom: u64) -> Result<(Budget, u64), Failure> {
        let own = device.room(headroom);
        self.planned(aim, own, [if aim.is_empty() { own } else { room(aim, headroom) }, 0])
    }

    /// Returns the budget, with a reserve of 0, and the largest batch on a device. Plans as the compiler does for the cards of the network.
    pub fn as_written(&self, device: Device, headroom: u64) -> Result<(Budget, u64), Failure> {
        let leanest = if self.cards.is_empty() { u64::MAX } else { 0 };
        self.planned(&self.cards, device.room(headroom), [room(&self.cards, self.headroom), leanest])
    }

    /// Returns the budget, and the largest batch in an arena of `own` bytes.
    ///
    /// If the network recomputes as much as it has to, the budget is that of the program for an arena of `least` bytes, and the batch that of the
    /// program for `leanest` bytes.
    fn planned(&self, aim: &[&'static Card], own: u64, [least, leanest]: [u64; 2]) -> Result<(Budget, u64), Failure> {
        let Some(blueprint) = &self.recomputed else {
            return Ok((self.budget(aim)?, self.largest_batch(aim, own)));
        };
        let sizes = self.sizes(aim);
        let failed = |error: LowerError| Failure::from(format!("`{}`: {}", self.title, error.message));
        let tables_within = |room: u64| -> Result<OwnedTables, Failure> {
            let program = blueprint.chosen(&sizes, room).map_err(failed)?;
            Ok(tables(program.as_ref().unwrap_or(&self.program)))
        };
        let least = tables_within(least)?;
        let budget = budget_at(&least.as_tables().with_workspaces(sizes.workspaces), self.batch, self.precision);
        let budget = budget.map_err(|error| format!("`{}` at batch {}: {error}", self.title, self.batch))?;
        let leanest = tables_within(leanest)?;
        let mut arenas = Arenas::new(leanest.as_tables().with_workspaces(sizes.workspaces), self.precision);
        Ok((budget, arenas.largest(own)))
    }

    /// Returns the largest batch whose arena has at most `room` bytes, for these target cards. 0 if there is none.
    pub fn largest_batch(&self, aim: &[&Card], room: u64) -> u64 {
        self.with_arenas(aim, |arenas| arenas.largest(room))
    }

    /// Returns the most time steps that the cache can have in an arena of at most `room` bytes. 0 if not even one fits.
    ///
    /// `None` if the network keeps no cache that grows with time steps. The length is doubled until it does not fit, and then bisected.
    pub fn longest_cache(&self, aim: &[&Card], room: u64) -> Option<u64> {
        let blueprint = self.cached.as_ref()?;
        let Cached { steps, chunk } = blueprint.cached?;
        self.tables.caches.iter().any(|&[_, _, steps, _]| steps > 0).then_some(())?;
        let fits = |steps: u64| {
            let cached = Cached { steps, chunk: chunk.min(steps) };
            let Ok(program) = lower_cached(&blueprint.graph, &blueprint.outputs, cached) else { return false };
            let tables = tables(&program);
            let limited = tables.as_tables().with_workspaces(self.sizes(aim).workspaces);
            budget_at(&limited, self.batch, self.precision).is_ok_and(|budget| budget[Line::Arena] <= room)
        };
        let mut low = 0;
        let mut high = steps;
        while fits(high) {
            low = high;
            if high > MOST_STEPS {
                return Some(low);
            }
            high *= 2;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Calls `ask` with the budgets for these target cards. What it plans is known to later calls.
    fn with_arenas<T>(&self, aim: &[&Card], ask: impl FnOnce(&mut Arenas<'_>) -> T) -> T {
        let workspaces = self.sizes(aim).workspaces;
        let mut budgets = self.budgets.borrow_mut();
        let planned = budgets.entry(workspaces.product).or_default();
        let mut arenas = Arenas::new(self.tables.as_tables().with_workspaces(workspaces), self.precision);
        arenas.planned = std::mem::take(planned);
        let answer = ask(&mut arenas);
        *planned = arenas.planned;
        answer
    }
}

/// The longest cache that is tried, in time steps.
const MOST_STEPS: u64 = 1 << 40;

impl Device {
    /// Returns the bytes that a process can have.
    pub fn usable(self) -> u64 {
        match self {
            Device::Known(card) => card.usable(),
            Device::Size(bytes) => bytes,
        }
    }

    /// Returns the bytes that context, modules and library handles take.
    pub fn reserve(self) -> u64 {
        match self {
            Device::Known(card) => card.reserve(),
            Device::Size(bytes) => reserve_of_size(bytes),
        }
    }

    /// Returns the bytes that an arena may have if `headroom` bytes are left to others.
    pub fn room(self, headroom: u64) -> u64 {
        self.usable().saturating_sub(self.reserve()).saturating_sub(headroom)
    }

    pub fn name(self) -> String {
        match self {
            Device::Known(card) => card.short_name.to_string(),
            Device::Size(bytes) => crate::text::bytes(bytes),
        }
    }

    /// Returns the target cards of a network that is planned for this device alone. Empty for a size without a card.
    pub fn aim(self) -> Vec<&'static Card> {
        match self {
            Device::Known(card) => vec![card],
            Device::Size(_) => Vec::new(),
        }
    }

    /// Returns the slug, or the size in bytes.
    pub fn slug(self) -> String {
        match self {
            Device::Known(card) => card.slug.to_string(),
            Device::Size(bytes) => bytes.to_string(),
        }
    }
}
