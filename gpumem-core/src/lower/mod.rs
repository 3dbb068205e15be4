//! Lowering: from a graph to a program of forward, backward and update operations.
//!
//! The backward pass is a transformation of the graph: every operation says which tensors the gradient of
//! each input reads ([`Rule::gradients`](crate::program::op::Rule::gradients)), and nothing else is kept alive. Lifetimes are not
//! decided here; they follow from the first and the last operation that touches a tensor.

mod activated;
mod averages;
mod backward;
mod blueprint;
mod builder;
mod chunks;
mod finish;
mod fitted;
mod forward;
mod front;
mod guard;
mod held;
mod largest;
mod merged;
mod micro;
mod normalized;
pub mod offload;
mod order;
mod parts;
mod pitch;
mod recompute;
mod remedies;
mod renormalised;
mod rewrite;
mod sides;
mod stepped;
mod tables;
mod updates;

pub use blueprint::{Blueprint, Steps};
pub use chunks::{MOST_CHUNKS, unchunkable};
pub use fitted::{Fitted, Leaner};
pub use largest::LargestFitted;
pub use normalized::with_normalized_convolutions;
pub use parts::{PartStep, Parts};
pub use stepped::Cached;
pub use tables::{LayerLine, OwnedTables, layer_table, tables};

use crate::graph::{Graph, NodeId, RowId, Source};
use crate::memory::tables::samples;
use crate::program::loss::{Compares, LossOptions, Over, Weighting};
use crate::program::{Measure, Program};
use crate::shape::Shape;
use crate::train::{Descent, Update};
use alloc::string::String;
use alloc::vec::Vec;
use builder::Builder;
use chunks::Chunked;
use merged::Activations;
use recompute::{Draft, recomputed, searched};
pub use recompute::{Level, Search, Setting};

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
    /// The value with which a loss of pairs compares it; `None` for the network's second output.
    pub and: Option<NodeId>,
    /// The third value of a loss of triples; `None` for the network's third output.
    pub third: Option<NodeId>,
    /// The value whose exponential a loss of a batch multiplies products with; `None` where a temperature divides them.
    pub scale: Option<NodeId>,
    /// The value that a loss of a batch adds to products; `None` for a number.
    pub bias: Option<NodeId>,
    /// The number of the target that it compares with. [`Measure::Mean`] looks at none.
    pub target: usize,
    /// The number of the target with the lengths of sequences; `None` where all of their steps count.
    pub lengths: Option<usize>,
    /// The number of the target that its terms are multiplied with; `None` if they are not.
    pub weights: Option<usize>,
    /// The input of the network that says how many steps of each sample count, of as many as [`LossOptions::counted`].
    pub counted: Option<NodeId>,
    /// The options of the loss.
    pub options: LossOptions,
}

impl Term {
    /// Cross entropy of the first output. What has no call in it can be borrowed for ever.
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

    /// The first output against the first target.
    pub const fn of(measure: Measure) -> Term {
        Term { measure, ..Term::CROSS_ENTROPY }
    }

    /// The values that it names.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let Term { from, and, third, scale, bias, counted, .. } = *self;
        [from, and, third, scale, bias, counted].into_iter().flatten()
    }

    /// The values that it names, to be replaced.
    pub(crate) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut NodeId> {
        let Term { from, and, third, scale, bias, counted, .. } = self;
        [from, and, third, scale, bias, counted].into_iter().flatten()
    }

    /// Terms: one for each of these.
    pub fn over(&self) -> Over {
        self.options.over(self.measure)
    }

    /// True if it compares all samples of a batch with each other.
    pub fn compares_samples(&self) -> bool {
        self.over().compares_samples()
    }

    /// True if its scale, and if its bias, is a value of the network.
    fn learned(&self) -> [bool; 2] {
        [self.scale, self.bias].map(|value| value.is_some())
    }

    /// The values that it measures, and its learned numbers, if the network has them.
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

    /// The values that it measures, of shapes that it can.
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
    /// What happens to gradients and to the learning rate before an update. Where gradients are clipped by their norm, all of them are
    /// held until it is known, whatever `update` says, and so are those that are added up over several parts of a batch.
    pub descent: Descent,
}

impl Training<'_> {
    /// Whether gradients are held until the end of the step.
    fn holds_gradients(&self) -> bool {
        self.update == Update::Separate || self.descent.needs_norm() || self.descent.accumulates()
    }

    /// Whether updates come when all gradients are there.
    fn defers_updates(&self) -> bool {
        self.holds_gradients() || self.checks_gradients()
    }

    /// True if each gradient is looked at before the first update.
    fn checks_gradients(&self) -> bool {
        self.skips_overflow || self.descent.checks()
    }
}

/// Why a network cannot be lowered.
#[derive(Clone, Debug, PartialEq)]
pub struct LowerError {
    /// The layer, if it is one layer's fault.
    pub row: Option<RowId>,
    /// What is wrong and what to do, to be read after the layer's name if there is a row.
    pub message: String,
}

/// Says that a loss that compares all samples of a batch cannot be computed of a part of it.
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

