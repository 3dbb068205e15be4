//! Lowering: turns a graph into a program of forward, backward and update operations.
//!
//! The backward pass is derived from the graph. Every operation says which tensors the gradient of each input reads
//! ([`Rule::gradients`](crate::program::op::Rule::gradients)), and nothing else is kept alive for it. Live ranges are not decided here: they
//! follow from the first and the last operation that touches a tensor.

pub(crate) mod choose;
pub(crate) mod differentiate;
pub(crate) mod emit;
pub(crate) mod rewrite;
pub(crate) mod schedule;

pub use choose::blueprint::{Blueprint, Steps};
pub use choose::largest_batch::LargestFitted;
pub use choose::level::{Fitted, Leaner};
pub use choose::named_steps::{PartStep, Parts};
pub use emit::tables::{LayerLine, OwnedTables, layer_table, tables};
pub use rewrite::chunk_logits::{MOST_CHUNKS, unchunkable};
pub use rewrite::conv_norm::with_normalized_convolutions;
pub use rewrite::decode_step::Cached;
pub use schedule::offload;

use crate::graph::{Graph, NodeId, RowId, Source};
use crate::memory::tables::samples;
use crate::program::loss::{Compares, LossOptions, Over, Weighting};
use crate::program::{Measure, Program};
use crate::shape::Shape;
use crate::train::{Descent, Update};
use alloc::string::String;
use alloc::vec::Vec;
use differentiate::activation_slopes::Activations;
use differentiate::builder::Builder;
use rewrite::chunk_logits::Chunked;
use schedule::recompute::{Draft, recomputed, searched};
pub use schedule::recompute::{RecomputeLevel, Search, Sizes};

/// The options of a lowering.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'t> {
    /// The training step to lower to; `None` for a forward pass.
    pub training: Option<Training<'t>>,
}

/// A term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The loss function, such as cross entropy.
    pub measure: Measure,
    /// The factor of this term in the loss.
    pub weight: f64,
    /// The value that the loss measures; `None` for the network's first output.
    pub from: Option<NodeId>,
    /// The value with which a loss of pairs compares it; `None` for the network's second output.
    pub and: Option<NodeId>,
    /// The third value of a loss of triples; `None` for the network's third output.
    pub third: Option<NodeId>,
    /// The value whose exponential scales the products in a loss over a batch; `None` if a temperature divides them.
    pub scale: Option<NodeId>,
    /// The value that a loss over a batch adds to its products; `None` if it is a constant number.
    pub bias: Option<NodeId>,
    /// The index of the target that the value is compared with. [`Measure::Mean`] reads no target.
    pub target: usize,
    /// The index of the target that holds the lengths of sequences; `None` if all time steps count.
    pub lengths: Option<usize>,
    /// The index of the target that the terms are multiplied with; `None` if they have no weights.
    pub weights: Option<usize>,
    /// The network's input that says how many time steps of each sample count, out of [`LossOptions::counted`]. `None` if all count.
    pub counted: Option<NodeId>,
    /// The options of the loss.
    pub options: LossOptions,
}

impl Term {
    /// Cross entropy of the first output against the first target. It calls no function, so that a reference to it can be `'static`.
    pub const CROSS_ENTROPY: Term = Term {
        measure: Measure::CrossEntropy,
        weight: 1.0,
        from: None,
        and: None,
        third: None,
        scale: None,
        bias: None,
        target: 0,
        lengths: None,
        weights: None,
        counted: None,
        options: LossOptions::DEFAULT,
    };
    /// Mean squared error of the first output.
    pub const MSE: Term = Term { measure: Measure::Mse, ..Term::CROSS_ENTROPY };
    /// Sum of the first output times its target.
    pub const DOT: Term = Term { measure: Measure::Dot, ..Term::CROSS_ENTROPY };

    /// Returns a term that measures the first output against the first target.
    pub const fn of(measure: Measure) -> Term {
        Term { measure, ..Term::CROSS_ENTROPY }
    }

