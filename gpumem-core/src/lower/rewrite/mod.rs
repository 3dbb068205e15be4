//! Rewrites a graph into one that computes the same function with less memory or fewer launches.

pub(in crate::lower) mod activation_mask;
pub(in crate::lower) mod chunk_logits;
pub(in crate::lower) mod conv_norm;
pub(in crate::lower) mod decode_step;
pub(in crate::lower) mod inplace_abn;
mod join_first;
mod pool_first;
mod recurrences;

use crate::graph::{Graph, NodeId, Source};
use crate::lower::options::{LowerError, Training};
use alloc::vec::Vec;
use chunk_logits::{Chunk, Chunked, chunked};

/// A rewritten graph.
pub(in crate::lower) struct Rewritten<'g> {
    pub(in crate::lower) graph: Graph,
    /// The outputs of the network.
    pub(in crate::lower) outputs: &'g [NodeId],
    /// The values that are read after the forward pass: the outputs, or in training what the loss measures.
    pub(in crate::lower) ends: Vec<NodeId>,
    /// The chunks of each term of the loss, in order; none for a term that measures a whole value.
    pub(in crate::lower) chunks: Vec<Vec<Chunk>>,
}

/// Rewrites the graph of a network with these outputs, for a forward pass or for a training step.
///
/// # Errors
/// Refuses a loss that does not fit the values that it measures.
pub(in crate::lower) fn rewrite<'g>(
    graph: &Graph,
    outputs: &'g [NodeId],
    training: Option<Training<'_>>,
) -> Result<Rewritten<'g>, LowerError> {
    let Chunked { graph, terms: chunks } = chunked(graph, outputs, training)?;
    let ends = ends(&graph, outputs, training, &chunks)?;
    let mut graph = pool_first::pool_first(graph, &ends);
    match training {
        None => without_training(&mut graph),
        Some(training) => {
            graph = join_first::join_first(graph, &ends);
            graph = recurrences::whole_recurrences(graph, &ends);
            activation_mask::keep_sides(&mut graph, &ends, training);
        }
    }
    Ok(Rewritten { graph, outputs, ends, chunks })
}

/// Returns the values that are read after the forward pass.
fn ends(
    graph: &Graph,
    outputs: &[NodeId],
    training: Option<Training<'_>>,
    chunks: &[Vec<Chunk>],
) -> Result<Vec<NodeId>, LowerError> {
    let Some(training) = training else { return Ok(outputs.to_vec()) };
    let measured = training.loss.iter().zip(chunks).map(|(term, chunks)| match &**chunks {
        [] => term.measured(graph, outputs),
        chunks => {
            let again = chunks.iter().filter_map(|chunk| Some(chunk.again.as_ref()?.value));
            Ok(chunks.iter().map(|chunk| chunk.value).chain(again).collect())
        }
    });
    Ok(measured.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Replaces each operation by its form without training, in which `eval` changes nothing.
fn without_training(graph: &mut Graph) {
    for node in &mut graph.nodes {
        if let Source::Op { op, .. } = &mut node.source {
            op.leave_eval();
        }
    }
}
