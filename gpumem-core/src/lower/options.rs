//! The request for a lowering: the terms of the loss, the settings of a training step, and the error of a network that cannot be lowered.

use crate::graph::{Graph, NodeId, RowId, Source};
use crate::program::loss::{Compares, LossOptions, Over, Reduction, Weighting};
use crate::program::{Criterion, Measure};
use crate::shape::Shape;
use crate::train::optim::{Optimizer, whole_states};
use crate::train::{Descent, Shard, Update};
use alloc::string::String;
use alloc::vec::Vec;

/// The options of a lowering.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'t> {
    /// The training step to lower to; `None` for a forward pass.
    pub training: Option<Training<'t>>,
}

impl Options<'_> {
    /// Fails if a network with these outputs cannot be lowered so, whatever its graph is.
    pub(in crate::lower) fn check(&self, outputs: &[NodeId]) -> Result<(), LowerError> {
        if outputs.is_empty() {
            return Err(LowerError::of_all("the network has no output"));
        }
        let Some(training) = self.training.filter(|training| training.descent.parts() > 1) else { return Ok(()) };
        let ranks = training.descent.ranks;
        if ranks.shards(Shard::Optimizer) && whole_states(training.moments).1 {
            return Err(LowerError::of_all(&not_sharded(ranks.shard, "the optimizer")));
        }
        let field = if training.descent.accumulates() { "micro_batches" } else { "ranks" };
        match training.loss.iter().find(|term| term.compares_samples()) {
            Some(term) => Err(LowerError { row: None, message: not_in_parts(term.measure.name(), field) }),
            None => Ok(()),
        }
    }
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
    pub(in crate::lower) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut NodeId> {
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

    /// Returns the factor of the term in each of `parts` micro-batches. The mean over a batch is the mean of the means over its micro-batches. A
    /// term that divides by a count of the targets keeps its factor, since the host gives it the count of the whole batch.
    pub(in crate::lower) fn weight_in(&self, parts: u64) -> f64 {
        let is_sum = self.measure == Measure::Dot || self.options.reduction == Reduction::Sum;
        let counts = || Criterion::new(self.measure, 1.0, self.options.clone(), Shape::new(&[1])).counts();
        if is_sum || counts() { self.weight } else { self.weight / parts as f64 }
    }

    /// Returns `[scale, bias]`: true for each of the two that is a value of the network.
    pub(in crate::lower) fn learned(&self) -> [bool; 2] {
        [self.scale, self.bias].map(|value| value.is_some())
    }

    /// Returns the values that the loss measures, then its learned scale and bias. `None` if the network has too few outputs.
    pub(in crate::lower) fn values(&self, outputs: &[NodeId]) -> Option<Vec<NodeId>> {
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
    pub(in crate::lower) fn measured(&self, graph: &Graph, outputs: &[NodeId]) -> Result<Vec<NodeId>, LowerError> {
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

/// True if gradients of parameters live until the end of the step.
pub(in crate::lower) fn holds_gradients(update: Update, descent: &Descent) -> bool {
    update == Update::Separate || descent.needs_norm() || descent.accumulates()
}

impl Training<'_> {
    /// True if gradients live until the end of the step.
    pub(in crate::lower) fn holds_gradients(&self) -> bool {
        holds_gradients(self.update, &self.descent)
    }

    /// True if all updates come after the last gradient.
    pub(in crate::lower) fn defers_updates(&self) -> bool {
        self.holds_gradients() || self.checks_gradients()
    }

    /// True if each gradient is checked for values that are not finite before the first update.
    pub(in crate::lower) fn checks_gradients(&self) -> bool {
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

/// Returns the message for a loss that compares all samples of a batch, which `field` of `TRAIN` splits. That is `micro_batches` or `ranks`.
pub fn not_in_parts(loss: &str, field: &str) -> String {
    alloc::format!(
        "a part of a batch knows none of the others, and `{loss}` compares all of them; remove `{field}`, or use `checkpoint: Auto`"
    )
}

/// Returns the message for an optimizer with states that do not have one entry for each element of a parameter.
pub fn not_sharded(shard: Shard, optimizer: &str) -> String {
    alloc::format!(
        "`shard: {}` lets a rank update its part of a parameter, but {optimizer} does not treat each element by itself; choose one that does, as {}, or \
         leave `shard` out",
        shard.name(),
        Optimizer::OF_ELEMENTS
    )
}

impl LowerError {
    pub(in crate::lower) fn of_all(message: &str) -> LowerError {
        LowerError { row: None, message: message.into() }
    }
}