/// Lowers a graph whose outputs are these values.
///
/// A program has what its ends depend on and nothing else: the outputs, or in training the terms of the loss. Training makes
/// room for the parameters of both.
///
/// # Errors
/// `inplace` where something else needs the input, a network without layers, and for training a loss that depends on no
/// parameter that is trained.
pub fn lower(graph: &Graph, outputs: &[NodeId], options: &Options<'_>) -> Result<Program, LowerError> {
    drafted(graph, outputs, options, None, as_written)
}

/// Lowers a graph as [`lower`] does, to a training step whose backward pass runs in the order that was found to need least memory at a setting.
/// Gradients are the same but for the order in which those of several readers of a value are added up. What needs no less than the order of
/// [`lower`] has that. Where the setting lets it, and that needs less, outputs of normalisations are made again.
///
/// # Errors
/// Those of [`lower`].
pub fn lower_for(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: &Setting,
) -> Result<Program, LowerError> {
    drafted(graph, outputs, options, Some(setting), as_written)
}

/// A step in which what is written by hand is computed again.
fn as_written(draft: Draft, graph: &Graph) -> Result<Draft, LowerError> {
    recomputed(draft, graph, None).ok_or_else(|| LowerError::of_all("the forward pass is not over before the loss"))
}

/// Lowers a network that is trained to a step whose operations run in another order, forward ones maybe more than once. They are numbered
/// as they come before updates are gathered.
///
/// # Errors
/// Those of [`lower`], and an order of other operations.
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

/// Finds levels of recomputation of a network that is trained: what to compute again, and in which order, to need less memory for more
/// time. The first one is the step as it is written; the others need less and less, and cost more and more. What cannot be cut into parts
/// has few of them or none.
///
/// # Errors
/// Those of [`lower`], and a network that is not trained.
pub fn search(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: &Setting,
) -> Result<Search, LowerError> {
    let Some(training) = options.training else {
        return Err(LowerError::of_all(
            "nothing is computed again in a network that is not trained; add `const TRAIN`",
        ));
    };
    let (draft, graph) = draft(graph, outputs, options, None)?;
    // What is in memory at once is a part of the batch.
    let setting = Setting { batch: samples(setting.batch, training.descent.micro_batches), ..*setting };
    searched(&draft, &graph, &setting).ok_or_else(|| LowerError::of_all("the forward pass is not over before the loss"))
}

/// The levels of [`search`].
///
/// # Errors
/// See there.
pub fn levels(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: &Setting,
) -> Result<Vec<Level>, LowerError> {
    Ok(search(graph, outputs, options, setting)?.levels)
}

/// Lowers a graph, and lets `change` have a training step before it is finished.
fn drafted(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: Option<&Setting>,
    change: impl FnOnce(Draft, &Graph) -> Result<Draft, LowerError>,
) -> Result<Program, LowerError> {
    let (draft, graph) = draft(graph, outputs, options, setting)?;
    let draft = if options.training.is_some() { change(draft, &graph)? } else { draft };
    Ok(draft.finish(&graph, options.training))
}

/// Lowers a graph up to where nothing is in its last place, its backward pass in the order of the rule or one for a setting, and says of which
/// graph that is one.
fn draft(
    graph: &Graph,
    outputs: &[NodeId],
    options: &Options<'_>,
    setting: Option<&Setting>,
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
    let Chunked { graph, terms: chunks } = chunks::chunked(graph, outputs, options.training)?;
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
    let mut graph = rewrite::pool_first(graph, &ends);
    if options.training.is_none() {
        rewrite::without_training(&mut graph);
    } else {
        graph = rewrite::whole_recurrences(rewrite::join_first(graph, &ends), &ends);
        let sided = Builder::new(&graph, outputs, ends.clone(), options.training, Activations::Unread)?.sided();
        sides::keep_sides(&mut graph, &sided);
    }
    let built = |activations: Activations| {
        let mut builder = Builder::new(&graph, outputs, ends.clone(), options.training, activations)?;
        builder.chunks = &chunks;
        builder.forward()?;
        if let Some(training) = options.training {
            offload::check(&training)?;
            builder.loss(training)?;
        }
        Ok(builder)
    };
    let draft = match (options.training, setting) {
        // What is computed again is there for a short time only, which no search knows of.
        (Some(training), Some(setting)) if graph.groups.is_empty() => {
            let setting = Setting { batch: samples(setting.batch, training.descent.micro_batches), ..*setting };
            order::ordered(built, &graph, training, &setting)?
        }
        (Some(training), _) => {
            let builder = built(Activations::Unread)?;
            let pieces = builder.pieces();
            order::drafted(builder, &graph, training, &pieces).0
        }
        (None, _) => built(Activations::Unread)?.into_draft(),
    };
    Ok((draft, graph))
}

/// Lowers a graph to a forward pass of some steps of a sequence that keeps what later steps look at.
///
/// # Errors
/// A network that does not map one sequence to another step by step, and those of [`lower`].
pub fn lower_cached(graph: &Graph, outputs: &[NodeId], cached: Cached) -> Result<Program, LowerError> {
    lower(&stepped::stepped(graph, outputs, cached)?, outputs, &Options::default())
}
