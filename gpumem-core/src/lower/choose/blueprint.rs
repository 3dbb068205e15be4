//! Blueprints, from which a network is lowered again: at another precision, by a tool, without the macro.

use crate::graph::{Graph, NodeId, RowId, Source, SourceLines};
use crate::lower::rewrite::conv_norm::with_normalized_convolutions;
use crate::lower::schedule::recompute_norms::normalises;
use crate::lower::{Cached, LayerLine, LowerError, Options, RecomputeLevel, Search, Sizes, Term, Training};
use crate::lower::{
    layer_table, lower, lower_cached, lower_for, lower_in_order, lower_in_orders, lower_sharded, search,
};
use crate::memory::tables::samples;
use crate::number::Precision;
use crate::program::encoding::{Reader, Wire, wire_enum, wire_struct};
use crate::program::loss::Written;
use crate::program::op::{Rule, Work};
use crate::program::{Op, Program};
use crate::train::optim::matches;
use crate::train::{Checkpoint, ConvNorm, Descent, Offload, Shard, Update};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// A network without its weights: the graph, and the settings of `TRAIN` that change the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blueprint {
    /// The network.
    pub graph: Graph,
    /// Its outputs, in order.
    pub outputs: Vec<NodeId>,
    /// The settings of training; `None` if the network is not trained.
    pub training: Option<Steps>,
    /// The lengths of cached sequences; `None` if `INFER` has no cache.
    pub cached: Option<Cached>,
    /// The named training steps, of which `training` is one; empty if no step has a name.
    pub parts: Parts,
}

/// Settings of training, as far as the program depends on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The terms of the loss, which is their sum.
    pub loss: Vec<Term>,
    /// Optimizer state tensors for each parameter: see [`with_state`](crate::train::optim::with_state).
    pub moments: u64,
    /// The time of updates: as soon as a gradient is complete, or separately at the end.
    pub update: Update,
    /// The choice of what is recomputed.
    pub checkpoint: Checkpoint,
    /// Gradient clipping, gradient accumulation, the learning-rate schedule and other settings of an update.
    pub descent: Descent,
    /// The choice to run 1x1 convolutions and the normalisations after them as one operation, or as two.
    pub conv_norm: ConvNorm,
    /// The batch for which the backward pass is ordered, if the batch of the step is not a literal. `None`: that of the step.
    ///
    /// The macro lowers such a step once, for all batches that it may have.
    pub ordered_at: Option<u64>,
}

impl Steps {
    /// Returns [`Steps::conv_norm`], or `Separate` if ranks synchronise norms: a convolution fused with its norm knows no other rank.
    fn conv_norm(&self) -> ConvNorm {
        if self.descent.ranks.synchronises_norms() { ConvNorm::Separate } else { self.conv_norm }
    }
}

/// The training steps of a network that have names; empty if `TRAIN` alone trains all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// The number of the step that is the blueprint's `training`.
    pub at: usize,
    /// The steps, in the order of their states in memory.
    pub all: Vec<PartStep>,
}

/// A step that trains a part of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct PartStep {
    /// The name of its constant, such as `CRITIC`.
    pub name: String,
    /// The names of the parameters that it trains, separated by commas; `*` matches any text.
    pub trains: String,
    /// Its loss, optimizer states and updates.
    pub steps: Steps,
}

impl PartStep {
    /// True if `trains` matches the name of this parameter.
    pub fn names(&self, parameter: &str) -> bool {
        self.trains.split(',').any(|pattern| matches(pattern.trim(), parameter))
    }
}

wire_enum!(Update { Fused, Separate });

