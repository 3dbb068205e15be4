//! Outputs of normalisations and functions that are recomputed instead of being saved.
//!
//! The gradient of a weight after a normalisation reads the output of that normalisation, whose own gradient reads its input. Two values of one
//! size are saved, although the output follows from the input. So it is with the output and the input of a function such as GELU. Here, only the
//! input is saved. The gradient of the weight waits for the gradient of the normalisation, and the output is recomputed between them. After a
//! batch norm on a card, the pass that computes the gradient of the normalisation recomputes it. No product and no convolution runs twice.
//!
//! A function or dropout after a normalisation is recomputed with it. If the gradient of the function reads the output of the normalisation, that
//! output is recomputed before it.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::OpNode;
use crate::lower::differentiate::builder::{Builder, GradientPiece};
use crate::lower::draft::Draft;
use crate::lower::liveness::{LiveRange, ranges};

use crate::program::fusion::GroupKind;
use crate::program::op::Gradient;
use crate::program::ops::BatchNorm;
use crate::program::{Action, Class, Op, Operand, Operation, Pass, Slot, Tensor, TensorId};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A normalisation or a function whose output only gradients of weights read in the backward pass.
pub(in crate::lower) struct Renormalised {
    /// The node whose input is saved.
    norm: NodeId,
    /// Functions and dropout after it, each the only reader of the one before. The output is that of the last.
    after: Vec<NodeId>,
    /// The node whose gradient comes before the gradients of weights that wait.
    first: NodeId,
    /// The gradients that read the output.
    weights: Vec<GradientPiece>,
    /// True if these wait for the gradient of `first`. Otherwise the output is recomputed before the first of them.
    waits: bool,
}

/// True if an operation costs little to run again, and its output has the size of its input.
fn is_cheap(op: &Op) -> bool {
    matches!(op, Op::BatchNorm(_) | Op::Normalize(_) | Op::Pointwise(_))
}

impl Renormalised {
    /// Clears `waits` if operation `at` of the step runs while gradients wait, and returns true if it did.
    pub(in crate::lower) fn hurry(&mut self, draft: &Draft, at: usize) -> bool {
        let is_of_weight = |index: &usize| {
            let operation = &draft.operations[*index];
            operation.backward().is_some() && self.weights.iter().any(|piece| piece.node == draft.nodes[*index])
        };
        let mut all = (0..draft.operations.len()).filter(is_of_weight);
        let first = all.next();
        let runs = first.is_some_and(|first| first <= at && at <= all.next_back().unwrap_or(first));
        let hurries = self.waits && runs;
        self.waits &= !hurries;
        hurries
    }
}

/// True if a network has operations whose outputs may be recomputed.
pub(in crate::lower) fn normalises(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| matches!(&node.source, Source::Op { op, .. } if is_cheap(op)))
}

