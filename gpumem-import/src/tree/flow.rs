//! Decides how the nodes of a function become lists with branches, and which values are read by name.
//!
//! A value with several readers is *structural* if one join closes all of its branches: the branches are then written inside of the join.
//! Every other such value is *named*: it is marked with `tap` and read with `from`, and its list is written before what reads it.

use super::units::{Node, Units};
use crate::model::ValueId;
use std::collections::{HashMap, HashSet};

/// The most nodes between a value and the join that closes its branches.
const LONGEST: usize = 12;
/// The deepest nesting of joins.
const DEEPEST: usize = 2;
/// The most values that are found to be named one after the other.
const MOST_ROUNDS: usize = 64;

/// The nodes of one function.
pub(super) struct Flow<'u> {
    pub units: &'u Units<'u>,
    pub nodes: &'u [Node],
    /// The node that makes each value. Values from outside have none.
    pub makers: HashMap<ValueId, usize>,
    /// Values that no input reaches.
    pub free: HashSet<ValueId>,
    /// Values that are read by name.
    pub named: HashSet<ValueId>,
    /// The nearest value through which all that a node reads comes, and the number of such values above.
    above: Vec<Option<ValueId>>,
    depths: Vec<usize>,
    readers: HashMap<ValueId, Vec<usize>>,
    outputs: Vec<ValueId>,
}