impl Wire for Term {
    fn put(&self, out: &mut Vec<u8>) {
        Written { kind: self.measure, options: self.options.clone() }.put(out);
        self.weight.put(out);
        self.from.put(out);
        self.and.put(out);
        self.third.put(out);
        self.scale.put(out);
        self.bias.put(out);
        self.target.put(out);
        self.lengths.put(out);
        self.weights.put(out);
        self.counted.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Term> {
        let Written { kind, options } = Wire::take(from)?;
        Some(Term {
            measure: kind,
            weight: Wire::take(from)?,
            from: Wire::take(from)?,
            and: Wire::take(from)?,
            third: Wire::take(from)?,
            scale: Wire::take(from)?,
            bias: Wire::take(from)?,
            target: Wire::take(from)?,
            lengths: Wire::take(from)?,
            weights: Wire::take(from)?,
            counted: Wire::take(from)?,
            options,
        })
    }
}
wire_struct!(Steps { loss, moments, update, checkpoint, descent, conv_norm, ordered_at });
wire_struct!(PartStep { name, trains, steps });
wire_struct!(Parts { at, all });

impl Wire for Checkpoint {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, share) = match *self {
            Checkpoint::None => (0u64, 0.0),
            Checkpoint::Cheap => (1, 0.0),
            Checkpoint::Auto => (2, 0.0),
            Checkpoint::Budget(share) => (3, share),
            Checkpoint::Norms => (4, 0.0),
        };
        kind.put(out);
        share.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Checkpoint> {
        let (kind, share) = (u64::take(from)?, f64::take(from)?);
        Some(match kind {
            0 => Checkpoint::None,
            1 => Checkpoint::Cheap,
            2 => Checkpoint::Auto,
            3 => Checkpoint::Budget(share),
            4 => Checkpoint::Norms,
            _ => return None,
        })
    }
}

wire_struct!(Cached { steps, chunk });

/// The divisor of a step's time that bounds what `Cheap` adds: one part in 8. The last few percent of a peak cost many times what the others do.
const CHEAP: u64 = 8;

impl Blueprint {
    /// Orders the backward pass of every training step for this batch. `None`: for the batch of each lowering, as the macro does for a literal one.
    pub fn order_for(&mut self, batch: Option<u64>) {
        let parts = self.parts.all.iter_mut().map(|part| &mut part.steps);
        parts.chain(&mut self.training).for_each(|steps| steps.ordered_at = batch);
    }

    /// Returns the training step at a precision; `None` if the network is not trained.
    ///
    /// # Errors
    /// See [`lower`].
    pub fn training(&self, precision: Precision) -> Result<Option<Program>, LowerError> {
        self.trained(precision, |graph, options| lower(graph, &self.outputs, options))
    }

    /// Returns the training step in the backward order that was found to need least memory at a setting. `None` if the network is not trained. It
    /// recomputes outputs of normalisations if the setting allows it and `checkpoint` in `TRAIN` is `Norms` or `Cheap`; other values of
    /// `checkpoint` change nothing here.
    ///
    /// # Errors
    /// See [`lower_for`].
    pub fn training_for(&self, setting: &Sizes) -> Result<Option<Program>, LowerError> {
        let renormalises = setting.renormalises && matches!(self.checkpoint(), Checkpoint::Norms | Checkpoint::Cheap);
        self.ordered(&Sizes { renormalises, ..*setting })
    }

    fn ordered(&self, setting: &Sizes) -> Result<Option<Program>, LowerError> {
        let batch = self.training.as_ref().and_then(|steps| steps.ordered_at).unwrap_or(setting.batch);
        let setting = &Sizes { batch, ..*setting };
        self.trained(setting.precision, |graph, options| lower_for(graph, &self.outputs, options, setting))
    }

    /// Returns the choice of what is recomputed: the default for a network that is not trained.
    pub fn checkpoint(&self) -> Checkpoint {
        self.training.as_ref().map(|steps| steps.checkpoint).unwrap_or_default()
    }

    /// Returns the step that recomputes outputs of normalisations, if `checkpoint` is `Auto` or `Budget`. `None` if it needs no less memory than
    /// `plain`, which keeps them.
    pub(in crate::lower) fn renormalised(
        &self,
        plain: &Program,
        setting: &Sizes,
    ) -> Result<Option<Program>, LowerError> {
        let is_asked_for = matches!(self.checkpoint(), Checkpoint::Auto | Checkpoint::Budget(_));
        let has_some = self.graph.groups.is_empty() && normalises(&self.graph);
        let found = if is_asked_for && setting.renormalises && has_some { self.ordered(setting)? } else { None };
        Ok(found.filter(|found| setting.peak(found) < setting.peak(plain)))
    }

    /// Returns the training steps that `checkpoint` and `chunks` in `TRAIN` allow; none for a network that is not trained. If memory decides, these
    /// are the step as the user wrote it and others that need less and less memory. Otherwise there is one.
    ///
    /// # Errors
    /// See [`search`].
    pub fn trainings(&self, setting: &Sizes) -> Result<Vec<Program>, LowerError> {
        let Some(plain) = self.plain(setting)? else { return Ok(Vec::new()) };
        if !self.decides() {
            return Ok(Vec::from([plain]));
        }
        let mut levels = self.levels_beside(&plain, setting, self.searches())?;
        if self.chunks_automatically() {
            levels = levels.at_most(setting.levels, setting.peak(&plain));
        }
        let mut all = Vec::from([plain]);
        for number in 1..=levels.all.len() {
            all.extend(levels.program(self, number, setting)?);
        }
        Ok(all)
    }