impl Builder<'_> {
    /// Returns the normalisations and functions whose outputs may be recomputed.
    pub(in crate::lower) fn renormalised(&self) -> Vec<Renormalised> {
        let all = (0..self.analysis.graph.nodes.len())
            .filter(|&id| self.analysis.is_live(id) && self.analysis.needs_gradient(id));
        let keeps_input =
            |id: NodeId, node: OpNode<'_>| is_cheap(node.op) && self.analysis.reads_input(id, node.inputs[0]);
        let norms = all.filter(|&id| self.analysis.op(id).is_some_and(|node| keeps_input(id, node)));
        let mut known: Vec<GradientPiece> = Vec::new();
        norms
            .filter_map(|norm| {
                let (after, first) = self.made_with(norm);
                let (output, mut weights) = (after.last().copied().unwrap_or(norm), Vec::new());
                let is_free = !self.analysis.ends.contains(&output) && !self.analysis.reads_output(output);
                let mut waits = true;
                let is_it = is_free && self.only_weights_read(output, &mut weights, &mut waits) && !weights.is_empty();
                // A gradient waits for one normalisation only.
                if !is_it || weights.iter().any(|piece| known.contains(piece)) {
                    return None;
                }
                known.extend(&weights);
                Some(Renormalised { norm, after, first, weights, waits })
            })
            .collect()
    }

    /// Returns the functions and dropout after a node that are recomputed with its output, and a second node. The gradient of the second node
    /// comes before those of weights: it is the last function whose gradient reads a recomputed value, or `norm` itself.
    fn made_with(&self, norm: NodeId) -> (Vec<NodeId>, NodeId) {
        let (mut after, mut first, mut last) = (Vec::new(), norm, norm);
        while let Some(only) =
            self.analysis.only_reader(last).filter(|&only| self.analysis.is_live(only) && !self.is_of_chunk(only))
        {
            let Some(node) = self.analysis.op(only) else { break };
            match node.op {
                _ if self.analysis.merged[only] => {}
                Op::Mask(_) => {}
                Op::Pointwise(_) if !self.analysis.reads_output(only) => {
                    if self.analysis.reads_input(only, node.inputs[0]) {
                        first = only;
                    }
                }
                _ => break,
            }
            after.push(only);
            last = only;
        }
        (after, first)
    }

    /// True if only gradients of parameters read a value, directly or through views. They are added to `weights`. A parameter that several nodes
    /// read is refused, since its gradients would be added up in another order. `wait` is cleared if one of the operations also computes the
    /// gradient of the value, which cannot wait for that of the normalisation.
    fn only_weights_read(&self, value: NodeId, weights: &mut Vec<GradientPiece>, wait: &mut bool) -> bool {
        self.analysis.consumers[value].iter().all(|&reader| {
            if let Source::View(_) = self.analysis.node(reader).source {
                return !self.analysis.ends.contains(&reader) && self.only_weights_read(reader, weights, wait);
            }
            if !self.analysis.reads_input(reader, value) {
                return true;
            }
            let Some(node) = self.analysis.op(reader).filter(|_| !self.is_of_chunk(reader)) else { return false };
            (0..).zip(node.op.gradients()).all(|(rule, gradient)| {
                let Gradient::Computed { of, .. } = gradient else { return true };
                let mut needed = of.iter().map(|(input, reads)| (node.inputs[usize::from(*input)], reads));
                let reads_it = needed.clone().any(|(to, reads)| {
                    let is_read = |input: usize| node.inputs[input] == value && reads.inputs.contains(input);
                    self.analysis.needs_gradient(to) && (0..node.inputs.len()).any(is_read)
                });
                if reads_it {
                    weights.push(GradientPiece { node: reader, rule });
                }
                let is_own =
                    |to: NodeId| self.analysis.parameter(to).is_some_and(|parameter| self.uses[parameter] == 1);
                let makes_all = matches!(node.op, Op::NormalizedConvolution(_));
                *wait &= !(reads_it && makes_all);
                !reads_it || makes_all || needed.all(|(to, _)| !self.analysis.needs_gradient(to) || is_own(to))
            })
        })
    }
}

/// Returns the pieces of a backward pass in an order in which gradients of weights wait for recomputed outputs.
pub(in crate::lower) fn waiting(pieces: &[GradientPiece], all: &[Renormalised]) -> Vec<GradientPiece> {
    let wait = all.iter().filter(|it| it.waits);
    let waits: BTreeMap<GradientPiece, NodeId> =
        wait.flat_map(|it| it.weights.iter().map(|&piece| (piece, it.first))).collect();
    let mut following: BTreeMap<NodeId, Vec<GradientPiece>> = BTreeMap::new();
    for piece in pieces {
        if let Some(&norm) = waits.get(piece) {
            following.entry(norm).or_default().push(*piece);
        }
    }
    let mut order = Vec::with_capacity(pieces.len());
    for piece in pieces.iter().filter(|piece| !waits.contains_key(piece)) {
        order.push(*piece);
        order.extend(following.remove(&piece.node).unwrap_or_default());
    }
    order
}

