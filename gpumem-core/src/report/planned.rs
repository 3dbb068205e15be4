//! Plans of a network at any batch, precision and card, made with the functions that the compiler evaluates.

mod largest;

use super::Arenas;
use super::max_batch::ByBatch;
use crate::cards::{Card, UNKNOWN_RESERVE, reserve_of_size};
use crate::lower::{
    Blueprint, Cached, Choices, ChosenStep, LayerLine, LowerError, OwnedTables, Sizes, lower_cached, tables,
};
use crate::memory::budget::{BUS_BYTES, Budget, Line, PlanError, budget_at, lasting_at};
use crate::memory::refusal::Remedy;
use crate::memory::target_cards::TargetCards;
use crate::number::Precision;
use crate::program::Program;
use crate::train::{Checkpoint, Ranks};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

/// The settings of `TRAIN` or `INFER` that plans depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The batch. `None` for a network that is generic over it.
    pub batch: Option<u64>,
    /// The number formats.
    pub precision: Precision,
    /// Bytes of each card that stay free.
    pub headroom: u64,
    /// The most bytes of scratch of one convolution.
    pub convolution_workspace: u64,
    /// The cards in `cards:`, and those of Cargo features.
    pub cards: Vec<&'static Card>,
}

/// A card of the table, or a size in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Device {
    /// A card of the table.
    Known(&'static Card),
    /// Any card with this many usable bytes.
    Size(u64),
}

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

    /// Returns the bytes that the communication library takes if so many ranks share a step.
    pub fn communication(self, ranks: Ranks) -> u64 {
        match self {
            Device::Known(card) => ranks.communication(Some(card)),
            Device::Size(_) => ranks.communication(None),
        }
    }

    /// Returns the bytes that an arena may have if `headroom` bytes are left to others. Each of the ranks has such a device.
    pub fn room(self, headroom: u64, ranks: Ranks) -> u64 {
        self.usable().saturating_sub(self.reserve()).saturating_sub(self.communication(ranks)).saturating_sub(headroom)
    }

    /// Returns the bytes that copies between page-locked memory of the host and the device move in a second, each way. [`BUS_BYTES`] for a size.
    pub fn host_rate(self) -> u64 {
        match self {
            Device::Known(card) => (card.host_gbs * 1e9) as u64,
            Device::Size(_) => BUS_BYTES,
        }
    }

    /// Returns the target cards of a network that is planned for this device alone. Empty for a size without a card.
    pub fn aim(self) -> Vec<&'static Card> {
        match self {
            Device::Known(card) => Vec::from([card]),
            Device::Size(_) => Vec::new(),
        }
    }
}

/// The reason why a program has no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum NotPlanned {
    /// It cannot be lowered.
    Lower(LowerError),
    /// It has no training step.
    Untrained,
    /// It is generic over its batch, and none is given.
    NoBatch,
    /// It is too large for any plan at this batch.
    Plan(u64, PlanError),
    /// The card of this name has no rates in the table, and a time is asked for.
    NoRates(&'static str),
}

impl fmt::Display for NotPlanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPlanned::Lower(error) => f.write_str(&error.message),
            NotPlanned::Untrained => f.write_str("it has no training step"),
            NotPlanned::NoBatch => f.write_str("it is generic over its batch, and none is given"),
            NotPlanned::Plan(batch, error) => write!(f, "at batch {batch}: {error}"),
            NotPlanned::NoRates(card) => {
                write!(f, "the table of cards has no bandwidth or no rate of {card}; choose another card")
            }
        }
    }
}

impl core::error::Error for NotPlanned {}

impl From<LowerError> for NotPlanned {
    fn from(error: LowerError) -> NotPlanned {
        NotPlanned::Lower(error)
    }
}

