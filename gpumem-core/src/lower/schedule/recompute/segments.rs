//! Segments of the forward pass, and all that does not depend on decisions.
//!
//! At most one value crosses a cut, so that a segment depends on others only by its boundaries. There are two exceptions. Far values are read
//! long after they are computed, as by a skip connection. Common values, such as masks, are read again and again.

use super::emit::{StepEffects, Treatment};
use super::measure::StepBytes;
use super::values::{NONE, Place, Value};
use crate::lower::draft::Draft;
use crate::lower::liveness::{LiveRange, live_bytes};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The number of forward operations without a reader after which a value no longer belongs to boundaries.
const FAR: usize = 12;

/// The span of forward operations above which a value is common: read again and again, without long pauses. Examples are a mask and the output of
/// an encoder. Common values are kept in any case.
const COMMON: usize = 4 * FAR;

/// The treatment of a value that is read far from its producer, such as a skip connection of a U-Net.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::lower) enum Far {
    /// It is not far: it is a boundary, or inside a segment.
    #[default]
    Near,
    /// It is kept.
    Held,
    /// It may be dropped, since nothing far away is recomputed from it.
    Unasked,
    /// It is dropped, recomputed with something far away, and kept from there on.
    Again,
}

/// A part of the forward pass, and the part of the rest of the step that belongs to it.
#[derive(Clone, Debug, Default)]
pub(in crate::lower) struct Segment {
    pub(in crate::lower) forward: Range<usize>,
    /// Operations that come after the forward pass, counted from its end.
    pub(in crate::lower) rest: Range<usize>,
    /// The values that it computes.
    pub(in crate::lower) values: Range<u32>,
    /// The boundary: the values that the next segment reads, and their bytes.
    pub(in crate::lower) cross: Vec<u32>,
    pub(in crate::lower) cross_bytes: u64,
    /// The bytes that a kept boundary takes between the passes: those that are not in host memory.
    pub(in crate::lower) cross_resting: u64,
    /// The values that are decided one by one.
    pub(in crate::lower) inner: Vec<u32>,
    /// The values that are read far from here.
    pub(in crate::lower) far: Vec<u32>,
    /// The values that are kept in any case.
    pub(in crate::lower) common: Vec<u32>,
    /// The options that may pay, and the number of its kind.
    pub(in crate::lower) ways: Rc<Vec<SegmentOption>>,
    pub(in crate::lower) kind: usize,
}

/// One option for a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::lower) struct SegmentOption {
    /// Inner bytes that are kept from the forward pass on, without the boundary.
    pub(in crate::lower) kept: u64,
    /// Bytes that are alive between the recomputation of the boundary and the backward pass of the segment, besides `kept`.
    pub(in crate::lower) held: u64,
    /// Peaks in bytes. `fore` is that of the forward pass. The next three are of the backward pass: with the boundary before the segment kept;
    /// with that boundary recomputed for the first operation that reads it; and with it there only for operations that read it. `chain` is the
    /// peak while the segment's own boundary is recomputed.
    pub(in crate::lower) fore: u64,
    pub(in crate::lower) back: u64,
    pub(in crate::lower) late: u64,
    pub(in crate::lower) fleet: u64,
    pub(in crate::lower) chain: u64,
    /// Bytes that are alive when the backward pass first needs the boundary before the segment. The second number is the most at any such time.
    pub(in crate::lower) above: [u64; 2],
    /// The cost with one recomputation of the boundary, and the cost of each further one.
    pub(in crate::lower) cost: u64,
    pub(in crate::lower) again: u64,
    /// The number of times that the boundary before the segment is needed, if it is never kept. The backward pass needs it so often, and so does
    /// each recomputation of the segment's own boundary.
    pub(in crate::lower) asks: [u64; 2],
    pub(in crate::lower) boundary: Treatment,
    pub(in crate::lower) inner: Vec<Treatment>,
}

impl SegmentOption {
    fn sizes(&self) -> [u64; 12] {
        let ([backward, chain], [first, most]) = (self.asks, self.above);
        let peaks = [self.fore, self.back, self.late, self.fleet, self.chain];
        let [fore, back, late, fleet, of_chain] = peaks;
        [self.kept, self.held, fore, back, late, fleet, of_chain, first, most, self.again, backward, chain]
    }

    /// True if it needs no more than another option in any respect.
    pub(super) fn is_no_worse(&self, other: &SegmentOption) -> bool {
        self.sizes().iter().zip(other.sizes()).all(|(mine, other)| *mine <= other)
    }
}

