//! Alternatives to a training step that does not fit: other programs of it, each planned.
//!
//! Alternatives with one change come first, the cheapest before dearer ones; several changes together only if none is enough alone. Every program
//! is lowered as the user's program is, which takes time. So programs that cannot help are left out, as far as a lower bound of their bytes
//! tells, and dear ones are not tried if enough was found.

use crate::graph::Source;
use crate::lower::choose::level::{Fitting, budget_of};
use crate::lower::rewrite::inplace_abn::{InPlace, with_inplace_abn};
use crate::lower::schedule::offload::most_parked;
use crate::lower::{Blueprint, ChosenStep, OwnedTables, Sizes, Term, tables};
use crate::memory::budget::{Line, lasting_at, lower_bound_at};
use crate::memory::refusal::{Offloaded, Remedies, Remedy, Shared, Split};
use crate::memory::tables::Tables;
use crate::number::{Coding, Half, Precision};
use crate::program::{Class, Program, TrainingOnly};
use crate::train::optim::whole_states;
use crate::train::{Checkpoint, Descent, Offload, Ranks, Shard};
use alloc::vec::Vec;

/// The number of alternatives after which dearer ones are left out.
const ENOUGH: usize = 2;

/// The precision that is suggested first for a step in f32.
const MIXED: Precision = Precision::Mixed(Half::Bf16);

/// Multiples of the number of ranks that are tried.
const MORE_RANKS: [u64; 3] = [2, 4, 8];

/// The part of the available bytes by which a bound may exceed them if another order of the step might still fit.
const MARGIN: u64 = 16;

/// A step, and the changes that make it from the one that the user wrote.
#[derive(Clone)]
pub(crate) struct Variant {
    pub(crate) blueprint: Blueprint,
    pub(crate) remedy: Remedy,
    /// True if it recomputes as much as it takes to fit.
    recomputes: bool,
    /// True if `chunks: Auto` is a change, so that the alternative names the number of chunks.
    chunks: bool,
    /// Tables that say what lives outside of the step, with a batch that is not split further.
    tables: OwnedTables,
}

impl Variant {
    /// Returns the step as the user wrote it. `tables` are those of its program.
    pub(crate) fn as_written(blueprint: &Blueprint, tables: OwnedTables) -> Variant {
        Variant {
            blueprint: blueprint.clone(),
            remedy: Remedy::as_written(0),
            recomputes: blueprint.checkpoint() == Checkpoint::Auto,
            chunks: false,
            tables,
        }
    }

    /// Returns the step with `InplaceAbn`; `None` if it has nothing that this could replace.
    pub(crate) fn in_place(&self) -> Option<Variant> {
        let InPlace { graph, places, slopes } = with_inplace_abn(&self.blueprint.graph, &self.blueprint.all_ends())?;
        let mut blueprint = Blueprint { graph, ..self.blueprint.clone() };
        blueprint.move_ends(&places);
        let remedy = Remedy { in_place: Some(slopes), ..self.remedy };
        Some(Variant { blueprint, remedy, ..self.clone() })
    }

    /// Returns the step with `chunks: Auto`. `None` if no loss can have chunks, or all that can set `chunks` already.
    pub(crate) fn chunked(&self) -> Option<Variant> {
        let blueprint = self.blueprint.with_automatic_chunks()?;
        Some(Variant { blueprint, chunks: true, ..self.clone() })
    }

    /// Returns the step with `checkpoint: Auto`; `None` if `checkpoint` already recomputes more than norms.
    fn recomputed(&self) -> Option<Variant> {
        let mut other = Variant { recomputes: true, ..self.clone() };
        let steps = other.blueprint.training.as_mut()?;
        match steps.checkpoint {
            // `Auto` would recompute outputs of normalisations before any level. A step with `Norms` does so already, and levels are compared
            // with it.
            Checkpoint::None => steps.checkpoint = Checkpoint::Auto,
            Checkpoint::Norms => {}
            Checkpoint::Cheap | Checkpoint::Auto | Checkpoint::Budget(_) => return None,
        }
        Some(other)
    }

