//! The stages as text, for people who change one of them.

use crate::graph::{Graph, NodeId};
use crate::lower::draft::Draft;
use crate::lower::options::{LowerError, Options};
use crate::lower::schedule::{Schedule, schedule};
use crate::lower::sizes::Sizes;
use crate::lower::{differentiate, emit, rewrite};
use crate::program::display::{OperationLines, size_text, tensor_name};
use crate::program::{Class, Tensor};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The result of one stage of lowering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The name of the stage, as its folder has it: `rewrite`, `differentiate`, `schedule` or `emit`.
    pub name: &'static str,
    /// The graph, draft or program that the stage returns, as text.
    pub text: String,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Lowers a graph as [`lower`](crate::lower::lower) does or, with `sizes`, as [`lower_for`](crate::lower::lower_for) does, and returns the result
/// of each stage. A forward pass has no stage `schedule`. The draft of `differentiate` is in the default order, whatever order comes after it.
///
/// # Errors
/// Those of [`lower`](crate::lower::lower).
pub fn stages(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    sizes: Option<&Sizes>,
) -> Result<Vec<Stage>, LowerError> {
    options.check(outputs)?;
    let rewritten = rewrite::rewrite(graph, outputs, options.training)?;
    let graph = &rewritten.graph;
    let paths: Vec<String> = graph.rows.iter().map(|row| row.path.clone()).collect();
    let text = |draft: &Draft| DraftText { draft, paths: &paths }.to_string();
    let mut stages = vec![Stage { name: "rewrite", text: graph.to_string() }];
    let draft = match options.training {
        Some(training) => {
            let draft = differentiate::training_step(&rewritten, training)?;
            stages.push(Stage { name: "differentiate", text: text(&draft) });
            let draft = schedule(&rewritten, training, sizes.map_or(Schedule::Written, Schedule::LeastMemory))?;
            stages.push(Stage { name: "schedule", text: text(&draft) });
            draft
        }
        None => {
            let draft = differentiate::forward_pass(&rewritten)?;
            stages.push(Stage { name: "differentiate", text: text(&draft) });
            draft
        }
    };
    let program = emit::finish(draft, graph, options.training);
    stages.push(Stage { name: "emit", text: program.to_string() });
    Ok(stages)
}

/// A draft as text: its operations, then the tensors that live inside the step, by their numbers.
struct DraftText<'d> {
    draft: &'d Draft,
    /// The paths of the layers that operations and tensors belong to.
    paths: &'d [String],
}

impl fmt::Display for DraftText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DraftText { draft: Draft { tensors, operations, .. }, paths } = *self;
        writeln!(f, "draft: {} operations, {} tensors", operations.len(), tensors.len())?;
        write!(f, "{}", OperationLines { operations, paths })?;
        writeln!(f, "tensors that live inside the step, or in host memory meanwhile")?;
        let is_inside = |(_, tensor): &(usize, &Tensor)| matches!(tensor.class, Class::Transient | Class::Host);
        for (id, tensor) in tensors.iter().enumerate().filter(is_inside) {
            let host = if tensor.class == Class::Host { " on host" } else { "" };
            writeln!(
                f,
                "{:>5}  {:<24}  {}{host}",
                alloc::format!("%{id}"),
                size_text(tensor),
                tensor_name(paths, tensor)
            )?;
        }
        Ok(())
    }
}
