//! Lowering: turns a graph into a program of forward, backward and update operations.
//!
//! The backward pass is derived from the graph. Every operation says which tensors the gradient of each input reads
//! ([`Rule::gradients`](crate::program::op::Rule::gradients)), and nothing else is kept alive for it. Live ranges are not decided here: they
//! follow from the first and the last operation that touches a tensor.

mod analysis;
pub(crate) mod choose;
pub(crate) mod differentiate;
mod draft;
pub(crate) mod emit;
mod fusion;
mod liveness;
mod options;
pub(crate) mod rewrite;
pub(crate) mod schedule;
mod sizes;

pub use choose::blueprint::{Blueprint, PartStep, Parts, Steps};
pub use choose::largest_batch::LargestFitted;
pub use choose::level::{Fitted, Leaner};
pub use emit::tables::{LayerLine, OwnedTables, layer_table, tables};
pub use options::{LowerError, Options, Term, Training, not_in_parts};
pub use rewrite::chunk_logits::{MOST_CHUNKS, unchunkable};
pub use rewrite::conv_norm::with_normalized_convolutions;
pub use rewrite::decode_step::Cached;
pub use schedule::offload;

use crate::graph::{Graph, NodeId};
use crate::program::Program;
use alloc::vec::Vec;
use analysis::Analysis;
use analysis::activation_slopes::Activations;
use differentiate::builder::Builder;
use draft::Draft;
use rewrite::chunk_logits::Chunked;
pub use schedule::recompute::{RecomputeLevel, Search};
use schedule::recompute::{recomputed, searched};
pub use sizes::Sizes;

/// Lowers a graph with these output values to a program.
///
/// A program contains only what its ends depend on: the outputs, or in training the terms of the loss. A training program also has memory for the
/// parameters that only the outputs depend on.
///
/// # Errors
/// Refuses `inplace` if something else needs the input, a network without layers, and in training a loss that depends on no trained parameter.
pub fn lower(graph: &Graph, outputs: &[NodeId], options: &Options<'_>) -> Result<Program, LowerError> {
    drafted(graph, outputs, options, None, as_written)
}

/// Lowers a graph to a training step in the backward order that a search found to need least memory. Gradients equal those of [`lower`] except
/// for the order in which those of several readers of a value are added up. If no order needs less memory, it is that of [`lower`]. Outputs of
/// normalisations are recomputed if the setting allows it and that needs less memory.
///
/// # Errors
/// Those of [`lower`].
pub fn lower_for(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: &Sizes,
) -> Result<Program, LowerError> {
    drafted(graph, outputs, options, Some(setting), as_written)
}

/// Recomputes the groups that the network's text marks for recomputation.
fn as_written(draft: Draft, graph: &Graph) -> Result<Draft, LowerError> {
    recomputed(draft, graph, None).ok_or_else(|| LowerError::of_all("the forward pass is not over before the loss"))
}

/// Lowers a network to a training step whose operations run in a given order, in which forward operations may repeat. `order` numbers operations
/// as they are before updates are gathered.
///
/// # Errors
/// Those of [`lower`], and an order that is not one of this network's operations.
pub fn lower_in_order(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    order: &[u32],
) -> Result<Program, LowerError> {
    drafted(graph, outputs, options, None, |draft, graph| {
        recomputed(draft, graph, Some(order))
            .ok_or_else(|| LowerError::of_all("the order of its operations is that of another network"))
    })
}

/// Finds the levels of recomputation of a training step: what is recomputed in it, and in which order. The first level is the step as the user
/// wrote it; each further one needs less memory and more time. A network that cannot be cut into segments has few levels or none.
///
/// # Errors
/// Those of [`lower`], and a network that is not trained.
pub fn search(graph: &Graph, outputs: &[NodeId], options: &Options<'_>, setting: &Sizes) -> Result<Search, LowerError> {
    let Some(training) = options.training else {
        return Err(LowerError::of_all(
            "nothing is computed again in a network that is not trained; add `const TRAIN`",
        ));
    };
    let (draft, graph) = draft(graph, outputs, options, None)?;
    let setting = setting.of_micro_batch(training.descent.micro_batches);
    searched(&draft, &graph, &setting).ok_or_else(|| LowerError::of_all("the forward pass is not over before the loss"))
}

