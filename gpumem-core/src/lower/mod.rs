//! Lowering: from a graph to a program of forward, backward and update operations.
//!
//! The backward pass is a transformation of the graph: every operation says which tensors the gradient of
//! each input reads ([`Rule::gradients`](crate::program::op::Rule::gradients)), and nothing else is kept alive. Lifetimes are not
//! decided here; they follow from the first and the last operation that touches a tensor.

mod backward;
mod blueprint;
mod builder;
mod finish;
mod forward;
mod held;
mod pitch;
mod rewrite;
mod stepped;
mod tables;
mod updates;

pub use backward::target_shape;
pub use blueprint::{Blueprint, Steps};
pub use stepped::Cached;
pub use tables::{LayerLine, OwnedTables, layer_table, tables};

use crate::graph::{Graph, NodeId, RowId};
use crate::program::loss::LossOptions;
use crate::program::{Measure, Program};
use crate::train::Update;
use alloc::string::String;
use alloc::vec::Vec;
use builder::Builder;

/// What to lower to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'t> {
    /// A training step as described, or a forward pass.
    pub training: Option<Training<'t>>,
}

/// A term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// How it measures.
    pub measure: Measure,
    /// What it is multiplied with.
    pub weight: f64,
    /// The value that it measures; `None` for the network's first output.
    pub from: Option<NodeId>,
    /// The number of the target that it compares with. [`Measure::Mean`] looks at none.
    pub target: usize,
    /// The options of the loss.
    pub options: LossOptions,
}

impl Term {
    /// Cross entropy of the first output.
    pub const CROSS_ENTROPY: Term =
        Term { measure: Measure::CrossEntropy, weight: 1.0, from: None, target: 0, options: LossOptions::DEFAULT };
    /// Mean squared error of the first output.
    pub const MSE: Term = Term { measure: Measure::Mse, ..Term::CROSS_ENTROPY };
    /// Sum of the first output times its target.
    pub const DOT: Term = Term { measure: Measure::Dot, ..Term::CROSS_ENTROPY };

    /// The first output against the first target.
    pub const fn of(measure: Measure) -> Term {
        Term { measure, weight: 1.0, from: None, target: 0, options: LossOptions::DEFAULT }
    }
}

/// What of `TRAIN` changes the program.
#[derive(Clone, Copy, Debug)]
pub struct Training<'t> {
    /// The loss: the sum of these.
    pub loss: &'t [Term],
    /// Optimizer state tensors for each parameter: see [`with_state`](crate::train::optim::with_state).
    pub moments: u64,
    /// When parameters are updated.
    pub update: Update,
    /// Whether a step with a gradient that is not finite updates nothing. All gradients are then alive before the first update.
    pub skips_overflow: bool,
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

impl LowerError {
    fn of_all(message: &str) -> LowerError {
        LowerError { row: None, message: message.into() }
    }
}

/// Lowers a graph whose outputs are these values.
///
/// A program has what its ends depend on and nothing else: the outputs, or in training the terms of the loss. Training makes
/// room for the parameters of both.
///
/// # Errors
/// `inplace` where something else needs the input, a network without layers, and for training a loss that depends on no
/// parameter that is trained.
pub fn lower(graph: &Graph, outputs: &[NodeId], options: &Options<'_>) -> Result<Program, LowerError> {
    let first = outputs.first().copied().ok_or_else(|| LowerError::of_all("the network has no output"))?;
    let ends: Vec<NodeId> = match options.training {
        Some(training) => training.loss.iter().map(|term| term.from.unwrap_or(first)).collect(),
        None => outputs.to_vec(),
    };
    let graph = rewrite::pool_first(graph.clone(), &ends);
    let mut builder = Builder::new(&graph, outputs, ends, options.training)?;
    builder.forward()?;
    if let Some(training) = options.training {
        builder.backward(training);
    }
    builder.finish()
}

/// Lowers a graph to a forward pass of some steps of a sequence that keeps what later steps look at.
///
/// # Errors
/// A network that does not map one sequence to another step by step, and those of [`lower`].
pub fn lower_cached(graph: &Graph, outputs: &[NodeId], cached: Cached) -> Result<Program, LowerError> {
    lower(&stepped::stepped(graph, outputs, cached)?, outputs, &Options::default())
}
