//! Operations inside `lengths` and `segments` scopes: how a layer under construction adapts to them.

use super::builder::{Builder, Value};
use super::mistake::Mistake;
use super::steps::{Axis, Steps};
use crate::graph::{NodeId, Source};
use crate::program::Op;
use crate::program::ops::{Attention, Reduce, Seen, SequenceMask};
use crate::shape::Shape;
use alloc::format;
use alloc::vec::Vec;

impl Builder<'_> {
    /// Returns the index of the innermost scope that is about steps of a value, and their axis. `None` if there is none.
    fn owner(&self, value: &Value) -> Option<(usize, Axis)> {
        let axis = |(number, steps): (usize, &Steps)| (number, steps.axis(self.graph(), value.node));
        self.steps().iter().enumerate().rev().map(axis).find(|(_, axis)| *axis != Axis::None)
    }

    /// Returns the number of steps of a value that count in each sample. `None` without a `lengths` scope for them.
    pub(super) fn lengths_of(&self, value: &Value) -> Option<Value> {
        self.numbers_of(value, Seen::Lengths)
    }

    /// Returns the segment of each step of a value. `None` without a `segments` scope for them.
    pub(super) fn segments_of(&self, value: &Value) -> Option<Value> {
        self.numbers_of(value, Seen::Segments)
    }

    fn numbers_of(&self, value: &Value, kind: Seen) -> Option<Value> {
        let (seen, node) = self.steps()[self.owner(value)?.0].numbers?;
        (seen == kind).then(|| Value::of(self.graph(), node))
    }

    /// Adds the first `lengths` steps of x `[T, D]`, followed by zeros. With `reverse` these steps come in reverse order.
    ///
    /// # Errors
    /// As for [`Builder::op`].
    pub(super) fn first_steps(&mut self, x: Value, lengths: Value, reverse: bool) -> Result<Value, Mistake> {
        let [steps, width] = x.sequence()?;
        self.op(SequenceMask { steps, width, reverse }, &[x, lengths])
    }

    /// Returns an operation and its inputs, adapted to the `lengths` and `segments` scopes around the layer.
    ///
    /// # Errors
    /// An operation that reads steps that do not count, or steps for which that is unknown.
    pub(super) fn within_steps(&mut self, op: Op, inputs: &[Value]) -> Result<(Op, Vec<Value>), Mistake> {
        if self.steps().is_empty() {
            return Ok((op, inputs.to_vec()));
        }
        match op {
            Op::Attention(attention) => self.attends_within(attention, inputs),
            op => self.computes_within(op, inputs),
        }
    }

    fn computes_within(&self, op: Op, inputs: &[Value]) -> Result<(Op, Vec<Value>), Mistake> {
        let mut inputs = inputs.to_vec();
        let count = if matches!(op, Op::Expand(_)) { 1 } else { inputs.len() };
        let mut owners = inputs[..count].iter().filter_map(|input| self.owner(input));
        let Some((owner, _)) = owners.next() else { return Ok((op, inputs)) };
        let steps = &self.steps()[owner];
        if let Some((other, _)) = owners.find(|(other, _)| *other != owner) {
            let other = &self.steps()[other].written;
            let text = format!("joins steps of `{}` with those of `{other}`; join them outside of both", steps.written);
            return Err(Mistake::new(text));
        }
        let axes: Vec<Axis> = inputs.iter().map(|input| steps.axis(self.graph(), input.node)).collect();
        let (op, added) = match (op, steps.numbers, axes[0]) {
            (Op::Reduce(reduce), Some((Seen::Lengths, lengths)), Axis::At(1)) => {
                (Reduce { counted: true, ..reduce }.into(), Some(lengths))
            }
            (op, ..) => (op, None),
        };
        let shapes: Vec<Shape> = inputs.iter().map(|input| input.shape).collect();
        steps.passes(&op, &shapes, &axes).ok_or_else(|| steps.refusal())?;
        inputs.extend(added.map(|node| Value::of(self.graph(), node)));
        Ok((op, inputs))
    }

    /// Adapts attention to the scope of the sequence that its keys are computed from: it sees only keys that count.
    fn attends_within(&self, op: Attention, inputs: &[Value]) -> Result<(Op, Vec<Value>), Mistake> {
        let mut inputs = inputs.to_vec();
        let [queries, keys, values] = if op.apart { [0, 1, 2] } else { [0; 3] }.map(|part| inputs[part]);
        let owners = [queries, keys, values].map(|part| self.owner(&part));
        let Some((owner, axis)) = owners[1] else {
            if !self.comes_from_input(keys.node) {
                return Ok((op.into(), inputs));
            }
            let (count, written) = (op.keys, &self.steps()[self.steps().len() - 1].written);
            let text = format!(
                "attends to {count} keys that are not computed from the value of `{written}`; say how many of them count, as \
                 `lengths(m, of = memory, ..)`, or that all do, as `lengths({count}, of = memory, ..)`, where `memory` is what they are \
                 computed from"
            );
            return Err(Mistake::new(text));
        };
        let steps = &self.steps()[owner];
        let Some((seen, node)) = steps.numbers else { return Ok((op.into(), inputs)) };
        let is_along = |axis: Axis, part: &Value| axis == Axis::At(part.shape.rank() - 2);
        let has_steps = is_along(axis, &keys) && op.keys == steps.count;
        if !has_steps || owners[2].is_none_or(|(other, axis)| other != owner || !is_along(axis, &values)) {
            let text = format!(
                "attends to {} keys and their values, which are not the {} steps of `{}`; put it outside",
                op.keys, steps.count, steps.written
            );
            return Err(Mistake::new(text));
        }
        let is_own = owners[0].is_some_and(|(other, axis)| other == owner && is_along(axis, &queries));
        if seen == Seen::Segments && !is_own {
            let text = format!("attends to segments from another sequence; put it outside of `{}`", steps.written);
            return Err(Mistake::new(text));
        }
        inputs.push(Value::of(self.graph(), node));
        Ok((Attention { seen, ..op }.into(), inputs))
    }

    /// True if a value is computed from an input of the network, so that each sample has its own.
    fn comes_from_input(&self, node: NodeId) -> bool {
        let graph = self.graph();
        let (mut ahead, mut passed) = (Vec::from([node]), alloc::vec![false; graph.nodes.len()]);
        while let Some(id) = ahead.pop() {
            if core::mem::replace(&mut passed[id], true) {
                continue;
            }
            match &graph.nodes[id].source {
                Source::Input => return true,
                // The output of attention has the steps of its queries. A value that is repeated for each sample is equal in all.
                Source::Op { op: Op::Expand(_) | Op::Attention(_), inputs, .. } => ahead.push(inputs[0]),
                _ => ahead.extend(graph.nodes[id].inputs()),
            }
        }
        false
    }
}