    /// Returns the step as the user wrote it, with logits at once if `chunks` is `Auto`. `None` for a network that is not trained.
    ///
    /// # Errors
    /// See [`search`].
    pub(in crate::lower) fn plain(&self, setting: &Sizes) -> Result<Option<Program>, LowerError> {
        let plain = self.training_for(setting)?;
        match self.checkpoint() {
            Checkpoint::Cheap => plain.map(|plain| self.cheap(plain, setting)).transpose(),
            Checkpoint::Norms | Checkpoint::None | Checkpoint::Auto | Checkpoint::Budget(_) => Ok(plain),
        }
    }

    /// Returns the step of `Checkpoint::Cheap`, or `plain`, which has no levels, if no level is cheap enough.
    fn cheap(&self, plain: Program, setting: &Sizes) -> Result<Program, LowerError> {
        let found = self.leaner(&plain, &Sizes { only_cheap: true, ..*setting })?;
        let is_cheap = |level: &&RecomputeLevel| level.cost <= found.step_cost / CHEAP;
        let Some(level) = found.levels.iter().skip(1).rfind(is_cheap) else { return Ok(plain) };
        Ok(self.training_in_order(setting.precision, &level.order)?.unwrap_or(plain))
    }

    /// True if the memory of the cards decides which of several programs runs. With `Budget`, a share of the step's own memory does.
    pub fn takes_what_fits(&self) -> bool {
        self.decides() && !matches!(self.checkpoint(), Checkpoint::Budget(_))
    }

    /// Returns the training step whose operations run in this order; `None` if the network is not trained.
    ///
    /// # Errors
    /// See [`lower_in_order`].
    pub fn training_in_order(&self, precision: Precision, order: &[u32]) -> Result<Option<Program>, LowerError> {
        self.trained(precision, |graph, options| lower_in_order(graph, &self.outputs, options, order))
    }

    /// Returns the levels of recomputation of the training step, at the setting's precision. `None` if the network is not trained.
    ///
    /// # Errors
    /// See [`search`].
    pub fn levels(&self, setting: &Sizes) -> Result<Option<Search>, LowerError> {
        self.trained(setting.precision, |graph, options| search(graph, &self.outputs, options, setting))
    }

    /// Returns the levels of recomputation that need less memory than `plain`. Levels begin with the default backward order, and that of `plain`
    /// may need less.
    ///
    /// # Errors
    /// See [`search`].
    pub(in crate::lower) fn leaner(&self, plain: &Program, setting: &Sizes) -> Result<Search, LowerError> {
        let mut found = self.levels(setting)?.unwrap_or_default();
        if self.training.as_ref().is_some_and(|steps| steps.descent.offload != Offload::None) {
            // The search knows neither activations in host memory nor the buffers through which optimizer state is streamed.
            let orders = found.levels.iter().skip(1).map(|level| &*level.order);
            let programs = self
                .trained(setting.precision, |graph, options| lower_in_orders(graph, &self.outputs, options, orders))?;
            for (level, program) in found.levels.iter_mut().skip(1).zip(programs.unwrap_or_default()) {
                level.peak = setting.peak(&program);
            }
        }
        // The first level is the step as the user wrote it.
        let mut least = None;
        found.levels.retain(|level| {
            let is_kept = least.is_none_or(|least| level.peak < least);
            if is_kept {
                least = Some(least.map_or_else(|| setting.peak(plain), |_| level.peak));
            }
            is_kept
        });
        Ok(found)
    }

