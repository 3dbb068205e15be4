//! The dynamic programme over segments, from the last to the first.
//!
//! A segment is *closed* if its boundary is kept until its backward pass. It is *open* if the boundary is dropped: the next segment's backward
//! pass then begins by recomputing it, from what this segment keeps and from the boundary before it. That one may be missing, too: consecutive
//! open segments are a *run*. A label stands for a choice of options from some segment to the end. Only labels that may be part of a best plan
//! are carried on, so that one pass gives the whole trade-off between memory and time.

use super::emit::Treatment;
use super::label::Label;
use super::pareto::{Effort, Pruner};
use super::segment_options::measure_all;
use super::segments::{Far, Frame, Segment, SegmentOption};
use super::values::NONE;
use alloc::vec;
use alloc::vec::Vec;

/// Labels of the segments from each one on. `lists` are for a boundary before it that is kept, dropped, or dropped again and again.
pub(in crate::lower) struct Table {
    segments: Vec<Segment>,
    far: Vec<Far>,
    lists: [Vec<Vec<Label>>; 3],
    /// The number of labels times options, and of measurements of segments.
    pub(in crate::lower) steps: usize,
    pub(in crate::lower) measured: usize,
}

fn list_of(boundary: Treatment) -> usize {
    match boundary {
        Treatment::Keep => 0,
        Treatment::Once | Treatment::Late => 1,
        Treatment::Each => 2,
    }
}

impl Table {
    /// Returns the table for this treatment of far values. With `is_late`, far values are recomputed in the segment that reads them last,
    /// otherwise in the one after it.
    pub(in crate::lower) fn new(
        frame: &Frame<'_>,
        mut segments: Vec<Segment>,
        effort: &Effort,
        far: Vec<Far>,
        is_late: bool,
    ) -> Table {
        // Far values that are recomputed are present when their own segments run. They are no part of boundaries: their bytes are in the base.
        for segment in segments.iter_mut().filter(|_| !is_late) {
            let is_near = |value: &u32| far[*value as usize] != Far::Again;
            segment.cross.retain(is_near);
            segment.inner.retain(is_near);
            frame.count_boundary(segment);
        }
        let measured = measure_all(frame, &mut segments, &far);
        let count = segments.len();
        let lists = [vec![Vec::new(); count + 1], vec![Vec::new(); count + 1], vec![Vec::new(); count + 1]];
        let mut table = Table { segments, far, lists, steps: 0, measured };
        table.lists[0][count].push(Label { need: 0, run: 0, above: 0, cost: 0, asks: 0, way: NONE, next: NONE });
        let mut pruner = Pruner::new(frame.peak);
        for at in (0..count).rev() {
            let mut lists = table.extend(frame, at);
            for (which, list) in lists.iter_mut().enumerate() {
                effort.prune(&mut pruner, list, which > 0, at == 0);
                table.lists[which][at] = core::mem::take(list);
            }
        }
        table
    }

    /// Returns the labels of the whole network, by rising need and falling cost.
    pub(in crate::lower) fn labels(&self) -> &[Label] {
        &self.lists[0][0]
    }

    /// Returns the number of kinds of segments.
    pub(in crate::lower) fn kinds(&self) -> usize {
        self.segments.iter().map(|segment| segment.kind + 1).max().unwrap_or(0)
    }

    /// Returns all labels of a segment, made from those of the next one.
    fn extend(&mut self, frame: &Frame<'_>, at: usize) -> [Vec<Label>; 3] {
        let segment = &self.segments[at];
        let before = at.checked_sub(1).map(|before| &self.segments[before]);
        let has = |boundary| before.is_some_and(|before| before.ways.iter().any(|way| way.boundary == boundary));
        let step = Extension {
            arriving: before.map_or(0, |before| before.cross_bytes),
            resting: before.map_or(0, |before| before.cross_resting),
            has: [true, has(Treatment::Once), has(Treatment::Each)],
            // Labels that cost more than 1.3 times the forward pass are left out.
            most: [frame.peak, frame.sizes.forward / 10 * 13],
        };
        let mut lists = [Vec::new(), Vec::new(), Vec::new()];
        for (number, way) in (0..).zip(segment.ways.iter()) {
            let later = &self.lists[list_of(way.boundary)][at + 1];
            self.steps += later.len();
            for (next, label) in (0..).zip(later) {
                step.extend(way, label, [number, next], &mut lists);
            }
        }
        lists
    }