/// Recomputes these outputs in a step whose gradients of weights [wait](waiting), and returns the tensors that held them. An output that
/// something else reads is kept. `None` if an output's operations are not found in the step.
pub(in crate::lower) fn renormalise(draft: &mut Draft, all: &[Renormalised]) -> Option<Vec<TensorId>> {
    let mut outputs: Vec<TensorId> = Vec::with_capacity(all.len());
    let passes = Passes::of(draft);
    let mut before: BTreeMap<usize, Vec<(NodeId, Operation)>> = BTreeMap::new();
    for it in all {
        let mut operations = vec![(it.norm, again(draft, &passes, it.norm)?)];
        for &node in &it.after {
            let of = draft.operations[*passes.forward.get(&node)?].clone();
            let Action::Run { op, .. } = of.action else { return None };
            operations.push((node, Operation { action: Action::Run { op, pass: Pass::Again }, ..of }));
        }
        let made = made(&operations)?;
        let readers: Vec<usize> = made.iter().flat_map(|tensor| passes.after.get(tensor)).flatten().copied().collect();
        let at = it.place(draft, &passes, &operations, *readers.iter().min()?)?;
        let is_own = |node: NodeId| node == it.norm || it.after.contains(&node);
        let reads_it = |&reader: &usize| {
            let node = draft.nodes[reader];
            reader >= at && (is_own(node) || it.weights.iter().any(|piece| piece.node == node))
        };
        // Something else reads it after all, so that it is kept.
        if !readers.iter().all(reads_it) {
            continue;
        }
        outputs.extend(&made);
        rename(draft, &mut operations, &readers);
        before.entry(at).or_default().extend(operations);
    }
    insert(draft, before);
    let numbers = sort(draft);
    Some(outputs.into_iter().map(|output| numbers[output as usize]).collect())
}

/// Returns operation `at`, or the rectifier before it that hands a gradient to it. A pass that does both must find what it reads.
fn passed_by(draft: &Draft, at: usize) -> usize {
    let is_group = |&before: &usize| GroupKind::ConvNormGradient.is_at(&draft.operations, before);
    at.checked_sub(1).filter(is_group).unwrap_or(at)
}

/// Returns the tensors that operations write, each once. `None` if one of them writes no output.
fn made(operations: &[(NodeId, Operation)]) -> Option<Vec<TensorId>> {
    let mut made = Vec::new();
    for (_, operation) in operations {
        let output = operation.written(Slot::Output)?;
        if !made.contains(&output) {
            made.push(output);
        }
    }
    Some(made)
}

impl Renormalised {
    /// Returns the operation before which `again` recomputes the output, if `reader` is the first to read it. `None` if the gradient is not
    /// found.
    ///
    /// That is as late as possible: a card runs the gradient of a norm or a function as one pass with operations around it. Three things come
    /// earlier: the output of a batch norm, which a card computes in one pass with the gradient, an output that the gradient itself reads, and
    /// one whose inputs are overwritten in between, by another gradient or by the update of a scale.
    fn place(&self, draft: &Draft, passes: &Passes, again: &[(NodeId, Operation)], reader: usize) -> Option<usize> {
        let (gradient, latest) = (*passes.backward.get(&self.first)?, passed_by(draft, reader));
        if !self.waits || gradient > reader {
            return Some(latest);
        }
        let backward = &draft.operations[*passes.backward.get(&self.norm)?];
        if matches!(&backward.action, Action::Run { op: Op::BatchNorm(_), .. }) {
            return Some(gradient);
        }
        let inputs: Vec<TensorId> = again.iter().flat_map(|(_, it)| &it.reads).map(|operand| operand.tensor).collect();
        let overwrites = |it: &Operation| it.writes.iter().any(|operand| inputs.contains(&operand.tensor));
        Some((gradient..latest).find(|&at| overwrites(&draft.operations[at])).unwrap_or(latest))
    }
}

/// The operations of a step by node and by tensor.
struct Passes {
    /// The operations of the forward and of the backward pass of each node.
    forward: BTreeMap<NodeId, usize>,
    backward: BTreeMap<NodeId, usize>,
    /// The operations after the forward pass that touch each tensor.
    after: BTreeMap<TensorId, Vec<usize>>,
}

