//! Graphs as text for people: one line a node.

use super::{Elements, Graph, Node, Source, Type};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph: {} nodes, {} parameters", self.nodes.len(), self.parameters.len())?;
        let sources: Vec<String> = self.nodes.iter().map(|node| self.source_text(node)).collect();
        let width = sources.iter().map(String::len).max().unwrap_or(0);
        for (id, (node, source)) in self.nodes.iter().zip(sources).enumerate() {
            writeln!(f, "{id:>4}  {source:<width$}  {}", type_text(&node.value))?;
        }
        for [first, end] in &self.groups {
            writeln!(f, "recomputed: nodes {first} to {}", end.saturating_sub(1))?;
        }
        Ok(())
    }
}

impl Graph {
    /// Returns the source of a node in texts: `linear0 Product #0 #1 #2`, where `#0` is node 0.
    fn source_text(&self, node: &Node) -> String {
        let path = self.rows.get(node.row).map_or("network", |row| row.path.as_str());
        let read: String = node.inputs().iter().map(|input| format!(" #{input}")).collect();
        match &node.source {
            Source::Input => "input".into(),
            Source::Parameter(number) => {
                let name = self.parameters.get(*number).map_or("parameter", |parameter| parameter.name.as_str());
                format!("{name}{}", if node.detached { " frozen" } else { "" })
            }
            Source::View(_) => format!("{path} {}{read}", if node.detached { "detach" } else { "view" }),
            Source::Op { op, in_place, .. } => {
                format!("{path} {}{read}{}", op.name(), if *in_place { " inplace" } else { "" })
            }
        }
    }
}

fn type_text(value: &Type) -> String {
    let kind = match value.elements {
        Elements::Numbers => "number",
        Elements::Indices => "index",
        Elements::Bytes => "byte",
    };
    format!("{kind} {}{}", if value.batched { "B x " } else { "" }, value.shape)
}
