//! Adding a layer to a graph.

use super::builder::{Builder, Scope, Value};
use super::mistake::{At, Mistake};
use super::{Entry, Written};
use crate::graph::{Graph, NodeId, RowId};
use alloc::string::String;
use alloc::vec::Vec;

/// What came of a layer.
#[derive(Clone, Debug)]
pub struct Built {
    /// What it produces; after a mistake what it most probably would. `None` where that is open.
    pub value: Option<NodeId>,
    /// Its row, if it has one.
    pub row: Option<RowId>,
    /// What is wrong with it.
    pub mistakes: Vec<Mistake>,
}

impl Graph {
    /// Adds a layer. `owner` is the row whose parameters it shares, if any.
    ///
    /// A layer with mistakes is added as it was probably meant, if that is clear: the checks of what follows go on from it.
    pub fn layer(
        &mut self,
        entry: &Entry,
        written: &[Written],
        inputs: &[NodeId],
        path: String,
        owner: Option<RowId>,
    ) -> Built {
        let reading = entry.read(written);
        let mut mistakes = reading.mistakes;
        let before = (self.nodes.len(), self.parameters.len(), self.buffers.len());
        let mut built = None;
        if let Some(mistake) = entry.wrong_count(inputs.len()) {
            mistakes.push(mistake);
        } else if !reading.is_open {
            let values: Vec<Value> = inputs.iter().map(|&node| Value::of(self, node)).collect();
            let mut builder = Builder::new(self, Scope { path, kind: entry.name, owner });
            let value = reading.layer.build(&mut builder, &values);
            let (found, row) = builder.finish(value);
            mistakes.extend(found);
            built = row;
        }
        // Arguments are pointed at where they were written.
        for mistake in &mut mistakes {
            if let At::Argument(name) = mistake.at {
                let written = reading.names.iter().position(|known| *known == Some(name));
                mistake.at = written.map_or(At::Layer, At::Written);
            }
        }
        match built {
            Some((row, value)) => {
                self.rows.push(row);
                Built { value: Some(value), row: Some(self.rows.len() - 1), mistakes }
            }
            None => {
                let (nodes, parameters, buffers) = before;
                self.nodes.truncate(nodes);
                self.parameters.truncate(parameters);
                self.buffers.truncate(buffers);
                // A join of too few or too many is most probably the first.
                let is_first = entry.keeps_shape || entry.wrong_count(inputs.len()).is_some();
                let value = inputs.first().copied().filter(|&input| is_first && !self.value(input).index);
                Built { value, row: None, mistakes }
            }
        }
    }
}
