//! Outputs of normalisations that are made a second time instead of being kept.
//!
//! Of a convolution between two normalisations two maps are held for the backward pass: the gradient of its weight reads what the first
//! normalisation gave, and the gradient of that one what it was given. The pass that makes the latter has each element at hand, with mean,
//! factor and summand of its channel, so that it can write the output again. The gradient of the weight then waits for that pass, and one of
//! the two maps is there for a short time only. Nothing is multiplied twice but what a normalisation multiplies.

use super::backward::Piece;
use super::builder::{Builder, OpNode};
use super::normalized::hands_on;
use super::recompute::{Draft, reorder};
use crate::graph::{Graph, NodeId, Source};
use crate::program::op::Gradient;
use crate::program::ops::BatchNorm;
use crate::program::{Action, Class, Op, Operand, Operation, Pass, Slot, TensorId};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A normalisation whose output nothing reads again but gradients of weights.
pub(super) struct Renormalised {
    norm: NodeId,
    /// The activation behind it, whose output that is then.
    activation: Option<NodeId>,
    /// The gradients that read it.
    weights: Vec<Piece>,
    /// Whether these wait for the normalisation's own. Otherwise the output is made by itself, before the first of them.
    waits: bool,
}

impl Renormalised {
    /// Lets gradients wait no more, if they do and operation `at` of the step runs meanwhile.
    pub(super) fn hurry(&mut self, draft: &Draft, at: usize) -> bool {
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

/// Whether a network has normalisations over a batch.
pub(super) fn normalises(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| matches!(node.source, Source::Op { op: Op::BatchNorm(_), .. }))
}

impl Builder<'_> {
    /// The normalisations whose outputs may be made again.
    pub(super) fn renormalised(&self) -> Vec<Renormalised> {
        let all = (0..self.graph.nodes.len()).filter(|&id| self.is_live(id) && self.needs_gradient(id));
        let keeps_input =
            |id: NodeId, node: OpNode<'_>| matches!(node.op, Op::BatchNorm(_)) && self.reads_input(id, node.inputs[0]);
        let norms = all.filter(|&id| self.op(id).is_some_and(|node| keeps_input(id, node)));
        let mut known: Vec<Piece> = Vec::new();
        norms
            .filter_map(|norm| {
                let activation = self.only_reader(norm).filter(|&only| self.merged[only]);
                let (output, mut weights) = (activation.unwrap_or(norm), Vec::new());
                let is_free = !self.ends.contains(&output) && !self.reads_output(output);
                let mut waits = true;
                let is_it = is_free && self.only_weights_read(output, &mut weights, &mut waits) && !weights.is_empty();
                // A gradient waits for one normalisation.
                if !is_it || weights.iter().any(|piece| known.contains(piece)) {
                    return None;
                }
                known.extend(&weights);
                Some(Renormalised { norm, activation, weights, waits })
            })
            .collect()
    }

    /// Whether no gradient reads a value, under whatever shape, but those of parameters, which are put into `weights`. Where several nodes
    /// read a parameter, the order in which its gradients are added up would be another. What makes the gradient of the value beside them
    /// cannot wait for that of the normalisation.
    fn only_weights_read(&self, value: NodeId, weights: &mut Vec<Piece>, wait: &mut bool) -> bool {
        self.consumers[value].iter().all(|&reader| {
            if let Source::View(_) = self.node(reader).source {
                return !self.ends.contains(&reader) && self.only_weights_read(reader, weights, wait);
            }
            if !self.reads_input(reader, value) {
                return true;
            }
            let Some(node) = self.op(reader).filter(|_| !self.is_of_chunk(reader)) else { return false };
            (0..).zip(node.op.gradients()).all(|(rule, gradient)| {
                let Gradient::Computed { of, .. } = gradient else { return true };
                let mut needed = of.iter().map(|(input, reads)| (node.inputs[usize::from(*input)], reads));
                let reads_it = needed.clone().any(|(to, reads)| {
                    let is_read = |input: usize| node.inputs[input] == value && reads.inputs.contains(input);
                    self.needs_gradient(to) && (0..node.inputs.len()).any(is_read)
                });
                if reads_it {
                    weights.push(Piece { node: reader, rule });
                }
                let is_own = |to: NodeId| self.parameter(to).is_some_and(|parameter| self.uses[parameter] == 1);
                let makes_all = matches!(node.op, Op::NormalizedConvolution(_));
                *wait &= !(reads_it && makes_all);
                !reads_it || makes_all || needed.all(|(to, _)| !self.needs_gradient(to) || is_own(to))
            })
        })
    }
}

