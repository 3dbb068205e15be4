//! Answers for models in files, without a build: `cargo gpumem fit model.pt2`.

#[cfg(test)]
mod bounds;
pub mod json;
pub mod pytorch;
pub mod read;
pub mod table;

use crate::Failure;
use crate::answer::{Answers, all_cards, answers, asked};
use crate::built::{Built, label};
use crate::network::{LeftOut, Network};
use crate::options::{Fit, Format, Settings, is_source};
use crate::output::print;
use crate::plan::{PlannedProgram, steps};
use crate::text::bytes;
use crate::values::Batch;
use crate::{files, fit};
use gpumem_core::Precision;
use gpumem_core::memory::budget::Budget;
use gpumem_core::report::Device;
use gpumem_core::train::Ranks;
use gpumem_import::tree;
use gpumem_language::source::{Mistake, Overrides, declared};
use pytorch::{Prediction, PyTorch};
use read::{Imported, Missing, USUAL_OPTIMIZER};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// The batch of a step for which none is named.
pub const USUAL_BATCH: u64 = 32;

/// The facts about a model in a file.
pub struct Model {
    pub file: String,
    /// The format, and the framework that wrote it.
    pub origin: String,
    pub name: String,
    pub batch: u64,
    pub optimizer: String,
    pub precision: &'static str,
    pub parameters: u64,
    /// Floating-point operations of one sample's forward pass. `None` if the language does not have all of them.
    pub flops_forward: Option<u64>,
    /// The operations of the file.
    pub operations: usize,
    /// The operations that the language does not have.
    pub missing: Vec<Missing>,
    /// The memory that the network needs at least, if there are such operations. `None` if nothing is known.
    pub at_least: Option<AtLeast>,
    /// Operations that the network has in another way.
    pub notes: Vec<Missing>,
    /// The budget on the first device.
    pub budget: Option<Budget>,
    /// The prediction of PyTorch's memory, or the reason why there is none.
    pub pytorch: Result<PyTorch, String>,
}

/// Models in files, with the answers for their networks and for those of sources.
pub struct Found {
    pub models: Vec<Model>,
    pub answers: Answers,
    /// Models that are no networks, since the language does not have all of their operations.
    pub left_out: Vec<LeftOut>,
    /// True if no card is named, so that a network need not fit each of them.
    pub is_about_all: bool,
}

impl Found {
    /// True if a network does not fit a card.
    pub fn refuses(&self) -> bool {
        self.answers.answers.iter().any(|answer| answer.left().is_err())
    }

    /// Returns the answers and everything that has none.
    fn into_answers(self) -> Answers {
        let Answers { answers, mut left_out } = self.answers;
        left_out.extend(self.left_out);
        Answers { answers, left_out }
    }
}

/// Compares the networks in files with cards, and prints the answers.
pub fn run(arguments: &Fit, overrides: &Overrides) -> Result<ExitCode, Failure> {
    let found = found(arguments, overrides)?;
    let code = if found.left_out.is_empty() { u8::from(found.refuses() && !found.is_about_all) } else { 2 };
    print(&match arguments.format {
        Format::Table => table::text(&found),
        Format::Json => format!("{:#}\n", json::as_json(&found)),
        Format::Github => fit::github::annotations(&found.into_answers()),
        Format::Junit => fit::junit::report(&found.into_answers())?,
        Format::Markdown => fit::markdown::matrix(&found.into_answers()),
    })?;
    Ok(ExitCode::from(code))
}

/// Compares the networks in files with cards: those that are asked about, or all.
pub fn found(arguments: &Fit, overrides: &Overrides) -> Result<Found, Failure> {
    let devices = asked(arguments).unwrap_or_else(all_cards);
    let (sources, files): (Vec<String>, Vec<String>) =
        arguments.networks.iter().cloned().partition(|file| is_source(file));
    let mut built = match sources.is_empty() {
        true => Built::default(),
        false => files::networks(&sources, overrides)?,
    };
    let mut models = Vec::new();
    let mut planned = BTreeMap::new();
    for file in &files {
        let (model, found) = model(file, arguments, overrides, &devices)?;
        if let Some((network, steps)) = found {
            planned.insert(built.networks.len(), steps);
            built.networks.push(network);
        }
        models.push(model);
    }
    label(&mut built.networks);
    for (&index, steps) in &mut planned {
        steps.iter_mut().for_each(|step| step.label.clone_from(&built.networks[index].label));
    }
    let left_out = models.iter().filter_map(Model::left_out).collect();
    let names_cards =
        built.networks.iter().any(|network| network.train.iter().chain(&network.infer).any(|it| !it.cards.is_empty()));
    let is_about_all = arguments.all || arguments.cards.is_empty() && !names_cards;
    let arguments = Fit { networks: Vec::new(), all: is_about_all, ..arguments.clone() };
    let answers = match built.networks.is_empty() {
        true => Answers { answers: Vec::new(), left_out: built.left_out },
        false => answers(built, planned, &arguments)?,
    };
    Ok(Found { models, answers, left_out, is_about_all })
}

/// The network that a model is, with its programs.
type Planned = (Network, Vec<PlannedProgram>);