/// The part of a step that does not depend on decisions.
#[derive(Clone)]
pub(in crate::lower) struct Frame<'a> {
    pub(in crate::lower) step: &'a StepEffects,
    pub(in crate::lower) sizes: &'a StepBytes,
    /// Bytes of gradients and the like that are alive at, and right before, each operation after the forward pass.
    pub(in crate::lower) at: Vec<u64>,
    pub(in crate::lower) before: Vec<u64>,
    /// True for each value whose memory a gradient takes over.
    pub(in crate::lower) taken: Vec<bool>,
    /// True for each value that is recomputed because the user asked for it.
    pub(in crate::lower) dropped: &'a [bool],
    /// True for each value that is in host memory between the passes if it is kept.
    pub(in crate::lower) away: Vec<bool>,
    /// The forward operation that each operation after the forward pass belongs to.
    position: Rc<Vec<usize>>,
    /// The peak without recomputation, in bytes.
    pub(in crate::lower) peak: u64,
}

impl<'a> Frame<'a> {
    pub(in crate::lower) fn new(
        draft: &Draft,
        step: &'a StepEffects,
        sizes: &'a StepBytes,
        dropped: &'a [bool],
        peak: u64,
    ) -> Frame<'a> {
        let values = &step.values;
        let (forward, count) = (values.forward, step.operations() - values.forward);
        let mut spans = vec![(NONE, 0u32); values.owns.len()];
        for rest in 0..count {
            for place in values.reads[forward + rest].iter().chain(&values.writes[forward + rest]) {
                if let Place::Own(own) = *place {
                    let (first, last) = &mut spans[own as usize];
                    (*first, *last) = ((*first).min(rest as u32), rest as u32);
                }
            }
        }
        for &own in &step.results {
            spans[own as usize].1 = count as u32 - 1;
        }
        let mut taken = vec![false; values.values.len()];
        let (mut at, mut before) = (Vec::new(), Vec::new());
        for (own, &(first, last)) in spans.iter().enumerate().filter(|(_, span)| span.0 != NONE) {
            let (takes, bytes) = (values.owns[own].takes, sizes.owns[own] as i64);
            let (first, last) = (first as usize, last as usize);
            if takes != NONE {
                taken[takes as usize] = true;
            }
            // If it takes over the memory of a value, that is counted there.
            let begins = if takes == NONE { first } else { first + 1 };
            at.push(([begins, last], bytes));
            before.push(([first + 1, last], bytes));
        }
        let position = draft.nodes[forward..].iter().map(|node| {
            let after = draft.nodes[..forward].partition_point(|computed| computed <= node);
            after.saturating_sub(1)
        });
        let position = Rc::new(falling(position.collect()));
        let live = |count: usize, all: Vec<(LiveRange, i64)>| {
            live_bytes(count, all).into_iter().map(|live| live as u64).collect::<Vec<u64>>()
        };
        let (at, before) = (live(count, at), live(count + 1, before));
        let away = vec![false; values.values.len()];
        Frame { step, sizes, at, before, taken, dropped, away, position, peak }
    }

    /// Returns the frame with these values in host memory between the passes.
    pub(in crate::lower) fn with_away(&self, away: Vec<bool>) -> Frame<'a> {
        Frame { away, ..self.clone() }
    }

    /// Returns the frame with the bytes of far values that are recomputed ([`Far::Again`]). With `is_late`, that happens in the segment that
    /// reads them last, otherwise in the one after it. They are kept from there on.
    pub(in crate::lower) fn with_again(&self, segments: &[Segment], far: &[Far], is_late: bool) -> Frame<'a> {
        let mut frame = self.clone();
        for (value, _) in far.iter().enumerate().filter(|(_, far)| **far == Far::Again) {
            let of = &self.step.values.values[value];
            let last = of.consumers.last().map_or(0, |&last| last as usize);
            let place = |at: usize| segments.iter().position(|segment| segment.forward.contains(&at));
            let (Some(reader), Some(own)) = (place(last), place(of.producer as usize)) else { continue };
            // A far value is needed by the segment that reads it or, if that one's boundary is dropped, by the one after it.
            let reader = (reader + usize::from(!is_late)).min(segments.len() - 1);
            for rest in segments[reader].rest.start..segments[own].rest.end {
                frame.at[rest] += self.sizes.values[value];
                frame.before[rest] += self.sizes.values[value];
            }
        }
        frame
    }

    /// Returns the segments of the forward pass.
    pub(in crate::lower) fn segments(&self) -> Vec<Segment> {
        let values = &self.step.values;
        let reaches: Vec<usize> = values.values.iter().map(reach).collect();
        let cuts = self.cuts(&reaches);
        // Positions of operations after the forward pass never rise.
        let after = |at: usize| self.position.partition_point(|&position| position >= at);
        let of_producer = |at: usize| values.values.partition_point(|value| (value.producer as usize) < at) as u32;
        let pairs = cuts.windows(2).map(|pair| {
            let (from, to) = (pair[0], pair[1]);
            let start = if to == values.forward { 0 } else { after(to) };
            let end = if from == 0 { self.position.len() } else { after(from) };
            let mut segment = Segment {
                forward: from..to,
                rest: start..end,
                values: of_producer(from)..of_producer(to),
                ..Segment::default()
            };
            self.sort_values(&mut segment, &reaches);
            segment
        });
        pairs.collect()
    }

    /// Returns the places where at most one value goes on, and the backward pass reads that value.
    fn cuts(&self, reaches: &[usize]) -> Vec<usize> {
        let values = &self.step.values;
        let mut changes = vec![[0i64; 2]; values.forward + 2];
        for (value, &reach) in values.values.iter().zip(reaches).filter(|(value, reach)| !is_common(value, **reach)) {
            let is_unread = i64::from(value.readers.is_empty() && !value.is_pinned);
            for (at, sign) in [(value.producer as usize + 1, 1), (reach + 1, -1)] {
                changes[at][0] += sign;
                changes[at][1] += sign * is_unread;
            }
        }
        let (mut count, mut unread, mut cuts) = (0, 0, vec![0]);
        for (at, change) in changes.iter().enumerate().take(values.forward) {
            count += change[0];
            unread += change[1];
            if at > 0 && count <= 1 && unread == 0 {
                cuts.push(at);
            }
        }
        cuts.push(values.forward);
        cuts
    }

    /// Sorts the values of a segment into those of its boundary, those decided one by one, far and common ones.
    fn sort_values(&self, segment: &mut Segment, reaches: &[usize]) {
        for value in segment.values.clone() {
            let (index, of) = (value as usize, &self.step.values.values[value as usize]);
            if of.is_pinned || self.taken[index] {
                continue;
            }
            if is_common(of, reaches[index]) {
                segment.common.push(value);
                continue;
            }
            if reaches[index] >= segment.forward.end {
                segment.cross.push(value);
            } else if !of.readers.is_empty() {
                segment.inner.push(value);
            }
            if gaps(of).any(|gap| gap > FAR) {
                segment.far.push(value);
            }
        }
        self.count_boundary(segment);
    }

    /// Counts the bytes of a segment's boundary.
    pub(in crate::lower) fn count_boundary(&self, segment: &mut Segment) {
        segment.cross_bytes = segment.cross.iter().map(|&value| self.sizes.values[value as usize]).sum();
        segment.cross_resting = segment.cross.iter().map(|&value| self.resting(value)).sum();
    }

    /// Returns the bytes that a kept value takes between the passes.
    pub(in crate::lower) fn resting(&self, value: u32) -> u64 {
        if self.away[value as usize] { 0 } else { self.sizes.values[value as usize] }
    }
}

/// True if an operation reads a value long after the reader before it.
pub(in crate::lower) fn is_far(value: &Value, at: u32) -> bool {
    let earlier = value.consumers.iter().copied().filter(|&other| other < at).max();
    at as usize > earlier.unwrap_or(value.producer) as usize + FAR
}

/// Returns the number of forward operations from each reader of a value to the next one.
fn gaps(value: &Value) -> impl Iterator<Item = usize> + '_ {
    let before = core::iter::once(&value.producer).chain(&value.consumers);
    before.zip(&value.consumers).map(|(before, at)| (at - before) as usize)
}

/// Returns the operation up to which a value is part of boundaries: its last reader before a long pause.
fn reach(value: &Value) -> usize {
    let near = gaps(value).take_while(|&gap| gap <= FAR);
    value.producer as usize + near.sum::<usize>()
}

fn is_common(value: &Value, reach: usize) -> bool {
    reach - value.producer as usize > COMMON
}

/// Lowers numbers so that none is larger than the one before it.
fn falling(mut numbers: Vec<usize>) -> Vec<usize> {
    for at in 1..numbers.len() {
        numbers[at] = numbers[at].min(numbers[at - 1]);
    }
    numbers
}