impl Passes {
    fn of(draft: &Draft) -> Passes {
        let mut passes = Passes { forward: BTreeMap::new(), backward: BTreeMap::new(), after: BTreeMap::new() };
        for (at, (operation, &node)) in draft.operations.iter().zip(&draft.nodes).enumerate() {
            match operation.action {
                Action::Run { pass: Pass::Forward, .. } => {
                    passes.forward.insert(node, at);
                    continue;
                }
                Action::Run { pass: Pass::Backward, .. } => passes.backward.insert(node, at),
                _ => None,
            };
            operation.tensors().for_each(|tensor| passes.after.entry(tensor).or_default().push(at));
        }
        passes
    }
}

/// Returns the operation that recomputes the output of a node. It reads what the node's gradient reads, and writes only the output. `None` if
/// something that it reads is not there.
fn again(draft: &Draft, passes: &Passes, node: NodeId) -> Option<Operation> {
    let forward = &draft.operations[*passes.forward.get(&node)?];
    let backward = &draft.operations[*passes.backward.get(&node)?];
    let op = match &backward.action {
        Action::Run { op: Op::BatchNorm(norm), .. } => Op::BatchNorm(BatchNorm { activation: None, ..norm.clone() }),
        Action::Run { op, .. } => op.clone(),
        _ => return None,
    };
    let from_saved = op.runs_again_from_saved();
    let is_read = |operand: &&Operand| match operand.slot {
        Slot::Input(_) => true,
        Slot::Saved(_) => from_saved,
        _ => false,
    };
    // The node's gradient may read the input as the first channels of a concatenation, and needs no summands.
    let mut reads: Vec<Operand> = forward.reads.iter().chain(&forward.writes).filter(is_read).copied().collect();
    for operand in &mut reads {
        let is_lasting = draft.tensors[operand.tensor as usize].class != Class::Transient;
        operand.tensor = backward.read(operand.slot).or(is_lasting.then_some(operand.tensor))?;
    }
    let writes = vec![Operand { slot: Slot::Output, tensor: forward.written(Slot::Output)? }];
    let action = Action::Run { op, pass: Pass::Again };
    Some(Operation { action, row: forward.row, accumulate: false, reads, writes })
}

/// Gives recomputed outputs tensors of their own, which `readers` read.
fn rename(draft: &mut Draft, again: &mut [(NodeId, Operation)], readers: &[usize]) {
    let mut names: BTreeMap<TensorId, TensorId> = BTreeMap::new();
    for (_, operation) in again {
        for operand in &mut operation.reads {
            operand.tensor = names.get(&operand.tensor).copied().unwrap_or(operand.tensor);
        }
        for operand in &mut operation.writes {
            operand.tensor = *names.entry(operand.tensor).or_insert_with_key(|&like| {
                draft.tensors.push(draft.tensors[like as usize].clone());
                draft.tensors.len() as TensorId - 1
            });
        }
    }
    for &at in readers {
        for operand in &mut draft.operations[at].reads {
            operand.tensor = names.get(&operand.tensor).copied().unwrap_or(operand.tensor);
        }
    }
}

/// Sorts the tensors of the step by their first operation, and returns the number that each has then. Other tensors are in this order anyway, and
/// a plan is checked fastest in it.
fn sort(draft: &mut Draft) -> Vec<TensorId> {
    let ranges = ranges(&draft.operations, draft.tensors.len(), []);
    let first = |(tensor, range): (&Tensor, Option<LiveRange>)| match range {
        Some([first, _]) if tensor.class == Class::Transient => first,
        _ => 0,
    };
    let first: Vec<usize> = draft.tensors.iter().zip(ranges).map(first).collect();
    draft.sort_tensors(|id| first[id as usize])
}

/// Inserts operations before others.
fn insert(draft: &mut Draft, mut before: BTreeMap<usize, Vec<(NodeId, Operation)>>) {
    let operations = core::mem::take(&mut draft.operations);
    let nodes = core::mem::take(&mut draft.nodes);
    for (at, one) in nodes.into_iter().zip(operations).enumerate() {
        for (node, operation) in before.remove(&at).into_iter().flatten().chain([one]) {
            draft.nodes.push(node);
            draft.operations.push(operation);
        }
    }
}
