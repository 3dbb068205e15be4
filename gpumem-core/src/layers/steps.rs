//! Scopes `lengths` and `segments`: which steps of a sequence count, and how operations inside them treat the others.
//!
//! Both are about the time steps of one value: the input of the scope, or the value that `of` names. Each value that is computed from it
//! has an axis of those steps, or has none. An operation that treats each step alone, or looks at earlier ones only, is not changed.
//! Attention and reductions over steps get an input that says which steps count. Any other operation is a mistake. The output of attention
//! has the steps of its queries, whereas its mask belongs to the `lengths` of the sequence that its keys are computed from.

use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::graph::{Elements, Graph, NodeId, Source, Type};
use crate::program::Op;
use crate::program::op::Sequence;
use crate::program::ops::{Attention, Reduce, Seen, SequenceMask};
use crate::shape::{Shape, product};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A `lengths` or `segments` scope around a layer.
#[derive(Clone, Debug)]
pub struct Steps {
    /// Its text for messages: `lengths(n, ..)`.
    written: Rc<str>,
    /// The meaning of the numbers, and their node. `None` if all steps count.
    numbers: Option<(Seen, NodeId)>,
    /// The value whose steps they are.
    of: NodeId,
    axis: usize,
    /// Steps of that value.
    count: u64,
    /// The axis of steps of each node from `of` on, as far as it has been computed.
    axes: Rc<RefCell<Vec<Axis>>>,
}

/// The axis of a value that is the steps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    /// The value has no axis of these steps.
    None,
    At(usize),
    /// The value is computed from these steps, but has no axis of them.
    Mixed,
}

impl Steps {
    /// Returns a scope over up to `count` steps of the node `of`. `numbers` is `None` if all steps of every sample count.
    ///
    /// # Errors
    /// A value without an axis of so many steps, with the text of the mistake.
    pub fn new(
        graph: &Graph,
        written: &str,
        numbers: Option<(Seen, NodeId)>,
        of: NodeId,
        count: u64,
    ) -> Result<Steps, String> {
        let Type { shape, elements, .. } = graph.value(of);
        let dims = shape.dims();
        let usual = if elements == Elements::Indices { 0 } else { dims.len().saturating_sub(2) };
        let mut all = (0..dims.len()).filter(|&axis| dims[axis] == count);
        let axis = match (dims.get(usual) == Some(&count), all.next(), all.next()) {
            (true, ..) => usual,
            (false, Some(only), None) => only,
            _ => {
                let many = if count == 1 { "1 step" } else { &format!("{count} steps") };
                return Err(format!(
                    "`{written}` is about a sequence of {many}, but its value is {shape}; use one [{count}, D], or another type"
                ));
            }
        };
        Ok(Steps { written: written.into(), numbers, of, axis, count, axes: Rc::default() })
    }

    /// Returns the value whose steps it is about.
    pub fn value(&self) -> NodeId {
        self.of
    }

    /// Returns its text, without the layers inside.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the input with the lengths of samples, if they count the first axis of a node's value. `None` otherwise.
    pub fn lengths_at(&self, graph: &Graph, node: NodeId) -> Option<NodeId> {
        let (seen, lengths) = self.numbers?;
        let is_first = seen == Seen::Lengths && self.axis(graph, node) == Axis::At(0);
        (is_first && graph.value(node).shape.dims().first() == Some(&self.count)).then_some(lengths)
    }

    /// Forgets the axes of the nodes from `end` on.
    pub(super) fn forget(&self, end: NodeId) {
        self.axes.borrow_mut().truncate(end.saturating_sub(self.of));
    }

    /// Returns the axis of steps of a node.
    fn axis(&self, graph: &Graph, node: NodeId) -> Axis {
        let Some(place) = node.checked_sub(self.of) else { return Axis::None };
        let mut axes = self.axes.borrow_mut();
        while axes.len() <= place {
            let axis = self.axis_of(graph, &axes, self.of + axes.len());
            axes.push(axis);
        }
        axes[place]
    }

    /// Returns the axis of steps of a node, from those of the nodes before it.
    fn axis_of(&self, graph: &Graph, known: &[Axis], id: NodeId) -> Axis {
        let of = |input: NodeId| input.checked_sub(self.of).map_or(Axis::None, |place| known[place]);
        let node = &graph.nodes[id];
        match &node.source {
            _ if id == self.of => Axis::At(self.axis),
            Source::Input | Source::Parameter(_) => Axis::None,
            Source::View(input) => self.of_view(of(*input), graph.value(*input).shape, node.value.shape),
            Source::Op { op, inputs, .. } => {
                let axes: Vec<Axis> = inputs.iter().map(|&input| of(input)).collect();
                let shapes: Vec<Shape> = inputs.iter().map(|&input| graph.value(input).shape).collect();
                self.passes(op, &shapes, &axes).unwrap_or(Axis::Mixed)
            }
        }
    }