/// Reads a model, plans the network that it is, and predicts its memory in PyTorch.
fn model(
    file: &str,
    arguments: &Fit,
    overrides: &Overrides,
    devices: &[Device],
) -> Result<(Model, Option<Planned>), Failure> {
    let path = Path::new(file);
    let file = arguments.file.name.as_deref().unwrap_or(file);
    let samples = arguments.settings.samples().unwrap_or(USUAL_BATCH);
    let optimizer = arguments.file.optimizer.clone().unwrap_or_else(|| USUAL_OPTIMIZER.into());
    let options = tree::Options {
        name: Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file).to_string(),
        batch: samples,
        optimizer: USUAL_OPTIMIZER.into(),
        loss: None,
        fields: Vec::new(),
    };
    let imported = read::model(path, &options, arguments.file.inference)?;
    let network = match &imported.source {
        Some(source) => {
            let failure = |mistakes: Vec<Mistake>| {
                mistakes.iter().map(|it| format!("{file}: {it}")).collect::<Vec<_>>().join("\n")
            };
            Some(files::network(file, declared(source, overrides).map_err(failure)?))
        }
        None => None,
    };
    let steps = network.as_ref().map(|network| steps(network, &arguments.settings)).transpose()?;
    let at_least = match steps {
        Some(_) => None,
        None => at_least(&imported, &options, arguments, overrides),
    };
    let step = steps.as_ref().and_then(|steps| steps.first());
    let headroom = arguments.headroom.unwrap_or(0);
    let planned = match (step, devices.first()) {
        (Some(step), Some(&device)) => Some((step.within(&device.aim(), device, headroom)?, device)),
        _ => None,
    };
    let batch = match planned {
        Some(((_, largest), _)) if arguments.settings.takes_largest() => largest.max(1),
        _ => samples,
    };
    let budget = planned.map(|((budget, _), device)| {
        let ranks = step.map_or(Ranks::ALONE, |step| step.plan.ranks());
        budget.with_reserve(device.reserve()).with_communication(device.communication(ranks))
    });
    let precision = arguments.settings.precision;
    let predicted = Prediction::new(&imported.model, (precision, &optimizer), &arguments.file);
    let model = Model {
        file: file.to_string(),
        origin: imported.model.source.clone(),
        name: network.as_ref().map_or_else(|| options.name.clone(), |network| network.name.clone()),
        batch,
        optimizer,
        precision: precision.unwrap_or(Precision::F32).name(),
        parameters: imported.parameters,
        flops_forward: step.map(|step| step.plan.macs().saturating_mul(2)),
        operations: imported.operations,
        missing: imported.missing,
        at_least: at_least.map(|arena| AtLeast::new(arena, headroom, devices)),
        notes: imported.notes,
        // A plan of the largest batch is in the table of cards.
        budget: budget.filter(|_| !arguments.settings.takes_largest()),
        pytorch: predicted.and_then(|predicted| predicted.at(batch, devices, headroom)),
    };
    Ok((model, network.zip(steps)))
}

/// Returns arena bytes that the network of a model needs at least, as far as it can be said. `None` if nothing is known.
fn at_least(imported: &Imported, options: &tree::Options, arguments: &Fit, overrides: &Overrides) -> Option<u64> {
    let settings = Settings { batch: Some(Batch::Samples(options.batch)), ..arguments.settings.clone() };
    imported.stand_ins(options).iter().find_map(|source| {
        let network = files::network(&options.name, declared(source, overrides).ok()?);
        steps(&network, &settings).ok()?.first()?.plan.at_least().ok()
    })
}

impl Model {
    /// Returns an entry for a model that has no answer, with the operations that are missing.
    fn left_out(&self) -> Option<LeftOut> {
        if self.missing.is_empty() {
            return None;
        }
        let mut why = table::cannot_say(&self.missing, self.operations);
        let kinds = self.missing.iter().take(MOST_TOLD);
        let kinds = kinds.map(|missing| match &missing.operation[..] {
            "" => missing.why.clone(),
            operation => format!("{operation} ({}, first in {})", table::times(missing.count), missing.first),
        });
        why += &format!(" {}", kinds.collect::<Vec<_>>().join(", "));
        if self.missing.len() > MOST_TOLD {
            why += &format!(" and {} further kinds", self.missing.len() - MOST_TOLD);
        }
        if let Some(at_least) = &self.at_least {
            why += &format!("; its network needs at least {} besides what a card takes itself", bytes(at_least.arena));
        }
        Some(LeftOut {
            label: self.name.clone(),
            name: self.name.clone(),
            program: None,
            package: None,
            file: self.file.clone(),
            line: 1,
            why,
        })
    }
}

/// The kinds of operations that the reason of an entry names.
const MOST_TOLD: usize = 5;

/// The memory that the network of a model needs at least, of which not all can be said.
pub struct AtLeast {
    /// Bytes of the arena.
    pub arena: u64,
    /// Each device with the bytes of the arena and its reserve, and true if that is more than it has.
    pub on: Vec<(Device, u64, bool)>,
}

impl AtLeast {
    fn new(arena: u64, headroom: u64, devices: &[Device]) -> AtLeast {
        let on = devices.iter().map(|&device| {
            let total = arena.saturating_add(device.reserve());
            (device, total, total.saturating_add(headroom) > device.usable())
        });
        AtLeast { arena, on: on.collect() }
    }
}
