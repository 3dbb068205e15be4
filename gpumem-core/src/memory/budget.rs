//! Budgets: the bytes of each tensor of a step, its place in the arena, and the sums.

mod line;

use crate::cards::{Card, UNKNOWN_RESERVE};
use crate::memory::bytes::{
    Bytes, Largest, MOST_BYTES, batch_bytes, cache_bytes, element_bytes, fill, largest, tensor_bytes,
};
use crate::memory::plan::choose::{Wanted, packed};
use crate::memory::plan::{
    ALIGNMENT, LiveRange, Overflow, PackedRanges, PackedSlice, Packing, pack_slice_to_fit, pack_slice_within,
    size_bounds, verify_carried,
};
use crate::memory::tables::{NOT_TRAINED, TRAINED, Tables};
use crate::number::{Precision, Role};
use crate::train::Ranks;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Index;
pub use line::Line;

pub(crate) use crate::memory::bytes::lower_bound;
pub use crate::memory::bytes::{PlanError, live_ranges, padded};
pub use crate::memory::plan::choose::MANY;
pub(crate) use crate::memory::plan::choose::TOO_MANY;

/// Bytes that the bus of a card moves in a second, each way, if nobody says which card. It is the usual measurement of sixteen lanes of PCIe 4.0
/// with page-locked memory. [`Card::host_gbs`](crate::cards::Card::host_gbs) has it for each card.
pub const BUS_BYTES: u64 = 25_000_000_000;

/// The bytes that a step needs, by purpose: `budget[Line::Arena]`.
///
/// The lines are exact; the arena also has the padding of each tensor, so it is at least the sum of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of each line, in the order of [`Line::ALL`].
    pub lines: [u64; Line::COUNT],
    /// The size of the arena if activations were packed to their peak. No plan is smaller.
    pub lower_bound: u64,
    /// The first operation at which the most bytes are live.
    pub peak: u32,
    /// Index of the largest tensor that lives inside a step.
    pub largest: u32,
    /// Its bytes, without padding.
    pub largest_bytes: u64,
    /// Bytes of the largest workspace, without padding. Part of the activations.
    pub workspace: u64,
    /// Bytes of host memory that the step uses, with the padding of each tensor: 0 without `offload`.
    pub host: u64,
    /// Bytes that a step copies from host memory into the arena, and as many back.
    pub fetched: u64,
}

impl Budget {
    const EMPTY: Budget = Budget {
        lines: [0; Line::COUNT],
        lower_bound: 0,
        peak: 0,
        largest: 0,
        largest_bytes: 0,
        workspace: 0,
        host: 0,
        fetched: 0,
    };

    /// Returns the least milliseconds that a step's copies between host memory and the card take. Each direction moves [`BUS_BYTES`] a second,
    /// both at once.
    pub const fn bus_ms(&self) -> u64 {
        self.fetched / (BUS_BYTES / 1000)
    }

    /// Iterates over the lines that texts show: all but those that only a step of several ranks has.
    pub fn shown(&self) -> impl Iterator<Item = Line> {
        let communicates = self.get(Line::Communication) > 0;
        Line::ALL.into_iter().filter(move |&line| communicates || line != Line::Communication)
    }

    /// Returns the bytes of a line.
    pub const fn get(&self, line: Line) -> u64 {
        self.lines[line as usize]
    }

    /// Returns the budget on a card that takes `reserve` bytes besides the arena.
    pub const fn with_reserve(mut self, reserve: u64) -> Budget {
        self.lines[Line::Reserve as usize] = reserve;
        self.totalled()
    }

    /// Returns the budget on a card of which the communication library takes so many bytes: see
    /// [`Ranks::communication`](crate::train::Ranks::communication).
    pub const fn with_communication(mut self, bytes: u64) -> Budget {
        self.lines[Line::Communication as usize] = bytes;
        self.totalled()
    }

    const fn totalled(mut self) -> Budget {
        // An arena is below 2^63 bytes; a sum past 2^64 is more than any card has, and so is the largest number.
        let arena = self.get(Line::Arena).saturating_add(self.get(Line::Reserve));
        self.lines[Line::Total as usize] = arena.saturating_add(self.get(Line::Communication));
        self
    }
}

impl Index<Line> for Budget {
    type Output = u64;

    fn index(&self, line: Line) -> &u64 {
        &self.lines[line as usize]
    }
}

