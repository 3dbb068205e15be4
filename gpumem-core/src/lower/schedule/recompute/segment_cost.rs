//! The measurement of single segments: values that are produced elsewhere count as present and take no bytes.

use super::emit::{Emission, Held, MARK, Treatment, live, roots};
use super::measure::NEVER;
use super::segments::{Far, Frame, Segment, SegmentOption, is_far};
use super::values::NONE;
use alloc::vec;
use alloc::vec::Vec;

/// The bytes that are alive at an entry besides what the segment computes.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    /// Gradients and other tensors of the backward pass.
    base: u64,
    /// Values from outside that the operation reads.
    outside: u64,
    /// The boundary before the segment, as long as anything reads it later. `late` counts it from the first operation on for which the backward
    /// pass recomputes it.
    arrived: u64,
    late: u64,
    /// Gradients and the like before the operation, if the backward pass asks for that boundary; `None` otherwise.
    asked: Option<u64>,
}

/// The part of a step that entries belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentPhase {
    Forward,
    /// The recomputation of the boundary.
    Boundary,
    Backward,
}

/// The measurement of segments, one after the other.
pub(in crate::lower) struct Alone<'f> {
    frame: Frame<'f>,
    far: Vec<Far>,
    emission: Emission<'f>,
    beside: Vec<Beside>,
    cost: u64,
    /// The boundary before the segment, and the number of operations that asked for it.
    arriving: Vec<u32>,
    asks: u64,
    /// The number of measurements so far.
    pub(in crate::lower) measured: usize,
}

