//! Recompute levels: labels become orders, which are counted exactly.

use super::away::sets;
use super::emit::{Emission, StepEffects, Treatment};
use super::local_search::{Candidate, Polish};
use super::measure::{NEVER, StepBytes, again, costs, macs, moved_again};
use super::pareto::Effort;
use super::parking::Parking;
use super::segment_dp::Table;
use super::segments::{Far, Frame, Segment};
use crate::lower::draft::Draft;
use crate::lower::schedule::bus;
use crate::lower::sizes::Sizes;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A step in which some forward operations run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecomputeLevel {
    /// The order of its operations: see [`lower_in_order`](crate::lower::lower_in_order).
    pub order: Vec<u32>,
    /// The peak of the tensors inside the step at the setting, in bytes. `u64::MAX` if it is too large for any plan.
    pub peak: u64,
    /// The number of operations that run again.
    pub operations_again: u32,
    /// The multiply-accumulates of operations that run again, for one sample.
    pub macs_again: u64,
    /// The bytes that operations move when they run again: those independent of the batch, and those of each sample.
    pub bytes_again: [u64; 2],
    /// The time of operations that run again, in floating-point operations that take as long: see [`Search::step_cost`].
    pub cost: u64,
}

/// The levels of a network, and the effort of finding them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The step as the user wrote it, then levels of falling peaks and rising costs.
    pub levels: Vec<RecomputeLevel>,
    /// The time of a step in which nothing runs again, in floating-point operations that take as long.
    pub step_cost: u64,
    /// The number of segments of the forward pass.
    pub segments: usize,
    /// The number of kinds of segments: those that are alike are one kind.
    pub kinds: usize,
    /// The number of measurements of single segments.
    pub measured: usize,
    /// The number of labels times segment options.
    pub steps: usize,
    /// The number of orders of the whole step that were counted.
    pub emissions: usize,
}

/// The most operations of a step that is searched: levels store their numbers in 16 bits.
const MOST_OPERATIONS: usize = 65_535;

/// The divisor of the peak from which on a far value may be dropped. Smaller ones are kept.
const FAR_PART: u64 = 128;

/// The steps after which no other treatment of far values is tried.
const MOST_STEPS: usize = 400_000;

/// The operations that are emitted to improve all levels.
const POLISHED: usize = 120_000;

/// The limit of far values that may be treated differently from all smaller ones.
const FAR_SPLITS: usize = 4;

/// Searches the levels of a step. `written` are the user's choices: a value that is not kept there is not kept in any level. With `parks`, kept
/// values may be in host memory between the passes.
pub(in crate::lower) fn search(
    draft: &Draft,
    step: &StepEffects,
    written: &[Treatment],
    setting: &Sizes,
    parks: bool,
) -> Search {
    let mut found = Search::default();
    let mut emission = Emission::new(step);
    emission.whole(written);
    let sizes = StepBytes::of(draft, step, setting);
    // A step that is too large for any plan, or for numbers of levels, is left unchanged.
    let Some(mut sizes) = sizes.filter(|_| step.operations() <= MOST_OPERATIONS && step.values.forward > 0) else {
        found.levels.push(RecomputeLevel::of(draft, step, &emission, setting, None));
        return found;
    };
    found.step_cost = sizes.step;
    if parks {
        let costs = costs(&draft.operations, &draft.tensors, &bus::sizes());
        sizes.parking = costs.and_then(|costs| Parking::of(draft, &step.values, costs));
    }
    found.levels.push(RecomputeLevel::of(draft, step, &emission, setting, Some(&sizes)));
    let dropped: Vec<bool> = written.iter().map(|choice| *choice != Treatment::Keep).collect();
    let peak = found.levels[0].peak;
    emission.whole(&vec![Treatment::Keep; written.len()]);
    let frame = Frame::new(draft, step, &sizes, &dropped, sizes.whole_peak(&emission));
    let tables = all_tables(&frame, &emission, &mut found);
    let Some(least) = least_need(&tables, &sizes).filter(|&least| least < peak) else { return found };
    let mut candidates: Vec<Candidate> = Vec::new();
    let rooms = rooms(peak, least, FINER * setting.levels);
    for (table, frame) in &tables {
        for &room in &rooms {
            emit_below(table, frame, written, room, &mut emission, &mut candidates);
        }
    }
    found.emissions = candidates.len();
    let rooms = match candidates.iter().map(|candidate| candidate.peak).min() {
        // Labels do not know how much leaves: the leanest order may need less than any of them.
        Some(leanest) if sizes.parking.is_some() => self::rooms(peak, leanest.min(least), FINER * setting.levels),
        _ => rooms,
    };
    let frontier = frontier(candidates, &rooms, peak);
    let points: Vec<[u64; 2]> = frontier.iter().map(|(_, candidate)| [candidate.peak, candidate.cost]).collect();
    let chosen = spread(&points, setting.levels, peak).into_iter().map(|at| frontier[at].clone()).collect();
    for candidate in polished(chosen, &frame, &mut emission, &mut found) {
        emission.whole(&candidate.choices);
        found.levels.push(RecomputeLevel::of(draft, step, &emission, setting, Some(&sizes)));
    }
    found
}