impl<'u> Flow<'u> {
    /// Analyses nodes. `arriving` is the value with which their list begins, and `given` has those that are read by name anyway.
    pub(super) fn new(
        units: &'u Units<'u>,
        nodes: &'u [Node],
        arriving: Option<ValueId>,
        given: &[ValueId],
        outputs: &[ValueId],
    ) -> Flow<'u> {
        let mut flow = Flow {
            units,
            nodes,
            makers: HashMap::new(),
            free: HashSet::new(),
            named: given.iter().copied().collect(),
            above: Vec::new(),
            depths: Vec::new(),
            readers: HashMap::new(),
            outputs: outputs.to_vec(),
        };
        for (index, &node) in nodes.iter().enumerate() {
            flow.makers.insert(units.output(node), index);
            let inputs = units.inputs(node);
            for &input in inputs {
                flow.readers.entry(input).or_default().push(index);
            }
            if inputs.iter().all(|input| flow.free.contains(input)) {
                flow.free.insert(units.output(node));
            }
            if let Node::Unit(unit) = node {
                flow.named.extend(units.all[unit].inputs.iter().skip(1).filter(|input| !given.contains(input)));
            }
        }
        if outputs.len() > 1 {
            flow.named.extend(outputs);
        }
        flow.name_values(arriving);
        flow
    }

    /// Finds the values that are not structural, those that are read furthest away first.
    fn name_values(&mut self, arriving: Option<ValueId>) {
        for round in 0.. {
            self.find_above();
            self.name_deep();
            let closing = self.closing();
            let mut found: Vec<(usize, ValueId)> = Vec::new();
            for (&value, readers) in &self.readers {
                let is_output = usize::from(self.outputs.contains(&value));
                let is_single = readers.len() + is_output < 2 || readers.iter().all(|reader| *reader == readers[0]);
                if self.named.contains(&value) || is_single && is_output == 0 || readers.is_empty() {
                    continue;
                }
                let at = self.makers.get(&value).map_or(0, |maker| maker + 1);
                let end = closing.get(&value).copied().flatten();
                let closes = |end: usize| self.above[end] == Some(value) && end + 1 - at <= LONGEST;
                let is_structural = is_output == 0 && !self.free.contains(&value) && end.is_some_and(closes);
                if !is_structural {
                    let last = readers.last().copied().unwrap_or(0).max(is_output * self.nodes.len());
                    found.push((last + 1 - at.min(last + 1), value));
                }
            }
            // A value that arrives is named only if it must be.
            found.sort_by_key(|(reach, value)| (Some(*value) != arriving, *reach, *value));
            if found.is_empty() {
                return;
            }
            // One after the other, since those that are left may be structural then; of very many, half at a time.
            let count = if round > MOST_ROUNDS || found.len() > MOST_ROUNDS { found.len().div_ceil(2) } else { 1 };
            self.named.extend(found.drain(found.len() - count..).map(|(_, value)| value));
        }
    }

    /// Names values that would be nested too deep.
    fn name_deep(&mut self) {
        let mut nesting: HashMap<ValueId, usize> = HashMap::new();
        for &node in self.nodes {
            let inputs = self.units.inputs(node);
            let depth = |input: &ValueId| nesting.get(input).copied().unwrap_or(0);
            let deepest = inputs.iter().map(depth).max().unwrap_or(0);
            let depth = if inputs.len() > 1 { deepest + 1 } else { deepest };
            let output = self.units.output(node);
            let is_new =
                !self.free.contains(&output) && self.readers.get(&output).is_some_and(|readers| readers.len() > 1);
            if depth > DEEPEST && inputs.len() > 1 && !is_new {
                self.named.insert(output);
            }
            let is_reset = self.named.contains(&output) || is_new;
            nesting.insert(output, if is_reset { 0 } else { depth });
        }
    }

    /// Finds for each node the nearest value through which all that it reads comes. Named values count only if nothing else arrives.
    fn find_above(&mut self) {
        self.above = Vec::with_capacity(self.nodes.len());
        self.depths = Vec::with_capacity(self.nodes.len());
        for &node in self.nodes {
            let inputs = self.units.inputs(node);
            let above = self.common(inputs.iter().copied().filter(|input| !self.free.contains(input)));
            let depth = above.map_or(0, |value| self.depth(value) + 1);
            self.above.push(above);
            self.depths.push(depth);
        }
    }

    /// Returns the nearest value through which all of these values come. `None` if there is none.
    pub(super) fn common(&self, values: impl Iterator<Item = ValueId>) -> Option<ValueId> {
        let (named, others): (Vec<ValueId>, Vec<ValueId>) = values.partition(|value| self.named.contains(value));
        let mut others = others.into_iter();
        match others.next() {
            Some(first) => {
                let nearest = others.try_fold(first, |nearest, value| self.nearest(nearest, value))?;
                // A named value from which the others come is where the branches begin.
                let begins = |value: &ValueId| self.nearest(nearest, *value) == Some(*value);
                Some(named.iter().copied().find(begins).unwrap_or(nearest))
            }
            None => {
                let first = *named.first()?;
                named.iter().all(|value| *value == first).then_some(first)
            }
        }
    }

    fn depth(&self, value: ValueId) -> usize {
        match self.makers.get(&value) {
            Some(&maker) if !self.named.contains(&value) => self.depths[maker],
            _ => 0,
        }
    }

    fn parent(&self, value: ValueId) -> Option<ValueId> {
        match self.named.contains(&value) {
            true => None,
            false => self.above[*self.makers.get(&value)?],
        }
    }

    fn nearest(&self, mut a: ValueId, mut b: ValueId) -> Option<ValueId> {
        while a != b {
            let (depth_a, depth_b) = (self.depth(a), self.depth(b));
            if depth_a >= depth_b {
                a = self.parent(a)?;
            } else {
                b = self.parent(b)?;
            }
        }
        Some(a)
    }

    /// Returns for each value the first node through which everything that comes from it goes. `None` if there is none.
    fn closing(&self) -> HashMap<ValueId, Option<usize>> {
        let end = self.nodes.len();
        // The next node that all paths from a node go through.
        let mut next: Vec<Option<usize>> = vec![None; end];
        let merge = |next: &[Option<usize>], mut a: usize, mut b: usize| {
            while a != b {
                match a < b {
                    true => a = next[a]?,
                    false => b = next[b]?,
                }
            }
            Some(a)
        };
        let mut closing = HashMap::new();
        for index in (0..end).rev() {
            let output = self.units.output(self.nodes[index]);
            let found = self.merged(output, |a, b| merge(&next, a, b));
            next[index] = found.filter(|_| !self.named.contains(&output));
            closing.insert(output, found);
        }
        for &value in self.readers.keys().filter(|value| !self.makers.contains_key(value)) {
            closing.insert(value, self.merged(value, |a, b| merge(&next, a, b)));
        }
        closing
    }

    fn merged(&self, value: ValueId, merge: impl Fn(usize, usize) -> Option<usize>) -> Option<usize> {
        if self.outputs.contains(&value) {
            return None;
        }
        let mut readers = self.readers.get(&value)?.iter().copied();
        let first = readers.next()?;
        readers.try_fold(first, merge)
    }
}