    /// Returns the choice for each value that a label of the whole network stands for.
    pub(in crate::lower) fn choices(&self, frame: &Frame<'_>, label: usize, level: &[Treatment]) -> Vec<Treatment> {
        let mut choices = vec![Treatment::Each; self.far.len()];
        let (mut label, mut list) = (label, 0);
        for (at, segment) in self.segments.iter().enumerate() {
            let of = self.lists[list][at][label];
            let way = &segment.ways[of.way as usize];
            for (value, choice) in segment.inner.iter().zip(&way.inner) {
                choices[*value as usize] = *choice;
            }
            segment.cross.iter().for_each(|&value| choices[value as usize] = way.boundary);
            segment.common.iter().for_each(|&value| choices[value as usize] = Treatment::Keep);
            (list, label) = (list_of(way.boundary), of.next as usize);
        }
        for (value, choice) in choices.iter_mut().enumerate() {
            match self.far[value] {
                Far::Held => *choice = Treatment::Keep,
                Far::Again => *choice = Treatment::Once,
                Far::Near | Far::Unasked => {}
            }
            if frame.taken[value] {
                *choice = Treatment::Keep;
            }
            if frame.dropped[value] && *choice == Treatment::Keep {
                *choice = level[value];
            }
        }
        choices
    }
}

/// The facts that all labels of one segment share.
struct Extension {
    /// Bytes of the boundary before the segment, and those that it takes between the passes if it is kept.
    arriving: u64,
    resting: u64,
    /// True for each of three choices if the boundary before may have it: kept, dropped, and dropped again and again.
    has: [bool; 3],
    /// The limits of bytes and of cost.
    most: [u64; 2],
}

impl Extension {
    /// Adds the labels that an option and a label of the next segment make.
    fn extend(&self, way: &SegmentOption, label: &Label, [number, next]: [u32; 2], lists: &mut [Vec<Label>; 3]) {
        let is_closed = way.boundary == Treatment::Keep;
        let open = |held: u64| {
            if is_closed { 0 } else { (way.chain + label.above).max(held + way.held + label.run) }
        };
        // The boundary that arrives is counted here; the one that leaves is counted by the next segment.
        let held = way.kept + self.resting;
        let need = way.fore.max(held + label.need);
        let run = way.back.max(open(held));
        let late = way.late.max(open(held));
        let times = if way.boundary == Treatment::Each { label.asks } else { 1 };
        let further = way.again.saturating_mul(times.saturating_sub(1));
        let cost = label.cost.saturating_add(way.cost).saturating_add(further);
        let asks = way.asks[0].saturating_add(if is_closed { 0 } else { way.asks[1].saturating_mul(times) });
        if need > self.most[0] || run > self.most[0] || cost > self.most[1] {
            return;
        }
        let above = |asked: u64| if is_closed { asked } else { label.above + way.kept };
        let made = Label { need, run: late, above: above(way.above[0]), cost, asks, way: number, next };
        lists[0].push(Label { need: need.max(run), run: 0, ..made });
        // If the boundary before is dropped, it is not alive while later segments run.
        let need = way.fore.saturating_sub(self.arriving).max(way.kept + label.need);
        if self.has[1] {
            lists[1].push(Label { need, ..made });
        }
        if self.has[2] {
            let (run, above) = (way.fleet.max(open(way.kept)), above(way.above[1]));
            lists[2].push(Label { need, run, above, ..made });
        }
    }
}
