//! Segment options: the ways to treat one segment that may pay.
//!
//! The boundary of a segment, which the next segment reads, is kept. Or it is dropped, and the next segment's backward pass begins by recomputing
//! it. Values inside the segment that the backward pass reads are kept or dropped one by one in either case.

use super::emit::Treatment;
use super::segment_cost::Alone;
use super::segments::{Far, Frame, Segment, SegmentOption};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The most inner values of a segment that are decided one by one: the largest. The others are kept.
const INNER: usize = 6;

/// The most options of a segment, for each of three choices of its boundary.
const WAYS: usize = 10;

/// The divisor of the peak from which on a boundary may be dropped between two operations that read it.
const LARGE: u64 = 64;

/// Finds the options of every segment, and returns the number of measurements. Segments that are alike share their options.
pub(in crate::lower) fn measure_all(frame: &Frame<'_>, segments: &mut [Segment], far: &[Far]) -> usize {
    let mut alone = Alone::new(frame, far);
    let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    for at in 0..segments.len() {
        let is_large = segments[at].cross_bytes > frame.peak / LARGE;
        let key = signature(frame, &segments[at], far, is_large);
        if let Some(&other) = known.get(&key) {
            (segments[at].ways, segments[at].kind) = (segments[other].ways.clone(), segments[other].kind);
            continue;
        }
        segments[at].kind = known.len();
        known.insert(key, at);
        let arriving = if at > 0 { segments[at - 1].cross.clone() } else { Vec::new() };
        let is_last = at + 1 == segments.len();
        let mut search = OptionSearch { frame, alone: &mut alone, segment: &segments[at], arriving: &arriving, far };
        let ways = search.all(is_last, is_large);
        segments[at].ways = Rc::new(ways);
    }
    alone.measured
}

/// The search for the options of one segment.
struct OptionSearch<'s, 'f> {
    frame: &'s Frame<'f>,
    alone: &'s mut Alone<'f>,
    segment: &'s Segment,
    arriving: &'s [u32],
    far: &'s [Far],
}

impl OptionSearch<'_, '_> {
    fn all(&mut self, is_last: bool, is_large: bool) -> Vec<SegmentOption> {
        let cross = &self.segment.cross;
        let is_held = is_last || cross.is_empty() || cross.iter().any(|&value| self.far[value as usize] == Far::Held);
        let is_dropped = !is_held && cross.iter().any(|&value| self.frame.dropped[value as usize]);
        let mut all = Vec::new();
        for boundary in [Treatment::Keep, Treatment::Once, Treatment::Each] {
            let is_wanted = match boundary {
                Treatment::Keep => !is_dropped,
                Treatment::Once | Treatment::Late => !is_held,
                Treatment::Each => !is_held && is_large,
            };
            if is_wanted {
                all.extend(self.of_boundary(boundary));
            }
        }
        all
    }

    fn of_boundary(&mut self, boundary: Treatment) -> Vec<SegmentOption> {
        let inner = &self.segment.inner;
        let is_dropped = |at: usize| self.frame.dropped[inner[at] as usize];
        let first: Vec<Treatment> =
            (0..inner.len()).map(|at| if is_dropped(at) { Treatment::Once } else { Treatment::Keep }).collect();
        let is_free = |at: &usize| !is_dropped(*at) && self.far[inner[*at] as usize] != Far::Held;
        let mut free: Vec<usize> = (0..inner.len()).filter(is_free).collect();
        free.sort_by_key(|&at| Reverse(self.frame.sizes.values[inner[at] as usize]));
        free.truncate(INNER);
        let mut ways = Vec::new();
        for subset in 0..1u32 << free.len() {
            let mut inner = first.clone();
            for (bit, &at) in free.iter().enumerate() {
                if subset >> bit & 1 == 1 {
                    inner[at] = Treatment::Once;
                }
            }
            ways.extend(self.measure(inner, boundary));
        }
        keep_undominated(&mut ways);
        thin_out(&mut ways, WAYS);
        for at in 0..ways.len() {
            let fleeting = self.with_fleeting(&ways[at]);
            ways.extend(fleeting);
        }
        keep_undominated(&mut ways);
        ways
    }