/// A plan: the offset of every tensor of a step in one arena. `N` is the number of tensors that live inside the step.
///
/// A plan that could not be made has its `error` set and everything else 0: the refusal reports it with its own words.
#[derive(Clone, Copy, Debug)]
pub struct Plan<const N: usize> {
    /// The reason why there is no plan; `None` if there is one.
    pub error: Option<PlanError>,
    /// True if tensors have offsets. Otherwise sizes are the lower bounds, which were too large already: see [`plan_within`].
    pub is_packed: bool,
    /// Offsets inside [`Line::Activations`].
    pub packing: Packing<N>,
    /// Bytes from the beginning of the arena to each of its parts.
    pub starts: [u64; Line::PARTS],
    /// The budget, with a reserve of 0.
    pub budget: Budget,
    /// Samples of a step, in all of its micro-batches.
    pub batch: u64,
    /// The number format.
    pub precision: Precision,
}

impl<const N: usize> Plan<N> {
    /// Returns the bytes of the arena.
    pub const fn arena(&self) -> u64 {
        self.budget.get(Line::Arena)
    }

    /// Returns the bytes from the beginning of the arena to one of its parts; the whole arena for other lines.
    pub const fn start(&self, part: Line) -> u64 {
        if (part as usize) < Line::PARTS { self.starts[part as usize] } else { self.arena() }
    }

    /// Returns the bytes from the beginning of the arena to transient tensor `index`.
    pub const fn offset(&self, index: usize) -> u64 {
        self.start(Line::Activations) + self.packing.offsets[index]
    }

    /// Returns the budget on a card that takes `reserve` bytes besides the arena.
    pub const fn budget(&self, reserve: u64) -> Budget {
        self.budget.with_reserve(reserve)
    }

    /// Returns the budget on the first of these cards, or on an unknown card if there is none.
    pub const fn budget_on(&self, cards: &[Card], ranks: Ranks) -> Budget {
        let (reserve, communication) = match cards {
            [card, ..] => (card.reserve(), ranks.communication(Some(card))),
            [] => (UNKNOWN_RESERVE, ranks.communication(None)),
        };
        self.budget(reserve).with_communication(communication)
    }
}

/// The parts of an arena that do not depend on how activations are packed; those are 0 here.
#[derive(Clone, Copy)]
pub(crate) struct Lasting {
    parts: [Bytes; Line::PARTS],
    /// Master copies and optimizer states that are in host memory.
    host: Bytes,
    /// Activations that are parked in host memory, and how often each is copied in a step.
    parked: Bytes,
    passes: u64,
}