    /// Returns the axis of steps of a view: the one with as many elements before it as in the viewed value.
    fn of_view(&self, axis: Axis, viewed: Shape, shape: Shape) -> Axis {
        let Axis::At(from) = axis else { return axis };
        if self.numbers.is_none() {
            return axis;
        }
        let (length, before) = (viewed.dims()[from], product(&viewed.dims()[..from]));
        let is_it = |&to: &usize| shape.dims()[to] == length && product(&shape.dims()[..to]) == before;
        (0..shape.rank()).find(is_it).map_or(Axis::Mixed, Axis::At)
    }

    /// Returns the axis of steps of an operation's output. `None` if the operation would read steps that do not count.
    fn passes(&self, op: &Op, shapes: &[Shape], axes: &[Axis]) -> Option<Axis> {
        // Values that are repeated for each sample, and queries, decide whose steps the output has.
        let axes = if matches!(op, Op::Expand(_) | Op::Attention(_)) { &axes[..1] } else { axes };
        if axes.iter().all(|axis| *axis == Axis::None) {
            return Some(Axis::None);
        }
        // If all steps count, so do all steps of derived values.
        if self.numbers.is_none() {
            return Some(Axis::At(0));
        }
        if axes.contains(&Axis::Mixed) {
            return None;
        }
        match (op, axes[0]) {
            (Op::Expand(_) | Op::SequenceMask(_) | Op::Standardize(_), axis) => Some(axis),
            // Positions with padding are counted from the beginning of a sample.
            (Op::PaddedPositions(_), axis) => matches!(self.numbers, Some((Seen::Lengths, _))).then_some(axis),
            (Op::BatchNorm(norm), axis) if norm.eval => Some(axis),
            (Op::Attention(_), Axis::At(axis)) => (axis + 2 == shapes[0].rank()).then_some(Axis::At(axis)),
            (Op::Take(_), _) => Some(Axis::None),
            // Steps that indices name.
            (Op::TakeAlong(take), Axis::At(axis)) if take.axis == axis as u64 => {
                axes[1..].iter().all(|axis| *axis == Axis::None).then_some(Axis::None)
            }
            (Op::Reduce(_), Axis::At(0)) => Some(Axis::At(0)),
            (Op::Reduce(_), Axis::At(2)) => Some(Axis::At(1)),
            (Op::Reduce(reduce), _) => reduce.counted.then_some(Axis::None),
            (Op::Slice(slice), Axis::At(axis)) if slice.axis == axis as u64 => {
                let is_cut_back = slice.length == self.count && shapes[0].dims()[axis] > self.count;
                match (slice.start, slice.length) {
                    (0, 1) => Some(Axis::None),
                    (0, _) if is_cut_back => Some(Axis::At(axis)),
                    _ => None,
                }
            }
            _ => self.stepped(op, shapes, axes),
        }
    }

    /// Returns the output's axis of steps, for an operation that treats each step alone or reads earlier ones only.
    fn stepped(&self, op: &Op, shapes: &[Shape], axes: &[Axis]) -> Option<Axis> {
        let (first, whole) = axes.iter().zip(shapes).find_map(|(axis, shape)| match axis {
            Axis::At(axis) => Some((shape.rank() - axis, shape.dims()[*axis])),
            _ => None,
        })?;
        // Steps of another value that are joined with these one by one.
        let joins = matches!(op, Op::Sum(_) | Op::Binary(_) | Op::Concat(_));
        let own = |(axis, shape): (&Axis, &Shape)| match axis {
            Axis::At(axis) => Some(*axis),
            _ => shape.rank().checked_sub(first).filter(|&axis| joins && shape.dims()[axis] == whole),
        };
        let axes: Vec<Option<usize>> = axes.iter().zip(shapes).map(own).collect();
        let sequence = Sequence { inputs: shapes, axes: &axes, whole, chunk: whole, cache: whole };
        let (stepped, axis) = op.stepped(&sequence).ok()?;
        // An operation with a cache reads earlier steps, of other segments too.
        let is_cut = !stepped.caches().is_empty() && matches!(self.numbers, Some((Seen::Segments, _)));
        (!is_cut).then_some(Axis::At(axis))
    }

    /// Returns the mistake of an operation that would read steps that do not count.
    fn refusal(&self) -> Mistake {
        let at = match self.numbers {
            Some((Seen::Segments, _)) => "steps of other segments",
            _ => "steps after the end of a sample",
        };
        Mistake::new(format!("looks at {at}; put it outside of `{}`", self.written))
    }
}

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
