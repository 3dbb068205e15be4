//! The backward pass: reverse-mode differentiation of the graph, and the updates.

use super::Training;
use super::builder::{Builder, LayerNode, numbered};
use crate::graph::NodeId;
use crate::layers::Layer;
use crate::layers::rule::{Backward, Pass, Reads};
use crate::program::{Action, Class, Criterion, Init, Measure, Operand, Slot, Tensor, TensorId};
use crate::role::Role;
use crate::shape::{Shape, product};
use crate::step::{NO_ROW, Part};
use crate::train::Update;
use alloc::vec;
use alloc::vec::Vec;

impl Builder<'_> {
    pub(super) fn backward(&mut self, training: Training) {
        self.loss(training);
        let mut uses = self.uses();
        for id in (0..=self.output).rev() {
            let Some(node) = self.layer(id).filter(|_| self.is_live(id) && self.needs_gradient(id)) else { continue };
            let gradient = self.gradients[id].expect("a layer gives a gradient to every value that it reads");
            self.differentiate(id, node, gradient);
            self.release(gradient);
            for &parameter in node.parameters {
                uses[parameter] -= 1;
                if uses[parameter] == 0 && training.update == Update::Fused {
                    self.update(parameter);
                }
            }
        }
        if training.update == Update::Separate {
            for parameter in 0..self.parameters.len() {
                // Held gradients have a place each, even that of a parameter that the output does not depend on.
                match self.parameter_gradients[parameter] {
                    Some(_) => self.update(parameter),
                    None => _ = self.new_parameter_gradient(parameter),
                }
            }
        }
        let state = self.state.map(|tensor| Operand { slot: Slot::State, tensor });
        let state: Vec<Operand> = state.into_iter().collect();
        self.operation(Action::Advance, NO_ROW.into(), state.clone(), state);
    }

    /// How many nodes' backward passes touch each parameter.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.parameters.len()];
        for id in (0..=self.output).filter(|&id| self.is_live(id) && self.needs_gradient(id)) {
            let parameters = self.layer(id).map_or(&[][..], |node| node.parameters);
            parameters.iter().for_each(|&parameter| uses[parameter] += 1);
        }
        uses
    }

    /// The loss and the gradient of the output, which overwrites the output where nothing else needs that.
    fn loss(&mut self, training: Training) {
        let value = self.value(self.output);
        let output = self.held(self.output);
        let criterion = criterion(training.loss, value.shape);
        let (role, shape) = match training.loss {
            Measure::CrossEntropy => (Role::Index, target_shape(value.shape)),
            Measure::Mse | Measure::Dot => (Role::Activation, value.shape),
        };
        let target = self.tensor(Tensor {
            class: Class::Target,
            role,
            part: Part::Output,
            name: "target".into(),
            row: NO_ROW.into(),
            shape,
            batched: true,
            init: Init::Constant(0.0),
            first: 0,
            last: 0,
        });
        let loss = self.transient(Part::Output, Role::Statistic, NO_ROW.into(), Shape::new(&[]), false);
        let (terms, batched) = criterion.terms();
        let workspace = self.transient(Part::Workspace, Role::Statistic, NO_ROW.into(), terms, batched);
        let holds_output = |id: &NodeId| self.values[*id] == Some(output);
        // That a layer's backward pass reads it as an input cannot be: that layer would come after the output, or work in
        // place on what its backward pass reads.
        let kept = (0..=self.output).filter(holds_output).any(|id| self.backward_reads(id).output);
        let in_place = !kept && self.tensors[output as usize].class == Class::Transient;
        let gradient = if in_place {
            output
        } else {
            let row = self.layer(self.output).map_or(NO_ROW.into(), |node| node.row as u32);
            self.transient(Part::OutputGradient, Role::Activation, row, value.shape, value.batched)
        };
        let reads =
            vec![Operand { slot: Slot::Input(0), tensor: output }, Operand { slot: Slot::Target, tensor: target }];
        let writes = vec![
            Operand { slot: Slot::Loss, tensor: loss },
            Operand { slot: Slot::InputGradient(0), tensor: gradient },
            Operand { slot: Slot::Workspace, tensor: workspace },
        ];
        self.operation(Action::Loss(criterion), NO_ROW.into(), reads, writes);
        self.result = Some(loss);
        self.give(self.output, gradient);
    }

    /// The operations that carry a node's gradient on to its inputs and parameters.
    fn differentiate(&mut self, id: NodeId, node: LayerNode<'_>, gradient: TensorId) {
        match node.layer {
            layer if layer.is_view() => self.hand_on(node.inputs[0], gradient, node.row as u32),
            Layer::Add(_) => self.split_sum(id, node, gradient),
            Layer::Mul(_) => self.split_product(node, gradient),
            Layer::Concat(_) => {
                for branch in 0..node.inputs.len() {
                    self.branch_gradient(node, gradient, branch, &[], false);
                }
            }
            layer => match layer.backward() {
                Backward::Input { reads, in_place } => self.input_gradient(id, node, gradient, reads, in_place),
                Backward::Parameters { reads } => self.parameter_gradient(id, node, gradient, reads),
                Backward::Split { input, parameters } => {
                    // Parameters first: what only they read is then free before the gradient of the input exists.
                    self.parameter_gradient(id, node, gradient, parameters);
                    self.input_gradient(id, node, gradient, input, false);
                }
                Backward::Joint { reads, in_place } => self.joint_gradient(id, node, gradient, reads, in_place),
            },
        }
    }

    /// A sum hands its gradient to each branch as it is, summed over the batch for a branch without one.
    fn split_sum(&mut self, id: NodeId, node: LayerNode<'_>, gradient: TensorId) {
        let row = node.row as u32;
        for &input in node.inputs {
            if !self.needs_gradient(input) {
                continue;
            }
            if self.value(input).batched == self.value(id).batched {
                self.hand_on(input, gradient, row);
                continue;
            }
            let mut reads = vec![Operand { slot: Slot::Gradient, tensor: gradient }];
            let write = self.target(input, 0, &mut reads, None);
            self.operation(Action::SumBatch, row, reads, vec![write]);
        }
    }

    /// Each factor's gradient is the gradient times the other factor.
    fn split_product(&mut self, node: LayerNode<'_>, gradient: TensorId) {
        for branch in 0..2 {
            let other = 1 - branch;
            let factor = Operand { slot: Slot::Input(other as u8), tensor: self.held(node.inputs[other]) };
            // The second branch is the last to read the gradient.
            let last = branch == 1 || !self.needs_gradient(node.inputs[1]);
            self.branch_gradient(node, gradient, branch, &[factor], last);
        }
    }

    fn branch_gradient(
        &mut self,
        node: LayerNode<'_>,
        gradient: TensorId,
        branch: usize,
        extra: &[Operand],
        in_place: bool,
    ) {
        let input = node.inputs[branch];
        if !self.needs_gradient(input) {
            return;
        }
        let mut reads = vec![Operand { slot: Slot::Gradient, tensor: gradient }];
        reads.extend(extra);
        let write = self.target(input, branch as u8, &mut reads, in_place.then_some(gradient));
        self.operation(Action::BackwardInput(node.layer.clone()), node.row as u32, reads, vec![write]);
    }

    fn input_gradient(&mut self, id: NodeId, node: LayerNode<'_>, gradient: TensorId, reads: Reads, in_place: bool) {
        let input = node.inputs[0];
        if !self.needs_gradient(input) {
            return;
        }
        let mut operands = self.backward_operands(id, node, gradient, reads);
        let mut writes = vec![self.target(input, 0, &mut operands, in_place.then_some(gradient))];
        writes.extend(self.workspace(node.layer, node.row, Pass::BackwardInput, self.value(id).batched));
        self.operation(Action::BackwardInput(node.layer.clone()), node.row as u32, operands, writes);
    }

    fn parameter_gradient(&mut self, id: NodeId, node: LayerNode<'_>, gradient: TensorId, reads: Reads) {
        let mut operands = self.backward_operands(id, node, gradient, reads);
        let mut writes = self.parameter_targets(node, &mut operands);
        writes.extend(self.workspace(node.layer, node.row, Pass::BackwardParameters, self.value(id).batched));
        self.operation(Action::BackwardParameters(node.layer.clone()), node.row as u32, operands, writes);
    }

    fn joint_gradient(&mut self, id: NodeId, node: LayerNode<'_>, gradient: TensorId, reads: Reads, in_place: bool) {
        let mut operands = self.backward_operands(id, node, gradient, reads);
        let mut writes = self.parameter_targets(node, &mut operands);
        if self.needs_gradient(node.inputs[0]) {
            writes.push(self.target(node.inputs[0], 0, &mut operands, in_place.then_some(gradient)));
        }
        writes.extend(self.workspace(node.layer, node.row, Pass::Backward, self.value(id).batched));
        self.operation(Action::Backward(node.layer.clone()), node.row as u32, operands, writes);
    }

    /// What a backward operation reads.
    fn backward_operands(&self, id: NodeId, node: LayerNode<'_>, gradient: TensorId, reads: Reads) -> Vec<Operand> {
        let mut operands = vec![Operand { slot: Slot::Gradient, tensor: gradient }];
        if reads.input {
            operands.extend(numbered(Slot::Input, node.inputs.iter().map(|&input| self.held(input))));
        }
        if reads.output {
            operands.push(Operand { slot: Slot::Output, tensor: self.held(id) });
        }
        if reads.parameters {
            operands.extend(numbered(Slot::Parameter, node.parameters.iter().map(|&id| self.parameters[id])));
        }
        if reads.saved {
            operands.extend(numbered(Slot::Saved, self.saved[id].iter().copied()));
        }
        if reads.state {
            operands.extend(self.state.map(|tensor| Operand { slot: Slot::State, tensor }));
        }
        operands
    }

    /// Where the gradient of `input` goes: a new tensor, or the one that is there already, which is then read too. With
    /// `overwrite`, the gradient that comes in may be overwritten if nothing else holds it.
    fn target(&mut self, input: NodeId, index: u8, reads: &mut Vec<Operand>, overwrite: Option<TensorId>) -> Operand {
        let value = self.value(input);
        let slot = Slot::InputGradient(index);
        if self.gradients[input].is_some() {
            let tensor = self.exclusive(input);
            let operand = Operand { slot, tensor };
            reads.push(operand);
            return operand;
        }
        let fits = |tensor: &TensorId| {
            let held = &self.tensors[*tensor as usize];
            self.holders.get(tensor) == Some(&1)
                && held.batched == value.batched
                && held.shape.elements() == value.shape.elements()
        };
        let tensor = overwrite.filter(fits).unwrap_or_else(|| self.gradient_tensor(input));
        self.give(input, tensor);
        Operand { slot, tensor }
    }

    fn gradient_tensor(&mut self, id: NodeId) -> TensorId {
        let value = self.value(id);
        let row = self.layer(id).map_or(NO_ROW.into(), |node| node.row as u32);
        self.transient(Part::OutputGradient, Role::Activation, row, value.shape, value.batched)
    }

    /// Hands a gradient on as it is.
    fn hand_on(&mut self, input: NodeId, gradient: TensorId, row: u32) {
        if !self.needs_gradient(input) {
            return;
        }
        if self.gradients[input].is_none() {
            return self.give(input, gradient);
        }
        let sum = Operand { slot: Slot::Output, tensor: self.exclusive(input) };
        let reads = vec![Operand { slot: Slot::Input(0), tensor: gradient }, sum];
        self.operation(Action::Accumulate, row, reads, vec![sum]);
    }

    /// The tensor with the gradient of `id`, copied if other values' gradients are in the same tensor.
    fn exclusive(&mut self, id: NodeId) -> TensorId {
        let shared = self.gradients[id].expect("asked only where there is a gradient");
        if self.holders.get(&shared) == Some(&1) {
            return shared;
        }
        let copy = self.gradient_tensor(id);
        let row = self.tensors[copy as usize].row;
        let reads = vec![Operand { slot: Slot::Input(0), tensor: shared }];
        self.operation(Action::Copy, row, reads, vec![Operand { slot: Slot::Output, tensor: copy }]);
        self.release(shared);
        self.give(id, copy);
        copy
    }

    /// Makes `tensor` the holder of the gradient of `id`.
    fn give(&mut self, id: NodeId, tensor: TensorId) {
        self.gradients[id] = Some(tensor);
        *self.holders.entry(tensor).or_default() += 1;
    }

    /// One value fewer has its gradient in `tensor`.
    fn release(&mut self, tensor: TensorId) {
        if let Some(count) = self.holders.get_mut(&tensor) {
            *count -= 1;
        }
    }

    /// Where the gradients of a node's parameters go: those that exist already are added to.
    fn parameter_targets(&mut self, node: LayerNode<'_>, reads: &mut Vec<Operand>) -> Vec<Operand> {
        let mut writes = Vec::new();
        for (index, &parameter) in node.parameters.iter().enumerate() {
            let slot = Slot::ParameterGradient(index as u8);
            let tensor = match self.parameter_gradients[parameter] {
                Some(tensor) => {
                    reads.push(Operand { slot, tensor });
                    tensor
                }
                None => self.new_parameter_gradient(parameter),
            };
            writes.push(Operand { slot, tensor });
        }
        writes
    }

    fn new_parameter_gradient(&mut self, parameter: usize) -> TensorId {
        let (name, row, declared) = &self.graph.parameters[parameter];
        let (role, shape) = (declared.role, declared.shape);
        let tensor = self.transient(Part::ParameterGradient, role, *row as u32, shape, false);
        let held = &mut self.tensors[tensor as usize];
        held.name = alloc::format!("{name}.gradient");
        if self.training.is_some_and(|training| training.update == Update::Separate) {
            held.class = Class::Gradient;
        }
        self.parameter_gradients[parameter] = Some(tensor);
        tensor
    }

    fn update(&mut self, parameter: usize) {
        let Some(gradient) = self.parameter_gradients[parameter] else { return };
        let row = self.graph.parameters[parameter].1 as u32;
        let mut writes = vec![Operand { slot: Slot::Parameter(0), tensor: self.parameters[parameter] }];
        writes.extend(numbered(Slot::Moment, self.moments[parameter].iter().copied()));
        let mut reads = writes.clone();
        reads.push(Operand { slot: Slot::ParameterGradient(0), tensor: gradient });
        reads.extend(self.state.map(|tensor| Operand { slot: Slot::State, tensor }));
        self.operation(Action::Update, row, reads, writes);
    }
}

/// The loss over outputs of this shape: classes are the channels of a map and the last axis of anything else.
fn criterion(kind: Measure, shape: Shape) -> Criterion {
    let dims = shape.dims();
    match (kind, dims) {
        (Measure::CrossEntropy, &[classes, height, width]) => {
            Criterion { kind, outer: 1, classes, inner: product(&[height, width]) }
        }
        (Measure::CrossEntropy, &[.., classes]) => {
            Criterion { kind, outer: product(&dims[..dims.len() - 1]), classes, inner: 1 }
        }
        _ => Criterion { kind, outer: product(dims), classes: 1, inner: 1 },
    }
}

/// Dimensions of the class indices that belong to logits of this shape.
fn target_shape(shape: Shape) -> Shape {
    match shape.dims() {
        &[_, height, width] => Shape::new(&[height, width]),
        [rest @ .., _] => Shape::new(rest),
        [] => shape,
    }
}