impl<'f> Alone<'f> {
    pub(in crate::lower) fn new(frame: &Frame<'f>, far: &[Far]) -> Alone<'f> {
        let (frame, far, emission) = (frame.clone(), far.to_vec(), Emission::new(frame.step));
        Alone { frame, far, emission, beside: Vec::new(), cost: 0, arriving: Vec::new(), asks: 0, measured: 0 }
    }

    /// Returns the bytes and the cost of a segment with these choices. `None` if they need a recomputation that is ruled out.
    pub(in crate::lower) fn measure(
        &mut self,
        segment: &Segment,
        arriving: &[u32],
        inner: Vec<Treatment>,
        boundary: Treatment,
    ) -> Option<SegmentOption> {
        self.measured += 1;
        self.begin(segment, &inner, boundary);
        self.arriving.clear();
        self.arriving.extend(arriving);
        let is_open = boundary != Treatment::Keep;
        for at in segment.forward.clone() {
            self.emission.run(at as u32, false);
        }
        let turn = self.emission.mark();
        self.turn(segment, turn, is_open);
        self.account(0, SegmentPhase::Forward);
        let gap = if is_open { self.boundary_again(segment) } else { NONE };
        let (again, in_chain) = (self.cost, core::mem::take(&mut self.asks));
        self.backward(segment);
        if self.cost == NEVER {
            return None;
        }
        let end = self.emission.order.len() as u32 - 1;
        for &value in &segment.common {
            self.emission.touch(self.emission.now(value), end);
        }
        self.arrive(segment, turn);
        self.emission.settle();
        let mut way = self.peaks(turn, gap);
        (way.inner, way.boundary, way.again, way.asks) = (inner, boundary, again, [self.asks, in_chain]);
        if !is_open {
            way.kept = way.kept.saturating_sub(segment.cross_resting);
        }
        if boundary == Treatment::Once {
            way.held = way.held.saturating_sub(segment.cross_bytes);
        }
        Some(way)
    }

    fn begin(&mut self, segment: &Segment, inner: &[Treatment], boundary: Treatment) {
        self.emission.begin(segment.values.clone());
        self.beside.clear();
        (self.cost, self.asks) = (0, 0);
        let (start, choices) = (segment.values.start, &mut self.emission.choices);
        for (value, choice) in segment.inner.iter().zip(inner) {
            choices[(value - start) as usize] = *choice;
        }
        for value in &segment.cross {
            choices[(value - start) as usize] = boundary;
        }
        for value in &segment.common {
            choices[(value - start) as usize] = Treatment::Keep;
        }
    }

    /// Records what is alive when the forward pass of the whole step is over.
    fn turn(&mut self, segment: &Segment, turn: u32, is_open: bool) {
        let step = self.frame.step;
        // The next segment's forward pass reads the boundary.
        for &value in &segment.cross {
            let until = if is_open { turn - 1 } else { turn };
            self.emission.touch(self.emission.now(value), until);
        }
        for value in segment.values.clone() {
            let index = value as usize;
            let of = &step.values.values[index];
            let instance = self.emission.now(value);
            if of.is_pinned && !of.readers.is_empty() {
                self.emission.touch(instance, turn);
            }
            if self.far[index] == Far::Again {
                // It is recomputed before this segment's backward pass begins, and its bytes are counted with the others.
                let elsewhere = self.emission.fresh(Held::Nothing, turn);
                self.emission.set(value, elsewhere);
                continue;
            }
            let choice = self.emission.choices[(value - segment.values.start) as usize];
            if !(of.is_pinned || self.frame.taken[index] || choice == Treatment::Keep) {
                self.emission.set(value, NONE);
            }
        }
    }

    /// Recomputes the boundary, and returns the entry after it.
    fn boundary_again(&mut self, segment: &Segment) -> u32 {
        for &value in &segment.cross {
            self.emission.need(value);
        }
        self.emission.forget();
        let gap = self.emission.mark();
        for &value in &segment.cross {
            self.emission.touch(self.emission.now(value), gap);
        }
        self.account(0, SegmentPhase::Boundary);
        gap
    }

    fn backward(&mut self, segment: &Segment) {
        let forward = self.frame.step.values.forward;
        for rest in segment.rest.clone() {
            let entry = self.emission.read(forward + rest);
            self.emission.forget();
            self.account(self.frame.before[rest], SegmentPhase::Backward);
            self.beside[entry as usize].base = self.frame.at[rest];
        }
    }

    /// Counts the entries since the last call. Forward operations among them are recomputed, unless they are the forward pass.
    fn account(&mut self, base: u64, part: SegmentPhase) {
        let (step, sizes) = (self.frame.step, self.frame.sizes);
        let mut is_asked = false;
        for entry in self.beside.len()..self.emission.order.len() {
            let at = self.emission.order[entry];
            let mut beside = Beside { base, ..Beside::default() };
            if at != MARK {
                let is_again = part != SegmentPhase::Forward && (at as usize) < step.values.forward;
                if is_again {
                    self.cost = self.cost.saturating_add(sizes.costs[at as usize]);
                }
                let read = step.values.read_in(at as usize, is_again);
                for value in read.filter(|&value| !self.emission.is_inside(value)) {
                    if part != SegmentPhase::Forward && self.arriving.contains(&value) {
                        is_asked = true;
                        beside.asked = (part == SegmentPhase::Backward).then_some(base);
                    }
                    beside.outside += sizes.values[value as usize];
                    let is_unasked = self.far[value as usize] == Far::Unasked;
                    if is_again && is_unasked && is_far(&step.values.values[value as usize], at) {
                        self.cost = NEVER;
                    }
                }
            }
            self.beside.push(beside);
        }
        self.asks += u64::from(is_asked);
    }

    /// Counts the boundary before the segment as long as anything reads it, here or in its own segment.
    fn arrive(&mut self, segment: &Segment, turn: u32) {
        let values = &self.frame.step.values;
        let end = values.forward + segment.rest.end;
        for &value in &self.arriving {
            let reads = |&at: &u32| at != MARK && values.read_by(at as usize).any(|read| read == value);
            let is_read_later = values.values[value as usize].readers.iter().any(|&reader| reader as usize >= end);
            let order = &self.emission.order;
            let until = match is_read_later {
                true => order.len() - 1,
                false => order.iter().rposition(reads).unwrap_or(0).max(turn as usize),
            };
            let bytes = self.frame.sizes.values[value as usize];
            self.beside[..=until].iter_mut().for_each(|beside| beside.arrived += bytes);
            let first = self.beside.iter().position(|beside| beside.asked.is_some()).unwrap_or(until + 1);
            self.beside[first.min(until + 1)..=until].iter_mut().for_each(|beside| beside.late += bytes);
        }
    }

    fn peaks(&self, turn: u32, gap: u32) -> SegmentOption {
        let bytes = |held| self.frame.sizes.bytes(held);
        let mut way = SegmentOption { cost: self.cost, ..SegmentOption::default() };
        for instance in roots(&self.emission.instances) {
            let (first, last) = (instance.first, instance.last);
            if first < turn && last >= turn {
                let is_away = instance.value().is_some_and(|value| self.frame.away[value as usize]);
                way.kept += if is_away { 0 } else { bytes(instance.held) };
            }
            if gap != NONE && first > turn && first < gap && last >= gap {
                way.held += bytes(instance.held);
            }
        }
        let begun = self.begun();
        let mut first = None;
        for (entry, (live, beside)) in (0..).zip(live(&self.emission, bytes).into_iter().zip(&self.beside)) {
            let all = live as u64 + beside.base;
            let with = all + beside.arrived;
            if entry < turn {
                way.fore = way.fore.max(with);
            } else if gap != NONE && entry < gap {
                way.chain = if entry > turn { way.chain.max(with) } else { way.chain };
            } else if entry != turn && entry != gap {
                way.back = way.back.max(with);
                way.late = way.late.max(all + beside.late);
                way.fleet = way.fleet.max(all + beside.outside);
                if let Some(base) = beside.asked {
                    let there = live as u64 - begun[entry as usize] + base;
                    way.above = [*first.get_or_insert(there), way.above[1].max(there)];
                }
            }
        }
        way
    }

    /// Returns the bytes that each entry writes first.
    fn begun(&self) -> Vec<u64> {
        let mut begun = vec![0; self.emission.order.len()];
        for instance in roots(&self.emission.instances) {
            begun[instance.first as usize] += self.frame.sizes.bytes(instance.held);
        }
        begun
    }
}