    /// Returns an option that also drops recomputed values between two operations that read them. `None` if that does not help.
    fn with_fleeting(&mut self, way: &SegmentOption) -> Option<SegmentOption> {
        let mut best = way.clone();
        for at in 0..best.inner.len() {
            if best.inner[at] != Treatment::Once {
                continue;
            }
            let mut inner = best.inner.clone();
            inner[at] = Treatment::Each;
            let helps = |next: &SegmentOption| {
                next.back < best.back || next.held < best.held || next.late < best.late || next.fleet < best.fleet
            };
            if let Some(next) = self.measure(inner, best.boundary).filter(helps) {
                best = next;
            }
        }
        (best.inner != way.inner).then_some(best)
    }

    fn measure(&mut self, inner: Vec<Treatment>, boundary: Treatment) -> Option<SegmentOption> {
        self.alone.measure(self.segment, self.arriving, inner, boundary)
    }
}

/// Returns a key that is equal for segments that are alike.
fn signature(frame: &Frame<'_>, segment: &Segment, far: &[Far], is_large: bool) -> Vec<u64> {
    let (step, sizes) = (frame.step, frame.sizes);
    let values = &step.values;
    let mut key = vec![segment.forward.len() as u64, segment.cross_bytes, u64::from(is_large)];
    let near = |value: u32, key: &mut Vec<u64>| {
        let producer = values.values[value as usize].producer as usize;
        key.push(producer.checked_sub(segment.forward.start).map_or(u64::MAX, |after| after as u64));
        key.push(sizes.values[value as usize]);
    };
    for at in segment.forward.clone() {
        key.extend([sizes.costs[at], sizes.scratch[at]]);
        let run = &step.runs[at];
        run.inputs.iter().for_each(|&value| near(value, &mut key));
        values.prefix(at).into_iter().flatten().for_each(|value| near(value, &mut key));
        for &value in &run.outputs {
            let index = value as usize;
            key.extend([
                sizes.values[index],
                far[index] as u64,
                u64::from(frame.dropped[index]),
                u64::from(frame.away[index]),
            ]);
        }
    }
    for rest in segment.rest.clone() {
        key.push(frame.at[rest]);
        values.read_by(values.forward + rest).for_each(|value| near(value, &mut key));
    }
    key
}

fn keep_undominated(ways: &mut Vec<SegmentOption>) {
    ways.sort_by_key(|way| (way.cost, way.kept));
    let mut kept: Vec<SegmentOption> = Vec::new();
    for way in ways.drain(..) {
        if !kept.iter().any(|other| other.is_no_worse(&way)) {
            kept.push(way);
        }
    }
    *ways = kept;
}

/// Prices of a kept byte relative to the cost of recomputing it, in thousandths.
const PRICES: [u64; 8] = [1_000_000, 0, 1000, 300, 3000, 100, 10_000, 30];

/// Prices of bytes of the backward pass, and of bytes that are alive after the boundary is recomputed, in thousandths.
const WEIGHTS: [[u64; 2]; 3] = [[1, 1], [1000, 300], [300, 1000]];

/// Keeps the options that are best for some prices of bytes, `most` at most.
fn thin_out(ways: &mut Vec<SegmentOption>, most: usize) {
    if ways.len() <= most {
        return;
    }
    let largest = |of: fn(&SegmentOption) -> u64| ways.iter().map(of).max().unwrap_or(0).max(1);
    let all = [largest(|way| way.cost), largest(|way| way.kept), largest(|way| way.back), largest(|way| way.held)];
    // Each as a part of the largest: at most 2^20, so that sums stay small.
    let part = |of: u64, all: u64| (u128::from(of) << 20) as u64 / all;
    let parts: Vec<[u64; 4]> = ways
        .iter()
        .map(|way| {
            let [cost, kept, back, held] = all;
            [part(way.cost, cost), part(way.kept, kept), part(way.back, back), part(way.held, held)]
        })
        .collect();
    let mut chosen: Vec<usize> = Vec::new();
    for price in PRICES {
        for [of_back, of_held] in WEIGHTS {
            let value = |&at: &usize| {
                let [cost, kept, back, held] = parts[at];
                1000 * cost + price * kept + of_back * back + of_held * held
            };
            let best = (0..ways.len()).min_by_key(value).unwrap_or(0);
            if chosen.len() < most && !chosen.contains(&best) {
                chosen.push(best);
            }
        }
    }
    chosen.sort_unstable();
    *ways = chosen.into_iter().map(|at| ways[at].clone()).collect();
}