/// Returns the labels of a step, and those with the values in host memory that are worth it. `emission` is the step that keeps everything.
fn all_tables<'f>(frame: &Frame<'f>, emission: &Emission<'_>, found: &mut Search) -> Vec<(Table, Frame<'f>)> {
    let mut all = tables(frame, found);
    if let Some(parking) = &frame.sizes.parking {
        let leanest = least_need(&all, frame.sizes).unwrap_or(frame.peak);
        for away in sets(parking, frame, emission, leanest) {
            all.extend(tables(&frame.with_away(away), found));
        }
    }
    all
}

/// Returns the least bytes that a label of these tables should need. Those that cost more than the forward pass do not count.
fn least_need(tables: &[(Table, Frame<'_>)], sizes: &StepBytes) -> Option<u64> {
    let labels = tables.iter().flat_map(|table| table.0.labels()).filter(|label| label.cost <= sizes.forward);
    labels.map(|label| label.need).min()
}

/// Improves each candidate within its `room` bytes, as far as there is time, and drops those that others then dominate.
fn polished(
    chosen: Vec<(u64, Candidate)>,
    frame: &Frame<'_>,
    emission: &mut Emission<'_>,
    found: &mut Search,
) -> Vec<Candidate> {
    let values = &frame.step.values.values;
    let is_free = |&value: &u32| !values[value as usize].is_pinned && !frame.taken[value as usize];
    let free: Vec<u32> = (0..values.len() as u32).filter(is_free).collect();
    let share = POLISHED / chosen.len().max(1);
    let (sizes, dropped) = (frame.sizes, frame.dropped);
    let mut polish = Polish { emission, sizes, free: &free, dropped, budget: 0, emissions: 0 };
    let mut levels: Vec<Candidate> = Vec::new();
    // From the leanest up, each cheaper than all leaner ones.
    for (room, mut candidate) in chosen.into_iter().rev() {
        polish.budget = share;
        polish.improve(&mut candidate, room);
        if levels.last().is_none_or(|last| candidate.cost < last.cost) {
            // A leaner one may have used all of its `room` bytes, and now need no less than this one.
            while levels.pop_if(|leaner| leaner.peak >= candidate.peak).is_some() {}
            levels.push(candidate);
        }
    }
    found.emissions += polish.emissions;
    levels.reverse();
    levels
}

impl RecomputeLevel {
    fn of(
        draft: &Draft,
        step: &StepEffects,
        emission: &Emission<'_>,
        setting: &Sizes,
        sizes: Option<&StepBytes>,
    ) -> RecomputeLevel {
        let order = &emission.order;
        let forward = step.values.forward;
        let macs = again(order, forward).map(|at| macs(&draft.operations[at]));
        RecomputeLevel {
            peak: sizes.map_or(u64::MAX, |sizes| sizes.peak(emission)),
            operations_again: again(order, forward).count() as u32,
            macs_again: macs.fold(0, u64::saturating_add),
            bytes_again: moved_again(draft, step, order, setting),
            cost: sizes.map_or(0, |sizes| sizes.cost(order)),
            order: order.clone(),
        }
    }
}

/// Returns the labels for all treatments of far values that are tried.
fn tables<'f>(frame: &Frame<'f>, found: &mut Search) -> Vec<(Table, Frame<'f>)> {
    let segments = frame.segments();
    found.segments = segments.len();
    let effort = Effort::of(segments.len());
    let mut tables = Vec::new();
    let before = found.steps;
    for far in modes(frame, &segments) {
        if found.steps - before > MOST_STEPS {
            break;
        }
        // Neither estimate of when far values are recomputed is exact, but all that they find is counted exactly.
        let has_again = far.contains(&Far::Again);
        for is_late in [false, true].into_iter().filter(|is_late| has_again || !is_late) {
            let there = frame.with_again(&segments, &far, is_late);
            let table = Table::new(&there, segments.clone(), &effort, far.clone(), is_late);
            found.kinds = found.kinds.max(table.kinds());
            found.measured += table.measured;
            found.steps += table.steps;
            tables.push((table, there));
        }
    }
    tables
}

/// Returns the treatments of far values that are tried: all alike, and the larger ones different from the smaller.
fn modes(frame: &Frame<'_>, segments: &[Segment]) -> Vec<Vec<Far>> {
    let bytes = |value: u32| frame.sizes.values[value as usize];
    let mut values: Vec<u32> = segments.iter().flat_map(|segment| segment.far.iter().copied()).collect();
    values.sort_by_key(|&value| Reverse(bytes(value)));
    let mut near = vec![Far::Near; frame.step.values.values.len()];
    // Dropping the others would make no difference.
    let large = values.partition_point(|&value| bytes(value) > frame.peak / FAR_PART);
    for value in values.drain(large..) {
        near[value as usize] = Far::Held;
    }
    if values.is_empty() {
        return vec![near];
    }
    let all = [Far::Held, Far::Again, Far::Unasked];
    let pairs = all.into_iter().flat_map(|large| all.map(|small| (large, small)));
    let (alike, others): (Vec<_>, Vec<_>) = pairs.partition(|(large, small)| large == small);
    let mut modes = Vec::new();
    for (large, small) in alike.into_iter().chain(others) {
        let splits = if large == small { 0..1 } else { 1..values.len().min(FAR_SPLITS) };
        for split in splits {
            let mut mode = near.clone();
            for (at, &value) in values.iter().enumerate() {
                mode[value as usize] = if at < split { large } else { small };
            }
            modes.push(mode);
        }
    }
    modes
}

/// Returns `count` sizes below `peak` in a geometric sequence, the last of which is `least`.
fn rooms(peak: u64, least: u64, count: usize) -> Vec<u64> {
    // In parts of 2^32. Integers only, so that every host finds equal sizes.
    let share = ((u128::from(least) << 32) / u128::from(peak.max(1))) as u64;
    let times = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 32) as u64;
    let power = |ratio: u64| (0..count).fold(1 << 32, |power, _| times(power, ratio));
    let (mut low, mut high) = (0u64, 1 << 32);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if power(middle) <= share { low = middle } else { high = middle }
    }
    let mut room = 1 << 32;
    let mut rooms: Vec<u64> = (1..count)
        .map(|_| {
            room = times(room, high);
            times(peak, room)
        })
        .collect();
    rooms.push(least);
    rooms
}