    /// Returns the step on so many ranks, each of which keeps shards of these tensors. `None` for a step of one rank, for the same step, for a
    /// batch that does not split over the ranks, and for an optimizer that cannot update a shard.
    pub(crate) fn shared(&self, times: u64, shard: Shard, batch: u64) -> Option<Variant> {
        let mut other = self.clone();
        let steps = other.blueprint.training.as_mut()?;
        let (written, parts) = (steps.descent.ranks, steps.descent.parts().saturating_mul(times));
        let count = written.count.saturating_mul(times);
        let splits = batch.is_multiple_of(parts) && count <= Ranks::MOST && !whole_states(steps.moments).1;
        if written.is_alone() || shard < written.shard || (times, shard) == (1, written.shard) || !splits {
            return None;
        }
        steps.descent.ranks = Ranks { count, shard, ..written };
        let (ranks, shard) = ((times > 1).then_some(count), (shard != written.shard).then_some(shard));
        other.tables.ranks = steps.descent.ranks;
        other.remedy.shared = Some(Shared { ranks, shard, sent: 0 });
        Some(other)
    }

    /// Returns the numbers of micro-batches into which a batch can be split further. Empty if the loss compares all of its samples.
    pub(crate) fn parts(&self, batch: u64) -> Vec<u64> {
        if self.blueprint.training.iter().flat_map(|steps| &steps.loss).any(Term::compares_samples) {
            return Vec::new();
        }
        let descent = self.blueprint.training.as_ref().map_or(Descent::PLAIN, |steps| steps.descent);
        let mut found = divisors(batch.checked_div(descent.ranks.count).unwrap_or(batch));
        found.retain(|&more| more > descent.micro_batches);
        found
    }

    /// Returns the step with this number of micro-batches.
    pub(crate) fn in_parts(&self, micro_batches: u64) -> Variant {
        let mut other = self.clone();
        if let Some(steps) = &mut other.blueprint.training {
            steps.descent.micro_batches = micro_batches;
        }
        let is_norm = |source: &Source| match source {
            Source::Op { op, .. } => {
                matches!(op.training_only(), Some(TrainingOnly::Statistics | TrainingOnly::Undone))
            }
            _ => false,
        };
        let has_statistics = other.blueprint.graph.nodes.iter().any(|node| is_norm(&node.source));
        other.remedy.split = Some(Split { micro_batches, has_statistics });
        other
    }

    /// Returns the step with the frozen weights of each `lora` without a `base` quantized. `None` if it has none that may be. The tables stay
    /// those of the step that the user wrote.
    pub(crate) fn coded(&self, coding: Coding) -> Option<Variant> {
        let (graph, places) = self.blueprint.graph.with_base(coding)?;
        let mut blueprint = Blueprint { graph, ..self.blueprint.clone() };
        blueprint.move_ends(&places);
        Some(Variant { blueprint, remedy: Remedy { base: Some(coding), ..self.remedy }, ..self.clone() })
    }

    /// Returns the step with `what` in host memory. `None` if the step has no such tensors, or they are there already.
    pub(crate) fn offloading(&self, what: Offload, precision: Precision) -> Option<Variant> {
        let mut other = self.clone();
        let steps = other.blueprint.training.as_mut()?;
        let has_states = !whole_states(steps.moments).1 && (steps.moments > 0 || precision.has_master());
        let has_it = what == Offload::Activations || has_states;
        let is_more = match steps.descent.offload {
            Offload::None => true,
            written => what == Offload::All && written != Offload::All,
        };
        if !has_it || !is_more {
            return None;
        }
        steps.descent.offload = what;
        other.tables.offloads = steps.descent.offloads();
        other.remedy.offload = Some(Offloaded { what, moved: 0, ms: 0 });
        Some(other)
    }
}

/// A step that was planned.
struct Planned {
    program: Program,
    remedy: Remedy,
}

/// A search for the fewest micro-batches, by their places in a list of numbers.
struct Splits {
    /// The first place that may fit.
    low: usize,
    /// A place that fits.
    high: usize,
    /// The place that is tried next.
    next: usize,
    /// The step at `high`.
    found: Remedy,
}

/// A search for alternatives that fit into `room` bytes, at one batch size and number format.
struct Limits<'a> {
    setting: &'a Sizes,
    room: u64,
}

impl Blueprint {
    /// Returns the alternatives with which the training step fits into an arena of `room` bytes. `program` is the leanest program of the step as
    /// the user wrote it. [`Remedies::UNKNOWN`] if the step fits, or misses only by what packing adds.
    pub fn remedies(&self, program: &Program, setting: &Sizes, room: u64) -> Remedies {
        if room == u64::MAX || self.training.is_none() {
            return Remedies::UNKNOWN;
        }
        let search = Limits { setting, room };
        let tables = tables(program);
        if search.may_fit(search.bound(tables.as_tables())) {
            return Remedies::UNKNOWN;
        }
        let written = Variant::as_written(self, tables);
        let (mut found, coded) = search.alone(&written, program);
        if found.is_empty() {
            found = search.together(&written, &coded);
        }
        let is_told = found.iter().filter(|remedy| remedy.offload.is_none()).count() < Remedies::MOST;
        let mixed = if is_told { search.mixed(&written) } else { None };
        let mut planned = found.into_iter();
        Remedies { planned: core::array::from_fn(|_| planned.next()), mixed, ..Remedies::UNKNOWN }
    }
}

