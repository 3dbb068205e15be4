//! What makes a training step fit that does not: other programs of it, each planned.
//!
//! One thing written in another way comes first, what costs least before what costs more; several together only where none is enough alone.
//! Every program is lowered as the one that is written is, which takes time, so that what cannot help is left out: a bound on what is there
//! in any case says so, and what is dear is not tried where enough was found.

use super::fitted::{Fitting, budget};
use super::offload::most_parked;
use super::{Blueprint, Setting, Term, tables, unchunkable};
use crate::graph::{RowId, Source};
use crate::memory::budget::{Line, lasting_at, lower_bound_at};
use crate::memory::refusal::{Offloaded, Remedies, Remedy, Split};
use crate::memory::tables::Tables;
use crate::number::{Coding, Half, Precision};
use crate::program::{Program, TrainingOnly};
use crate::train::optim::whole_states;
use crate::train::{Checkpoint, Offload};
use alloc::vec::Vec;
use core::ops::Range;

/// Where so many were found, what is dearer is left out.
const ENOUGH: usize = 2;

/// The precision that is told first of a step in f32.
const MIXED: Precision = Precision::Mixed(Half::Bf16);

/// Numbers of chunks that are tried: an eighth of the logits is little beside most steps.
const CHUNKS: [u64; 2] = [8, 32];

/// A step, and what of it is written in another way.
#[derive(Clone)]
struct Way {
    blueprint: Blueprint,
    remedy: Remedy,
    /// Whether as much is computed again as it takes.
    recomputes: bool,
    /// Tables of it that say what is there outside of the step, where the batch is whole.
    tables: Tables,
}

impl Way {
    fn as_written(blueprint: &Blueprint, tables: Tables) -> Way {
        Way {
            blueprint: blueprint.clone(),
            remedy: Remedy::as_written(0),
            recomputes: blueprint.takes_what_fits(),
            tables,
        }
    }

    /// With `InplaceAbn`, where it has what that takes the place of.
    fn in_place(&self) -> Option<Way> {
        let (blueprint, slopes) = self.blueprint.activated_in_place()?;
        Some(Way { blueprint, remedy: Remedy { in_place: Some(slopes), ..self.remedy }, ..*self })
    }

    /// With logits that are there for a part of the steps at a time, where the loss has such and says nothing of chunks.
    fn chunked(&self, chunks: u64) -> Option<Way> {
        let mut other = self.clone();
        let Blueprint { graph, outputs, training, .. } = &mut other.blueprint;
        let loss = &mut training.as_mut()?.loss;
        let whole: Vec<usize> = (0..loss.len()).filter(|&term| loss[term].options.chunks == 1).collect();
        for &term in &whole {
            loss[term].options.chunks = chunks;
            if unchunkable(graph, outputs, loss, term).is_some() {
                loss[term].options.chunks = 1;
            }
        }
        let has_some = whole.iter().any(|&term| loss[term].options.chunks > 1);
        other.remedy.chunks = Some(chunks);
        has_some.then_some(other)
    }

    /// With `checkpoint: Auto`, where nothing is said of what is computed again.
    fn recomputed(&self) -> Option<Way> {
        let mut other = Way { recomputes: true, ..self.clone() };
        let steps = other.blueprint.training.as_mut()?;
        match steps.checkpoint {
            // `Auto` would take outputs of normalisations before any level. A step that has these again is what levels are compared with.
            Checkpoint::None => steps.checkpoint = Checkpoint::Auto,
            Checkpoint::Norms => {}
            Checkpoint::Cheap | Checkpoint::Auto | Checkpoint::Budget(_) => return None,
        }
        Some(other)
    }

    /// The numbers of parts that a batch splits into beyond those that it is in: none where the loss compares all of its samples.
    fn parts(&self, batch: u64) -> Vec<u64> {
        if self.blueprint.training.iter().flat_map(|steps| &steps.loss).any(Term::compares_samples) {
            return Vec::new();
        }
        let parts = self.blueprint.training.as_ref().map_or(1, |steps| steps.descent.micro_batches);
        let mut found = divisors(batch);
        found.retain(|&more| more > parts);
        found
    }

