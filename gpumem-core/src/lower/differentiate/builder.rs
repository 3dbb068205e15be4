//! The builder of a program, and the questions that the forward and the backward pass ask of it.

use crate::graph::{Beside, Graph, Node, NodeId, RowId, Source};
use crate::lower::analysis::activation_slopes::Activations;
use crate::lower::analysis::{Analysis, reachable};
use crate::lower::draft::Draft;
use crate::lower::options::{LowerError, Training};
use crate::lower::rewrite::chunk_logits::Chunk;
use crate::number::Role;
use crate::program::cache_entry::CacheEntry;
use crate::program::op::{Work, Workspace};
use crate::program::{Action, Class, Criterion, Init, Op, Operand, Operation, Slot, StateWord, Tensor, TensorId};
use crate::program::{NO_ROW, Part};
use crate::shape::Shape;
use crate::train::optim::{Extent, extent_of, state_count};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A program under construction. Tensors are numbered as they are created; [`finish`](crate::lower::emit::finish()) sorts them by class.
#[derive(Clone)]
pub(in crate::lower) struct Builder<'g> {
    pub(in crate::lower) analysis: Analysis<'g>,
    pub(in crate::lower) outputs: &'g [NodeId],
    pub(in crate::lower) training: Option<Training<'g>>,
    /// The chunks of each term of the loss. Their operations come between the terms of the loss.
    pub(in crate::lower) chunks: &'g [Vec<Chunk>],
    pub(in crate::lower) tensors: Vec<Tensor>,
    pub(in crate::lower) operations: Vec<Operation>,
    /// For each operation, the node whose value it computes or whose gradient it propagates.
    pub(in crate::lower) nodes: Vec<NodeId>,
    /// The node that is being lowered.
    pub(in crate::lower) at: NodeId,
    /// The tensor that holds each value; `None` before it is computed. Several values share one if one is a view or works in place.
    values: Vec<Option<TensorId>>,
    /// The values that each tensor holds. A tensor without an entry holds none.
    holds: BTreeMap<TensorId, Vec<NodeId>>,
    /// The tensors that the forward pass of each node saved for the backward pass.
    pub(in crate::lower) saved: Vec<Vec<TensorId>>,
    /// The tensor of each parameter and running statistic; `None` if neither the ends nor the outputs depend on it.
    pub(in crate::lower) parameters: Vec<Option<TensorId>>,
    pub(in crate::lower) buffers: Vec<Option<TensorId>>,
    /// The optimizer state tensors of each trained parameter.
    pub(in crate::lower) moments: Vec<Vec<TensorId>>,
    pub(in crate::lower) state: Option<TensorId>,
    /// The tensor that holds the gradient of each value; `None` before there is one.
    pub(in crate::lower) gradients: Vec<Option<TensorId>>,
    /// The number of values whose gradients each tensor holds and that are not used up yet. It is above 1 after a sum, which hands its gradient
    /// to several branches unchanged.
    pub(in crate::lower) holders: BTreeMap<TensorId, usize>,
    pub(in crate::lower) parameter_gradients: Vec<Option<TensorId>>,
    /// The number of nodes whose backward passes are still to touch each parameter.
    pub(in crate::lower) uses: Vec<usize>,
    /// The pieces of the backward pass that are still to come. `begins` has the first index in `operations` of those that have come.
    pub(in crate::lower) waiting: BTreeSet<GradientPiece>,
    pub(in crate::lower) begins: Vec<usize>,
    /// The logits that are still to be computed a second time.
    pub(in crate::lower) again: Vec<LogitsAgain>,
    /// The tensors with the network's outputs, or in training the one with the loss.
    pub(in crate::lower) results: Vec<TensorId>,
}

/// A piece of the backward pass: one gradient rule of a node's operation, by its number. A node that hands its gradient on unchanged has one
/// piece, number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lower) struct GradientPiece {
    pub(in crate::lower) node: NodeId,
    pub(in crate::lower) rule: usize,
}

/// A chunk of the logits that is computed again during the backward pass, for the gradients of weights that the head shares.
#[derive(Clone, Debug)]
pub(in crate::lower) struct LogitsAgain {
    pub(in crate::lower) nodes: Range<NodeId>,
    /// The node with the logits.
    pub(in crate::lower) value: NodeId,
    pub(in crate::lower) criterion: Criterion,
    /// The operands with which logits are compared, and the divisor if the host counts it.
    pub(in crate::lower) compared: Vec<Operand>,
    pub(in crate::lower) divisor: Option<TensorId>,
}

