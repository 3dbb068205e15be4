//! Orders of operations and live ranges, from a choice for each value.
//!
//! An order is a list of operation numbers, its entries. Each time that an operation writes a value, that is a new instance of the value, which
//! is alive from one entry to another.

use super::operation_effects::{OperationEffects, runs};
use super::values::{NONE, Place, Values};
use crate::lower::draft::Draft;
use crate::lower::liveness::live_bytes;
use alloc::vec::Vec;
use core::ops::Range;

/// The choice to keep or to recompute a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::lower) enum Treatment {
    /// It is kept from the forward pass on, as long as anything reads it.
    #[default]
    Keep,
    /// It is recomputed when it is first needed, then kept as long as anything reads it.
    Once,
    /// It is recomputed for each operation that needs it.
    Each,
    /// It is recomputed and dropped when something else is recomputed from it. When the backward pass needs it, it is recomputed again and kept.
    Late,
}

/// A step as values and runs of operations.
#[derive(Clone, Debug)]
pub(in crate::lower) struct StepEffects {
    pub(in crate::lower) values: Values,
    pub(in crate::lower) runs: Vec<OperationEffects>,
    /// The tensors that are first written after the forward pass and read after the last operation, by their numbers.
    pub(in crate::lower) results: Vec<u32>,
}

impl StepEffects {
    /// Returns the step of a draft; `None` if not all forward operations come first.
    pub(in crate::lower) fn of(draft: &Draft) -> Option<StepEffects> {
        let values = Values::of(draft)?;
        let is_result = |id| draft.results.contains(id) || draft.input_gradients.contains(id);
        let results = (0..).zip(&values.owns).filter(|(_, own)| is_result(&own.tensor)).map(|(own, _)| own).collect();
        Some(StepEffects { runs: runs(draft, &values), results, values })
    }

    /// Returns the number of operations, those after the forward pass included.
    pub(in crate::lower) fn operations(&self) -> usize {
        self.values.reads.len()
    }
}

/// Returns the order in which operations run. The forward pass comes first, unchanged, then all others in their order. Each comes after the
/// forward operations that recompute what it reads and is not there.
pub(in crate::lower) fn order(step: &StepEffects, choices: &[Treatment]) -> Vec<u32> {
    let mut emission = Emission::new(step);
    emission.whole(choices);
    emission.order
}

/// The content of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) enum Held {
    /// A value, by its number.
    Value(u32),
    /// A tensor that is first written after the forward pass, by its number among those.
    Own(u32),
    /// Scratch memory of a forward operation.
    Scratch(u32),
    /// Memory that is counted elsewhere.
    Nothing,
}

/// A piece of memory that one run of an operation writes first.
#[derive(Clone, Copy, Debug)]
pub(in crate::lower) struct Instance {
    pub(in crate::lower) held: Held,
    /// The first and the last entry of the order that touches it, or what overwrites it.
    pub(in crate::lower) first: u32,
    pub(in crate::lower) last: u32,
    /// The instance whose memory it has: itself, unless it overwrites an input.
    pub(in crate::lower) root: u32,
    is_overwritten: bool,
}

impl Instance {
    /// Returns the value that it holds; `None` for other tensors.
    pub(in crate::lower) fn value(&self) -> Option<u32> {
        match self.held {
            Held::Value(value) => Some(value),
            Held::Own(_) | Held::Scratch(_) | Held::Nothing => None,
        }
    }
}

/// An entry of the order at which nothing runs.
pub(in crate::lower) const MARK: u32 = NONE;

/// An order under construction, of a whole step or of a part of it. Values that are computed outside of the part count as present. Its lists are
/// reused for the next order.
pub(in crate::lower) struct Emission<'s> {
    pub(in crate::lower) step: &'s StepEffects,
    pub(in crate::lower) order: Vec<u32>,
    pub(in crate::lower) instances: Vec<Instance>,
    /// The first value of the part, and the current instance of each of its values, or [`NONE`].
    first: u32,
    now: Vec<u32>,
    /// The choice for each value of the part.
    pub(in crate::lower) choices: Vec<Treatment>,
    /// The instance of each tensor that is first written after the forward pass, or [`NONE`].
    owns: Vec<u32>,
    /// `[entry, input, output]`: instances of which the output may overwrite the input.
    overwrites: Vec<[u32; 3]>,
    /// Values that are dropped after the next operation.
    fleeting: Vec<u32>,
    waiting: Vec<(u32, bool)>,
}

