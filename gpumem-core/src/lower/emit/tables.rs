//! The tables of a program that const evaluation reads, and the layer table.

use crate::graph::{Graph, NodeId};
use crate::memory::live_ranges::OwnedTransients;
use crate::memory::tables::{BatchTensor, CacheTensor, NOT_TRAINED, Parameter, Paths, Persistent};
use crate::memory::tables::{TRAINED, TRAINED_ELSEWHERE, Tables, Workspaces};
use crate::program::NO_ROW;
use crate::program::{Class, Part, Program, Tensor, TensorId};
use crate::train::Ranks;
use crate::train::optim::whole_states;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// The contents of a [`Tables`](crate::memory::tables::Tables), to be written into the user's crate.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedTables {
    /// The number of operations.
    pub operations: u64,
    /// Tensors that live inside the step.
    pub transients: OwnedTransients,
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// Running statistics, state, and optimizer states that are not counted with their parameters.
    pub buffers: Vec<Persistent>,
    /// Inputs and targets.
    pub batch: Vec<BatchTensor>,
    /// Cache entries, such as keys and values.
    pub caches: Vec<CacheTensor>,
    /// Optimizer states of each parameter that have its size.
    pub moments: u64,
    /// True if parameters that are trained have moving averages.
    pub averages: bool,
    /// True if gradients live until the end of the step.
    pub holds_gradients: bool,
    /// True if gradients of weights with master copies are added up in f32.
    pub wide_sums: bool,
    /// True for a training step.
    pub training: bool,
    /// The phase and the layer row of each operation, in four bytes.
    pub operation_tags: Vec<u8>,
    /// The part and the layer row of each transient tensor, in four bytes.
    pub transient_tags: Vec<u8>,
    /// The paths of the layer rows.
    pub paths: OwnedPaths,
    /// The number of micro-batches, which run one after the other.
    pub micro_batches: u64,
    /// The ranks that share the step.
    pub ranks: Ranks,
    /// True if optimizer state and master copies are in host memory.
    pub offloads: bool,
    /// Activations that are parked in host memory.
    pub parked: Vec<BatchTensor>,
    /// The name of the step's constant; empty if steps have no names.
    pub step: String,
}

impl OwnedTables {
    /// Returns the tables as const evaluation reads them, without limits of workspaces.
    pub fn as_tables(&self) -> Tables<'_> {
        Tables {
            operations: self.operations,
            transients: self.transients.as_transients(),
            parameters: &self.parameters,
            buffers: &self.buffers,
            batch: &self.batch,
            caches: &self.caches,
            moments: self.moments,
            averages: self.averages,
            holds_gradients: self.holds_gradients,
            wide_sums: self.wide_sums,
            training: self.training,
            operation_tags: &self.operation_tags,
            transient_tags: &self.transient_tags,
            paths: self.paths.as_paths(),
            workspaces: Workspaces::UNLIMITED,
            micro_batches: self.micro_batches,
            parts: self.micro_batches.saturating_mul(self.ranks.count),
            ranks: self.ranks,
            offloads: self.offloads,
            parked: &self.parked,
            step: &self.step,
        }
    }
}

/// The contents of a [`Paths`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedPaths {
    /// See [`Paths::text`].
    pub text: String,
    /// See [`Paths::ends`].
    pub ends: Vec<u32>,
}

impl OwnedPaths {
    /// Returns the paths as const evaluation reads them.
    pub fn as_paths(&self) -> Paths<'_> {
        Paths { text: &self.text, ends: &self.ends }
    }
}

impl<'p> FromIterator<&'p String> for OwnedPaths {
    fn from_iter<I: IntoIterator<Item = &'p String>>(paths: I) -> OwnedPaths {
        let mut owned = OwnedPaths::default();
        for path in paths {
            owned.text += path;
            owned.ends.push(owned.text.len() as u32);
        }
        owned
    }
}