    /// Chooses [`ConvNorm::Separate`] if a step at this setting needs less memory with it. The scratch memory of [`ConvNorm::Fused`] does not
    /// depend on the batch, but what it need not store grows with the batch. So if it loses nothing at one sample, it loses nothing at any batch
    /// size.
    ///
    /// # Errors
    /// See [`lower`].
    pub fn settle_conv_norm(&mut self, setting: &Sizes) -> Result<(), LowerError> {
        let Some(steps) = self.training.as_ref().filter(|steps| steps.conv_norm() == ConvNorm::Fused) else {
            return Ok(());
        };
        let samples = samples(setting.batch, steps.descent.parts());
        if saves_much(&with_normalized_convolutions(&self.graph, &self.ends()), samples) {
            return Ok(());
        }
        let mut separate = self.clone();
        separate.training.iter_mut().for_each(|steps| steps.conv_norm = ConvNorm::Separate);
        let peak = |blueprint: &Blueprint| {
            let program = blueprint.training(setting.precision)?;
            Ok(program.map_or(0, |program| setting.peak(&program)))
        };
        if peak(&separate)? < peak(self)? {
            *self = separate;
        }
        Ok(())
    }

    /// Calls `lower` with the graph and the options of a training step. `None` if the network is not trained. Unless `conv_norm` is `Separate`,
    /// normalisations are fused with the 1x1 convolutions before them in that graph.
    fn trained<T>(
        &self,
        precision: Precision,
        lower: impl FnOnce(&Graph, &Options<'_>) -> Result<T, LowerError>,
    ) -> Result<Option<T>, LowerError> {
        let Some(steps) = &self.training else { return Ok(None) };
        let training = Training {
            loss: &steps.loss,
            moments: steps.moments,
            update: steps.update,
            skips_overflow: precision.scales_loss(),
            input_gradient: false,
            descent: steps.descent.at(precision),
        };
        let options = Options { training: Some(training) };
        let graph = self.trained_graph();
        match steps.conv_norm() {
            ConvNorm::Fused => lower(&with_normalized_convolutions(&graph, &self.ends()), &options).map(Some),
            ConvNorm::Separate => lower(&graph, &options).map(Some),
        }
    }

    /// Returns the forward pass of `INFER`, which does not depend on the precision.
    ///
    /// # Errors
    /// See [`lower`].
    pub fn inference(&self) -> Result<Program, LowerError> {
        match self.cached {
            Some(cached) => lower_cached(&self.graph, &self.outputs, cached),
            None => self.forward_pass(),
        }
    }

    /// Returns the forward pass over whole samples on one rank, whatever `INFER` says.
    ///
    /// # Errors
    /// See [`lower`].
    pub fn forward_pass(&self) -> Result<Program, LowerError> {
        lower(&self.forward_graph(), &self.outputs, &Options::default())
    }

    /// Returns the forward pass of a training network. It gathers the parameters that ranks of the training step shard.
    ///
    /// # Errors
    /// See [`lower`].
    pub fn evaluation(&self) -> Result<Program, LowerError> {
        let ranks = self.training.as_ref().map(|steps| steps.descent.ranks);
        match ranks.filter(|ranks| ranks.shards(Shard::Parameters)) {
            Some(ranks) => lower_sharded(&self.forward_graph(), &self.outputs, ranks),
            None => self.forward_pass(),
        }
    }

    /// True if the forward pass of `INFER` is another program than that of the training network.
    pub fn infers_apart(&self) -> bool {
        self.cached.is_some()
            || self.training.as_ref().is_some_and(|steps| steps.descent.ranks.shards(Shard::Parameters))
    }

    /// Returns the forward pass of `INFER` for one time step. `None` without a cache, or if `INFER` takes one at a time anyway. Each of its
    /// tensors is one of [`Blueprint::inference`] and no larger, so that it has that tensor's offset; otherwise `None`, too.
    ///
    /// # Errors
    /// See [`lower`].
    pub fn decoding(&self) -> Result<Option<Program>, LowerError> {
        let Some(cached) = self.cached.filter(|cached| cached.chunk > 1) else { return Ok(None) };
        let one = lower_cached(&self.graph, &self.outputs, Cached { chunk: 1, ..cached })?;
        Ok(self.inference()?.covers(&one).then_some(one))
    }

    /// Returns the layer table of the network, given one of its programs.
    pub fn layers(&self, program: &Program) -> Vec<LayerLine> {
        layer_table(&self.graph, &self.outputs, program)
    }

    /// Returns the values that are read after the network has run: its outputs, and those that the loss names.
    pub(in crate::lower) fn ends(&self) -> Vec<NodeId> {
        [self.outputs.clone(), self.training.as_ref().map(measured).unwrap_or_default()].concat()
    }

    /// Returns [`Blueprint::ends`], and the values that the losses of all named steps name.
    pub(in crate::lower) fn all_ends(&self) -> Vec<NodeId> {
        let of_parts = self.parts.all.iter().flat_map(|part| measured(&part.steps));
        self.ends().into_iter().chain(of_parts).collect()
    }

    /// Replaces each output, and each value that a loss names, by its entry in `places`.
    pub(in crate::lower) fn move_ends(&mut self, places: &[NodeId]) {
        let parts = self.parts.all.iter_mut().map(|part| &mut part.steps);
        let terms = self.training.iter_mut().chain(parts).flat_map(|steps| &mut steps.loss);
        let measured = terms.flat_map(Term::nodes_mut);
        self.outputs.iter_mut().chain(measured).for_each(|node| *node = places[*node]);
    }

    /// Encodes the blueprint in the compact form that a record carries.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.graph.put(&mut bytes);
        self.outputs.put(&mut bytes);
        self.training.put(&mut bytes);
        self.cached.put(&mut bytes);
        // These are left out at the end if they are empty, as in records of versions that did not have them.
        let Graph { lines, loras, .. } = &self.graph;
        let has_loras = !loras.is_empty();
        let has_lines = has_loras || *lines != SourceLines::default();
        if has_lines || !self.parts.all.is_empty() {
            self.parts.put(&mut bytes);
        }
        if has_lines {
            lines.put(&mut bytes);
        }
        if has_loras {
            loras.iter().map(|rows| [rows.start, rows.end]).collect::<Vec<_>>().put(&mut bytes);
        }
        bytes
    }

