//! Loops over the time steps of sequences.

use super::Writer;
use super::file::{body, inner, int, list};
use crate::read::onnx::proto::{GraphProto, NodeProto};

/// A loop whose body is being written. It has states `[B, ..]`, reads one time step of each sequence `[B, T, ..]`, and makes one sequence.
pub(super) struct Scan {
    outer: Vec<NodeProto>,
    /// The values before the loop: states, then sequences.
    given: Vec<String>,
    /// The names of these values in the body.
    inputs: Vec<String>,
    states: usize,
    is_reverse: bool,
    /// The states after a step, and the step's row of the result.
    pub(super) results: Vec<String>,
}

impl Scan {
    /// Begins the body: what is added next belongs to it.
    pub(super) fn begin(writer: &mut Writer<'_>, states: &[String], sequences: &[String], is_reverse: bool) -> Scan {
        let given = [states, sequences].concat();
        let place = writer.place.clone();
        let inputs = given.iter().map(|_| writer.unique(&format!("/{place}/step"))).collect();
        let outer = std::mem::take(&mut writer.nodes);
        Scan { outer, given, inputs, states: states.len(), is_reverse, results: Vec::new() }
    }

    /// Returns the name of a state, or of the current time step of a sequence.
    pub(super) fn input(&self, at: usize) -> String {
        self.inputs[at].clone()
    }

    /// Ends the body, and returns the sequence that the loop makes.
    pub(super) fn end(self, writer: &mut Writer<'_>) -> String {
        let nodes = std::mem::replace(&mut writer.nodes, self.outer);
        let name = writer.unique(&format!("/{}/Scan", writer.place));
        let sequences = self.inputs.len() - self.states;
        let graph = GraphProto {
            name: Some(format!("{name}_body")),
            node: nodes,
            input: self.inputs.iter().map(|name| inner(name)).collect(),
            output: self.results.iter().map(|name| inner(name)).collect(),
            ..GraphProto::default()
        };
        let direction = u64::from(self.is_reverse);
        let output: Vec<String> = (0..self.results.len()).map(|at| format!("{name}_output_{at}")).collect();
        let result = output.last().cloned().unwrap_or_default();
        writer.nodes.push(NodeProto {
            op_type: Some("Scan".into()),
            name: Some(name),
            input: self.given,
            output,
            attribute: vec![
                body("body", graph),
                int("num_scan_inputs", sequences as i64),
                list("scan_input_axes", vec![1; sequences]),
                list("scan_input_directions", vec![direction; sequences]),
                list("scan_output_axes", [1]),
                list("scan_output_directions", [direction]),
            ],
            ..NodeProto::default()
        });
        result
    }
}