/// One program of a network with its settings. It is planned for any cards.
#[derive(Debug)]
pub struct Planned {
    /// True for a training step, false for a forward pass.
    pub training: bool,
    /// Samples in a step.
    pub batch: u64,
    /// The number formats.
    pub precision: Precision,
    /// Bytes of each card that stay free.
    pub headroom: u64,
    /// The cards that the network names.
    pub cards: Vec<&'static Card>,
    /// The program for these cards.
    pub program: Program,
    /// The layers, in the order of the forward pass.
    pub layers: Vec<LayerLine>,
    /// The name of the training step. `None` unless the network has named steps.
    pub step: Option<String>,
    pub(super) tables: OwnedTables,
    pub(super) convolution_workspace: u64,
    pub(super) blueprint: Blueprint,
    /// True if the network has `INFER`.
    pub(super) infers: bool,
    /// Budgets that were planned, by the scratch limit of matrix products, which depends on the card, and by batch.
    budgets: RefCell<BTreeMap<u64, ByBatch>>,
    /// The programs between which memory decides, by that limit.
    choices: RefCell<BTreeMap<u64, Choices>>,
    /// Those of the step with `chunks: Auto`, if it is not written there.
    in_chunks: RefCell<BTreeMap<u64, Choices>>,
    /// Programs that memory has chosen, with their budgets.
    chosen: RefCell<Vec<Chosen>>,
    /// The program lowered for other batches.
    lowered: RefCell<largest::ByLowering>,
}

/// A program that was chosen for some cards.
#[derive(Debug)]
struct Chosen {
    program: Program,
    tables: OwnedTables,
    /// The scratch limit of matrix products, at which the budgets are planned.
    product: u64,
    budgets: ByBatch,
}

/// The longest cache that is tried, in time steps.
const MOST_STEPS: u64 = 1 << 40;

/// A change that makes a step cheaper that recomputes what it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cheaper {
    /// The change, with its price.
    pub with: Remedy,
    /// The time that the step recomputes without it, in thousandths of the step that saves everything.
    pub now: u64,
}

/// Returns the step for an arena of `room` bytes; `None` for a network that is not trained. `known` keeps what was found at the same scratch limit.
fn step_within(
    known: &RefCell<BTreeMap<u64, Choices>>,
    blueprint: &Blueprint,
    sizes: &Sizes,
    room: u64,
) -> Result<Option<ChosenStep>, NotPlanned> {
    let mut known = known.borrow_mut();
    if let Some(choices) = known.get(&sizes.workspaces.product) {
        return Ok(Some(choices.step(room)?));
    }
    let Some(found) = blueprint.choices(sizes)? else { return Ok(None) };
    let step = found.step(room)?;
    known.insert(sizes.workspaces.product, found);
    Ok(Some(step))
}

fn owned(cards: &[&Card]) -> Vec<Card> {
    cards.iter().copied().copied().collect()
}

/// Returns the bytes that an arena may have on all of these cards. The largest number if there are none.
fn room(cards: &[&Card], headroom: u64, ranks: Ranks) -> u64 {
    TargetCards { headroom, ranks, ..TargetCards::at(&owned(cards)) }.room()
}

/// Returns the bytes that an arena may have on all of these target cards. Without any, those on the device, or the largest number.
pub(super) fn room_within(aim: &[&Card], device: Option<Device>, headroom: u64, ranks: Ranks) -> u64 {
    match device {
        Some(device) if aim.is_empty() => device.room(headroom, ranks),
        _ => room(aim, headroom, ranks),
    }
}

/// Returns the tables of a program. A forward pass has the micro-batches and the ranks of training, too, if it takes the batch of `TRAIN`.
pub(super) fn tables_in(program: &Program, micro_batches: u64, ranks: Ranks) -> OwnedTables {
    let mut owned = OwnedTables { micro_batches, ..tables(program) };
    owned.ranks = owned.as_tables().on_ranks(ranks.count).ranks;
    owned
}

