//! The state of a lowering, and the questions that both passes ask.

use super::{LowerError, Training};
use crate::graph::{Graph, Node, NodeId, RowId, Source};
use crate::layers::Layer;
use crate::layers::rule::{Backward, Pass, Reads, Value, Workspace};
use crate::program::{Action, Class, Init, Operand, Operation, Slot, StateWord, Tensor, TensorId};
use crate::role::Role;
use crate::shape::Shape;
use crate::step::{NO_ROW, Part};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A layer's node, taken apart.
#[derive(Clone, Copy)]
pub(super) struct LayerNode<'g> {
    pub(super) layer: &'g Layer,
    /// The values it reads.
    pub(super) inputs: &'g [NodeId],
    pub(super) parameters: &'g [usize],
    pub(super) buffers: &'g [usize],
    pub(super) row: RowId,
}

/// A program under construction. Tensors are numbered as they come; [`Builder::finish`] sorts them by class.
pub(super) struct Builder<'g> {
    pub(super) graph: &'g Graph,
    pub(super) output: NodeId,
    pub(super) training: Option<Training>,
    /// Which values the output depends on.
    live: Vec<bool>,
    /// Which values a gradient is computed for.
    needs_gradient: Vec<bool>,
    /// The operations that read each value, in order.
    consumers: Vec<Vec<NodeId>>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) operations: Vec<Operation>,
    /// The tensor that holds each value. Several values share one where a layer is a view or works in place.
    pub(super) values: Vec<Option<TensorId>>,
    /// What the forward pass of each node saved.
    pub(super) saved: Vec<Vec<TensorId>>,
    pub(super) parameters: Vec<TensorId>,
    pub(super) buffers: Vec<TensorId>,
    /// Optimizer state of each parameter.
    pub(super) moments: Vec<Vec<TensorId>>,
    pub(super) state: Option<TensorId>,
    /// The tensor that holds the gradient of each value.
    pub(super) gradients: Vec<Option<TensorId>>,
    /// How many values' gradients each tensor holds that have not been used up. More than one where a sum hands its
    /// gradient to several branches as it is.
    pub(super) holders: BTreeMap<TensorId, usize>,
    pub(super) parameter_gradients: Vec<Option<TensorId>>,
    /// The tensor with the network's result.
    pub(super) result: Option<TensorId>,
}

impl<'g> Builder<'g> {
    pub(super) fn new(graph: &'g Graph, output: NodeId, training: Option<Training>) -> Result<Builder<'g>, LowerError> {
        let count = graph.nodes.len();
        let mut builder = Builder {
            graph,
            output,
            training,
            live: vec![false; count],
            needs_gradient: vec![false; count],
            consumers: vec![Vec::new(); count],
            tensors: Vec::new(),
            operations: Vec::new(),
            values: vec![None; count],
            saved: vec![Vec::new(); count],
            parameters: Vec::new(),
            buffers: Vec::new(),
            moments: Vec::new(),
            state: None,
            gradients: vec![None; count],
            holders: BTreeMap::new(),
            parameter_gradients: vec![None; graph.parameters.len()],
            result: None,
        };
        builder.mark_live();
        builder.mark_gradients();
        builder.declare();
        if training.is_some() && !builder.needs_gradient[output] {
            return Err(LowerError {
                row: None,
                message: "the network has no parameters, so there is nothing to train; \
                          use `const INFER` instead of `const TRAIN`"
                    .into(),
            });
        }
        Ok(builder)
    }

    /// Inputs come before what is computed from them, so one pass from the back finds all that the output depends on.
    fn mark_live(&mut self) {
        self.live[self.output] = true;
        for node in (0..=self.output).rev() {
            if !self.live[node] {
                continue;
            }
            for &input in self.layer(node).map_or(&[][..], |node| node.inputs) {
                self.live[input] = true;
                self.consumers[input].push(node);
            }
        }
        self.consumers.iter_mut().for_each(|consumers| consumers.reverse());
    }

    fn mark_gradients(&mut self) {
        let wanted = self.training.is_some_and(|training| training.input_gradient);
        for (id, node) in self.graph.nodes.iter().enumerate() {
            self.needs_gradient[id] = self.training.is_some()
                && match &node.source {
                    Source::Input => wanted && !node.value.index,
                    Source::Layer { inputs, parameters, .. } => {
                        !parameters.is_empty() || inputs.iter().any(|&input| self.needs_gradient[input])
                    }
                };
        }
    }

    /// Everything that lives as long as the network. All parameters are declared, in the graph's order, whether or not
    /// this program uses them: the training step and the forward pass then agree on where each one lies.
    fn declare(&mut self) {
        let graph = self.graph;
        let moments = self.training.map_or(0, |training| training.moments);
        for (name, row, parameter) in &graph.parameters {
            let id = self.tensor(Tensor {
                class: Class::Parameter,
                role: parameter.role,
                part: Part::Output,
                name: name.clone(),
                row: *row as u32,
                shape: parameter.shape,
                batched: false,
                init: parameter.init,
                first: 0,
                last: 0,
            });
            self.parameters.push(id);
            let moments = (0..moments).map(|index| {
                let owner = &self.tensors[id as usize];
                let name = format!("{name}.moment{index}");
                Tensor { class: Class::Moment, role: Role::Moment, name, init: Init::Constant(0.0), ..owner.clone() }
            });
            let moments: Vec<Tensor> = moments.collect();
            let moments = moments.into_iter().map(|moment| self.tensor(moment)).collect();
            self.moments.push(moments);
        }
        for (name, row, buffer) in &graph.buffers {
            let init = Init::Constant(buffer.value);
            let id = self.persistent(Class::Buffer, Role::Statistic, name.clone(), *row as u32, buffer.shape, init);
            self.buffers.push(id);
        }
        if self.training.is_some() {
            let shape = Shape::new(&[StateWord::COUNT as u64]);
            let init = Init::Constant(0.0);
            self.state = Some(self.persistent(Class::State, Role::State, "state".into(), NO_ROW.into(), shape, init));
        }
    }

    pub(super) fn tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        self.tensors.len() as TensorId - 1
    }