/// The pieces of a backward pass in which gradients of weights wait for what is made again.
pub(super) fn waiting(pieces: &[Piece], all: &[Renormalised]) -> Vec<Piece> {
    let wait = all.iter().filter(|it| it.waits);
    let waits: BTreeMap<Piece, NodeId> = wait.flat_map(|it| it.weights.iter().map(|&piece| (piece, it.norm))).collect();
    let mut behind: BTreeMap<NodeId, Vec<Piece>> = BTreeMap::new();
    for piece in pieces {
        if let Some(&norm) = waits.get(piece) {
            behind.entry(norm).or_default().push(*piece);
        }
    }
    let mut order = Vec::with_capacity(pieces.len());
    for piece in pieces.iter().filter(|piece| !waits.contains_key(piece)) {
        order.push(*piece);
        order.extend(behind.remove(&piece.node).unwrap_or_default());
    }
    order
}

/// Lets a step whose gradients of weights [wait](waiting) make these outputs again, and says which tensors they were in. `None` if somebody
/// else needs one of them.
pub(super) fn renormalise(draft: &mut Draft, all: &[Renormalised]) -> Option<Vec<TensorId>> {
    let mut outputs = Vec::with_capacity(all.len());
    let passes = Passes::of(draft);
    let mut before: BTreeMap<usize, Vec<(NodeId, Operation)>> = BTreeMap::new();
    for Renormalised { norm, activation, weights, waits } in all {
        let (backward, normalised) = again(draft, &passes, *norm)?;
        let mut operations = vec![(*norm, normalised)];
        if let Some(activation) = activation {
            let of = draft.operations[*passes.forward.get(activation)?].clone();
            let Action::Run { op, .. } = of.action else { return None };
            operations.push((*activation, Operation { action: Action::Run { op, pass: Pass::Again }, ..of }));
        }
        let kept = operations.last().and_then(|(_, last)| last.written(Slot::Output))?;
        let readers = passes.after.get(&kept)?;
        let at = if *waits { backward } else { passed_by(draft, *readers.first()?) };
        let is_weight = |&reader: &usize| weights.iter().any(|piece| piece.node == draft.nodes[reader]);
        if !readers.iter().all(|reader| is_weight(reader) && *reader >= at) {
            return None;
        }
        outputs.push(kept);
        rename(draft, &mut operations, readers);
        before.entry(at).or_default().extend(operations);
    }
    insert(draft, before);
    let numbers = sort(draft);
    Some(outputs.into_iter().map(|output| numbers[output as usize]).collect())
}

/// Operation `at`, or the rectifier in front of it that hands a gradient to it: a pass that does both finds what that reads.
fn passed_by(draft: &Draft, at: usize) -> usize {
    at.checked_sub(1).filter(|&before| hands_on(&draft.operations, before)).unwrap_or(at)
}

/// What the step does with each node and tensor.
struct Passes {
    /// The operation of the forward pass, and that of the backward pass, of each node.
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

/// A normalisation that reads what its gradient reads, and before which operation it comes.
fn again(draft: &Draft, passes: &Passes, norm: NodeId) -> Option<(usize, Operation)> {
    let (forward, at) = (&draft.operations[*passes.forward.get(&norm)?], *passes.backward.get(&norm)?);
    let backward = &draft.operations[at];
    let Action::Run { op: Op::BatchNorm(norm), .. } = &backward.action else { return None };
    let op = Op::BatchNorm(BatchNorm { activation: None, ..norm.clone() });
    let is_read = |operand: &&Operand| matches!(operand.slot, Slot::Input(_) | Slot::Saved(_));
    // Its gradient may find the input in front of another map.
    let mut reads: Vec<Operand> = forward.reads.iter().chain(&forward.writes).filter(is_read).copied().collect();
    for operand in &mut reads {
        operand.tensor = backward.read(operand.slot)?;
    }
    let writes = vec![Operand { slot: Slot::Output, tensor: forward.written(Slot::Output)? }];
    let action = Action::Run { op, pass: Pass::Again };
    Some((at, Operation { action, row: forward.row, accumulate: false, reads, writes }))
}

/// Gives what is made again tensors of its own, which `readers` read.
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

/// Brings tensors of the step into the order in which they begin, in which others are anyway and a plan is checked fastest. The number that each
/// has then.
fn sort(draft: &mut Draft) -> Vec<TensorId> {
    let mut first = vec![0; draft.tensors.len()];
    for (at, operation) in draft.operations.iter().enumerate().rev() {
        operation.tensors().for_each(|tensor| first[tensor as usize] = at);
    }
    for (tensor, first) in draft.tensors.iter().zip(&mut first) {
        if tensor.class != Class::Transient {
            *first = 0;
        }
    }
    reorder(draft, |id| first[id as usize])
}

/// Puts operations in front of others.
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
