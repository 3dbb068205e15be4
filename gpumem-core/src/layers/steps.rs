//! Scopes `lengths` and `segments`: which steps of a sequence count, and how operations inside them treat the others.
//!
//! Both are about the time steps of one value: the input of the scope, or the value that `of` names. Each value that is computed from it
//! has an axis of those steps, or has none. An operation that treats each step alone, or looks at earlier ones only, is not changed.
//! Attention and reductions over steps get an input that says which steps count. Any other operation is a mistake. The output of attention
//! has the steps of its queries, whereas its mask belongs to the `lengths` of the sequence that its keys are computed from.

use super::mistake::Mistake;
use crate::graph::{Elements, Graph, NodeId, Source, Type};
use crate::program::Op;
use crate::program::op::Sequence;
use crate::program::ops::Seen;
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
    pub(super) written: Rc<str>,
    /// The meaning of the numbers, and their node. `None` if all steps count.
    pub(super) numbers: Option<(Seen, NodeId)>,
    /// The value whose steps they are.
    of: NodeId,
    axis: usize,
    /// Steps of that value.
    pub(super) count: u64,
    /// The axis of steps of each node from `of` on, as far as it has been computed.
    axes: Rc<RefCell<Vec<Axis>>>,
}

/// The axis of a value that is the steps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
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
    pub(super) fn axis(&self, graph: &Graph, node: NodeId) -> Axis {
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
    pub(super) fn passes(&self, op: &Op, shapes: &[Shape], axes: &[Axis]) -> Option<Axis> {
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
    pub(super) fn refusal(&self) -> Mistake {
        let at = match self.numbers {
            Some((Seen::Segments, _)) => "steps of other segments",
            _ => "steps after the end of a sample",
        };
        Mistake::new(format!("looks at {at}; put it outside of `{}`", self.written))
    }
}
