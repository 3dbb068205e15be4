//! From what is decided for each value to an order of operations.

use super::Draft;
use super::values::{NONE, Place, Values, reads_saved};
use alloc::vec;
use alloc::vec::Vec;

/// What becomes of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::lower) enum Choice {
    /// It is held from the forward pass on, as long as anything reads it.
    #[default]
    Keep,
    /// It is computed again when it is first asked for, then held as long as anything reads it.
    Once,
    /// It is computed again for each operation that asks for it.
    Each,
    /// It is computed again and dropped where something else is computed again from it, and again, to be held, where the backward pass
    /// asks for it.
    Late,
}

/// The order in which operations run: the forward pass as it is, then all others in their order, each behind the forward operations that
/// compute what it reads and is not there.
pub(in crate::lower) fn order(draft: &Draft, values: &Values, choices: &[Choice]) -> Vec<u32> {
    let mut emission = Emission {
        values,
        choices,
        keeps_saved: draft.operations[..values.forward].iter().map(reads_saved).collect(),
        is_there: (0..values.values.len())
            .map(|value| choices[value] == Choice::Keep || values.values[value].is_pinned)
            .collect(),
        fleeting: Vec::new(),
        order: (0..values.forward as u32).collect(),
    };
    for at in values.forward..draft.operations.len() {
        for &place in &values.reads[at] {
            if let Place::Value(value) = place {
                emission.need(value);
            }
        }
        emission.order.push(at as u32);
        for &place in &values.writes[at] {
            if let Place::Own(own) = place
                && values.owns[own as usize].takes != NONE
            {
                emission.is_there[values.owns[own as usize].takes as usize] = false;
            }
        }
        for value in emission.fleeting.drain(..) {
            emission.is_there[value as usize] = false;
        }
    }
    emission.order
}

struct Emission<'v> {
    values: &'v Values,
    choices: &'v [Choice],
    /// Whether each forward operation reads what it saved where it runs again.
    keeps_saved: Vec<bool>,
    is_there: Vec<bool>,
    /// What is dropped behind the operation that is next.
    fleeting: Vec<u32>,
    order: Vec<u32>,
}

impl Emission<'_> {
    /// Computes a value again that is not there, and before it what it is computed from.
    fn need(&mut self, value: u32) {
        if self.is_there[value as usize] {
            return;
        }
        let mut waiting = vec![(self.values.values[value as usize].producer, false)];
        while let Some((at, is_ready)) = waiting.pop() {
            if self.has_all(at) {
                continue;
            }
            if is_ready {
                self.run(at, value);
                continue;
            }
            waiting.push((at, true));
            for place in self.values.reads[at as usize].iter().rev() {
                if let Place::Value(input) = *place
                    && !self.is_there[input as usize]
                {
                    waiting.push((self.values.values[input as usize].producer, false));
                }
            }
        }
    }

    /// Whether all that a forward operation writes is there.
    fn has_all(&self, at: u32) -> bool {
        self.written(at).all(|value| self.is_there[value as usize])
    }

    /// The values that a forward operation writes when it runs again.
    fn written(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let keeps_saved = self.keeps_saved[at as usize];
        self.values.writes[at as usize].iter().filter_map(move |place| match *place {
            Place::Value(value) if !(keeps_saved && self.values.values[value as usize].is_pinned) => Some(value),
            _ => None,
        })
    }

    /// Runs a forward operation again, on the way to `value`.
    fn run(&mut self, at: u32, value: u32) {
        self.order.push(at);
        let written: Vec<u32> = self.written(at).filter(|&written| !self.is_there[written as usize]).collect();
        for written in written {
            self.is_there[written as usize] = true;
            let is_fleeting = match self.choices[written as usize] {
                Choice::Each => true,
                Choice::Late => written != value,
                Choice::Keep | Choice::Once => false,
            };
            if is_fleeting {
                self.fleeting.push(written);
            }
        }
    }
}
