//! The forward pass: one operation a layer, in place where that is asked for or provably free.

use super::LowerError;
use super::builder::{Builder, LayerNode, numbered};
use crate::graph::{NodeId, RowId, Source};
use crate::layers::rule::{Inference, Pass};
use crate::program::{Action, Class, Init, Operand, Slot, Tensor, TensorId};
use crate::role::Role;
use crate::step::{NO_ROW, Part};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Builder<'_> {
    pub(super) fn forward(&mut self) -> Result<(), LowerError> {
        for id in 0..self.graph.nodes.len() {
            match &self.node(id).source {
                // Inputs have a place in the arena whether or not anything reads them.
                Source::Input => self.input(id),
                Source::Layer { .. } if self.is_live(id) => self.compute(id)?,
                Source::Layer { .. } => {}
            }
        }
        if self.operations.is_empty() {
            return Err(LowerError { row: None, message: "the network computes nothing; add a layer".into() });
        }
        if self.training.is_none() {
            self.result = self.values[self.output];
        }
        Ok(())
    }

    fn input(&mut self, id: NodeId) {
        let value = self.value(id);
        let role = if value.index { Role::Index } else { Role::Activation };
        let earlier = self.tensors.iter().filter(|tensor| tensor.class == Class::Input).count();
        let name = if earlier == 0 { "input".into() } else { format!("input{earlier}") };
        let tensor = self.tensor(Tensor {
            class: Class::Input,
            role,
            part: Part::Output,
            name,
            row: NO_ROW.into(),
            shape: value.shape,
            batched: value.batched,
            init: Init::Constant(0.0),
            first: 0,
            last: 0,
        });
        self.values[id] = Some(tensor);
    }

    fn compute(&mut self, id: NodeId) -> Result<(), LowerError> {
        let Some(node) = self.layer(id) else { return Ok(()) };
        let training = self.training.is_some();
        let passes_on = !training && node.layer.inference() == Inference::PassesOn;
        if node.layer.is_view() || passes_on {
            self.values[id] = Some(self.held(node.inputs[0]));
            return Ok(());
        }
        let output = match self.overwritten(id, node)? {
            Some(tensor) => tensor,
            None => {
                let value = self.value(id);
                self.transient(Part::Output, Role::Activation, node.row as u32, value.shape, value.batched)
            }
        };
        let inputs = node.inputs.iter().map(|&input| self.held(input));
        let mut reads = numbered(Slot::Input, inputs);
        reads.extend(numbered(Slot::Parameter, node.parameters.iter().map(|&id| self.parameters[id])));
        let buffers = numbered(Slot::Buffer, node.buffers.iter().map(|&id| self.buffers[id]));
        reads.extend(&buffers);
        let mut writes: Vec<Operand> = [Operand { slot: Slot::Output, tensor: output }].to_vec();
        if training {
            if node.layer.draws() {
                reads.extend(self.state.map(|tensor| Operand { slot: Slot::State, tensor }));
            }
            let row = node.row as u32;
            // A layer on a value that all samples share works on one sample.
            let batched = self.value(id).batched;
            let saved = node.layer.saved().into_iter();
            let saved = saved.map(|it| self.transient(Part::Saved, it.role, row, it.shape, it.batched && batched));
            let saved: Vec<TensorId> = saved.collect();
            writes.extend(numbered(Slot::Saved, saved.iter().copied()));
            writes.extend(buffers);
            self.saved[id] = saved;
        }
        let pass = if training { Pass::Forward } else { Pass::Inference };
        writes.extend(self.workspace(node.layer, node.row, pass, self.value(id).batched));
        self.operation(Action::Forward(node.layer.clone()), node.row as u32, reads, writes);
        self.values[id] = Some(output);
        Ok(())
    }

    /// The input that the output overwrites, if any.
    fn overwritten(&self, id: NodeId, node: LayerNode<'_>) -> Result<Option<TensorId>, LowerError> {
        if !node.layer.in_place() {
            return Ok(None);
        }
        let value = self.value(id);
        let mut reason = None;
        for &input in node.inputs {
            let tensor = self.held(input);
            let arriving = self.value(input);
            let alone = node.inputs.iter().filter(|&&other| self.held(other) == tensor).count() == 1;
            if !alone || arriving.batched != value.batched || arriving.shape.elements() != value.shape.elements() {
                continue;
            }
            match self.blocker(tensor, id) {
                None => return Ok(Some(tensor)),
                Some(blocker) => reason = Some(blocker),
            }
        }
        match reason {
            Some(blocker) if node.layer.asks_in_place() => {
                Err(LowerError { row: Some(node.row), message: self.cannot_overwrite(blocker) })
            }
            _ => Ok(None),
        }
    }

    fn cannot_overwrite(&self, blocker: Option<RowId>) -> String {
        match blocker {
            Some(row) => format!(
                "cannot work in place, because `{}` still needs what would be overwritten; remove `inplace`",
                self.graph.rows[row].path
            ),
            None => "cannot work in place, because its input is the network's own input; remove `inplace`".into(),
        }
    }
}
