//! The backward pass: reverse-mode differentiation of the graph, and the updates.

use crate::graph::{NodeId, Parameter, Source};
use crate::lower::analysis::OpNode;
use crate::lower::differentiate::builder::{Builder, GradientPiece, LogitsAgain, numbered};
use crate::lower::options::{LowerError, Term, Training};
use crate::lower::rewrite::chunk_logits::Again;
use crate::number::Role;
use crate::program::criterion::WEIGHTS;
use crate::program::loss::{Chunks, LossOptions, Over};
use crate::program::op::{Gradient, Reads, Work};
use crate::program::{Action, Class, Criterion, Op, Operand, Pass, Slot, TensorId};
use crate::program::{NO_ROW, Part};
use crate::shape::Shape;
use crate::train::Clip;
use crate::train::ranks::Sharding;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// The name of the tensors with divisors of terms, before their number.
const DIVISOR: &str = "divisor";

impl Builder<'_> {
    /// Returns the pieces of the backward pass in the default order. Nodes come from the last to the first, and the gradient rules of a node as
    /// they are numbered.
    pub(in crate::lower) fn pieces(&self) -> Vec<GradientPiece> {
        self.pieces_of((0..self.analysis.graph.nodes.len()).rev().filter(|&node| !self.is_of_chunk(node)))
    }

    pub(super) fn pieces_of(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<GradientPiece> {
        let mut pieces = Vec::new();
        for node in nodes {
            let is_computed = matches!(self.analysis.node(node).source, Source::View(_) | Source::Op { .. });
            if !(is_computed && self.analysis.is_live(node) && self.analysis.needs_gradient(node)) {
                continue;
            }
            let rules =
                self.analysis.op(node).filter(|_| !self.analysis.merged[node]).map(|op| (op, op.op.gradients()));
            let first = pieces.len();
            if let Some((op, rules)) = rules {
                let is_needed =
                    |rule: &Gradient| rule.inputs().any(|input| self.analysis.needs_gradient(op.inputs[input]));
                let needed = rules.iter().enumerate().filter(|(_, rule)| is_needed(rule));
                pieces.extend(needed.map(|(rule, _)| GradientPiece { node, rule }));
            }
            if pieces.len() == first {
                pieces.push(GradientPiece { node, rule: 0 });
            }
        }
        pieces
    }

    /// Adds the backward pass and the updates after the [loss](Builder::loss). The pieces may be in any order in which the gradient of a value is
    /// complete before it is used.
    pub(in crate::lower) fn backward(&mut self, training: Training<'_>, pieces: &[GradientPiece]) {
        self.waiting = pieces.iter().copied().collect();
        for &piece in pieces {
            self.begins.push(self.operations.len());
            self.piece(training, piece);
        }
        self.logits_again(training, None);
        for parameter in self.measured_parameters() {
            self.uses[parameter] -= 1;
            if self.uses[parameter] == 0 {
                self.collect(parameter);
                if !training.defers_updates() {
                    self.update(parameter);
                }
            }
        }
        if training.checks_gradients() {
            (0..self.parameters.len()).for_each(|parameter| self.check(parameter));
        }
        if training.descent.needs_norm() {
            self.norm();
        }
        if training.defers_updates() {
            (0..self.parameters.len()).for_each(|parameter| self.update(parameter));
        }
        let state: Vec<Operand> = self.state().into_iter().collect();
        self.operation(Action::Advance, NO_ROW.into(), state.clone(), state);
    }

    /// Adds a piece of the backward pass, and the update of each parameter whose gradient it completes.
    pub(super) fn piece(&mut self, training: Training<'_>, piece: GradientPiece) {
        let id = piece.node;
        if !self.again.is_empty() {
            self.logits_again(training, Some(id));
        }
        self.at = id;
        self.waiting.remove(&piece);
        let gradient = self.gradients[id].expect("whatever reads a value gives it a gradient");
        let node = self.analysis.node(id);
        match self.analysis.op(id) {
            Some(op) => self.differentiate(piece, op, gradient),
            None => self.hand_on(node.inputs()[0], gradient, node.row as u32),
        }
        if self.waits(id).next().is_some() {
            return;
        }
        self.release(gradient);
        let parameters: Vec<usize> = node.inputs().iter().filter_map(|&input| self.analysis.parameter(input)).collect();
        for parameter in parameters {
            self.uses[parameter] -= 1;
            if self.uses[parameter] == 0 {
                self.collect(parameter);
                if !training.defers_updates() {
                    self.update(parameter);
                }
            }
        }
    }

    /// Returns the gradient rules of a node that are still to come.
    fn waits(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let all = GradientPiece { node, rule: 0 }..=GradientPiece { node, rule: usize::MAX };
        self.waiting.range(all).map(|piece| piece.rule)
    }

    /// Returns the trained parameters that the loss itself reads, such as a learned scale. Their gradients are complete after the backward pass.
    fn measured_parameters(&self) -> Vec<usize> {
        let terms = self.training.map_or(&[][..], |training| training.loss);
        let nodes = terms.iter().filter_map(|term| term.values(self.outputs)).flatten();
        let mut found: Vec<usize> =
            nodes.filter(|&id| self.analysis.needs_gradient(id)).filter_map(|id| self.analysis.parameter(id)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Counts the nodes whose backward passes touch each parameter; the loss counts as one.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.parameters.len()];
        self.measured_parameters().into_iter().for_each(|parameter| uses[parameter] += 1);
        for id in (0..self.analysis.graph.nodes.len())
            .filter(|&id| self.analysis.is_live(id) && self.analysis.needs_gradient(id))
        {
            let parameters = self.analysis.node(id).inputs().iter().filter_map(|&input| self.analysis.parameter(input));
            parameters.for_each(|parameter| uses[parameter] += 1);
        }
        uses
    }

    /// Adds the terms of the loss, one after the other. Chunks of logits are computed here, and their gradients propagated before the next chunk.
    ///
    /// # Errors
    /// Those of [`Builder::forward`].
    pub(in crate::lower) fn loss(&mut self, training: Training<'_>) -> Result<(), LowerError> {
        self.uses = self.uses();
        self.at = self.analysis.graph.nodes.len() - 1;
        let mut targets = BTreeMap::new();
        let (mut loss, mut again) = (None, Vec::new());
        let outputs = self.outputs;
        let all: Vec<Vec<NodeId>> = training.loss.iter().filter_map(|term| term.values(outputs)).collect();
        let mut compared: Vec<Vec<Operand>> = Vec::new();
        for (term, values) in training.loss.iter().zip(&all) {
            let shape = self.analysis.value(values[0]).shape;
            let target = term.options.target(term.measure, shape);
            let target = target.map(|declared| self.target_of(term.target, declared, &mut targets));
            let lengths = term.lengths.filter(|_| term.over() == Over::Sequences);
            let lengths = lengths.map(|number| self.target_of(number, (Shape::new(&[]), true), &mut targets));
            let lengths = lengths.or_else(|| term.counted.map(|node| self.held(node)));
            let lengths = lengths.map(|tensor| Operand { slot: Slot::Input(1), tensor });
            let target = target.map(|tensor| Operand { slot: Slot::Target, tensor });
            let weights = term.weights.zip(term.options.weights_of(term.measure, shape));
            let weights = weights.map(|(number, shape)| self.target_of(number, (shape, false), &mut targets));
            let weights = weights.map(|tensor| Operand { slot: WEIGHTS, tensor });
            compared.push(lengths.into_iter().chain(weights).chain(target).collect());
        }
        let chunks = self.chunks;
        let is_whole = |index: usize| chunks.get(index).is_none_or(Vec::is_empty);
        // Logits in chunks never exist as a whole.
        let values: Vec<Vec<NodeId>> =
            all.iter().enumerate().map(|(index, of)| if is_whole(index) { of.clone() } else { Vec::new() }).collect();
        for (index, (term, compared)) in training.loss.iter().zip(compared).enumerate() {
            let criterion = self.criterion(term, self.analysis.value(all[index][0]).shape);
            let mut divisor = None;
            if is_whole(index) {
                self.term(&values[index..], criterion, compared, (&mut loss, &mut divisor));
                continue;
            }
            for chunk in &chunks[index] {
                chunk.nodes.clone().try_for_each(|id| self.node_forward(id))?;
                self.at = self.analysis.graph.nodes.len() - 1;
                let criterion =
                    self.criterion(term, self.analysis.value(chunk.value).shape).part_of(chunk.first, chunk.whole);
                self.term(&[vec![chunk.value]], criterion.clone(), compared.clone(), (&mut loss, &mut divisor));
                let pieces = self.pieces_of(chunk.nodes.clone().rev());
                self.waiting = pieces.iter().copied().collect();
                pieces.into_iter().for_each(|piece| self.piece(training, piece));
                again.extend(chunk.again.clone().map(|Again { nodes, value }| {
                    let (criterion, compared) = (criterion.again(), compared.clone());
                    LogitsAgain { nodes, value, criterion, compared, divisor }
                }));
            }
            self.at = self.analysis.graph.nodes.len() - 1;
        }
        self.results.extend(loss);
        self.again = again;
        Ok(())
    }

    /// Returns the criterion with which a term measures a value of this shape.
    fn criterion(&self, term: &Term, shape: Shape) -> Criterion {
        let parts = self.training.map_or(1, |training| training.descent.parts());
        let options = LossOptions { chunks: Chunks::WHOLE, ..term.options.clone() };
        Criterion::new(term.measure, term.weight_in(parts), options, shape).with_learned(term.learned())
    }

    /// Returns the target of this number, and adds it if it is new. Its shape is the one that the first term that names it needs.
    fn target_of(
        &mut self,
        number: usize,
        (shape, is_indices): (Shape, bool),
        targets: &mut BTreeMap<usize, TensorId>,
    ) -> TensorId {
        if let Some(&target) = targets.get(&number) {
            return target;
        }
        let name = if number == 0 { "target".into() } else { alloc::format!("target{number}") };
        // Targets stay as exact as they were given: bfloat16 cannot represent 1001.
        let role = if is_indices { Role::Index } else { Role::Statistic };
        let target = self.given(Class::Target, name, role, (shape, true));
        targets.insert(number, target);
        target
    }

    /// Adds a term of the loss, and the gradient of each value that it measures. Those values are the first entry of `values`; the other entries
    /// belong to later terms. A gradient overwrites its value if nothing else needs that. `compared` are the operands with which the values are
    /// compared. All terms share one loss tensor, and all chunks of a term share one divisor if the host counts it.
    pub(super) fn term(
        &mut self,
        values: &[Vec<NodeId>],
        criterion: Criterion,
        compared: Vec<Operand>,
        (loss, divisor): (&mut Option<TensorId>, &mut Option<TensorId>),
    ) {
        let mut reads = numbered(Slot::Input, values[0].iter().map(|&value| self.held(value)));
        reads.extend(compared);
        let parts = self.training.map_or(1, |training| training.descent.parts());
        let sum = loss.is_some();
        let loss = *loss.get_or_insert_with(|| {
            self.transient(Part::Output, Role::Statistic, NO_ROW.into(), Shape::new(&[]), false)
        });
        let (terms, batched) = criterion.terms();
        let workspace = self.transient(Part::Workspace, Role::Statistic, NO_ROW.into(), terms, batched);
        let total = Operand { slot: Slot::Loss, tensor: loss };
        if sum {
            reads.push(total);
        }
        let mut writes = vec![total];
        for (number, &measured) in values[0].iter().enumerate() {
            if !self.analysis.needs_gradient(measured) {
                continue;
            }
            let value = self.held(measured);
            let measurements = values.iter().flatten().filter(|&&other| self.held(other) == value).count();
            let is_free = criterion.overwrites()
                && self.tensors[value as usize].class == Class::Transient
                && measurements == 1
                && !self.is_kept(value)
                && !self.feeds_chunks(value)
                && !self.holders.contains_key(&value);
            writes.push(self.target(measured, number as u8, &mut reads, is_free.then_some(value)));
        }
        writes.push(Operand { slot: Slot::Workspace, tensor: workspace });
        if parts > 1 && criterion.counts() {
            // No micro-batch knows the targets of the others. The divisor comes after all targets, since the host counts those that it was given.
            let tensor = *divisor.get_or_insert_with(|| {
                let divisors = self.tensors.iter().filter(|tensor| tensor.name.starts_with(DIVISOR)).count();
                let name = alloc::format!("{DIVISOR}{divisors}");
                self.given(Class::Target, name, Role::Statistic, (Shape::new(&[]), true))
            });
            reads.push(Operand { slot: Slot::Saved(0), tensor });
        }
        let is_given = parts > 1 && criterion.counts();
        for (number, (shape, batched)) in criterion.saved().into_iter().enumerate().skip(usize::from(is_given)) {
            let saved = self.transient(Part::Workspace, Role::Statistic, NO_ROW.into(), shape, batched);
            writes.push(Operand { slot: Slot::Saved(number as u8), tensor: saved });
        }
        self.operation(Action::Loss(criterion), NO_ROW.into(), reads, writes);
    }

    /// Adds the operations that propagate a node's gradient to some of its inputs.
    fn differentiate(&mut self, GradientPiece { node: id, rule }: GradientPiece, node: OpNode<'_>, gradient: TensorId) {
        if self.analysis.merged[id] {
            return self.give(node.inputs[0], gradient);
        }
        match node.op.gradients().get(rule) {
            Some(Gradient::Passes(input)) if self.analysis.needs_gradient(node.inputs[usize::from(*input)]) => {
                self.pass_on(id, node, *input, gradient);
            }
            Some(Gradient::Computed { of, in_place }) => {
                let needs = |input: u8| self.analysis.needs_gradient(node.inputs[usize::from(input)]);
                let is_needed = of.iter().any(|(input, _)| needs(*input));
                let computed = |input: u8| needs(input) || is_needed && node.op.works_in_gradient(input);
                let of: Vec<(u8, Reads)> = of.iter().copied().filter(|(input, _)| computed(*input)).collect();
                // Rules that come later still read the gradient of the output.
                let is_last = self.waits(id).next().is_none();
                let overwrite = (*in_place && is_last).then_some(gradient);
                if !of.is_empty() {
                    self.compute_gradients(id, node, gradient, rule, &of, overwrite);
                }
            }
            Some(Gradient::Passes(_)) | None => {}
        }
    }

    /// Hands the gradient of the output to an input unchanged, or summed over the batch if the input has none.
    fn pass_on(&mut self, id: NodeId, node: OpNode<'_>, index: u8, gradient: TensorId) {
        let (input, row) = (node.inputs[usize::from(index)], node.row as u32);
        if self.analysis.value(input).batched == self.analysis.value(id).batched {
            return self.hand_on(input, gradient, row);
        }
        let mut reads = vec![Operand { slot: Slot::Gradient, tensor: gradient }];
        let write = self.target(input, 0, &mut reads, None);
        self.operation(Action::SumBatch, row, reads, vec![write]);
    }

    /// Adds one operation for the gradients of some inputs: gradient rule number `index` of the operation.
    fn compute_gradients(
        &mut self,
        id: NodeId,
        node: OpNode<'_>,
        gradient: TensorId,
        index: usize,
        of: &[(u8, Reads)],
        overwrite: Option<TensorId>,
    ) {
        let mut reads = vec![Operand { slot: Slot::Gradient, tensor: gradient }];
        reads.extend(self.kept(id, node, of));
        let mut writes = Vec::new();
        for &(input, _) in of {
            let overwrite = self.saved_over(id, node, input).or(overwrite);
            writes.push(self.target(node.inputs[usize::from(input)], input, &mut reads, overwrite));
        }
        writes.extend(self.scratch(node.op, node.row, Work::Gradient(index)));
        // No gradient flows through running statistics: a normalisation that uses them sums for its own trained parameters alone.
        let rests = matches!(node.op, Op::BatchNorm(norm) if norm.eval);
        let adds_up = !rests || of.iter().any(|(input, _)| *input > 0);
        if adds_up {
            writes.extend(self.workspace(node.op, node.row, Work::Gradient(index), self.analysis.value(id).batched));
        }
        let action = Action::Run { op: self.analysis.differentiated(id, node.op), pass: Pass::Backward };
        self.operation(action, node.row as u32, reads, writes);
    }

    /// Returns the saved tensor that overwrote an input; `None` if there is none, or a later gradient rule reads it. The gradient of the input
    /// then overwrites the tensor.
    pub(in crate::lower) fn saved_over(&self, id: NodeId, node: OpNode<'_>, input: u8) -> Option<TensorId> {
        let saved = node.op.saved().iter().position(|saved| saved.over == Some(input))?;
        let tensor = *self.saved[id].get(saved)?;
        let rules = node.op.gradients();
        let reads_saved = |rule: usize| match rules.get(rule) {
            Some(Gradient::Computed { of, .. }) => of.iter().any(|(_, reads)| reads.saved),
            Some(Gradient::Passes(_)) | None => false,
        };
        let is_there = tensor == self.held(node.inputs[usize::from(input)]);
        (is_there && !self.waits(id).any(reads_saved)).then_some(tensor)
    }

    /// Returns the operands that gradients read besides the gradient of the output.
    fn kept(&self, id: NodeId, node: OpNode<'_>, of: &[(u8, Reads)]) -> Vec<Operand> {
        let any = |read: fn(&Reads) -> bool| of.iter().any(|(_, reads)| read(reads));
        let is_read = |input: &usize| of.iter().any(|(_, reads)| reads.inputs.contains(*input));
        let inputs = (0..node.inputs.len()).filter(is_read);
        let mut operands: Vec<Operand> = inputs
            .map(|input| Operand { slot: Slot::Input(input as u8), tensor: self.held(node.inputs[input]) })
            .collect();
        if any(|reads| reads.output) {
            operands.push(Operand { slot: Slot::Output, tensor: self.held(id) });
        }
        if any(|reads| reads.saved) {
            operands.extend(numbered(Slot::Saved, self.saved[id].iter().copied()));
        }
        if any(|reads| reads.state) {
            operands.extend(self.state.map(|tensor| Operand { slot: Slot::State, tensor }));
        }
        operands
    }

    /// Returns where the gradient of `input` is written: a new tensor, or the existing one, which is then read too. A new gradient overwrites the
    /// tensor `overwrite` if it has the right size and nothing else holds it.
    fn target(&mut self, input: NodeId, index: u8, reads: &mut Vec<Operand>, overwrite: Option<TensorId>) -> Operand {
        let value = self.analysis.value(input);
        let slot = Slot::InputGradient(index);
        if let Some(parameter) = self.analysis.parameter(input) {
            return self.parameter_target(parameter, slot, reads);
        }
        if self.gradients[input].is_some() {
            let tensor = self.exclusive(input);
            let operand = Operand { slot, tensor };
            reads.push(operand);
            return operand;
        }
        let fits = |tensor: &TensorId| {
            let held = &self.tensors[*tensor as usize];
            self.holders.get(tensor).is_none_or(|&holders| holders == 1)
                && held.batched == value.batched
                && held.shape.elements() == value.shape.elements()
        };
        let tensor = overwrite.filter(fits).unwrap_or_else(|| self.gradient_tensor(input));
        self.give(input, tensor);
        Operand { slot, tensor }
    }

    fn gradient_tensor(&mut self, id: NodeId) -> TensorId {
        let (value, row) = (self.analysis.value(id), self.analysis.row(id));
        self.transient(Part::OutputGradient, Role::Activation, row, value.shape, value.batched)
    }

    /// Hands a gradient on to an input unchanged, or adds it to the one that the input has.
    fn hand_on(&mut self, input: NodeId, gradient: TensorId, row: u32) {
        if !self.analysis.needs_gradient(input) {
            return;
        }
        if let Some(parameter) = self.analysis.parameter(input) {
            let mut reads = vec![Operand { slot: Slot::Gradient, tensor: gradient }];
            let write = self.parameter_target(parameter, Slot::InputGradient(0), &mut reads);
            return self.operation(Action::SumBatch, row, reads, vec![write]);
        }
        if self.gradients[input].is_none() {
            return self.give(input, gradient);
        }
        let sum = Operand { slot: Slot::Output, tensor: self.exclusive(input) };
        let reads = vec![Operand { slot: Slot::Input(0), tensor: gradient }, sum];
        self.operation(Action::Accumulate, row, reads, vec![sum]);
    }

    /// Returns the tensor with the gradient of `id`, copied first if it holds gradients of other values, too.
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

    /// Records that one value fewer has its gradient in `tensor`.
    fn release(&mut self, tensor: TensorId) {
        if let Some(count) = self.holders.get_mut(&tensor) {
            *count -= 1;
        }
    }

    /// Returns where the gradient of a parameter is written. One that exists already is added to.
    fn parameter_target(&mut self, parameter: usize, slot: Slot, reads: &mut Vec<Operand>) -> Operand {
        match self.parameter_gradients[parameter] {
            Some(tensor) => {
                let operand = Operand { slot, tensor };
                reads.push(operand);
                operand
            }
            None => {
                let operand = Operand { slot, tensor: self.new_parameter_gradient(parameter) };
                // The sum over earlier micro-batches is in it.
                let is_sum = self.training.is_some_and(|training| training.descent.accumulates());
                reads.extend((is_sum && !self.is_collected(parameter)).then_some(operand));
                operand
            }
        }
    }

    fn new_parameter_gradient(&mut self, parameter: usize) -> TensorId {
        let declared = &self.analysis.graph.parameters[parameter];
        let (role, shape) = (declared.role, declared.shape);
        let tensor = self.transient(Part::ParameterGradient, role, declared.row as u32, shape, false);
        self.parameter_gradients[parameter] = Some(tensor);
        if !self.is_collected(parameter) {
            self.keep_gradient(parameter, tensor);
        }
        tensor
    }

    /// Names the tensor with a parameter's gradient. It lives until the end of the step if updates come only there.
    fn keep_gradient(&mut self, parameter: usize, gradient: TensorId) {
        let held = &mut self.tensors[gradient as usize];
        held.name = alloc::format!("{}.gradient", self.analysis.graph.parameters[parameter].name);
        if self.training.is_some_and(|training| training.holds_gradients()) {
            held.class = Class::Gradient;
        }
    }

    /// True if gradients of a parameter have 16 bits in each micro-batch, and their sum is in f32.
    fn has_wide_sum(&self, parameter: usize) -> bool {
        self.training.is_some_and(|training| training.descent.wide_sums)
            && self.analysis.graph.parameters[parameter].role.has_master()
    }

    /// True if the sum of a parameter's gradients over micro-batches is another tensor than each of them: it is in f32, or a rank's shard.
    fn is_collected(&self, parameter: usize) -> bool {
        let Some(Training { descent, .. }) = self.training.filter(|training| training.descent.accumulates()) else {
            return false;
        };
        let Parameter { role, shape, .. } = self.analysis.graph.parameters[parameter];
        let kept = descent.ranks.of_gradient(role, shape.elements().unwrap_or(u64::MAX));
        self.has_wide_sum(parameter) || matches!(kept, Sharding::Sharded(_))
    }

    /// Adds a complete gradient to the sum over earlier micro-batches, if that sum is another tensor.
    fn collect(&mut self, parameter: usize) {
        let Some(gradient) = self.parameter_gradients[parameter].filter(|_| self.is_collected(parameter)) else {
            return;
        };
        let declared = &self.analysis.graph.parameters[parameter];
        let (row, shape) = (declared.row as u32, declared.shape);
        let role = if self.has_wide_sum(parameter) { Role::Statistic } else { declared.role };
        let sum = self.transient(Part::ParameterGradient, role, row, shape, false);
        self.keep_gradient(parameter, sum);
        self.parameter_gradients[parameter] = Some(sum);
        let total = Operand { slot: Slot::ParameterGradient, tensor: sum };
        let reads = vec![Operand { slot: Slot::Gradient, tensor: gradient }, total];
        self.operation(Action::Collect, row, reads, vec![total]);
    }

    /// Adds a check that the gradient of a parameter is finite.
    fn check(&mut self, parameter: usize) {
        let Some(gradient) = self.parameter_gradients[parameter] else { return };
        let row = self.analysis.graph.parameters[parameter].row as u32;
        let state: Vec<Operand> = self.state().into_iter().collect();
        let mut reads = vec![Operand { slot: Slot::ParameterGradient, tensor: gradient }];
        reads.extend(&state);
        self.operation(Action::Check, row, reads, state);
    }

    /// Adds the norm of all gradients. It is computed from sums of squares of pieces, which are stored one gradient after the other.
    fn norm(&mut self) {
        let all = self.parameter_gradients.iter().enumerate();
        let gradients: Vec<(usize, TensorId)> =
            all.filter_map(|(index, gradient)| Some((index, (*gradient)?))).collect();
        let pieces = |id: TensorId| Clip::pieces(self.tensors[id as usize].shape);
        let firsts = gradients.iter().scan(0u64, |next, &(_, gradient)| {
            let first = *next;
            *next = first.saturating_add(pieces(gradient));
            Some(first)
        });
        let firsts: Vec<u64> = firsts.collect();
        let count = gradients.iter().fold(0, |sum: u64, &(_, gradient)| sum.saturating_add(pieces(gradient)));
        let sums = self.transient(Part::Workspace, Role::Statistic, NO_ROW.into(), Shape::new(&[count]), false);
        self.tensors[sums as usize].name = "squares of gradients".into();
        let (sums, state) = (Operand { slot: Slot::Workspace, tensor: sums }, self.state());
        for ((parameter, tensor), first) in gradients.into_iter().zip(firsts) {
            let row = self.analysis.graph.parameters[parameter].row as u32;
            let mut reads = vec![Operand { slot: Slot::ParameterGradient, tensor }];
            reads.extend(state);
            self.operation(Action::Squares(first), row, reads, vec![sums]);
        }
        let writes: Vec<Operand> = state.into_iter().collect();
        let reads = [&[sums], &writes[..]].concat();
        self.operation(Action::Norm, NO_ROW.into(), reads, writes);
    }

    fn update(&mut self, parameter: usize) {
        let (Some(gradient), Some(tensor)) = (self.parameter_gradients[parameter], self.parameters[parameter]) else {
            return;
        };
        let row = self.analysis.graph.parameters[parameter].row as u32;
        let mut writes = vec![Operand { slot: Slot::Parameter, tensor }];
        writes.extend(numbered(Slot::Moment, self.moments[parameter].iter().copied()));
        let mut reads = writes.clone();
        reads.push(Operand { slot: Slot::ParameterGradient, tensor: gradient });
        reads.extend(self.state());
        self.operation(Action::Update, row, reads, writes);
    }

    fn state(&self) -> Option<Operand> {
        self.state.map(|tensor| Operand { slot: Slot::State, tensor })
    }
}