    /// Returns the values of the network that the term names.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let Term { from, and, third, scale, bias, counted, .. } = *self;
        [from, and, third, scale, bias, counted].into_iter().flatten()
    }

    /// Returns mutable references to the values that the term names.
    pub(crate) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut NodeId> {
        let Term { from, and, third, scale, bias, counted, .. } = self;
        [from, and, third, scale, bias, counted].into_iter().flatten()
    }

    /// Returns the unit of which the loss has one term each: elements, positions, pairs and so on.
    pub fn over(&self) -> Over {
        self.options.over(self.measure)
    }

    /// True if it compares all samples of a batch with each other.
    pub fn compares_samples(&self) -> bool {
        self.over().compares_samples()
    }

    /// Returns `[scale, bias]`: true for each of the two that is a value of the network.
    fn learned(&self) -> [bool; 2] {
        [self.scale, self.bias].map(|value| value.is_some())
    }

    /// Returns the values that the loss measures, then its learned scale and bias. `None` if the network has too few outputs.
    fn values(&self, outputs: &[NodeId]) -> Option<Vec<NodeId>> {
        let mut values = Vec::from([self.from.or(outputs.first().copied())?]);
        let named = [self.and, self.third].into_iter().zip(outputs.iter().map(Some).skip(1).chain([None; 2]));
        for (name, output) in named.take(self.over().values() - 1) {
            values.push(name.or(output.copied())?);
        }
        if self.over() == Over::Batch {
            values.extend([self.scale, self.bias].into_iter().flatten());
        }
        Some(values)
    }

    /// Returns the values that the loss measures. Fails if their shapes or the options do not fit the loss.
    fn measured(&self, graph: &Graph, outputs: &[NodeId]) -> Result<Vec<NodeId>, LowerError> {
        let values = self.values(outputs).ok_or_else(|| {
            let said = match self.over().values() {
                2 => "the loss compares two values, and there is one",
                _ => "the loss compares three values, and there are fewer",
            };
            LowerError::of_all(said)
        })?;
        let (measured, learned) = values.split_at(values.len().min(self.over().values()));
        let shapes: Vec<Shape> = measured.iter().map(|&node| graph.value(node).shape).collect();
        let ranks = match self.over() {
            Over::Elements | Over::Positions | Over::Rankings => 0..=usize::MAX,
            Over::Pairs | Over::Triples => 1..=2,
            Over::Batch | Over::Mined => 1..=1,
            Over::Sequences => 2..=2,
        };
        if !shapes.iter().all(|shape| *shape == shapes[0] && ranks.contains(&shape.rank())) {
            return Err(LowerError::of_all("the loss measures values of another shape"));
        }
        let is_number = |&node: &NodeId| {
            let value = graph.value(node);
            !value.batched && value.elements.no_numbers().is_none() && value.shape.elements() == Some(1)
        };
        if !learned.iter().all(is_number) {
            return Err(LowerError::of_all("the scale or the bias of the loss is not one number for all samples"));
        }
        if measured.iter().enumerate().any(|(index, value)| measured[..index].contains(value)) {
            return Err(LowerError::of_all("the loss compares a value with itself"));
        }
        if self.weights.is_some() != (self.options.weighting != Weighting::None) {
            return Err(LowerError::of_all("the terms of the loss are multiplied with a target that it has not"));
        }
        let is_input = |node: NodeId| graph.nodes.get(node).is_some_and(|node| node.source == Source::Input);
        let is_counted = match (self.counted, self.options.counted) {
            (None, 0) => true,
            (Some(node), steps) => {
                let is_alone = self.over() == Over::Elements && self.options.weighting == Weighting::None;
                steps > 0 && is_input(node) && is_alone && shapes[0].dims().first() == Some(&steps)
            }
            (None, _) => false,
        };
        if !is_counted {
            return Err(LowerError::of_all(
                "the loss counts other steps than its value has, or has no input that says which",
            ));
        }
        let LossOptions { blank, target_length, .. } = self.options;
        let is_aligned =
            target_length > 0 && shapes[0].dims().last().is_some_and(|&classes| u64::from(blank) < classes);
        if self.options.compares(self.measure) == Compares::Labels && !is_aligned {
            return Err(LowerError::of_all("the loss of a sequence has no labels, or a blank that is no class"));
        }
        Ok(values)
    }
}

/// The settings of `TRAIN` that change the program.
#[derive(Clone, Copy, Debug)]
pub struct Training<'t> {
    /// The terms of the loss, which is their sum.
    pub loss: &'t [Term],
    /// Optimizer state tensors for each parameter: see [`with_state`](crate::train::optim::with_state).
    pub moments: u64,
    /// The time of updates: as soon as a gradient is complete, or separately at the end.
    pub update: Update,
    /// True if a step with a gradient that is not finite updates nothing. All gradients are then alive before the first update.
    pub skips_overflow: bool,
    /// True if the gradient of the network's inputs is computed, and kept until the end of the step. Nothing in training needs it; tests do.
    pub input_gradient: bool,
    /// Gradient clipping, gradient accumulation, the learning-rate schedule and other settings of an update. If gradients are clipped by their
    /// norm, all of them are kept until it is known, whatever `update` says. Gradients that are added up over micro-batches are kept, too.
    pub descent: Descent,
}

impl Training<'_> {
    /// True if gradients live until the end of the step.
    fn holds_gradients(&self) -> bool {
        self.update == Update::Separate || self.descent.needs_norm() || self.descent.accumulates()
    }

    /// True if all updates come after the last gradient.
    fn defers_updates(&self) -> bool {
        self.holds_gradients() || self.checks_gradients()
    }

    /// True if each gradient is checked for values that are not finite before the first update.
    fn checks_gradients(&self) -> bool {
        self.skips_overflow || self.descent.checks()
    }
}

/// The reason why a network cannot be lowered.
#[derive(Clone, Debug, PartialEq)]
pub struct LowerError {
    /// The layer with the mistake; `None` if no single layer has it.
    pub row: Option<RowId>,
    /// The mistake and its remedy, to be read after the layer's name if there is a row.
    pub message: String,
}

/// Returns the message for a loss that compares all samples of a batch and so cannot be computed in micro-batches.
pub fn not_in_parts(loss: &str) -> String {
    alloc::format!(
        "a part of a batch knows none of the others, and `{loss}` compares all of them; remove `micro_batches`, or use `checkpoint: Auto`"
    )
}

impl LowerError {
    fn of_all(message: &str) -> LowerError {
        LowerError { row: None, message: message.into() }
    }
}

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
    // Only one micro-batch is in memory at a time.
    let setting = Sizes { batch: samples(setting.batch, training.descent.micro_batches), ..*setting };
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
        let sided = Builder::new(&graph, outputs, ends.clone(), options.training, Activations::Unread)?.sided();
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
            let setting = Sizes { batch: samples(setting.batch, training.descent.micro_batches), ..*setting };
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
