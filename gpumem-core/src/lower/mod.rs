//! Lowering: turns a graph into a program of forward, backward and update operations.
//!
//! | stage | folder | from | to | invariant |
//! | --- | --- | --- | --- | --- |
//! | rewrite | `rewrite/` | graph | graph | the same function, with less memory or fewer launches |
//! | differentiate | `differentiate/` | graph | draft | operations and tensors, without live ranges and numbering by class |
//! | schedule | `schedule/` | draft | draft | a valid order, in which forward operations may run twice; no number changes |
//! | emit | `emit/` | draft | program | live ranges are read off the operations |
//! | choose | `choose/` | blueprint | program | the first of several programs that fits |
//!
//! A stage imports no later one. Questions that several stages ask are in `analysis/` and `liveness.rs`; which operations may run as one is asked of
//! the program, in [`fusion`](crate::program::fusion). [`stages`] returns the result of each stage as text.
//!
//! The backward pass is derived from the graph. Every operation says which tensors the gradient of each input reads
//! ([`Rule::gradients`](crate::program::op::Rule::gradients)), and nothing else is kept alive for it. Live ranges are not decided here: they
//! follow from the first and the last operation that touches a tensor.

mod analysis;
pub(crate) mod choose;
pub(crate) mod differentiate;
mod draft;
pub(crate) mod emit;
mod liveness;
mod options;
pub(crate) mod rewrite;
pub(crate) mod schedule;
mod sizes;
mod stage;

pub(crate) use choose::alternatives::{Variant, sent};
pub use choose::blueprint::{Blueprint, PartStep, Parts, Steps};
pub use choose::largest_batch::LargestFitted;
pub(crate) use choose::largest_batch::{MOST_PROGRAMS, climb};
pub use choose::level::{Choices, ChosenStep, Fitted, Leaner};
pub use emit::tables::{LayerLine, OwnedPaths, OwnedTables, layer_table, tables};
pub use options::{LowerError, Options, Term, Training, not_in_parts, not_sharded};
pub use rewrite::chunk_logits::{MOST_CHUNKS, unchunkable};
pub use rewrite::conv_norm::with_normalized_convolutions;
pub use rewrite::decode_step::Cached;
pub use schedule::offload;
pub use schedule::recompute::{RecomputeLevel, Search};
pub use sizes::Sizes;
pub use stage::{Stage, stages};

use crate::graph::{Graph, NodeId};
use crate::program::Program;
use crate::train::Ranks;
use alloc::vec::Vec;
use schedule::Schedule;

/// Lowers a graph with these output values to a program.
///
/// A program contains only what its ends depend on: the outputs, or in training the terms of the loss. A training program also has memory for the
/// parameters that only the outputs depend on.
///
/// # Errors
/// Refuses `inplace` if something else needs the input, a network without layers, and in training a loss that depends on no trained parameter.
pub fn lower(graph: &Graph, outputs: &[NodeId], options: &Options<'_>) -> Result<Program, LowerError> {
    run(graph, outputs, options, Schedule::Written)
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
    run(graph, outputs, options, Schedule::LeastMemory(setting))
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
    run(graph, outputs, options, Schedule::Order(order))
}

/// Lowers a network to the training steps of [`lower_in_order`] for several orders, with one derivation of the backward pass.
///
/// # Errors
/// Those of [`lower_in_order`].
pub(in crate::lower) fn lower_in_orders<'o>(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    orders: impl Iterator<Item = &'o [u32]>,
) -> Result<Vec<Program>, LowerError> {
    options.check(outputs)?;
    let Some(training) = options.training else { return Ok(Vec::new()) };
    let rewritten = rewrite::rewrite(graph, outputs, options.training)?;
    let drafts = schedule::in_orders(&rewritten, training, orders)?;
    Ok(drafts.into_iter().map(|draft| emit::finish(draft, &rewritten.graph, options.training)).collect())
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
    options.check(outputs)?;
    let rewritten = rewrite::rewrite(graph, outputs, options.training)?;
    schedule::search(&rewritten, training, setting)
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

/// Calls the stages in order.
fn run(graph: &Graph, outputs: &[NodeId], options: &Options<'_>, wanted: Schedule<'_>) -> Result<Program, LowerError> {
    options.check(outputs)?;
    let rewritten = rewrite::rewrite(graph, outputs, options.training)?;
    let draft = match options.training {
        Some(training) => schedule::schedule(&rewritten, training, wanted)?,
        None => differentiate::forward_pass(&rewritten)?,
    };
    Ok(emit::finish(draft, &rewritten.graph, options.training))
}

/// Lowers a graph to a forward pass of ranks that shard its parameters. Before a unit of the network runs, its parameters are gathered.
///
/// # Errors
/// Those of [`lower`].
pub fn lower_sharded(graph: &Graph, outputs: &[NodeId], ranks: Ranks) -> Result<Program, LowerError> {
    let options = Options::default();
    options.check(outputs)?;
    let rewritten = rewrite::rewrite(graph, outputs, options.training)?;
    let mut draft = differentiate::forward_pass(&rewritten)?;
    emit::ranks::shard_forward(&mut draft, ranks);
    let mut program = emit::finish(draft, &rewritten.graph, options.training);
    // Budgets count the shards of these ranks.
    program.descent.ranks = ranks;
    Ok(program)
}

/// Lowers a graph to a forward pass over a few time steps that keeps a cache for later ones.
///
/// # Errors
/// Refuses a network that does not map one sequence to another time step by time step. Otherwise those of [`lower`].
pub fn lower_cached(graph: &Graph, outputs: &[NodeId], cached: Cached) -> Result<Program, LowerError> {
    lower(&rewrite::decode_step::stepped(graph, outputs, cached)?, outputs, &Options::default())
}