/// Returns the levels of [`search`].
///
/// # Errors
/// Those of [`search`].
pub fn levels(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: &Sizes,
) -> Result<Vec<RecomputeLevel>, LowerError> {
    Ok(search(graph, outputs, options, setting)?.levels)
}

/// Lowers `graph` to a draft, applies `change` to it if it trains, and finishes the program.
fn drafted(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: Option<&Sizes>,
    change: impl FnOnce(Draft, &Graph) -> Result<Draft, LowerError>,
) -> Result<Program, LowerError> {
    let (draft, graph) = draft(graph, outputs, options, setting)?;
    let draft = if options.training.is_some() { change(draft, &graph)? } else { draft };
    Ok(draft.finish(&graph, options.training))
}

/// Lowers `graph` to a draft. Returns the rewritten graph too, since node numbers refer to it. With `setting`, searches a backward order;
/// without, visits nodes from the last to the first.
fn draft(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: Option<&Sizes>,
) -> Result<(Draft, Graph), LowerError> {
    if outputs.is_empty() {
        return Err(LowerError::of_all("the network has no output"));
    }
    if let Some(training) = options.training
        && training.descent.accumulates()
        && let Some(term) = training.loss.iter().find(|term| term.compares_samples())
    {
        return Err(LowerError { row: None, message: not_in_parts(term.measure.name()) });
    }
    let Chunked { graph, terms: chunks } = rewrite::chunk_logits::chunked(graph, outputs, options.training)?;
    let ends: Vec<NodeId> = match options.training {
        Some(training) => {
            let measured = training.loss.iter().zip(&chunks).map(|(term, chunks)| match &**chunks {
                [] => term.measured(&graph, outputs),
                chunks => Ok(chunks.iter().map(|chunk| chunk.value).collect()),
            });
            measured.collect::<Result<Vec<_>, _>>()?.concat()
        }
        None => outputs.to_vec(),
    };
    let mut graph = rewrite::pool_first::pool_first(graph, &ends);
    if options.training.is_none() {
        rewrite::pool_first::without_training(&mut graph);
    } else {
        graph = rewrite::pool_first::whole_recurrences(rewrite::pool_first::join_first(graph, &ends), &ends);
        let sided = Analysis::new(&graph, ends.clone(), options.training, Activations::Unread).sided();
        rewrite::activation_mask::keep_sides(&mut graph, &sided);
    }
    let built = |activations: Activations| {
        let mut builder = Builder::new(&graph, outputs, ends.clone(), options.training, activations)?;
        builder.chunks = &chunks;
        builder.forward()?;
        if let Some(training) = options.training {
            schedule::offload::check(&training)?;
            builder.loss(training)?;
        }
        Ok(builder)
    };
    let draft = match (options.training, setting) {
        // Recomputed values of groups are alive for a short time only, which the search for an order does not know.
        (Some(training), Some(setting)) if graph.groups.is_empty() => {
            let setting = setting.of_micro_batch(training.descent.micro_batches);
            schedule::backward_order::ordered(built, &graph, training, &setting)?
        }
        (Some(training), _) => {
            let builder = built(Activations::Unread)?;
            let pieces = builder.pieces();
            schedule::backward_order::drafted(builder, &graph, training, &pieces).0
        }
        (None, _) => built(Activations::Unread)?.into_draft(),
    };
    Ok((draft, graph))
}

/// Lowers a graph to a forward pass over a few time steps that keeps a cache for later ones.
///
/// # Errors
/// Refuses a network that does not map one sequence to another time step by time step. Otherwise those of [`lower`].
pub fn lower_cached(graph: &Graph, outputs: &[NodeId], cached: Cached) -> Result<Program, LowerError> {
    lower(&rewrite::decode_step::stepped(graph, outputs, cached)?, outputs, &Options::default())
}
