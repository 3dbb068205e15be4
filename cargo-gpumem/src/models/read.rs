//! Reads a model of PyTorch, and writes it as a network.

use crate::Failure;
use gpumem_import::batch;
use gpumem_import::lift::{Lifted, Unknown, lift};
use gpumem_import::model::{Model, ValueId};
use gpumem_import::{bound, tree, weights};
use gpumem_language::source::Mistake;
use std::collections::BTreeMap;
use std::path::Path;

/// The optimizer of a step for which none is named.
pub const USUAL_OPTIMIZER: &str = "AdamW {}";

/// A kind of operations that the language does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The operation, as ATen calls it. Empty if the model as a whole cannot be written.
    pub operation: String,
    pub count: usize,
    /// The module of the first one.
    pub first: String,
    pub why: String,
}

/// A model of PyTorch in a file, with the network that it is.
pub struct Imported {
    /// The model at the batch of the request, for which its framework's memory is predicted.
    pub model: Model,
    pub parameters: u64,
    /// The network as source. `None` if it cannot be written.
    pub source: Option<String>,
    pub missing: Vec<Missing>,
    /// Operations that the network has in another way than the model.
    pub notes: Vec<Missing>,
    pub operations: usize,
    /// The values of the model that the inputs of the network are.
    pub given: Vec<ValueId>,
    /// The dimensions of the model that count samples.
    pub batch: batch::Batch,
    renamed: Vec<(String, String)>,
    lifted: Lifted,
}

impl Imported {
    /// Returns what the network has otherwise than the state dict of the model.
    pub fn weights(&self) -> weights::Plan {
        let resolved = self.source.as_ref().and_then(|source| gpumem_language::source::resolve(source).ok());
        let graph = resolved.iter().map(|resolved| &resolved.graph);
        let parameters =
            graph.clone().flat_map(|graph| &graph.parameters).map(|it| (it.name.as_str(), it.shape.dims()));
        let buffers = graph.flat_map(|graph| &graph.buffers).map(|it| (it.name.as_str(), it.shape.dims()));
        weights::Plan::new(&self.lifted, &self.renamed, parameters.chain(buffers))
    }

    /// Returns the sources of networks that need no more memory than the model, of which not all can be said. The closest come first.
    pub fn stand_ins(&self, options: &tree::Options) -> Vec<String> {
        bound::stand_ins(&self.model, &self.batch, options).iter().map(ToString::to_string).collect()
    }

    /// Returns the modules that can be said as networks of their own, in one source. Empty if there are none.
    pub fn parts(&self, options: &tree::Options) -> String {
        let mut text = String::new();
        for part in tree::parts(&self.model, &self.batch, &self.lifted, options) {
            let source = part.network.to_string();
            // A part of which not even the flat form is understood is left out.
            if gpumem_language::source::resolve(&source).is_ok() {
                let source =
                    if text.is_empty() { &source } else { source.trim_start_matches("use gpumem::network;\n") };
                text += source;
            }
        }
        text
    }
}

/// Reads a model, and writes it as a network.
pub fn model(path: &Path, options: &tree::Options, is_for_inference: bool) -> Result<Imported, Failure> {
    let model = gpumem_import::open(path, is_for_inference)?;
    let parameters = model.parameters();
    let operations = model.nodes.len();
    let Some(batch) = batch::Batch::follow(&model) else {
        let why = "it was exported with a batch of 1, which cannot be told from other dimensions of 1; export it with a batch of 2";
        return Err(format!("{}: {why}", path.display()).into());
    };
    let lifted = lift(&model, &batch);
    let mut missing = kinds(&lifted.unknown);
    let written = match missing.is_empty() {
        true => written(&model, &batch, &lifted, options).map_err(|why| missing.push(whole(why))).ok(),
        false => None,
    };
    let (source, network) = written.unzip();
    let (renamed, given) = network.map(|network| (network.renamed, network.given)).unwrap_or_default();
    let mut notes = kinds(&lifted.notes);
    notes.extend(drawn(&model, &lifted));
    Ok(Imported { model, parameters, source, missing, notes, operations, given, batch, renamed, lifted })
}

/// Returns the numbers that the model draws, and the network takes as further inputs.
fn drawn(model: &Model, lifted: &Lifted) -> Option<Missing> {
    let made = |value| model.nodes.iter().find(|node| node.outputs.contains(value));
    let first = lifted.noise.iter().find_map(made)?;
    let why =
        "the network takes the numbers as a further input: give it samples of the normal distribution".to_string();
    let place = if first.path().is_empty() { &first.name } else { first.path() };
    Some(Missing { operation: first.op.clone(), count: lifted.noise.len(), first: place.to_string(), why })
}

/// Writes a model that was lifted whole, with functions and repeats; as one list of layers if those cannot be read again.
fn written(model: &Model, batch: &batch::Batch, lifted: &Lifted, options: &tree::Options) -> Result<Written, String> {
    let network = tree::Network::new(model, batch, lifted, options).map_err(|refusal| refusal.to_string())?;
    let text = network.to_string();
    let Err(mistakes) = gpumem_language::source::resolve(&text) else { return Ok((text, network)) };
    let flat = tree::Network::flat(model, batch, lifted, options).map_err(|refusal| refusal.to_string())?;
    let flat_text = flat.to_string();
    match gpumem_language::source::resolve(&flat_text) {
        Ok(_) => Ok((flat_text, flat)),
        Err(_) => Err(said(&mistakes, &text)),
    }
}

/// A source, and the network that it is.
type Written = (String, tree::Network);

/// Returns mistakes with their lines.
fn said(mistakes: &[Mistake], text: &str) -> String {
    let line =
        |mistake: &Mistake| text.lines().nth(mistake.line.saturating_sub(1)).unwrap_or_default().trim().to_string();
    let first = mistakes.first().map(|mistake| format!("{}, in `{}`", mistake.message, line(mistake)));
    first.unwrap_or_else(|| "it has no layers".into())
}

fn whole(why: String) -> Missing {
    Missing { operation: String::new(), count: 1, first: String::new(), why }
}

/// Returns the operations that are missing by kind, the most frequent first.
fn kinds(all: &[Unknown]) -> Vec<Missing> {
    let mut kinds: BTreeMap<(&str, &str), Missing> = BTreeMap::new();
    for Unknown { op, place, reason, .. } in all {
        let missing = || Missing { operation: op.clone(), count: 0, first: place.clone(), why: reason.clone() };
        kinds.entry((op, reason)).or_insert_with(missing).count += 1;
    }
    let mut kinds: Vec<Missing> = kinds.into_values().collect();
    kinds.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.operation.cmp(&b.operation)));
    kinds
}
