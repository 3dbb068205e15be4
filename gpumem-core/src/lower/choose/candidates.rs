//! Lists the steps between which memory decides: recompute levels and, with `chunks: Auto`, numbers of chunks of the logits.
//!
//! Input: a blueprint, its plain step and sizes. Output: levels of falling peaks, the cheapest first. Cost: a lowering for each number of chunks, and
//! for each of them a search if recompute levels are asked for, too. Without `chunks: Auto` there is one number.

use crate::lower::options::holds_gradients;
use crate::lower::rewrite::chunk_logits::{automatic_counts, settle_automatic, shares_automatic};
use crate::lower::schedule::recompute::{RecomputeLevel, Search, spread, step_time, time_again};
use crate::lower::{Blueprint, LowerError, Sizes, unchunkable};
use crate::memory::levels::NOT_PACKED;
use crate::memory::refusal::InChunks;
use crate::program::Program;
use crate::program::cost::flops;
use crate::program::loss::Chunks;
use crate::train::Checkpoint;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Steps that need less memory than a given training step.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Levels {
    /// The levels, of falling peaks.
    pub(in crate::lower) all: Vec<ListedLevel>,
    /// The program of the last of them; `None` if it is not lowered yet.
    pub(in crate::lower) leanest: Option<Program>,
    /// Bytes of an arena that are small enough, even if a smaller packing exists.
    pub(in crate::lower) enough: u64,
}

/// A step that needs less memory than the plain one.
#[derive(Clone, Debug)]
pub(in crate::lower) struct ListedLevel {
    step: StepForm,
    /// Bytes of the tensors inside the step, at the sizes of the search.
    peak: u64,
    /// The chunks that `chunks: Auto` is in it, and their number with their price.
    logits: Chunks,
    chunks: InChunks,
    /// The price of recomputation, without that of chunks: floating-point operations and time, in thousandths of the plain step. `None` if nothing
    /// is recomputed that the plain step saves.
    more: Option<[u64; 2]>,
    /// The time beyond that of the plain step, in floating-point operations that take as long.
    time: u64,
}

/// The operations of a level.
#[derive(Clone, Debug)]
enum StepForm {
    Lowered(Box<Program>),
    /// Not lowered yet: the order of operations.
    Ordered(Vec<u32>),
}

/// The cost of a plain step, with which levels are compared. Times are in floating-point operations that take as long.
struct PlainCost {
    flops: u64,
    /// The time of what the step recomputes.
    own: u64,
    /// The time of the step, with that.
    whole: u64,
    /// The time of the step as [`step_time`] counts it. 0 if the step has one number of chunks.
    measured: u64,
}

impl PlainCost {
    fn of(blueprint: &Blueprint, plain: &Program, setting: &Sizes) -> PlainCost {
        // Levels begin with a step that keeps what the plain step may recompute.
        let own = if blueprint.graph.groups.is_empty() { time_again(plain, setting) } else { 0 };
        let flops = plain.operations.iter().map(|operation| flops(operation, 1)).fold(0, u64::saturating_add);
        let measured = if blueprint.chunks_automatically() { step_time(plain, setting) } else { 0 };
        PlainCost { flops, own, whole: measured, measured }
    }
}

impl Blueprint {
    /// True if a term of the loss has `chunks: Auto`.
    pub fn chunks_automatically(&self) -> bool {
        self.training.iter().flat_map(|steps| &steps.loss).any(|term| term.options.chunks == Chunks::Auto)
    }

    /// True if available memory decides which of several programs runs: `checkpoint` or `chunks` says so.
    pub fn decides(&self) -> bool {
        self.searches() || self.chunks_automatically()
    }

    /// True if `checkpoint` asks for recompute levels.
    pub fn searches(&self) -> bool {
        matches!(self.checkpoint(), Checkpoint::Auto | Checkpoint::Budget(_))
    }

    /// Returns the network with `chunks: Auto` in each term that can have chunks and sets none. `None` if there is no such term.
    pub fn with_automatic_chunks(&self) -> Option<Blueprint> {
        let mut other = self.clone();
        let loss = &mut other.training.as_mut()?.loss;
        let whole: Vec<usize> = (0..loss.len()).filter(|&term| loss[term].options.chunks == Chunks::WHOLE).collect();
        let mut has_some = false;
        for term in whole {
            loss[term].options.chunks = Chunks::Auto;
            if unchunkable(&self.graph, &self.outputs, loss, term).is_some() {
                loss[term].options.chunks = Chunks::WHOLE;
            } else {
                has_some = true;
            }
        }
        has_some.then_some(other)
    }

