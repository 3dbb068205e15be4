//! The encoding of a graph as bytes, for tools that lower it again.

use super::{Buffer, Elements, Graph, Node, Parameter, Row, Source, SourceLines, Type};
use crate::program::encoding::{Reader, Wire, wire_enum, wire_struct};
use crate::program::op::{Gradient, Op, Reads};
use alloc::vec::Vec;

wire_enum!(Elements { Numbers, Indices, Bytes });
wire_struct!(Type { shape, elements, batched });
wire_struct!(Parameter { name, row, shape, role, init });
wire_struct!(Buffer { name, row, shape, init });
wire_struct!(Node { value, source, row, detached });
wire_struct!(Row { path, kind, output, parameters, parameter_ids, buffer_ids });

impl Wire for Source {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Source::Input => 0u64.put(out),
            Source::Parameter(parameter) => {
                1u64.put(out);
                parameter.put(out);
            }
            Source::View(node) => {
                2u64.put(out);
                node.put(out);
            }
            Source::Op { op, inputs, buffers, in_place } => {
                3u64.put(out);
                op.put(out);
                inputs.put(out);
                buffers.put(out);
                in_place.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Source> {
        match u64::take(from)? {
            0 => Some(Source::Input),
            1 => Wire::take(from).map(Source::Parameter),
            2 => Wire::take(from).map(Source::View),
            3 => Some(Source::Op {
                op: Wire::take(from)?,
                inputs: Wire::take(from)?,
                buffers: Wire::take(from)?,
                in_place: Wire::take(from)?,
            }),
            _ => None,
        }
    }
}

impl Wire for Graph {
    fn put(&self, out: &mut Vec<u8>) {
        self.nodes.put(out);
        self.rows.put(out);
        self.parameters.put(out);
        self.buffers.put(out);
        self.groups.put(out);
    }

    /// Reads a graph. All its indices must name something in it, its shapes must be those of its operations, and nodes read earlier nodes.
    fn take(from: &mut Reader<'_>) -> Option<Graph> {
        let graph = Graph {
            nodes: Wire::take(from)?,
            rows: Wire::take(from)?,
            parameters: Wire::take(from)?,
            buffers: Wire::take(from)?,
            groups: Wire::take(from)?,
            lines: SourceLines::default(),
            loras: Vec::new(),
            beside: None,
        };
        graph.is_connected().then_some(graph)
    }
}

impl Graph {
    fn is_connected(&self) -> bool {
        let [rows, parameters, buffers] = [self.rows.len(), self.parameters.len(), self.buffers.len()];
        let node = |(id, node): (usize, &Node)| {
            let has_row = node.row < rows || node.source == Source::Input;
            let owned = match &node.source {
                Source::Parameter(parameter) => *parameter < parameters,
                Source::Op { op, inputs, buffers: own, .. } => {
                    own.iter().all(|buffer| *buffer < buffers)
                        && op.output() == node.value.shape
                        && gradients_are_of_inputs(op, inputs.len())
                }
                Source::Input | Source::View(_) => true,
            };
            has_row && owned && node.inputs().iter().all(|input| *input < id)
        };
        let row = |row: &Row| {
            row.parameter_ids.iter().all(|id| *id < parameters) && row.buffer_ids.iter().all(|id| *id < buffers)
        };
        self.nodes.iter().enumerate().all(node)
            && self.rows.iter().all(row)
            && self.parameters.iter().all(|parameter| parameter.row < rows)
            && self.buffers.iter().all(|buffer| buffer.row < rows)
    }
}

/// True if an operation with `inputs` inputs has all those that its gradient rules name.
fn gradients_are_of_inputs(op: &Op, inputs: usize) -> bool {
    let all_are_there =
        |of: &[(u8, Reads)]| of.iter().all(|(_, reads)| !(inputs..64).any(|input| reads.inputs.contains(input)));
    op.gradients().iter().all(|gradient| {
        let reads = match gradient {
            Gradient::Passes(_) => &[][..],
            Gradient::Computed { of, .. } => of,
        };
        gradient.inputs().all(|input| input < inputs) && all_are_there(reads)
    })
}