impl Planned {
    /// Lowers the training step of a network, or its forward pass, for the cards that `written` names, at this batch.
    ///
    /// `infers` is true if the network has `INFER`. A forward pass at the batch of `TRAIN` takes micro-batches of the size that training does.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn new(
        blueprint: &Blueprint,
        written: &Written,
        batch: u64,
        [training, infers]: [bool; 2],
    ) -> Result<Planned, NotPlanned> {
        let cards = owned(&written.cards);
        let steps = blueprint.training.as_ref().filter(|_| training || !infers);
        let ranks = steps.map_or(Ranks::ALONE, |steps| steps.descent.ranks);
        let target_cards = TargetCards { headroom: written.headroom, ranks, ..TargetCards::at(&cards) };
        let sizes = Sizes::of(&target_cards, batch, written.precision, written.convolution_workspace);
        let program = match training {
            true => blueprint.chosen(&sizes, target_cards.room())?.ok_or(NotPlanned::Untrained)?,
            false => blueprint.inference()?,
        };
        let layers = blueprint.layers(&program);
        let micro_batches = steps.map_or(1, |steps| steps.descent.micro_batches);
        let tables = tables_in(&program, micro_batches, ranks);
        Ok(Planned {
            training,
            batch,
            precision: written.precision,
            headroom: written.headroom,
            cards: written.cards.clone(),
            program,
            layers,
            step: blueprint.step_name().filter(|_| training).map(String::from),
            tables,
            convolution_workspace: written.convolution_workspace,
            blueprint: blueprint.clone(),
            infers,
            budgets: RefCell::default(),
            choices: RefCell::default(),
            in_chunks: RefCell::default(),
            chosen: RefCell::default(),
            lowered: RefCell::default(),
        })
    }

    /// Lowers and plans the program at another batch.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn at(&self, batch: u64) -> Result<Planned, NotPlanned> {
        self.with(batch, self.precision)
    }

    fn with(&self, batch: u64, precision: Precision) -> Result<Planned, NotPlanned> {
        let written = Written {
            batch: Some(batch),
            precision,
            headroom: self.headroom,
            convolution_workspace: self.convolution_workspace,
            cards: self.cards.clone(),
        };
        Planned::new(&self.blueprint, &written, batch, [self.training, self.infers])
    }

    /// Returns the ranks that share a step.
    pub fn ranks(&self) -> Ranks {
        self.tables.ranks
    }

    /// Returns the samples that are in memory at once: the batch, or a micro-batch of one rank.
    pub fn samples(&self) -> u64 {
        self.tables.as_tables().samples(self.batch)
    }

    /// Returns the sizes for these target cards. Scratch limits depend on the newest of them.
    pub fn sizes(&self, aim: &[&Card]) -> Sizes {
        Sizes::of(&TargetCards::at(&owned(aim)), self.batch, self.precision, self.convolution_workspace)
    }

    /// Returns the bytes of the tensors inside the step that are live at each operation, for these target cards.
    pub fn live(&self, aim: &[&Card]) -> Vec<u64> {
        self.sizes(aim).live(&self.program)
    }

    /// Returns the elements of all parameters.
    pub fn parameters(&self) -> u64 {
        self.layers.iter().map(|layer| layer.parameters).fold(0, u64::saturating_add)
    }

    /// Returns the multiply-accumulates of one sample's forward pass.
    pub fn macs(&self) -> u64 {
        self.layers.iter().map(|layer| layer.macs).fold(0, u64::saturating_add)
    }

    /// Returns the budget that the compiler plans for the cards of the network, with the reserve of the first card.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn written(&self) -> Result<Budget, NotPlanned> {
        let first = self.cards.first().copied();
        let reserve = first.map_or(UNKNOWN_RESERVE, |card| card.reserve());
        let communication = self.ranks().communication(first);
        Ok(self.budget(&self.cards)?.with_reserve(reserve).with_communication(communication))
    }

    /// Returns the budget for these target cards, with a reserve of 0.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn budget(&self, aim: &[&Card]) -> Result<Budget, NotPlanned> {
        let budget = self.with_arenas(aim, |arenas| arenas.budget(self.batch));
        budget.map_err(|error| NotPlanned::Plan(self.batch, error))
    }

    /// Returns the budget and the largest batch on a device, planned for the target cards `aim`. The budget has a reserve of 0.
    ///
    /// Each card leaves `headroom` bytes to others. If the network recomputes as much as it has to, the smallest target card decides how much: all of
    /// them run one program.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn within(&self, aim: &[&'static Card], device: Device, headroom: u64) -> Result<(Budget, u64), NotPlanned> {
        let own = device.room(headroom, self.ranks());
        self.planned(aim, own, [room_within(aim, Some(device), headroom, self.ranks()), 0])
    }

    /// Returns the budget and the largest batch on a device. The budget has a reserve of 0. Plans as the compiler does for the cards of the network.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn as_written(&self, device: Device, headroom: u64) -> Result<(Budget, u64), NotPlanned> {
        let leanest = if self.cards.is_empty() { u64::MAX } else { 0 };
        let ranks = self.ranks();
        self.planned(&self.cards, device.room(headroom, ranks), [room(&self.cards, self.headroom, ranks), leanest])
    }

    /// Returns the budget, and the largest batch in an arena of `own` bytes.
    ///
    /// If the network recomputes as much as it has to, the budget is that of the program for an arena of `least` bytes, and the batch that of the
    /// program for `leanest` bytes.
    fn planned(
        &self,
        aim: &[&'static Card],
        own: u64,
        [least, leanest]: [u64; 2],
    ) -> Result<(Budget, u64), NotPlanned> {
        // The recomputation of other steps does not depend on the cards.
        if !self.training || !self.blueprint.takes_what_fits() {
            return Ok((self.budget(aim)?, self.largest_batch(aim, own)));
        }
        let budget = self.with_chosen(aim, least, |arenas| arenas.budget(self.batch))?;
        let budget = budget.map_err(|error| NotPlanned::Plan(self.batch, error))?;
        Ok((budget, self.with_chosen(aim, leanest, |arenas| arenas.largest(own))?))
    }

    /// Calls `ask` with the budgets of the program for an arena of `room` bytes. What it plans is known to later calls.
    fn with_chosen<T>(
        &self,
        aim: &[&Card],
        room: u64,
        ask: impl FnOnce(&mut Arenas<'_>) -> T,
    ) -> Result<T, NotPlanned> {
        let sizes = self.sizes(aim);
        let product = sizes.workspaces.product;
        let program = self.program_within(&sizes, room)?;
        let mut all = self.chosen.borrow_mut();
        let known = all.iter().position(|chosen| chosen.product == product && chosen.program == program);
        let at = known.unwrap_or_else(|| {
            all.push(Chosen { tables: tables(&program), program, product, budgets: ByBatch::default() });
            all.len() - 1
        });
        let chosen = &mut all[at];
        let mut arenas = Arenas::new(chosen.tables.as_tables().with_workspaces(sizes.workspaces), self.precision);
        arenas.known = core::mem::take(&mut chosen.budgets);
        let answer = ask(&mut arenas);
        chosen.budgets = arenas.known;
        Ok(answer)
    }

    /// Returns the program for an arena of `room` bytes.
    pub(super) fn program_within(&self, sizes: &Sizes, room: u64) -> Result<Program, NotPlanned> {
        let step = step_within(&self.choices, &self.blueprint, sizes, room)?;
        Ok(step.map_or_else(|| self.program.clone(), |step| step.program))
    }

    /// Returns logits in chunks as a change that makes the step cheaper on a device. It is planned for the target cards `aim`: see
    /// [`Planned::within`].
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn cheaper_within(
        &self,
        aim: &[&'static Card],
        device: Device,
        headroom: u64,
    ) -> Result<Option<Cheaper>, NotPlanned> {
        self.cheaper(aim, room_within(aim, Some(device), headroom, self.ranks()))
    }

    /// Returns logits in chunks as a change that makes the step cheaper on the cards of the network: see [`Planned::as_written`].
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn cheaper_as_written(&self) -> Result<Option<Cheaper>, NotPlanned> {
        self.cheaper(&self.cards, room(&self.cards, self.headroom, self.ranks()))
    }

    /// Returns logits in chunks as a change, if less is then recomputed in an arena of `room` bytes. `None` if nothing is recomputed by choice.
    fn cheaper(&self, aim: &[&Card], room: u64) -> Result<Option<Cheaper>, NotPlanned> {
        if !self.training || !self.blueprint.takes_what_fits() {
            return Ok(None);
        }
        let sizes = self.sizes(aim);
        let Some(now) = step_within(&self.choices, &self.blueprint, &sizes, room)? else { return Ok(None) };
        let Some(other) = self.blueprint.with_automatic_chunks().filter(|_| now.more.is_some()) else {
            return Ok(None);
        };
        let Some(step) = step_within(&self.in_chunks, &other, &sizes, room)? else { return Ok(None) };
        let tables = tables(&step.program);
        let limited = tables.as_tables().with_workspaces(sizes.workspaces);
        let budget = budget_at(&limited, self.batch, self.precision);
        let arena = budget.map_err(|error| NotPlanned::Plan(self.batch, error))?[Line::Arena];
        if step.chunks.is_none() || step.time() >= now.time() || arena > room {
            return Ok(None);
        }
        let with = Remedy { chunks: step.chunks, more: step.more, ..Remedy::as_written(arena) };
        Ok(Some(Cheaper { with, now: now.time() }))
    }

    /// Returns changes with which the training step fits on a device, each planned for the target cards `aim`: see [`Blueprint::remedies`].
    ///
    /// Empty if the step fits, and for a forward pass.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn alternatives_within(
        &self,
        aim: &[&'static Card],
        device: Device,
        headroom: u64,
    ) -> Result<Vec<Remedy>, NotPlanned> {
        if !self.training {
            return Ok(Vec::new());
        }
        let room = room_within(aim, Some(device), headroom, self.ranks());
        let sizes = self.sizes(aim);
        let program = self.program_within(&sizes, room)?;
        Ok(self.blueprint.remedies(&program, &sizes, room).planned.into_iter().flatten().collect())
    }

    /// Returns the program in another precision.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn in_precision(&self, precision: Precision) -> Result<Planned, NotPlanned> {
        self.with(self.batch, precision)
    }

    /// Returns the arena bytes that any step with these parameters and saved tensors needs.
    ///
    /// They hold whatever the order, the scratch memory and the targets of a step are. If the network recomputes by choice, a step need not save
    /// anything.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn at_least(&self) -> Result<u64, NotPlanned> {
        let lasting = lasting_at(&self.tables.as_tables(), self.batch, self.precision);
        let lasting = lasting.map_err(|error| NotPlanned::Plan(self.batch, error))?;
        let sizes = self.sizes(&[]);
        let saved = match self.blueprint.checkpoint() {
            Checkpoint::None | Checkpoint::Norms if !self.blueprint.decides() => sizes.saved(&self.program),
            Checkpoint::None | Checkpoint::Norms | Checkpoint::Cheap | Checkpoint::Auto | Checkpoint::Budget(_) => 0,
        };
        Ok(lasting.saturating_sub(sizes.targets(&self.program)).saturating_add(saved))
    }

    /// Returns the most time steps that the cache can have in an arena of at most `room` bytes. 0 if not even one fits.
    ///
    /// `None` if the network keeps no cache that grows with time steps. The length is doubled until it does not fit, and then bisected.
    pub fn longest_cache(&self, aim: &[&Card], room: u64) -> Option<u64> {
        let Blueprint { graph, outputs, .. } = &self.blueprint;
        let Cached { steps, chunk } = self.blueprint.cached.filter(|_| !self.training)?;
        self.tables.caches.iter().any(|&[_, _, steps, _]| steps > 0).then_some(())?;
        let fits = |steps: u64| {
            let cached = Cached { steps, chunk: chunk.min(steps) };
            let Ok(program) = lower_cached(graph, outputs, cached) else { return false };
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
        arenas.known = core::mem::take(planned);
        let answer = ask(&mut arenas);
        *planned = arenas.known;
        answer
    }
}