impl<'s> Emission<'s> {
    pub(in crate::lower) fn new(step: &'s StepEffects) -> Emission<'s> {
        Emission {
            step,
            order: Vec::new(),
            instances: Vec::new(),
            first: 0,
            now: Vec::new(),
            choices: Vec::new(),
            owns: Vec::new(),
            overwrites: Vec::new(),
            fleeting: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Begins an order of a part that has these values.
    pub(in crate::lower) fn begin(&mut self, values: Range<u32>) {
        self.order.clear();
        self.instances.clear();
        self.overwrites.clear();
        self.fleeting.clear();
        self.first = values.start;
        self.now.clear();
        self.now.resize(values.len(), NONE);
        self.choices.clear();
        self.choices.resize(values.len(), Treatment::Each);
    }

    /// Emits a whole step.
    pub(in crate::lower) fn whole(&mut self, choices: &[Treatment]) {
        let values = &self.step.values;
        self.begin(0..values.values.len() as u32);
        self.choices.copy_from_slice(choices);
        self.owns.clear();
        self.owns.resize(values.owns.len(), NONE);
        for at in 0..values.forward as u32 {
            self.run(at, false);
        }
        for (value, of) in values.values.iter().enumerate() {
            if choices[value] != Treatment::Keep && !of.is_pinned {
                self.now[value] = NONE;
            }
        }
        for at in values.forward..self.step.operations() {
            let entry = self.read(at);
            for place in values.reads[at].iter().chain(&values.writes[at]) {
                if let Place::Own(own) = *place {
                    self.touch_own(own, entry);
                }
            }
            self.forget();
        }
        let end = (self.order.len() as u32).saturating_sub(1);
        for &own in &self.step.results {
            self.touch_own(own, end);
        }
        self.settle();
    }

    fn touch_own(&mut self, own: u32, entry: u32) {
        if self.owns[own as usize] == NONE {
            let takes = self.step.values.owns[own as usize].takes;
            let taken = if takes == NONE { NONE } else { core::mem::replace(&mut self.now[takes as usize], NONE) };
            self.owns[own as usize] = if taken == NONE { self.fresh(Held::Own(own), entry) } else { taken };
        }
        self.touch(self.owns[own as usize], entry);
    }

    /// True if a value belongs to the part.
    pub(in crate::lower) fn is_inside(&self, value: u32) -> bool {
        value >= self.first && ((value - self.first) as usize) < self.now.len()
    }

    /// Returns the current instance of a value of the part, or [`NONE`].
    pub(in crate::lower) fn now(&self, value: u32) -> u32 {
        self.now[(value - self.first) as usize]
    }

    /// Sets the current instance of a value of the part.
    pub(in crate::lower) fn set(&mut self, value: u32, instance: u32) {
        self.now[(value - self.first) as usize] = instance;
    }

    fn is_there(&self, value: u32) -> bool {
        !self.is_inside(value) || self.now(value) != NONE
    }

    pub(in crate::lower) fn fresh(&mut self, held: Held, entry: u32) -> u32 {
        let root = self.instances.len() as u32;
        self.instances.push(Instance { held, first: entry, last: entry, root, is_overwritten: false });
        root
    }

    /// Extends the live range of an instance to an entry; [`NONE`] is ignored.
    pub(in crate::lower) fn touch(&mut self, instance: u32, entry: u32) {
        if let Some(instance) = self.instances.get_mut(instance as usize) {
            instance.last = instance.last.max(entry);
        }
    }

    /// Adds an entry at which nothing runs, and returns its index.
    pub(in crate::lower) fn mark(&mut self) -> u32 {
        self.order.push(MARK);
        self.order.len() as u32 - 1
    }

    /// Runs a forward operation, for the first time or again.
    pub(in crate::lower) fn run(&mut self, at: u32, is_again: bool) {
        let step = self.step;
        let run = &step.runs[at as usize];
        let entry = self.order.len() as u32;
        self.order.push(at);
        let saved: &[u32] = if is_again { &run.saved } else { &[] };
        for &value in run.read(is_again).iter().chain(saved) {
            if self.is_inside(value) {
                self.touch(self.now(value), entry);
            }
        }
        for &value in run.written(is_again) {
            let instance = self.fresh(Held::Value(value), entry);
            self.set(value, instance);
        }
        for &(from, to) in &run.overwrites {
            if self.is_inside(from) && run.written(is_again).contains(&to) {
                self.overwrites.push([entry, self.now(from), self.now(to)]);
            }
        }
        if run.has_scratch[usize::from(is_again)] {
            self.fresh(Held::Scratch(at), entry);
        }
    }

    /// Runs an operation that comes after the forward pass, after recomputing all that it needs. Returns its entry.
    pub(in crate::lower) fn read(&mut self, at: usize) -> u32 {
        let step = self.step;
        for value in step.values.read_by(at) {
            self.need(value);
        }
        let entry = self.order.len() as u32;
        self.order.push(at as u32);
        for value in step.values.read_by(at) {
            if self.is_inside(value) {
                self.touch(self.now(value), entry);
            }
        }
        entry
    }

    /// Drops values that were recomputed for one operation alone.
    pub(in crate::lower) fn forget(&mut self) {
        while let Some(value) = self.fleeting.pop() {
            self.set(value, NONE);
        }
    }

    /// Recomputes a value that is not there, and before it what it is computed from.
    pub(in crate::lower) fn need(&mut self, value: u32) {
        if self.is_there(value) {
            return;
        }
        let step = self.step;
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.push((step.values.values[value as usize].producer, false));
        while let Some((at, is_ready)) = waiting.pop() {
            let run = &step.runs[at as usize];
            if run.again.iter().all(|&written| self.is_there(written)) {
                continue;
            }
            if is_ready {
                self.run_again(at, value);
                continue;
            }
            waiting.push((at, true));
            for &input in run.inputs_again.iter().rev().filter(|&&input| !self.is_there(input)) {
                waiting.push((step.values.values[input as usize].producer, false));
            }
        }
        self.waiting = waiting;
    }

    /// Runs a forward operation again, on the way to `value`.
    fn run_again(&mut self, at: u32, value: u32) {
        let step = self.step;
        for &written in &step.runs[at as usize].again {
            let is_fleeting = !self.is_there(written)
                && match self.choices[(written - self.first) as usize] {
                    Treatment::Each => true,
                    Treatment::Late => written != value,
                    Treatment::Keep | Treatment::Once => false,
                };
            if is_fleeting {
                self.fleeting.push(written);
            }
        }
        self.run(at, true);
    }

    /// Lets outputs overwrite inputs that nothing reads any more, as [`apply`](super::apply::apply) does.
    pub(in crate::lower) fn settle(&mut self) {
        for &[entry, from, to] in &self.overwrites {
            let (Some(input), Some(output)) = (self.instances.get(from as usize), self.instances.get(to as usize))
            else {
                continue;
            };
            if input.last == entry && !input.is_overwritten && output.root == to {
                let root = input.root;
                self.instances[from as usize].is_overwritten = true;
                self.instances[to as usize].root = root;
            }
        }
        for at in 0..self.instances.len() {
            let Instance { root, last, .. } = self.instances[at];
            self.touch(root, last);
        }
    }
}

/// Returns the pieces of memory that overwrite no other one.
pub(in crate::lower) fn roots(instances: &[Instance]) -> impl Iterator<Item = &Instance> {
    (0..).zip(instances).filter(|(at, instance)| instance.root == *at).map(|(_, instance)| instance)
}

/// Returns the live bytes at each entry, for these sizes.
pub(in crate::lower) fn live(emission: &Emission<'_>, bytes: impl Fn(Held) -> u64) -> Vec<i64> {
    let all = roots(&emission.instances).map(|instance| {
        let range = [instance.first as usize, instance.last as usize];
        (range, bytes(instance.held) as i64)
    });
    live_bytes(emission.order.len(), all)
}