    /// Returns the network with these chunks instead of `chunks: Auto`.
    pub(crate) fn in_chunks(&self, chunks: Chunks) -> Blueprint {
        let mut other = self.clone();
        if let Some(steps) = &mut other.training {
            settle_automatic(&self.graph, &self.outputs, &mut steps.loss, chunks);
        }
        other
    }

    /// Returns the numbers of chunks that `chunks: Auto` may have; 1 alone without it.
    pub(crate) fn chunk_counts(&self) -> Vec<u64> {
        match &self.training {
            Some(steps) => automatic_counts(&self.graph, &self.outputs, &steps.loss),
            None => Vec::from([1]),
        }
    }

    /// True if the head whose logits `chunks: Auto` cuts shares its weight with another layer, so that the gradient of the weight may begin late.
    fn shares_head(&self) -> bool {
        let steps = self.training.as_ref().filter(|steps| !holds_gradients(steps.update, &steps.descent));
        steps.is_some_and(|steps| shares_automatic(&self.graph, &self.outputs, &steps.loss))
    }

    /// Returns the levels at these sizes that need less memory than `plain`, the step as the user wrote it. With `searches`, recompute levels are
    /// among them.
    pub(in crate::lower) fn levels_beside(
        &self,
        plain: &Program,
        setting: &Sizes,
        searches: bool,
    ) -> Result<Levels, LowerError> {
        let mut cost = PlainCost::of(self, plain, setting);
        let mut all = Vec::new();
        let (mut least, mut best) = (u64::MAX, Chunks::WHOLE);
        for count in self.chunk_counts() {
            let chunks = Chunks::Count(count);
            let found = self.levels_with(plain, setting, (chunks, searches), &mut cost)?;
            let leanest = found.iter().map(|level| level.peak).min().unwrap_or(u64::MAX);
            all.extend(found);
            // Whole logits do without a gradient of the head's weight while they are there, so only chunks are compared with each other. Where
            // logits are no part of the peak, smaller chunks gain nothing.
            if count > 1 {
                if leanest >= least {
                    break;
                }
                (least, best) = (leanest, Chunks::Twice(count));
            }
        }
        if best != Chunks::WHOLE && self.shares_head() {
            all.extend(self.levels_with(plain, setting, (best, searches), &mut cost)?);
        }
        if self.chunks_automatically() {
            if searches {
                all.sort_by_key(|level| (level.time, level.chunks.count));
            }
            keep_leaner(&mut all, setting.peak(plain));
        }
        Ok(Levels { all, leanest: None, enough: 0 })
    }