    /// In so many parts.
    fn in_parts(&self, micro_batches: u64) -> Way {
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

    /// With this in host memory, where there is such a thing, and nothing lies there but a part of it.
    fn offloading(&self, what: Offload, precision: Precision) -> Option<Way> {
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

/// What fits into so many bytes, where batch and format are these.
struct Search<'a> {
    setting: &'a Setting,
    room: u64,
    /// The layers of each `lora` whose weights are in the network's format.
    loras: &'a [Range<RowId>],
}

impl Blueprint {
    /// What makes the training step fit into an arena of `room` bytes, of which `program` is the leanest program as it is written. `loras` are
    /// the layers of each `lora` without a `base`. Nothing where the step fits, or fails by what packing adds.
    pub fn remedies(&self, program: &Program, setting: &Setting, room: u64, loras: &[Range<RowId>]) -> Remedies {
        if room == u64::MAX || self.training.is_none() {
            return Remedies::UNKNOWN;
        }
        let search = Search { setting, room, loras };
        let tables = search.tables(program);
        if search.may_fit(search.bound(&tables)) {
            return Remedies::UNKNOWN;
        }
        let written = Way::as_written(self, tables);
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

impl Search<'_> {
    /// One thing written in another way; and the ways with weights in codes that were tried, which are all where nothing was found.
    fn alone(&self, written: &Way, program: &Program) -> (Vec<Remedy>, Vec<Way>) {
        let (mut found, mut coded) = (Vec::new(), Vec::new());
        found.extend(written.in_place().and_then(|way| self.fitting(&way)));
        found.extend(self.chunked(written).find_map(|way| self.fitting(&way)));
        found.extend(self.recomputed(written));
        found.extend(self.split(written));
        found.extend(self.codings(written).find_map(|way| {
            let remedy = self.fitting(&way);
            coded.push(way);
            remedy
        }));
        if found.len() < ENOUGH {
            found.extend(
                self.hosted(written, most_parked(program, self.setting)).into_iter().take(ENOUGH - found.len()),
            );
        }
        (found, coded)
    }

    /// The step with something in host memory: what takes the bus for less time first, and both only where neither is enough. At most `parked`
    /// bytes of activations leave.
    fn hosted(&self, written: &Way, parked: u64) -> Vec<Remedy> {
        let fitting = |what| {
            let way = self.offloading(written, what)?;
            let parked = if what == Offload::OptimizerState { 0 } else { parked };
            let bound = self.bound(&way.tables).map(|bytes| bytes.saturating_sub(parked));
            Some(()).filter(|()| self.may_fit(bound)).and_then(|()| self.fitting(&way))
        };
        let mut found: Vec<Remedy> =
            [Offload::Activations, Offload::OptimizerState].into_iter().filter_map(fitting).collect();
        found.sort_by_key(|remedy| remedy.offload.map(|Offloaded { ms, moved, .. }| (ms, moved)));
        if found.is_empty() { fitting(Offload::All).into_iter().collect() } else { found }
    }

    /// Bytes of the arena of a step in f32 whose batch is split, in mixed precision, if it fits: sums of gradients are other tensors there. Where a batch
    /// is whole, the compiler asks the step that is written.
    fn mixed(&self, written: &Way) -> Option<u64> {
        let is_split = written.blueprint.training.as_ref()?.descent.accumulates();
        let setting = Setting { precision: MIXED, ..*self.setting };
        let way = Some(written).filter(|_| is_split && self.setting.precision == Precision::F32)?;
        Some(Search { setting: &setting, ..*self }.fitting(way)?.arena)
    }

    /// Several together: two things, or where that is not enough either, three.
    fn together(&self, written: &Way, coded: &[Way]) -> Vec<Remedy> {
        let in_place = written.in_place();
        let chunked = self.chunked(written).next();
        let streamed = self.offloading(written, Offload::OptimizerState);
        let both = |way: &Way| way.recomputed().and_then(|way| self.split(&way));
        let all = self.offloading(written, Offload::All);
        let pairs: [&dyn Fn() -> Option<Remedy>; 9] = [
            &|| self.recomputed(in_place.as_ref()?),
            &|| self.recomputed(chunked.as_ref()?),
            &|| self.split(chunked.as_ref()?),
            &|| both(written),
            &|| coded.iter().find_map(|way| self.recomputed(way)),
            &|| coded.iter().find_map(|way| self.split(way)),
            &|| self.recomputed(streamed.as_ref()?),
            &|| self.split(streamed.as_ref()?),
            &|| self.split(all.as_ref()?),
        ];
        let found: Vec<Remedy> = pairs.iter().filter_map(|pair| pair()).take(ENOUGH).collect();
        if found.is_empty() { coded.iter().chain(&streamed).find_map(both).into_iter().collect() } else { found }
    }

    /// The step with logits in chunks: the fewest first.
    fn chunked<'w>(&'w self, way: &'w Way) -> impl Iterator<Item = Way> + 'w {
        let may_fit = self.may_fit(self.lasting(&way.tables));
        CHUNKS.into_iter().filter(move |_| may_fit).filter_map(|chunks| way.chunked(chunks))
    }

    /// The step with as little recomputation as was found. It takes away nothing that is there outside of the step.
    fn recomputed(&self, way: &Way) -> Option<Remedy> {
        let way = way.recomputed().filter(|way| self.may_fit(self.lasting(&way.tables)))?;
        self.fitting(&way)
    }

    /// The step in the fewest parts of the batch with which it fits.
    fn split(&self, way: &Way) -> Option<Remedy> {
        let numbers = way.parts(self.setting.batch);
        // A gradient of each parameter is there from the first part on.
        let wide_sums = self.setting.precision.has_master();
        let held = Tables { holds_gradients: true, wide_sums, micro_batches: *numbers.last()?, ..way.tables };
        Some(()).filter(|()| self.may_fit(self.lasting(&held)))?;
        // Parts of one sample need least: where those do not fit, nothing does. More parts need less, so that the fewest are between those
        // that do not fit and those that do.
        let Planned { program, remedy: mut found } = self.planned(&way.in_parts(*numbers.last()?))?;
        let tables = self.tables(&program);
        let (mut low, mut high) = (0, numbers.len() - 1);
        // The same program with larger parts says about how many are enough: its neighbours come first.
        let mut next = numbers.partition_point(|&parts| !self.may_fit(self.bound(&tables.with_micro_batches(parts))));
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

    /// The step with what is frozen inside `lora` kept in codes, where that is in the network's format: those with more digits first.
    fn codings<'w>(&'w self, way: &'w Way) -> impl Iterator<Item = Way> + 'w {
        Coding::ALL.into_iter().filter_map(|coding| {
            let (graph, places) = way.blueprint.graph.with_base(self.loras, coding)?;
            let mut other = Way { remedy: Remedy { base: Some(coding), ..way.remedy }, ..way.clone() };
            other.blueprint.graph = graph;
            other.blueprint.move_ends(&places);
            other.tables = self.tables(&other.blueprint.training(self.setting.precision).ok()??);
            Some(other)
        })
    }

    fn offloading(&self, way: &Way, what: Offload) -> Option<Way> {
        way.offloading(what, self.setting.precision)
    }

    /// What a step needs if it fits.
    fn fitting(&self, way: &Way) -> Option<Remedy> {
        self.planned(way).map(|planned| planned.remedy)
    }

    /// The step, if it fits.
    fn planned(&self, Way { blueprint, remedy, recomputes, .. }: &Way) -> Option<Planned> {
        let Fitting { program, budget, more } = if *recomputes {
            blueprint.fitting(self.setting, self.room).ok()??
        } else {
            let program = blueprint.chosen(self.setting, self.room).ok()??;
            Some(()).filter(|()| self.may_fit(self.bound(&self.tables(&program))))?;
            let budget = budget(&program, self.setting)?;
            Fitting { program, budget, more: None }
        };
        let offload =
            remedy.offload.map(|of| Offloaded { moved: budget.fetched.saturating_mul(2), ms: budget.bus_ms(), ..of });
        let remedy = Remedy { arena: budget[Line::Arena], offload, more, ..*remedy };
        (remedy.arena <= self.room).then_some(Planned { program, remedy })
    }

    fn tables(&self, program: &Program) -> Tables {
        // Until the process ends, as elsewhere.
        tables(program).leak().with_workspaces(self.setting.workspaces)
    }

    /// The fewest bytes of an arena.
    fn bound(&self, tables: &Tables) -> Option<u64> {
        lower_bound_at(tables, self.setting.batch, self.setting.precision).ok()
    }

    /// What of an arena is there outside of a step.
    fn lasting(&self, tables: &Tables) -> Option<u64> {
        lasting_at(tables, self.setting.batch, self.setting.precision).ok()
    }

    /// Whether so many bytes are no more than there may be.
    fn may_fit(&self, bytes: Option<u64>) -> bool {
        bytes.is_some_and(|bytes| bytes <= self.room)
    }
}

/// The numbers that divide a batch, the smallest first; none of one that is larger than any in use, whose divisors nobody waits for.
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

/// The most samples of a batch that is split in a remedy.
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