    /// Reads what [`Blueprint::encode`] wrote; `None` if the bytes are not that.
    pub fn decode(bytes: &[u8]) -> Option<Blueprint> {
        let mut from = Reader::new(bytes);
        let mut graph = Graph::take(&mut from)?;
        let outputs = Vec::<NodeId>::take(&mut from)?;
        let training = <Option<Steps> as Wire>::take(&mut from)?;
        let cached = <Option<Cached> as Wire>::take(&mut from)?;
        let parts: Parts = if from.is_empty() { Parts::default() } else { Wire::take(&mut from)? };
        graph.lines = if from.is_empty() { SourceLines::default() } else { Wire::take(&mut from)? };
        let loras: Vec<[RowId; 2]> = if from.is_empty() { Vec::new() } else { Wire::take(&mut from)? };
        graph.loras = loras.into_iter().map(|[first, end]| first..end).collect();
        let all = training.iter().chain(parts.all.iter().map(|part| &part.steps));
        let terms = all.flat_map(|steps| &steps.loss).flat_map(Term::nodes);
        let exist = terms.chain(outputs.iter().copied()).all(|node| node < graph.nodes.len());
        let is_one = parts.all.is_empty() || training.is_some() && parts.at < parts.all.len();
        let has_rows = |rows: &Range<RowId>| rows.start <= rows.end && rows.end <= graph.rows.len();
        let is_sound = graph.lines.is_sound(graph.rows.len()) && graph.loras.iter().all(has_rows);
        (from.is_empty() && exist && is_one && is_sound).then_some(Blueprint {
            graph,
            outputs,
            training,
            cached,
            parts,
        })
    }
}

/// True if fused convolutions and normalisations save 8 times their scratch memory or more, or if there are none. Elements are compared, not
/// bytes: those of scratch memory are at most twice as wide as those of a map.
fn saves_much(graph: &Graph, samples: u64) -> bool {
    let all = graph.nodes.iter().filter_map(|node| match &node.source {
        Source::Op { op: Op::NormalizedConvolution(op), .. } => Some(op),
        _ => None,
    });
    let (mut stored, mut scratch) = (0u64, 0u64);
    for op in all {
        let work = Work::Gradient(0);
        let workspace = op.workspace(work).map_or(0, |workspace| workspace.shape.elements().unwrap_or(u64::MAX));
        let own =
            op.scratch(work).iter().filter_map(|saved| saved.shape.elements()).fold(workspace, u64::saturating_add);
        stored = stored.saturating_add(op.output().elements().unwrap_or(u64::MAX).saturating_mul(samples));
        scratch = scratch.max(own);
    }
    stored >= scratch.saturating_mul(8)
}

/// Returns the values that a loss names.
fn measured(steps: &Steps) -> Vec<NodeId> {
    steps.loss.iter().flat_map(Term::nodes).collect()
}
