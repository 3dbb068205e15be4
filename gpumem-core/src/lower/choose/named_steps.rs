//! Several training steps for parts of one network: the parameters of each, and the tensors that all programs declare.

use crate::graph::{Beside, Graph, NodeId, Source, StepStates};
use crate::lower::analysis::{needs_gradient, reachable};
use crate::lower::choose::blueprint::{Blueprint, PartStep, Parts, Steps};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;

impl Blueprint {
    /// Returns the network with step `number` as the one that is lowered. `None` if it has no step of this number.
    pub fn step(&self, number: usize) -> Option<Blueprint> {
        let training = self.parts.all.get(number)?.steps.clone();
        let parts = Parts { at: number, all: self.parts.all.clone() };
        Some(Blueprint { training: Some(training), parts, ..self.clone() })
    }

    /// Returns the blueprint of each step; the blueprint itself if the network has no named steps.
    pub fn steps(&self) -> Vec<Blueprint> {
        match self.parts.all.len() {
            0 => vec![self.clone()],
            count => (0..count).filter_map(|number| self.step(number)).collect(),
        }
    }

    /// Returns the name of the constant of the step that is lowered. `None` if the network has no named steps.
    pub fn step_name(&self) -> Option<&str> {
        self.parts.all.get(self.parts.at).map(|part| part.name.as_str())
    }

    /// Returns the graph of the step that is lowered. Gradients go to the parameters that it trains, and to no others.
    pub(in crate::lower) fn trained_graph(&self) -> Cow<'_, Graph> {
        self.graph_beside(Some(self.parts.at))
    }

    /// Returns the graph of a forward pass.
    pub(in crate::lower) fn forward_graph(&self) -> Cow<'_, Graph> {
        self.graph_beside(None)
    }

    fn graph_beside(&self, at: Option<usize>) -> Cow<'_, Graph> {
        if self.parts.all.is_empty() {
            return Cow::Borrowed(&self.graph);
        }
        let mut graph = match at.and_then(|at| self.parts.all.get(at)) {
            Some(part) => self.graph_of(part),
            None => self.graph.clone(),
        };
        graph.beside = Some(self.beside(at));
        Cow::Owned(graph)
    }

    /// Returns the graph with all parameters frozen that a step does not train.
    fn graph_of(&self, part: &PartStep) -> Graph {
        let mut graph = self.graph.clone();
        let is_trained: Vec<bool> = graph.parameters.iter().map(|parameter| part.names(&parameter.name)).collect();
        for node in &mut graph.nodes {
            if let Source::Parameter(parameter) = node.source {
                node.detached |= !is_trained[parameter];
            }
        }
        graph
    }

    fn beside(&self, at: Option<usize>) -> Beside {
        let graph = &self.graph;
        let losses = self.parts.all.iter().map(|part| self.measured(&part.steps));
        let ends: Vec<NodeId> = losses.flatten().chain(self.outputs.iter().copied()).collect();
        let (mut parameters, mut buffers) = (vec![false; graph.parameters.len()], vec![false; graph.buffers.len()]);
        for (node, is_read) in graph.nodes.iter().zip(reachable(graph, &ends)) {
            match &node.source {
                Source::Parameter(parameter) => parameters[*parameter] |= is_read,
                Source::Op { buffers: read, .. } => read.iter().for_each(|&buffer| buffers[buffer] |= is_read),
                Source::Input | Source::View(_) => {}
            }
        }
        let states = |part: &PartStep| StepStates {
            name: part.name.clone(),
            moments: part.steps.moments,
            trained: self.trained_by(part),
        };
        Beside { parameters, buffers, steps: self.parts.all.iter().map(states).collect(), at }
    }

    /// True for each parameter that a step trains: `trains` names it, and the step's loss has a gradient of it.
    pub fn trained_by(&self, part: &PartStep) -> Vec<bool> {
        let (graph, ends) = (self.graph_of(part), self.measured(&part.steps));
        let live = reachable(&graph, &ends);
        let needs = needs_gradient(&graph, &ends, &live, false);
        let mut trained = vec![false; graph.parameters.len()];
        for (id, node) in graph.nodes.iter().enumerate() {
            if let Source::Parameter(parameter) = node.source {
                trained[parameter] |= live[id] && needs[id];
            }
        }
        trained
    }

    /// True for each input that the loss of a step depends on.
    pub fn inputs_of(&self, part: &PartStep) -> Vec<bool> {
        let counted = part.steps.loss.iter().filter_map(|term| term.counted);
        self.inputs_before(&self.measured(&part.steps).into_iter().chain(counted).collect::<Vec<_>>())
    }

    /// True for each input that one of these values depends on.
    pub fn inputs_before(&self, ends: &[NodeId]) -> Vec<bool> {
        let live = reachable(&self.graph, ends);
        let inputs = self.graph.nodes.iter().zip(live).filter(|(node, _)| node.source == Source::Input);
        inputs.map(|(_, is_read)| is_read).collect()
    }

    /// Returns the values that a loss measures.
    fn measured(&self, steps: &Steps) -> Vec<NodeId> {
        steps.loss.iter().filter_map(|term| term.values(&self.outputs)).flatten().collect()
    }
}