/// Returns the tables of a program.
pub fn tables(program: &Program) -> OwnedTables {
    let of = |classes: &'static [Class]| program.tensors.iter().filter(|tensor| classes.contains(&tensor.class));
    let elements = |tensor: &Tensor| tensor.stored_of_each().unwrap_or(u64::MAX);
    let given = |tensor: &Tensor| [tensor.role as u64, elements(tensor)];
    let has_several = program.has_several_steps();
    let updated: BTreeSet<TensorId> = program.updated().collect();
    let trained = |id: TensorId| match program.tensor(id).trained {
        false => NOT_TRAINED,
        true if has_several && !updated.contains(&id) => TRAINED_ELSEWHERE,
        true => TRAINED,
    };
    let parameter = |id: TensorId| {
        let tensor = program.tensor(id);
        [tensor.role as u64, tensor.unsharded().unwrap_or(u64::MAX), trained(id)]
    };
    let states = program.states();
    let cache = |id: TensorId| {
        let tensor = program.tensor(id);
        let steps = if states.contains(&id) { 0 } else { tensor.shape.dims().first().copied().unwrap_or(0) };
        [tensor.role as u64, elements(tensor) / steps.max(1), steps]
    };
    let transient = |tensor: &Tensor| {
        let (fixed, each) = if tensor.batched { (0, elements(tensor)) } else { (elements(tensor), 0) };
        let fixed = fixed.saturating_add(tensor.once);
        let life = [u64::from(tensor.first), u64::from(tensor.last)];
        let gaps = if tensor.batched { tensor.gaps() } else { 0 };
        ([tensor.role as u64, fixed, each, gaps, life[0], life[1]], tensor.part == Part::Workspace)
    };
    let operations = program.operations.iter();
    let (moments, has_others) = whole_states(program.moments);
    // If a state is not as large as its parameter, or belongs to another step, none is counted with the parameter.
    let (moments, buffers): (u64, &'static [Class]) = match has_others || has_several {
        true => (0, &[Class::Buffer, Class::State, Class::Moment]),
        false => (moments, &[Class::Buffer, Class::State]),
    };
    OwnedTables {
        operations: program.operations.len() as u64,
        transients: OwnedTransients::new(of(&[Class::Transient]).map(transient)),
        parameters: (counted(program.of_class(Class::Parameter).map(parameter)).into_iter())
            .map(|([role, elements, trained], count)| [role, elements, trained, count])
            .collect(),
        buffers: (counted(of(buffers).map(given)).into_iter())
            .map(|([role, elements], count)| [role, elements, count])
            .collect(),
        batch: of(&[Class::Input, Class::Target]).map(given).collect(),
        caches: (counted(program.of_class(Class::Cache).map(cache)).into_iter())
            .map(|([role, row, steps], count)| [role, row, steps, count])
            .collect(),
        moments,
        averages: program.of_class(Class::Average).next().is_some(),
        holds_gradients: program.holds_gradients,
        wide_sums: program.descent.wide_sums,
        training: program.training,
        operation_tags: operations.flat_map(|operation| tag(operation.phase() as u8, operation.row)).collect(),
        transient_tags: of(&[Class::Transient]).flat_map(|tensor| tag(tensor.part as u8, tensor.row)).collect(),
        paths: program.paths.iter().collect(),
        micro_batches: program.descent.micro_batches,
        ranks: program.descent.ranks,
        offloads: program.descent.offloads(),
        parked: of(&[Class::Host]).map(given).collect(),
        step: program.step_name().into(),
    }
}

/// Counts how often each entry occurs.
fn counted<const N: usize>(tensors: impl Iterator<Item = [u64; N]>) -> BTreeMap<[u64; N], u64> {
    let mut counts = BTreeMap::new();
    tensors.for_each(|tensor| *counts.entry(tensor).or_insert(0) += 1);
    counts
}

fn tag(kind: u8, row: u32) -> [u8; 4] {
    let [low, high] = u16::try_from(row).unwrap_or(NO_ROW).to_le_bytes();
    [kind, 0, low, high]
}

/// One line of the layer table, to be written as a [`LayerInfo`](crate::network::LayerInfo).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerLine {
    /// The layer's path.
    pub path: String,
    /// The layer's name in the language.
    pub kind: String,
    /// Dimensions of its output, without the batch.
    pub output_shape: Vec<u64>,
    /// Elements of the parameters that it owns.
    pub parameters: u64,
    /// See [`LayerInfo::macs`](crate::network::LayerInfo::macs).
    pub macs: u64,
    /// See [`LayerInfo::kept`](crate::network::LayerInfo::kept).
    pub kept: [u64; 6],
}

/// Returns the layer table of a network with these outputs.
pub fn layer_table(graph: &Graph, outputs: &[NodeId], program: &Program) -> Vec<LayerLine> {
    let line = |((row, macs), kept): ((&crate::graph::Row, u64), [u64; 6])| LayerLine {
        path: row.path.clone(),
        kind: row.kind.clone(),
        output_shape: row.output.shape.dims().to_vec(),
        parameters: row.parameters,
        macs,
        kept,
    };
    graph.rows.iter().zip(graph.macs(outputs)).zip(program.kept_of_layers()).map(line).collect()
}
