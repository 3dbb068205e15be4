//! The forward pass: an operation for each value that the output depends on, in place if possible.

use crate::graph::{NodeId, Source};
use crate::lower::analysis::OpNode;
use crate::lower::differentiate::builder::{Blocker, Builder, numbered};
use crate::lower::options::LowerError;
use crate::program::Part;
use crate::program::op::{Inference, Saved, Work};
use crate::program::{Action, Class, Operand, Pass, Slot, TensorId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Builder<'_> {
    pub(in crate::lower) fn forward(&mut self) -> Result<(), LowerError> {
        for id in 0..self.analysis.graph.nodes.len() {
            if !self.is_of_chunk(id) {
                self.node_forward(id)?;
            }
        }
        if self.operations.is_empty() && self.chunks.iter().all(Vec::is_empty) {
            return Err(LowerError::of_all("the network computes nothing; add a layer"));
        }
        if self.training.is_none() {
            self.results = self.outputs.iter().map(|&output| self.held(output)).collect();
        }
        Ok(())
    }

    /// Adds the operation that computes a node, if it needs one.
    pub(in crate::lower) fn node_forward(&mut self, id: NodeId) -> Result<(), LowerError> {
        match &self.analysis.node(id).source {
            // Inputs have a place in the arena even if nothing reads them. Each of several named steps has only the inputs that it reads.
            Source::Input if self.analysis.graph.beside.is_none() || self.analysis.is_live(id) => self.input(id),
            Source::View(input) if self.analysis.is_live(id) => self.hold(id, self.held(*input)),
            Source::Op { .. } if self.analysis.is_live(id) => self.compute(id)?,
            Source::Input | Source::Parameter(_) | Source::View(_) | Source::Op { .. } => {}
        }
        Ok(())
    }

    fn input(&mut self, id: NodeId) {
        let value = self.analysis.value(id);
        let earlier = self.tensors.iter().filter(|tensor| tensor.class == Class::Input).count();
        let name = if earlier == 0 { "input".into() } else { format!("input{earlier}") };
        let tensor = self.given(Class::Input, name, value.elements.role(), (value.shape, value.batched));
        self.hold(id, tensor);
    }

    fn compute(&mut self, id: NodeId) -> Result<(), LowerError> {
        let Some(node) = self.analysis.op(id) else { return Ok(()) };
        self.at = id;
        let training = self.training.is_some();
        if !training && node.op.inference() == Inference::PassesOn {
            self.hold(id, self.held(node.inputs[0]));
            return Ok(());
        }
        let value = self.analysis.value(id);
        let row = node.row as u32;
        let output = match self.overwritten(id, node)? {
            Some(tensor) => tensor,
            None => self.transient(Part::Output, value.elements.role(), row, value.shape, value.batched),
        };
        let mut reads = numbered(Slot::Input, node.inputs.iter().map(|&input| self.held(input)));
        let buffers = numbered(Slot::Buffer, node.buffers.iter().filter_map(|&id| self.buffers[id]));
        reads.extend(&buffers);
        let mut writes: Vec<Operand> = [Operand { slot: Slot::Output, tensor: output }].to_vec();
        if training {
            if node.op.draws() {
                reads.extend(self.state.map(|tensor| Operand { slot: Slot::State, tensor }));
            }
            // An operation on a value that all samples share works on one sample.
            let is_saved = node.op.always_saves() || self.analysis.reads_saved(id);
            let saved = node.op.saved().into_iter().filter(|_| is_saved);
            let saved: Vec<TensorId> = saved.map(|it| self.saved_tensor(id, node, &it)).collect();
            writes.extend(numbered(Slot::Saved, saved.iter().copied()));
            writes.extend(buffers.into_iter().filter(|_| node.op.moves_statistics()));
            self.saved[id] = saved;
        }
        if node.op.is_positioned() {
            reads.extend(self.state.map(|tensor| Operand { slot: Slot::State, tensor }));
        }
        let caches = numbered(Slot::Cache, self.caches(node.op, node.row));
        reads.extend(&caches);
        writes.extend(caches);
        let work = if training { Work::Training } else { Work::Inference };
        writes.extend(self.scratch(node.op, node.row, work));
        writes.extend(self.workspace(node.op, node.row, work, value.batched));
        let pass = match self.is_of_chunk(id) {
            true if self.is_again(id) => Pass::Again,
            true => Pass::Chunk,
            false => Pass::Forward,
        };
        self.operation(Action::Run { op: node.op.clone(), pass }, row, reads, writes);
        self.hold(id, output);
        Ok(())
    }

    /// Returns the tensor for a value that an operation saves. It overwrites an input if the operation allows that and nothing else needs the
    /// input; otherwise it is new.
    fn saved_tensor(&mut self, id: NodeId, node: OpNode<'_>, saved: &Saved) -> TensorId {
        let batched = saved.batched && self.analysis.value(id).batched;
        let over = saved.over.map(|input| node.inputs[usize::from(input)]).filter(|&input| {
            let (tensor, arriving) = (self.held(input), self.analysis.value(input));
            let is_alone = node.inputs.iter().filter(|&&other| self.held(other) == tensor).count() == 1;
            is_alone
                && self.analysis.parameter(input).is_none()
                && arriving.batched == batched
                && arriving.shape.elements() == saved.shape.elements()
                && self.tensors[tensor as usize].role == saved.role
                && self.blocker(tensor, id).is_none()
        });
        match over {
            Some(input) => self.held(input),
            None => self.transient(Part::Saved, saved.role, node.row as u32, saved.shape, batched),
        }
    }

    /// Returns the tensor of the input that the output overwrites; `None` if there is none.
    fn overwritten(&self, id: NodeId, node: OpNode<'_>) -> Result<Option<TensorId>, LowerError> {
        if !node.op.in_place() {
            return Ok(None);
        }
        let value = self.analysis.value(id);
        let mut reason = None;
        for &input in node.inputs.iter().filter(|&&input| self.analysis.parameter(input).is_none()) {
            let tensor = self.held(input);
            let arriving = self.analysis.value(input);
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
            Some(blocker) if node.in_place => {
                Err(LowerError { row: Some(node.row), message: self.cannot_overwrite(blocker) })
            }
            _ => Ok(None),
        }
    }

    fn cannot_overwrite(&self, blocker: Blocker) -> String {
        let why = match blocker {
            Blocker::Layer(row) => {
                format!("`{}` still needs what would be overwritten", self.analysis.graph.rows[row].path)
            }
            Blocker::Input => "its input is the network's own input".into(),
            Blocker::Output => "its input is an output of the network".into(),
            Blocker::Loss => "the loss reads its input".into(),
        };
        format!("cannot work in place, because {why}; remove `inplace`")
    }
}
