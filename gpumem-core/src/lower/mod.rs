//! Lowering: from a graph to a program of forward, backward and update operations.
//!
//! The backward pass is a transformation of the graph: every layer says which tensors its backward pass reads
//! ([`Rule::backward`](crate::layers::rule::Rule::backward)), and nothing else is kept alive. Lifetimes are not
//! decided here; they follow from the first and the last operation that touches a tensor.

mod backward;
mod builder;
mod finish;
mod forward;
mod rewrite;
mod tables;

pub use tables::{LayerLine, Tables, layer_table, tables};

use crate::graph::{Graph, NodeId, RowId};
use crate::program::{Measure, Program};
use crate::train::Update;
use alloc::string::String;
use builder::Builder;

/// What to lower to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A training step as described, or a forward pass.
    pub training: Option<Training>,
}

/// What of `TRAIN` changes the program.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// The loss.
    pub loss: Measure,
    /// Optimizer state tensors for each parameter.
    pub moments: u64,
    /// When parameters are updated.
    pub update: Update,
    /// Whether the gradient of the network's inputs is computed, and held until the end of the step. Nothing in training
    /// needs it; tests do.
    pub input_gradient: bool,
}

/// Why a network cannot be lowered.
#[derive(Clone, Debug, PartialEq)]
pub struct LowerError {
    /// The layer, if it is one layer's fault.
    pub row: Option<RowId>,
    /// What is wrong and what to do, to be read after the layer's name if there is a row.
    pub message: String,
}

/// Lowers a graph whose output is the value of `output`.
///
/// # Errors
/// `inplace` where something else needs the input, a network without layers, and for training a network without
/// parameters.
pub fn lower(graph: &Graph, output: NodeId, options: &Options) -> Result<Program, LowerError> {
    let graph = rewrite::pool_first(graph.clone(), output);
    let mut builder = Builder::new(&graph, output, options.training)?;
    builder.forward()?;
    if let Some(training) = options.training {
        builder.backward(training);
    }
    builder.finish()
}