    fn persistent(&mut self, class: Class, role: Role, name: String, row: u32, shape: Shape, init: Init) -> TensorId {
        let (part, batched) = (Part::Output, false);
        self.tensor(Tensor { class, role, part, name, row, shape, batched, init, first: 0, last: 0 })
    }

    /// A tensor that lives inside the step.
    pub(super) fn transient(&mut self, part: Part, role: Role, row: u32, shape: Shape, batched: bool) -> TensorId {
        let init = Init::Constant(0.0);
        let name = String::new();
        self.tensor(Tensor { class: Class::Transient, role, part, name, row, shape, batched, init, first: 0, last: 0 })
    }

    /// The workspace of an operation, as it writes it.
    pub(super) fn workspace(&mut self, layer: &Layer, row: RowId, pass: Pass, batched: bool) -> Option<Operand> {
        let Workspace { role, shape, batched: each } = layer.workspace(pass)?;
        let tensor = self.transient(Part::Workspace, role, row as u32, shape, each && batched);
        Some(Operand { slot: Slot::Workspace, tensor })
    }

    pub(super) fn operation(&mut self, action: Action, row: u32, reads: Vec<Operand>, writes: Vec<Operand>) {
        // A gradient that is read as well as written is added to.
        let is_gradient = |slot| matches!(slot, Slot::InputGradient(_) | Slot::ParameterGradient(_));
        let accumulate = writes.iter().any(|operand| is_gradient(operand.slot) && reads.contains(operand));
        self.operations.push(Operation { action, row, accumulate, reads, writes });
    }

    pub(super) fn node(&self, id: NodeId) -> &'g Node {
        &self.graph.nodes[id]
    }

    pub(super) fn layer(&self, id: NodeId) -> Option<LayerNode<'g>> {
        match &self.graph.nodes[id].source {
            Source::Input => None,
            Source::Layer { layer, inputs, parameters, buffers, row } => {
                let inputs = if layer.ignores_input() { &[][..] } else { inputs };
                Some(LayerNode { layer, inputs, parameters, buffers, row: *row })
            }
        }
    }

    pub(super) fn is_live(&self, id: NodeId) -> bool {
        self.live[id]
    }

    pub(super) fn needs_gradient(&self, id: NodeId) -> bool {
        self.needs_gradient[id]
    }

    pub(super) fn value(&self, id: NodeId) -> Value {
        self.node(id).value
    }

    /// The tensor that holds a value which has been computed.
    pub(super) fn held(&self, id: NodeId) -> TensorId {
        self.values[id].expect("inputs come before what is computed from them")
    }

    /// What the backward pass of a node reads, over all of its operations that are needed.
    pub(super) fn backward_reads(&self, id: NodeId) -> Reads {
        let Some(node) = self.layer(id).filter(|_| self.live[id] && self.needs_gradient[id]) else {
            return Reads::default();
        };
        let inputs = node.inputs.iter().any(|&input| self.needs_gradient[input]);
        let parameters = !node.parameters.is_empty();
        match node.layer.backward() {
            Backward::Input { reads, .. } if inputs => reads,
            Backward::Input { .. } => Reads::default(),
            Backward::Parameters { reads } | Backward::Joint { reads, .. } => reads,
            Backward::Split { input, parameters: own } => {
                let none = Reads::default();
                let input = if inputs { input } else { none };
                let own = if parameters { own } else { none };
                Reads {
                    input: input.input || own.input,
                    output: input.output || own.output,
                    parameters: input.parameters || own.parameters,
                    saved: input.saved || own.saved,
                    state: input.state || own.state,
                }
            }
        }
    }

    /// Why `tensor` must not be overwritten when node `at` is computed, or `None` if it may: the layer that still needs
    /// what is in it, or no layer where it is the network's input. The network's output needs no such care: nothing that
    /// is computed after it is live.
    pub(super) fn blocker(&self, tensor: TensorId, at: NodeId) -> Option<Option<RowId>> {
        if self.tensors[tensor as usize].class != Class::Transient {
            return Some(None);
        }
        for id in (0..self.values.len()).filter(|&id| self.values[id] == Some(tensor)) {
            if self.backward_reads(id).output {
                return Some(self.layer(id).map(|node| node.row));
            }
            for &consumer in &self.consumers[id] {
                if consumer > at || self.backward_reads(consumer).input {
                    return Some(self.layer(consumer).map(|node| node.row));
                }
            }
        }
        None
    }
}

/// Operands with counted slots.
pub(super) fn numbered(slot: fn(u8) -> Slot, tensors: impl IntoIterator<Item = TensorId>) -> Vec<Operand> {
    tensors.into_iter().enumerate().map(|(index, tensor)| Operand { slot: slot(index as u8), tensor }).collect()
}