impl Limits<'_> {
    /// Returns alternatives with one change, and the steps with quantized weights that were tried. These are all there are if nothing was found.
    fn alone(&self, written: &Variant, program: &Program) -> (Vec<Remedy>, Vec<Variant>) {
        let (mut found, mut coded) = (Vec::new(), Vec::new());
        found.extend(written.in_place().and_then(|way| self.fitting(&way)));
        found.extend(self.shared(written));
        found.extend(self.chunked_or_recomputed(written));
        found.extend(self.split(written, Some(program)));
        found.extend(self.codings(written).find_map(|way| {
            let remedy = self.fitting(&way);
            coded.push(way);
            remedy
        }));
        if found.len() < ENOUGH {
            found.extend(self.hosted(written, program).into_iter().take(ENOUGH - found.len()));
        }
        (found, coded)
    }

    /// Returns the step with something in host memory: the fastest transfer first, and both kinds only if neither is enough. `program` is the
    /// leanest one of the step as the user wrote it.
    fn hosted(&self, written: &Variant, program: &Program) -> Vec<Remedy> {
        let (most, widest) = (most_parked(program, self.setting), self.setting.widest(program));
        let fitting = |what| {
            let way = self.offloading(written, what)?;
            let parked = if what == Offload::OptimizerState { 0 } else { most };
            let bound = self.bound(way.tables.as_tables()).map(|bytes| bytes.saturating_sub(parked));
            let least = self.lasting(way.tables.as_tables()).map(|bytes| bytes.saturating_add(widest));
            Some(()).filter(|()| self.may_fit(bound) && self.may_fit(least)).and_then(|()| self.fitting(&way))
        };
        let mut found: Vec<Remedy> =
            [Offload::Activations, Offload::OptimizerState].into_iter().filter_map(fitting).collect();
        found.sort_by_key(|remedy| remedy.offload.map(|Offloaded { ms, moved, .. }| (ms, moved)));
        if found.is_empty() { fitting(Offload::All).into_iter().collect() } else { found }
    }

    /// Returns the arena bytes of a split f32 step in mixed precision; `None` if it does not fit. There, sums of gradients are other tensors. If
    /// a batch is whole, the compiler asks the step that the user wrote.
    fn mixed(&self, written: &Variant) -> Option<u64> {
        let is_split = written.blueprint.training.as_ref()?.descent.accumulates();
        let setting = Sizes { precision: MIXED, ..*self.setting };
        let way = Some(written).filter(|_| is_split && self.setting.precision == Precision::F32)?;
        Some(Limits { setting: &setting, room: self.room }.fitting(way)?.arena)
    }

    /// Returns alternatives with two changes or, if those are not enough either, with three.
    fn together(&self, written: &Variant, coded: &[Variant]) -> Vec<Remedy> {
        let in_place = written.in_place();
        let chunked = self.chunked(written);
        let streamed = self.offloading(written, Offload::OptimizerState);
        let both = |way: &Variant| way.recomputed().and_then(|way| self.split(&way, None));
        let all = self.offloading(written, Offload::All);
        let parked = self.offloading(written, Offload::Activations);
        let pairs: [&dyn Fn() -> Option<Remedy>; 10] = [
            &|| self.recomputed(in_place.as_ref()?),
            &|| self.recomputed(chunked.as_ref()?),
            &|| self.split(chunked.as_ref()?, None),
            &|| both(written),
            &|| coded.iter().find_map(|way| self.recomputed(way)),
            &|| coded.iter().find_map(|way| self.split(way, None)),
            &|| self.recomputed(streamed.as_ref()?),
            &|| self.recomputed(parked.as_ref()?),
            &|| self.split(streamed.as_ref()?, None),
            &|| self.split(all.as_ref()?, None),
        ];
        let found: Vec<Remedy> = pairs.iter().filter_map(|pair| pair()).take(ENOUGH).collect();
        if found.is_empty() { coded.iter().chain(&streamed).find_map(both).into_iter().collect() } else { found }
    }

    /// Returns the step whose ranks keep shards of the fewest tensors with which it fits, or of all on as few more ranks as it takes.
    fn shared(&self, written: &Variant) -> Option<Remedy> {
        let ways = Shard::ALL.into_iter().map(|shard| (1, shard));
        let ways = ways.chain(MORE_RANKS.into_iter().map(|times| (times, Shard::Parameters)));
        ways.filter_map(|(times, shard)| written.shared(times, shard, self.setting.batch))
            .find_map(|way| self.may_fit(self.lasting(way.tables.as_tables())).then(|| self.fitting(&way)).flatten())
    }

    /// Returns the step with logits in chunks and the step with recomputation, as far as they fit. If chunks alone are not enough, a step with both
    /// comes first if it takes less time than recomputation alone.
    fn chunked_or_recomputed(&self, written: &Variant) -> Vec<Remedy> {
        let chunked = self.chunked(written);
        let in_chunks = chunked.as_ref().and_then(|way| self.fitting(way));
        let recomputed = self.recomputed(written);
        let both = match (&in_chunks, &recomputed, &chunked) {
            (None, Some(alone), Some(chunked)) => {
                self.recomputed(chunked).filter(|both| both.chunks.is_some() && both.time() < alone.time())
            }
            _ => None,
        };
        [in_chunks, both, recomputed].into_iter().flatten().collect()
    }

    /// Returns the step with as few chunks of the logits as fit. `None` if it cannot have them, or nothing of it fits.
    fn chunked(&self, way: &Variant) -> Option<Variant> {
        way.chunked().filter(|_| self.may_fit(self.lasting(way.tables.as_tables())))
    }

    /// Returns the step with as little recomputation as was found; `None` if it does not fit. Recomputation frees nothing that lives outside of
    /// the step.
    fn recomputed(&self, way: &Variant) -> Option<Remedy> {
        let way = way.recomputed().filter(|way| self.may_fit(self.lasting(way.tables.as_tables())))?;
        self.fitting(&way)
    }

    /// Returns the step with the fewest micro-batches with which it fits; `None` if there are none. `lean` is the leanest program of the step as
    /// the user wrote it, if `way` is that step.
    fn split(&self, way: &Variant, lean: Option<&Program>) -> Option<Remedy> {
        let numbers = way.parts(self.setting.batch);
        // A gradient of each parameter is alive from the first micro-batch on.
        let held = self.holding(way.tables.as_tables()).with_micro_batches(*numbers.last()?);
        Some(()).filter(|()| self.may_fit(self.lasting(held)))?;
        let guessed = lean.and_then(|lean| self.first_split(way, &numbers, &tables(lean)));
        let Splits { mut low, mut high, mut next, mut found } = match guessed {
            Some(splits) => splits,
            None => self.last_split(way, &numbers)?,
        };
        let mut tries = 0;
        while low < high {
            let at = if tries < 2 { next.clamp(low, high - 1) } else { (low + high) / 2 };
            match self.fitting(&way.in_parts(numbers[at])) {
                Some(remedy) => (found, high, next) = (remedy, at, at.saturating_sub(1)),
                None => (low, next) = (at + 1, at + 1),
            }
            tries += 1;
        }
        Some(found)
    }

    /// Plans the number of micro-batches that is enough by the lower bound of a leanest program; `None` if it does not fit.
    fn first_split(&self, way: &Variant, numbers: &[u64], lean: &OwnedTables) -> Option<Splits> {
        let held = self.holding(lean.as_tables());
        let high = numbers.iter().position(|&parts| self.may_fit(self.bound(held.with_micro_batches(parts))))?;
        let found = self.fitting(&way.in_parts(numbers[high]))?;
        // Far above the available bytes, no other order of the step fits either.
        let far = self.room.saturating_add(self.room / MARGIN);
        let bound = |parts| self.bound(lean.as_tables().with_micro_batches(parts));
        let is_far = |&parts: &u64| bound(parts).is_none_or(|bytes| bytes > far);
        let low = numbers[..high].iter().rposition(is_far).map_or(0, |at| at + 1);
        Some(Splits { low, high, next: high.saturating_sub(1), found })
    }

    /// Plans micro-batches of one sample, which need least: `None` if those do not fit. More micro-batches need less, so that the fewest are
    /// between those that do not fit and those that do.
    fn last_split(&self, way: &Variant, numbers: &[u64]) -> Option<Splits> {
        let high = numbers.len().checked_sub(1)?;
        let Planned { program, remedy: found } = self.planned(&way.in_parts(numbers[high]))?;
        // The bound of this program with larger micro-batches says roughly how many are enough: its neighbours come first.
        let tables = tables(&program);
        let enough = |&parts: &u64| self.may_fit(self.bound(tables.as_tables().with_micro_batches(parts)));
        Some(Splits { low: 0, high, next: numbers.iter().position(enough).unwrap_or(high), found })
    }

    /// Returns the tables of a step that keeps all gradients, as one with micro-batches does.
    fn holding<'t>(&self, tables: Tables<'t>) -> Tables<'t> {
        Tables { holds_gradients: true, wide_sums: self.setting.precision.has_master(), ..tables }
    }

    /// Returns the step with the frozen weights inside `lora` quantized, if they are in the network's format. Formats with more digits come
    /// first.
    fn codings<'w>(&'w self, way: &'w Variant) -> impl Iterator<Item = Variant> + 'w {
        Coding::ALL.into_iter().filter_map(|coding| {
            let mut other = way.coded(coding)?;
            other.tables = tables(&other.blueprint.training(self.setting.precision).ok()??);
            Some(other)
        })
    }

    fn offloading(&self, way: &Variant, what: Offload) -> Option<Variant> {
        way.offloading(what, self.setting.precision)
    }

    /// Returns the alternative that a step is, if it fits; `None` otherwise.
    fn fitting(&self, way: &Variant) -> Option<Remedy> {
        self.planned(way).map(|planned| planned.remedy)
    }

    /// Plans the step; `None` if it does not fit.
    fn planned(&self, Variant { blueprint, remedy, recomputes, chunks: is_change, .. }: &Variant) -> Option<Planned> {
        let Fitting { program, budget, chunks, more } = if *recomputes || blueprint.takes_what_fits() {
            blueprint.fitting(self.setting, self.room, *recomputes).ok()??
        } else {
            let ChosenStep { program, chunks, .. } = self.step(blueprint)?;
            let budget = budget_of(&program, self.setting, self.room).ok()??;
            Fitting { program, budget, chunks, more: None }
        };
        let offload =
            remedy.offload.map(|of| Offloaded { moved: budget.fetched.saturating_mul(2), ms: budget.bus_ms(), ..of });
        let shared = remedy.shared.map(|of| Shared { sent: sent(&program, self.setting.precision), ..of });
        let chunks = chunks.filter(|_| *is_change);
        let remedy = Remedy { arena: budget[Line::Arena], chunks, offload, shared, more, ..*remedy };
        Some(Planned { program, remedy })
    }

    /// Returns the step of a network that does not take what fits: its only one, or the one within the share of `Budget`.
    fn step(&self, blueprint: &Blueprint) -> Option<ChosenStep> {
        if blueprint.decides() {
            return blueprint.choices(self.setting).ok()??.step(self.room).ok();
        }
        Some(ChosenStep { program: blueprint.plain(self.setting).ok()??, chunks: None, more: None })
    }

    /// Returns a lower bound of the arena in bytes; `None` if the step is too large for any plan.
    fn bound(&self, tables: Tables<'_>) -> Option<u64> {
        lower_bound_at(&tables.with_workspaces(self.setting.workspaces), self.setting.batch, self.setting.precision)
            .ok()
    }

    /// Returns the arena bytes that live outside of a step; `None` if they are too many for any plan.
    fn lasting(&self, tables: Tables<'_>) -> Option<u64> {
        lasting_at(&tables, self.setting.batch, self.setting.precision).ok()
    }

    /// True if this many bytes are available; false for `None`.
    fn may_fit(&self, bytes: Option<u64>) -> bool {
        bytes.is_some_and(|bytes| bytes <= self.room)
    }
}

/// Returns the bytes that each rank sends in a step: those of its trained parameters, as often as they are exchanged.
pub(crate) fn sent(program: &Program, precision: Precision) -> u64 {
    let trained = program.of_class(Class::Parameter).map(|id| program.tensor(id)).filter(|tensor| tensor.trained);
    let bytes = trained.map(|it| it.unsharded().unwrap_or(u64::MAX).saturating_mul(it.role.bytes(precision)));
    program.descent.ranks.sent(bytes.fold(0, u64::saturating_add))
}

/// Returns the divisors of a batch, the smallest first. Empty for a batch larger than any in use, whose divisors would take too long.
fn divisors(batch: u64) -> Vec<u64> {
    if batch > MOST_SAMPLES {
        return Vec::new();
    }
    let roots = || (1..=batch.isqrt()).filter(|small| batch.is_multiple_of(*small));
    let large = roots().filter(|small| small * small != batch).map(|small| batch / small);
    let mut all: Vec<u64> = roots().chain(large).collect();
    all.sort_unstable();
    all
}

/// The most samples of a batch that is split in an alternative.
const MOST_SAMPLES: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_of_batches() {
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(97), [1, 97]);
        assert_eq!(divisors(u64::MAX), []);
    }
}