/// The reason why a tensor must not be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) enum Blocker {
    /// A layer that still needs it.
    Layer(RowId),
    /// The network's own input is in it.
    Input,
    /// An output of the network is in it.
    Output,
    /// The loss measures what is in it.
    Loss,
}

impl<'g> Builder<'g> {
    pub(in crate::lower) fn new(
        graph: &'g Graph,
        outputs: &'g [NodeId],
        ends: Vec<NodeId>,
        training: Option<Training<'g>>,
        activations: Activations,
    ) -> Result<Builder<'g>, LowerError> {
        let count = graph.nodes.len();
        let mut builder = Builder {
            analysis: Analysis::new(graph, ends, training, activations),
            outputs,
            training,
            chunks: &[],
            tensors: Vec::new(),
            operations: Vec::new(),
            nodes: Vec::new(),
            at: 0,
            values: vec![None; count],
            holds: BTreeMap::new(),
            saved: vec![Vec::new(); count],
            parameters: vec![None; graph.parameters.len()],
            buffers: vec![None; graph.buffers.len()],
            moments: vec![Vec::new(); graph.parameters.len()],
            state: None,
            gradients: vec![None; count],
            holders: BTreeMap::new(),
            parameter_gradients: vec![None; graph.parameters.len()],
            uses: vec![0; graph.parameters.len()],
            waiting: BTreeSet::new(),
            begins: Vec::new(),
            again: Vec::new(),
            results: Vec::new(),
        };
        builder.declare();
        let trains = builder.analysis.has_gradient();
        if let Some(step) = graph.beside.as_ref().and_then(Beside::name).filter(|_| !trains) {
            let message = format!(
                "the loss of `{step}` depends on nothing that it trains; name in `trains` what lies before the loss"
            );
            return Err(LowerError::of_all(&message));
        }
        if training.is_some() && !trains {
            let detaches = |node: &Node| node.detached && matches!(node.source, Source::View(_));
            return Err(LowerError::of_all(if graph.parameters.is_empty() {
                "the network has no parameters, so there is nothing to train; use `const INFER` instead of `const TRAIN`"
            } else if graph.nodes.iter().any(detaches) {
                "the loss depends on no parameter that is trained; remove a `detach`, take `freeze` off a layer, or use `const INFER`"
            } else {
                "the loss depends on no parameter that is trained; take `freeze` off a layer, or use `const INFER`"
            }));
        }
        Ok(builder)
    }

    /// Declares all tensors that live as long as the network, in the graph's order. A training step also declares what only its forward pass
    /// without training depends on.
    fn declare(&mut self) {
        let graph = self.analysis.graph;
        let mut all = self.analysis.ends.clone();
        all.extend(self.outputs);
        let is_there = reachable(graph, &all);
        // A parameter that the loss does not depend on is not trained. Without training, one that another program may train counts as trained.
        let (mut parameters, mut buffers) = (vec![None; graph.parameters.len()], vec![false; graph.buffers.len()]);
        for (id, node) in graph.nodes.iter().enumerate().filter(|(id, _)| is_there[*id]) {
            match &node.source {
                Source::Parameter(parameter) => {
                    let is_trained = match self.training {
                        Some(_) => self.analysis.is_live(id) && self.analysis.needs_gradient(id),
                        None => !node.detached,
                    };
                    *parameters[*parameter].get_or_insert(false) |= is_trained;
                }
                Source::Op { buffers: read, .. } => read.iter().for_each(|&buffer| buffers[buffer] = true),
                Source::Input | Source::View(_) => {}
            }
        }
        let beside = graph.beside.as_ref().filter(|_| self.training.is_some());
        if let Some(Beside { parameters: others, buffers: own, .. }) = beside {
            // Parameters and statistics that only other steps read have their places in this program, too.
            let missing = parameters.iter_mut().zip(others).filter(|(_, is_there)| **is_there);
            missing.for_each(|(trained, _)| *trained = Some(trained.unwrap_or(false)));
            buffers.iter_mut().zip(own).for_each(|(read, is_there)| *read |= is_there);
        }
        for (index, trained) in parameters.into_iter().enumerate() {
            if let Some(trained) = trained {
                self.declare_parameter(index, trained);
            }
        }
        for (node, id) in graph.nodes.iter().zip(&mut self.values) {
            if let Source::Parameter(parameter) = node.source {
                *id = self.parameters[parameter];
            }
        }
        for (index, buffer) in graph.buffers.iter().enumerate().filter(|(index, _)| buffers[*index]) {
            let (name, row, init) = (buffer.name.clone(), buffer.row as u32, buffer.init);
            let id = self.persistent(Class::Buffer, Role::Statistic, name, row, buffer.shape, init);
            self.buffers[index] = Some(id);
        }
        let is_positioned = |(id, node): (usize, &Node)| match &node.source {
            Source::Op { op, .. } => is_there[id] && op.is_positioned(),
            _ => false,
        };
        match beside {
            Some(Beside { steps, at, .. }) => {
                let states: Vec<TensorId> =
                    steps.iter().map(|step| self.declare_state(format!("{}.state", step.name))).collect();
                self.state = at.and_then(|at| states.get(at).copied());
            }
            None if self.training.is_some() || graph.nodes.iter().enumerate().any(is_positioned) => {
                self.state = Some(self.declare_state("state".into()));
            }
            None => {}
        }
    }

    fn declare_state(&mut self, name: String) -> TensorId {
        let shape = Shape::new(&[StateWord::COUNT as u64]);
        self.persistent(Class::State, Role::State, name, NO_ROW.into(), shape, Init::Constant(0.0))
    }

    fn declare_parameter(&mut self, index: usize, trained: bool) {
        let graph = self.analysis.graph;
        let parameter = &graph.parameters[index];
        let (name, row) = (parameter.name.clone(), parameter.row as u32);
        let id = self.persistent(Class::Parameter, parameter.role, name, row, parameter.shape, parameter.init);
        self.parameters[index] = Some(id);
        let beside = graph.beside.as_ref().filter(|_| self.training.is_some());
        self.tensors[id as usize].trained = trained || beside.is_some_and(|beside| beside.is_trained(index));
        let Some(beside) = beside else {
            let moments = self.training.filter(|_| trained).map_or(0, |training| training.moments);
            self.moments[index] = self.declare_moments(index, &parameter.name, moments);
            if trained && self.training.is_some_and(|training| training.descent.ema.is_some()) {
                // A 16-bit average would lose updates of a thousandth of its value.
                let (name, role) = (average_name(&parameter.name), Role::WideMoment);
                self.persistent(Class::Average, role, name, row, parameter.shape, Init::Constant(0.0));
            }
            return;
        };
        for (number, step) in beside.steps.iter().enumerate() {
            let is_own = beside.at == Some(number);
            let has_states = if is_own { trained } else { step.trained[index] };
            let moments = if has_states { step.moments } else { 0 };
            let states = self.declare_moments(index, &format!("{}.{}", parameter.name, step.name), moments);
            if is_own {
                self.moments[index] = states;
            }
        }
    }

    /// Declares the optimizer states of a parameter. `moments` encodes how many an optimizer keeps: see [`state_count`].
    fn declare_moments(&mut self, index: usize, name: &str, moments: u64) -> Vec<TensorId> {
        let parameter = &self.analysis.graph.parameters[index];
        let mut states = Vec::new();
        for moment in 0..state_count(moments) {
            let extent = extent_of(moments, moment);
            if extent == Extent::Others && self.is_matrix(index) {
                continue;
            }
            let Some((shape, role)) = extent.tensor(parameter.shape) else { continue };
            let name = format!("{name}.moment{moment}");
            let init = Init::Constant(0.0);
            states.push(self.persistent(Class::Moment, role, name, parameter.row as u32, shape, init));
        }
        states
    }

    /// True if a parameter is a weight matrix of a hidden layer. All of its readers are products, convolutions or recurrences with it as their
    /// weight, and none of them makes an output.
    fn is_matrix(&self, parameter: usize) -> bool {
        let is_it = |id: &NodeId| self.analysis.parameter(*id) == Some(parameter);
        let mut readers = self.analysis.graph.nodes.iter().filter(|node| node.inputs().iter().any(is_it));
        let multiplies = |node: &Node| match &node.source {
            Source::Op { op, inputs, .. } => {
                let is_weight = matches!(op, Op::Product(_) | Op::Convolution(_) | Op::NormalizedConvolution(_))
                    && inputs.get(1).is_some_and(is_it);
                is_weight || matches!(op, Op::Recurrence(_) | Op::WholeRecurrence(_))
            }
            _ => false,
        };
        let is_head = || self.outputs.iter().any(|&output| self.head(output).iter().any(is_it));
        self.analysis.graph.parameters[parameter].shape.rank() > 1 && readers.all(multiplies) && !is_head()
    }

    /// Returns the inputs of the last operation before an output that reads more than one value. Its weight is among them.
    fn head(&self, output: NodeId) -> &'g [NodeId] {
        let mut node = self.analysis.node(output);
        while let &[only] = node.inputs() {
            node = self.analysis.node(only);
        }
        node.inputs()
    }

    /// Declares the cache entries that an operation keeps from one run to the next.
    pub(in crate::lower) fn caches(&mut self, op: &Op, row: RowId) -> Vec<TensorId> {
        let path = &self.analysis.graph.rows[row].path;
        let cache = |CacheEntry { name, shape, role, .. }: CacheEntry| {
            let (name, row, init) = (format!("{path}.{name}"), row as u32, Init::Constant(0.0));
            let id = self.persistent(Class::Cache, role, name, row, shape, init);
            self.tensors[id as usize].batched = true;
            id
        };
        op.caches().into_iter().map(cache).collect()
    }

    pub(in crate::lower) fn tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        self.tensors.len() as TensorId - 1
    }

    fn persistent(&mut self, class: Class, role: Role, name: String, row: u32, shape: Shape, init: Init) -> TensorId {
        let tensor = Tensor::transient(Part::Output, role, row, shape);
        self.tensor(Tensor { class, name, init, ..tensor })
    }

    /// Adds a tensor that lives inside the step.
    pub(in crate::lower) fn transient(
        &mut self,
        part: Part,
        role: Role,
        row: u32,
        shape: Shape,
        batched: bool,
    ) -> TensorId {
        self.tensor(Tensor { batched, ..Tensor::transient(part, role, row, shape) })
    }

    /// Adds a tensor that the host fills.
    pub(in crate::lower) fn given(
        &mut self,
        class: Class,
        name: String,
        role: Role,
        (shape, batched): (Shape, bool),
    ) -> TensorId {
        let tensor = Tensor::transient(Part::Output, role, NO_ROW.into(), shape);
        self.tensor(Tensor { class, name, batched, ..tensor })
    }

    /// Adds the workspace of an operation, as the operand that it writes. `None` if it needs no workspace.
    pub(in crate::lower) fn workspace(&mut self, op: &Op, row: RowId, work: Work, batched: bool) -> Option<Operand> {
        let Workspace { role, shape, batched: each } = op.workspace(work)?;
        let once = op.workspace_once(work);
        let tensor = self.transient(Part::Workspace, role, row as u32, shape, each && batched);
        self.tensors[tensor as usize].once = once;
        Some(Operand { slot: Slot::Workspace, tensor })
    }

    /// Adds the scratch tensors that an operation uses during one kind of work.
    pub(in crate::lower) fn scratch(&mut self, op: &Op, row: RowId, work: Work) -> Vec<Operand> {
        let all = op.scratch(work);
        let tensors: Vec<TensorId> =
            all.iter().map(|it| self.transient(Part::Workspace, it.role, row as u32, it.shape, it.batched)).collect();
        numbered(Slot::Scratch, tensors)
    }

    pub(in crate::lower) fn operation(&mut self, action: Action, row: u32, reads: Vec<Operand>, writes: Vec<Operand>) {
        // A gradient that is read as well as written is added to.
        let is_gradient = |slot| matches!(slot, Slot::InputGradient(_));
        let accumulate = writes.iter().any(|operand| is_gradient(operand.slot) && reads.contains(operand));
        self.operations.push(Operation { action, row, accumulate, reads, writes });
        self.nodes.push(self.at);
    }

    /// True if a node is computed for one chunk of the logits.
    pub(in crate::lower) fn is_of_chunk(&self, id: NodeId) -> bool {
        self.chunks.iter().flatten().any(|chunk| chunk.nodes.contains(&id)) || self.is_again(id)
    }

    /// True if a node computes logits a second time.
    pub(in crate::lower) fn is_again(&self, id: NodeId) -> bool {
        let mut all = self.chunks.iter().flatten().filter_map(|chunk| chunk.again.as_ref());
        all.any(|again| again.nodes.contains(&id))
    }

    /// Returns the tensor that holds a value. Panics if the value has not been computed.
    pub(in crate::lower) fn held(&self, id: NodeId) -> TensorId {
        self.values[id].expect("inputs come before what is computed from them")
    }

    /// Records which tensor holds a value.
    pub(in crate::lower) fn hold(&mut self, id: NodeId, tensor: TensorId) {
        self.values[id] = Some(tensor);
        self.holds.entry(tensor).or_default().push(id);
    }

    /// Returns the tensor that holds a value; `None` before it is computed.
    pub(in crate::lower) fn holder(&self, id: NodeId) -> Option<TensorId> {
        self.values[id]
    }

    fn held_by(&self, tensor: TensorId) -> &[NodeId] {
        self.holds.get(&tensor).map_or(&[], Vec::as_slice)
    }

    /// Returns why `tensor` must not be overwritten when node `at` is computed; `None` if it may be.
    pub(in crate::lower) fn blocker(&self, tensor: TensorId, at: NodeId) -> Option<Blocker> {
        if self.tensors[tensor as usize].class != Class::Transient {
            return Some(Blocker::Input);
        }
        for &id in self.held_by(tensor) {
            if self.analysis.reads_output(id) {
                return Some(Blocker::Layer(self.analysis.node(id).row));
            }
            for &consumer in &self.analysis.consumers[id] {
                if consumer > at || self.analysis.reads_input(consumer, id) {
                    return Some(Blocker::Layer(self.analysis.node(consumer).row));
                }
            }
            if self.analysis.ends.contains(&id) {
                return Some(if self.training.is_some() { Blocker::Loss } else { Blocker::Output });
            }
        }
        None
    }

    /// True if a chunk of the logits is computed from the value in `tensor`.
    pub(in crate::lower) fn feeds_chunks(&self, tensor: TensorId) -> bool {
        let reads = |&id: &NodeId| self.analysis.consumers[id].iter().any(|&consumer| self.is_of_chunk(consumer));
        self.held_by(tensor).iter().any(reads)
    }

    /// True if a gradient reads the value in `tensor`.
    pub(in crate::lower) fn is_kept(&self, tensor: TensorId) -> bool {
        self.held_by(tensor).iter().any(|&id| {
            self.analysis.reads_output(id)
                || self.analysis.consumers[id].iter().any(|&consumer| self.analysis.reads_input(consumer, id))
        })
    }

    /// Returns the draft that was built, before its updates are gathered.
    pub(in crate::lower) fn into_draft(mut self) -> Draft {
        let input_gradients = self.name_input_gradients();
        let Builder { tensors, operations, results, nodes, .. } = self;
        Draft { tensors, operations, results, input_gradients, nodes, prefixes: Vec::new() }
    }

    /// Names the gradients of inputs after the inputs, and returns them. Inputs whose gradients are one tensor share the first one's name.
    fn name_input_gradients(&mut self) -> Vec<TensorId> {
        let mut named = Vec::new();
        for id in 0..self.analysis.graph.nodes.len() {
            let (Source::Input, Some(gradient), Some(input)) =
                (&self.analysis.node(id).source, self.gradients[id], self.holder(id))
            else {
                continue;
            };
            if !named.contains(&gradient) {
                self.tensors[gradient as usize].name = format!("{}.gradient", self.tensors[input as usize].name);
                named.push(gradient);
            }
        }
        named
    }
}

/// Returns operands with numbered slots, one for each tensor.
pub(in crate::lower) fn numbered(slot: fn(u8) -> Slot, tensors: impl IntoIterator<Item = TensorId>) -> Vec<Operand> {
    tensors.into_iter().enumerate().map(|(index, tensor)| Operand { slot: slot(index as u8), tensor }).collect()
}

/// Returns the name of the average of the parameter of this name.
pub(in crate::lower) fn average_name(parameter: &str) -> String {
    format!("{parameter}.average")
}