/// The number of sizes that are tried for each level that is asked for.
const FINER: usize = 3;

/// The number of labels that are tried if a label needs more than expected.
const TRIES: usize = 3;

/// Counts the cheapest label of a table that should need at most `room` bytes, then leaner ones until one does.
fn emit_below(
    table: &Table,
    frame: &Frame<'_>,
    written: &[Treatment],
    room: u64,
    emission: &mut Emission<'_>,
    candidates: &mut Vec<Candidate>,
) {
    let end = table.labels().partition_point(|label| label.need <= room);
    for label in (end.saturating_sub(TRIES)..end).rev() {
        let choices = table.choices(frame, label, written);
        emission.whole(&choices);
        let (peak, cost) = (frame.sizes.peak(emission), frame.sizes.cost(&emission.order));
        if cost != NEVER {
            candidates.push(Candidate { peak, cost, choices });
        }
        if peak <= room {
            break;
        }
    }
}

/// Returns the cheapest candidate that fits into each room, the largest room first, without candidates that others dominate.
fn frontier(mut candidates: Vec<Candidate>, rooms: &[u64], peak: u64) -> Vec<(u64, Candidate)> {
    candidates.retain(|candidate| candidate.peak < peak);
    candidates.sort_by_key(|candidate| (candidate.cost, candidate.peak));
    let mut chosen: Vec<(u64, Candidate)> = Vec::new();
    let least = candidates.iter().map(|candidate| candidate.peak).min();
    for room in rooms.iter().copied().chain(least) {
        let Some(best) = candidates.iter().find(|candidate| candidate.peak <= room) else { continue };
        if chosen.last().is_none_or(|(_, last)| best.peak < last.peak) {
            chosen.push((room, best.clone()));
        }
    }
    chosen
}

/// Returns the indices of at most `most` candidates, the leanest among them. Candidates are `[peak, cost]`, of falling peaks and rising costs. With
/// these a step costs least on average, if it may be limited to any peak between `first` and the least.
pub(in crate::lower) fn spread(frontier: &[[u64; 2]], most: usize, first: u64) -> Vec<usize> {
    let Some(last) = frontier.len().checked_sub(1).filter(|_| most > 0) else { return Vec::new() };
    // A limit between the peaks of two candidates is met by the leaner one.
    let between = |from: Option<usize>, to: usize| {
        let above = from.map_or(first, |from| frontier[from][0]);
        let [peak, cost] = frontier[to];
        u128::from(above.saturating_sub(peak)) * u128::from(cost)
    };
    // For each candidate, the least sum up to it if it is the last of so many, and the candidate before it.
    let mut rounds: Vec<Vec<(u128, Option<usize>)>> =
        vec![(0..=last).map(|to| (between(None, to), None)).collect::<Vec<_>>()];
    for round in 1..most.min(frontier.len()) {
        let before = &rounds[round - 1];
        let best = |to: usize| {
            let sums = (0..to).map(|from| (before[from].0 + between(Some(from), to), Some(from)));
            sums.chain([before[to]]).min().unwrap_or(before[to])
        };
        let next = (0..=last).map(best).collect();
        rounds.push(next);
    }
    let mut chosen = vec![last];
    let (mut at, mut round) = (last, rounds.len() - 1);
    loop {
        // If one fewer is as good, the sum is that of the round before.
        while round > 0 && rounds[round][at] == rounds[round - 1][at] {
            round -= 1;
        }
        let Some(before) = rounds[round][at].1 else { break };
        chosen.push(before);
        (at, round) = (before, round.saturating_sub(1));
    }
    chosen.reverse();
    chosen
}