    /// Returns the levels of the step with these chunks instead of `chunks: Auto`. `plain` is the step with whole logits.
    fn levels_with(
        &self,
        plain: &Program,
        setting: &Sizes,
        (chunks, searches): (Chunks, bool),
        cost: &mut PlainCost,
    ) -> Result<Vec<ListedLevel>, LowerError> {
        if chunks == Chunks::WHOLE {
            return self.levels_in(plain, setting, (chunks, searches), cost);
        }
        let blueprint = self.in_chunks(chunks);
        match blueprint.plain(setting)? {
            Some(step) => blueprint.levels_in(&step, setting, (chunks, searches), cost),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the levels with one number of chunks, beginning with `step` itself if it has several.
    fn levels_in(
        &self,
        step: &Program,
        setting: &Sizes,
        (logits, searches): (Chunks, bool),
        cost: &mut PlainCost,
    ) -> Result<Vec<ListedLevel>, LowerError> {
        let (count, twice) = (logits.at_first(), matches!(logits, Chunks::Twice(_)));
        let again = self.renormalised(step, setting)?;
        let found = match searches {
            true => self.leaner(again.as_ref().unwrap_or(step), setting)?,
            false => Search::default(),
        };
        if count == 1 && searches {
            cost.whole = found.step_cost.saturating_add(cost.own);
        }
        let added = if count == 1 { 0 } else { step_time(step, setting).saturating_sub(cost.measured) };
        let chunks = InChunks { count, time: share(added, cost.whole), twice };
        let level = |step, peak, more, time: u64| {
            let time = time.saturating_add(added);
            ListedLevel { step, peak, logits, chunks, more, time }
        };
        let mut all = Vec::new();
        if count > 1 {
            all.push(level(StepForm::Lowered(Box::new(step.clone())), setting.peak(step), None, 0));
        }
        if let Some(again) = again {
            let time = time_again(&again, setting);
            let (peak, more) = (setting.peak(&again), Some([0, share(time, cost.whole)]));
            all.push(level(StepForm::Lowered(Box::new(again)), peak, more, time));
        }
        for RecomputeLevel { order, peak, macs_again, cost: time, .. } in found.levels.into_iter().skip(1) {
            let time = time.saturating_sub(cost.own);
            let more = [share(macs_again.saturating_mul(2), cost.flops), share(time, cost.whole)];
            all.push(level(StepForm::Ordered(order), peak, Some(more), time));
        }
        Ok(all)
    }
}

impl Levels {
    /// Returns the peak of each step inside the step, in bytes. The plain step comes first: it does not fit, and has none.
    pub(in crate::lower) fn peaks(&self, setting: &Sizes) -> Vec<u64> {
        let peak = |level: &ListedLevel| match &level.step {
            StepForm::Lowered(program) => setting.peak(program),
            StepForm::Ordered(_) => level.peak,
        };
        [NOT_PACKED].into_iter().chain(self.all.iter().map(peak)).collect()
    }

    /// Returns a level by its number. The plain step has number 0, and the first level number 1.
    pub(in crate::lower) fn level(&self, number: usize) -> Option<&ListedLevel> {
        self.all.get(number.checked_sub(1)?)
    }

    /// Returns the program of a level of `blueprint`; `None` if there is no such level.
    pub(in crate::lower) fn program(
        &self,
        blueprint: &Blueprint,
        number: usize,
        setting: &Sizes,
    ) -> Result<Option<Program>, LowerError> {
        let Some(level) = self.level(number) else { return Ok(None) };
        match (&level.step, &self.leanest) {
            (StepForm::Lowered(program), _) => Ok(Some((**program).clone())),
            (StepForm::Ordered(_), Some(leanest)) if number == self.all.len() => Ok(Some(leanest.clone())),
            (StepForm::Ordered(order), _) if level.logits == Chunks::WHOLE => {
                blueprint.training_in_order(setting.precision, order)
            }
            (StepForm::Ordered(order), _) => {
                blueprint.in_chunks(level.logits).training_in_order(setting.precision, order)
            }
        }
    }

    /// Leaves out levels until there are `most`, such that the step costs least on average if it may be limited to any peak below `first`.
    pub(in crate::lower) fn at_most(mut self, most: usize, first: u64) -> Levels {
        let all: Vec<[u64; 2]> = self.all.iter().map(|level| [level.peak, level.time]).collect();
        let kept = spread(&all, most, first);
        let mut number = 0..;
        self.all.retain(|_| number.next().is_some_and(|number: usize| kept.contains(&number)));
        self
    }

    /// Scales the peaks of levels that are not lowered yet by a fraction.
    pub(in crate::lower) fn scale(&mut self, [part, whole]: [u128; 2]) {
        for level in self.all.iter_mut().filter(|level| matches!(level.step, StepForm::Ordered(_))) {
            let peak = u128::from(level.peak).saturating_mul(part) / whole.max(1);
            level.peak = u64::try_from(peak).unwrap_or(u64::MAX);
        }
    }
}

impl ListedLevel {
    /// Returns the chunks that `chunks: Auto` has in this level; `None` if logits are whole.
    pub(in crate::lower) fn chunks(&self) -> Option<InChunks> {
        Some(self.chunks).filter(|chunks| chunks.count > 1)
    }

    /// Returns the price of recomputation: see [`Leaner::more`](crate::lower::Leaner::more).
    pub(in crate::lower) fn more(&self) -> Option<[u64; 2]> {
        self.more
    }
}

/// Keeps the levels that need less than all before them and than `first` bytes.
fn keep_leaner(all: &mut Vec<ListedLevel>, mut first: u64) {
    all.retain(|level| {
        let is_leaner = level.peak < first;
        first = first.min(level.peak);
        is_leaner
    });
}

/// Returns a part in thousandths of the whole, rounded up; 0 if the whole is 0.
fn share(part: u64, whole: u64) -> u64 {
    (1000 * u128::from(part)).div_ceil(u128::from(whole).max(1)) as u64 * u64::from(whole > 0)
}