impl Lasting {
    /// Counts parameters and what belongs to them, buffers and the batch.
    pub(crate) const fn new(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<Lasting, PlanError> {
        let none = Bytes { exact: 0, padded: 0 };
        let mut lasting = Lasting { parts: [none; Line::PARTS], host: none, parked: none, passes: 1 };
        match lasting.add_parameters(tables, precision) {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        match lasting.add_tensors(tables, precision) {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        lasting.at_batch(tables, batch, precision)
    }

    /// Returns these parts at another batch.
    pub(crate) const fn at_batch(
        mut self,
        tables: &Tables<'_>,
        batch: u64,
        precision: Precision,
    ) -> Result<Lasting, PlanError> {
        let samples = tables.samples(batch);
        let sum = match batch_bytes(tables.batch, if tables.training { 2 } else { 1 }, samples, precision) {
            Ok(bytes) => bytes,
            Err(error) => return Err(error),
        };
        self.parts[Line::BatchIo as usize] = sum;
        (self.parked, self.passes) = match batch_bytes(tables.parked, 1, samples, precision) {
            Ok(bytes) => (bytes, if tables.micro_batches > 0 { tables.micro_batches } else { 1 }),
            Err(error) => return Err(error),
        };
        match cache_bytes(tables, samples, precision) {
            Ok(bytes) => self.parts[Line::Cache as usize] = bytes,
            Err(error) => return Err(error),
        }
        Ok(self)
    }

    const fn add_parameters(&mut self, tables: &Tables<'_>, precision: Precision) -> Result<(), PlanError> {
        let element = element_bytes(precision);
        let mut i = 0;
        while i < tables.parameters.len() {
            let [role, elements, training, count] = tables.parameters[i];
            let whole = match tensor_bytes(&element, role, elements, 0, 0) {
                Ok(bytes) => bytes,
                Err(error) => return Err(error),
            };
            let Some(role) = Role::from_number(role) else {
                return Err(PlanError::Malformed);
            };
            let ranks = tables.ranks;
            // A tensor has at most 2^59 elements, and a gathered one hardly more.
            let (bytes, kept, own) = if ranks.is_alone() {
                (whole, elements, elements)
            } else {
                let sharding = [
                    ranks.of_parameter(role, elements, training != NOT_TRAINED),
                    ranks.of_gradient(role, elements),
                    ranks.of_state(role, elements),
                ];
                match (sharding[0].stored(elements), sharding[1].stored(elements), sharding[2].stored(elements)) {
                    (Some(stored), Some(kept), Some(own)) => (stored * element[role as usize], kept, own),
                    _ => return Err(PlanError::Overflow),
                }
            };
            let master = match role.master(precision) {
                Some(format) => format.bytes(),
                None => 0,
            };
            let moment = own * Role::Moment.bytes(precision);
            // A parameter that another step trains has its states among the buffers, and no gradient here.
            let copied = if training == NOT_TRAINED { 0 } else { count };
            let trained = if training == TRAINED { count } else { 0 };
            let held = if tables.holds_gradients { trained } else { 0 };
            let gradient = kept * if tables.wide_sums && master > 0 { master } else { element[role as usize] };
            let Some(moments) = trained.checked_mul(tables.moments) else {
                return Err(PlanError::Overflow);
            };
            let lines = [
                (Line::Weights, bytes, count),
                (Line::Gradients, gradient, held),
                (Line::Master, own * master, if tables.training { copied } else { 0 }),
                (Line::Optimizer, moment, moments),
                (Line::Ema, own * Role::WideMoment.bytes(precision), if tables.averages { trained } else { 0 }),
            ];
            let mut line = 0;
            while line < lines.len() {
                let (part, bytes, times) = lines[line];
                // Every call costs the compiler time, and several of these lines are usually empty.
                if bytes > 0 && times > 0 {
                    let is_state = matches!(part, Line::Master | Line::Optimizer);
                    let lies =
                        if is_state && tables.offloads { &mut self.host } else { &mut self.parts[part as usize] };
                    let added = lies.add(bytes, times);
                    if added.is_err() {
                        return added;
                    }
                }
                line += 1;
            }
            i += 1;
        }
        Ok(())
    }

    const fn add_tensors(&mut self, tables: &Tables<'_>, precision: Precision) -> Result<(), PlanError> {
        let (tensors, offloads) = (tables.buffers, tables.offloads);
        let element = element_bytes(precision);
        let mut i = 0;
        while i < tensors.len() {
            let [role, elements, count] = tensors[i];
            let is_state = match Role::from_number(role) {
                Some(role) => role.is_optimizer_state(),
                None => false,
            };
            let part = if is_state { Line::Optimizer } else { Line::Buffers };
            let lies = if is_state && offloads { &mut self.host } else { &mut self.parts[part as usize] };
            let added = match tensor_bytes(&element, role, elements, 0, 0) {
                Ok(bytes) => lies.add(bytes, count),
                Err(error) => Err(error),
            };
            if added.is_err() {
                return added;
            }
            i += 1;
        }
        Ok(())
    }

    /// Returns the bytes of the arena with `activations` bytes of activations.
    pub(crate) const fn arena(&self, activations: u64) -> Result<u64, PlanError> {
        let mut sum = activations;
        let mut i = 0;
        while i < Line::Activations as usize {
            sum = match sum.checked_add(self.parts[i].padded) {
                Some(sum) if sum <= MOST_BYTES => sum,
                _ => return Err(PlanError::Overflow),
            };
            i += 1;
        }
        Ok(sum)
    }
}

/// Plans a step at `batch` samples. A plan that cannot be made says why in [`Plan::error`].
pub const fn plan<const N: usize>(tables: &Tables<'_>, batch: u64, precision: Precision) -> Plan<N> {
    plan_within(tables, batch, precision, u64::MAX)
}

/// Plans a step at `batch` samples, unless the arena cannot be brought to `limit` bytes. Then the packers, which are most of the work, are left
/// out, and many tensors have no offsets.
pub const fn plan_within<const N: usize>(tables: &Tables<'_>, batch: u64, precision: Precision, limit: u64) -> Plan<N> {
    let wanted = Wanted { limit, is_alternative: false };
    or_error(try_plan(tables, batch, precision, wanted), batch, precision)
}

/// Returns a plan with an arena of at most `room` bytes, if there is one; not always the smallest. Many tensors are not packed for it if what the
/// macro packed does not fit.
pub(crate) const fn fitting_plan<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    room: u64,
) -> Plan<N> {
    let wanted = Wanted { limit: room, is_alternative: true };
    or_error(try_plan(tables, batch, precision, wanted), batch, precision)
}

const fn or_error<const N: usize>(plan: Result<Plan<N>, PlanError>, batch: u64, precision: Precision) -> Plan<N> {
    match plan {
        Ok(plan) => plan,
        Err(error) => Plan { error: Some(error), ..skipped_plan(batch, precision) },
    }
}

/// Returns an empty plan, instead of one that nobody asks for.
pub(super) const fn skipped_plan<const N: usize>(batch: u64, precision: Precision) -> Plan<N> {
    Plan {
        error: None,
        is_packed: false,
        packing: Packing { offsets: [0; N], size: 0, lower_bound: 0, peak: 0 },
        starts: [0; Line::PARTS],
        budget: Budget::EMPTY,
        batch,
        precision,
    }
}

/// Makes a plan whose arena has at most the bytes in `wanted`.
const fn try_plan<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    wanted: Wanted,
) -> Result<Plan<N>, PlanError> {
    if batch == 0 {
        return Err(PlanError::ZeroBatch);
    }
    if tables.operations == 0 {
        return Err(PlanError::EmptyNetwork);
    }
    let lasting = match Lasting::new(tables, batch, precision) {
        Ok(lasting) => lasting,
        Err(error) => return Err(error),
    };
    let mut bytes = [0; N];
    let largest = match largest(tables, batch, precision, &mut bytes) {
        Ok(largest) => largest,
        Err(error) => return Err(error),
    };
    // The bytes of these that activations may have.
    let wanted = match lasting.arena(0) {
        Ok(lasting) => Wanted { limit: wanted.limit.saturating_sub(lasting), ..wanted },
        Err(error) => return Err(error),
    };
    let (packing, is_packed) = match packed(tables, &largest, wanted) {
        Ok(packed) => packed,
        Err(error) => return Err(error),
    };
    let mut starts = [0; Line::PARTS];
    let mut i = 1;
    while i < Line::PARTS {
        let before = Line::PLACES[i - 1] as usize;
        starts[Line::PLACES[i] as usize] = starts[before] + lasting.parts[before].padded;
        i += 1;
    }
    let packed = Packed { size: packing.size, lower_bound: packing.lower_bound, peak: packing.peak };
    match lasting.budget(packed, largest) {
        Ok(budget) => Ok(Plan { error: None, is_packed, packing, starts, budget, batch, precision }),
        Err(error) => Err(error),
    }
}

/// Fails to compile if two live tensors overlap, or one is misaligned or outside its part of the arena. It shares no code with the planners. A
/// plan that could not be made, or was not packed because it is too large, is the refusal's to report.
pub const fn assert_packed<const N: usize>(tables: &Tables<'_>, plan: &Plan<N>) {
    if !plan.is_packed {
        return;
    }
    match live_ranges::<N>(tables, plan.batch, plan.precision) {
        Ok(ranges) => assert!(
            verify_carried(&ranges, &plan.packing, ALIGNMENT, tables.transients.below),
            "the plan places living tensors on top of each other: a defect of gpumem, please report it"
        ),
        Err(_) => panic!("the plan was made from other tables: a defect of gpumem, please report it"),
    }
}

/// The figures of a packing that a budget needs.
#[derive(Clone, Copy)]
struct Packed {
    size: u64,
    lower_bound: u64,
    peak: u32,
}

impl From<&PackedSlice> for Packed {
    fn from(&PackedSlice { size, lower_bound, peak, .. }: &PackedSlice) -> Packed {
        Packed { size, lower_bound, peak }
    }
}

impl Lasting {
    /// Returns every line of the budget, with a reserve of 0.
    const fn budget(&self, packed: Packed, largest: Largest<'_>) -> Result<Budget, PlanError> {
        let (arena, lower_bound) = match (self.arena(packed.size), self.arena(packed.lower_bound)) {
            (Ok(arena), Ok(lower_bound)) => (arena, lower_bound),
            _ => return Err(PlanError::Overflow),
        };
        let mut lines = [0; Line::COUNT];
        let mut part = 0;
        while part < Line::PARTS {
            lines[part] = self.parts[part].exact;
            part += 1;
        }
        lines[Line::Activations as usize] = packed.size;
        lines[Line::Arena as usize] = arena;
        lines[Line::Total as usize] = arena;
        Ok(Budget {
            lines,
            lower_bound,
            peak: packed.peak,
            largest: largest.index,
            largest_bytes: largest.largest,
            workspace: largest.workspace,
            // Each is below 2^63.
            host: self.host.padded + self.parked.padded,
            fetched: self.host.exact.saturating_add(self.parked.exact.saturating_mul(self.passes)),
        })
    }
}

/// Returns the budget of a step at `batch` samples, planned at run time, with a reserve of 0.
///
/// # Errors
/// See [`PlanError`].
pub fn budget_at(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<Budget, PlanError> {
    Ok(pack_at(tables, batch, precision)?.0)
}

/// Returns the bytes of the arena that no packing goes below. It needs no packing.
///
/// # Errors
/// See [`PlanError`].
pub fn lower_bound_at(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<u64, PlanError> {
    let mut bytes = vec![0; tables.transients.lives.len()];
    let largest = largest(tables, batch, precision, &mut bytes)?;
    let (most, _) = tables.transients.peak(largest.bytes).ok_or(PlanError::Overflow)?;
    Lasting::new(tables, batch, precision)?.arena(most)
}

/// Returns two bounds of an arena: bytes that no packing goes below, and bytes that the packing of [`pack_at`] does not go above.
///
/// # Errors
/// See [`PlanError`].
pub(crate) fn bounds_at(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<[u64; 2], PlanError> {
    let mut bytes = Vec::new();
    let (_, ranges) = ranges_at(tables, batch, precision, &mut bytes)?;
    let [least, most] = size_bounds(&ranges).map_err(|Overflow| PlanError::Overflow)?;
    let lasting = Lasting::new(tables, batch, precision)?;
    Ok([lasting.arena(least)?, lasting.arena(most).unwrap_or(u64::MAX)])
}

/// Returns the largest tensors inside a step, and the live ranges of all. `bytes` is filled with their sizes.
fn ranges_at<'a>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    bytes: &'a mut Vec<u64>,
) -> Result<(Largest<'a>, Vec<LiveRange>), PlanError> {
    if batch == 0 {
        return Err(PlanError::ZeroBatch);
    }
    if tables.operations == 0 {
        return Err(PlanError::EmptyNetwork);
    }
    let count = tables.transients.lives.len();
    *bytes = vec![0; count];
    let largest = largest(tables, batch, precision, bytes)?;
    let mut ranges = vec![LiveRange { bytes: 0, first: 0, last: 0 }; count];
    fill(tables, largest.bytes, &mut ranges)?;
    Ok((largest, ranges))
}

/// Returns the bytes of the arena besides what lives inside a step.
///
/// # Errors
/// See [`PlanError`].
pub fn lasting_at(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<u64, PlanError> {
    Lasting::new(tables, batch, precision)?.arena(0)
}

/// Returns the budget with a reserve of 0, and the offset of each transient tensor. The generated code computes these offsets, too, if the lower
/// bound is reached.
///
/// # Errors
/// See [`PlanError`].
pub fn pack_at(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<(Budget, Vec<u64>), PlanError> {
    let (budget, PackedRanges { packed, .. }) = pack_within(tables, batch, precision, 0)?;
    Ok((budget, packed.offsets))
}

/// Returns the budget and the packing. An arena of `enough` bytes will do, even if a smaller one exists.
///
/// # Errors
/// See [`PlanError`].
pub fn pack_within(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    enough: u64,
) -> Result<(Budget, PackedRanges), PlanError> {
    let mut bytes = Vec::new();
    let (largest, ranges) = ranges_at(tables, batch, precision, &mut bytes)?;
    let lasting = Lasting::new(tables, batch, precision)?;
    let enough = enough.saturating_sub(lasting.arena(0)?);
    let packed = pack_slice_within(&ranges, enough).map_err(|Overflow| PlanError::Overflow)?;
    Ok((lasting.budget(Packed::from(&packed), largest)?, PackedRanges { ranges, packed }))
}

/// Returns the budget of a step in an arena of at most `room` bytes, with a reserve of 0. `None` if what [`pack_at`] packs has more. The packing
/// is the quickest that fits, and need not be the smallest.
///
/// # Errors
/// See [`PlanError`].
pub fn budget_within(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    room: u64,
) -> Result<Option<Budget>, PlanError> {
    let mut bytes = Vec::new();
    let lasting = Lasting::new(tables, batch, precision)?;
    let Some(room) = room.checked_sub(lasting.arena(0)?) else { return Ok(None) };
    let (largest, ranges) = ranges_at(tables, batch, precision, &mut bytes)?;
    let packed = pack_slice_to_fit(&ranges, room).map_err(|Overflow| PlanError::Overflow)?;
    packed.map(|packed| lasting.budget(Packed::from(&packed), largest)).transpose()
}
