//! Requests of other programs, such as the package of Python: a model in a file, with settings as texts.

use crate::models::{self, Found};
use crate::options::{Counting, FileOptions, Fit, Implementation, Kernels, Settings, is_file, is_source};
use crate::values::{batch, checkpoint, device_of, precision, size};
use clap::ValueEnum;
use gpumem_core::suggest::nearest;
use std::fmt;
use std::path::Path;

/// A model in a file, and the step that is asked about. Settings are written as on the command line of `cargo gpumem fit`, or left out.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The path of a file of `torch.export.save` or of ONNX.
    pub file: String,
    /// The name of the file in answers. `None` for its path.
    pub name: Option<String>,
    /// Samples in a step, or `largest`.
    pub batch: Option<String>,
    /// The optimizer, by its name or as in `TRAIN`.
    pub optimizer: Option<String>,
    /// The number formats, such as `bf16` or `mixed-bf16`.
    pub precision: Option<String>,
    /// The choice of what is recomputed, such as `auto`.
    pub checkpoint: Option<String>,
    /// Slugs of cards, or sizes such as `11.5GiB`. All known cards if empty.
    pub cards: Vec<String>,
    /// The text of messages for what lists all cards. `None` for the command.
    pub card_list: Option<String>,
    /// Memory of each card that is left to others, such as `1GiB`.
    pub headroom: Option<String>,
    /// True for a model that was exported for inference.
    pub is_for_inference: bool,
    /// PyTorch's kernels of attention: `fused` or `math`.
    pub attention: Option<String>,
    /// PyTorch's implementation of the optimizer: `foreach`, `for-loop` or `fused`.
    pub pytorch_update: Option<String>,
    /// Rules by which PyTorch's memory is counted: `card` or `tracker`.
    pub pytorch_rules: Option<String>,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Report {
    /// The answer as `cargo gpumem fit --format json` prints it.
    pub json: String,
    /// The answer as a table for people.
    pub table: String,
}

/// The reason why a request has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// A setting has a value that it cannot have.
    Value {
        /// The setting: the name of the field of [`Request`].
        of: &'static str,
        /// The mistake, and what to write instead.
        why: String,
    },
    /// The file cannot be read, or its network cannot be planned.
    Failure(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Value { of, why } => write!(f, "{of}: {why}"),
            Refused::Failure(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}

impl Request {
    /// Reads the model, plans the network that it is, and predicts its memory in PyTorch. This takes seconds for a large model.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn answer(&self) -> Result<Report, Refused> {
        self.check_file()?;
        let arguments = self.arguments()?;
        // The caller knows the file by its name alone.
        let name = self.name.as_ref().unwrap_or(&self.file);
        let failure = |why: crate::Failure| Refused::Failure(why.to_string().replace(&self.file, name));
        let overrides = arguments.of_files().map_err(Refused::Failure)?.unwrap_or_default();
        let found: Found = models::found(&arguments, &overrides).map_err(failure)?;
        Ok(Report { json: models::json::as_json(&found).to_string(), table: models::table::text(&found) })
    }

    /// Reads the settings without a look at the file, so that mistakes in them are found before a model is exported.
    ///
    /// # Errors
    /// See [`Refused::Value`].
    pub fn check(&self) -> Result<(), Refused> {
        self.arguments().map(drop)
    }

    fn check_file(&self) -> Result<(), Refused> {
        if !is_file(&self.file) || is_source(&self.file) {
            let why = format!("`{}` is no file of `torch.export.save` (.pt2) or of ONNX (.onnx)", self.file);
            return Err(Refused::Value { of: "model", why });
        }
        if !Path::new(&self.file).is_file() {
            return Err(Refused::Value { of: "model", why: format!("there is no file {}", self.file) });
        }
        Ok(())
    }

    /// Returns the request as a command line.
    fn arguments(&self) -> Result<Fit, Refused> {
        if let Some(optimizer) = &self.optimizer {
            value("optimizer", gpumem_language::source::Overrides::default().set_optimizer(optimizer))?;
        }
        let list = self.card_list.as_deref().unwrap_or("`cargo gpumem cards`");
        let cards = self.cards.iter().map(|card| device_of(card, list).map_err(|why| format!("{card:?}: {why}")));
        Ok(Fit {
            networks: vec![self.file.clone()],
            cards: value("cards", cards.collect())?,
            settings: Settings {
                batch: read("batch", &self.batch, batch)?,
                precision: read("precision", &self.precision, precision)?,
                ..Settings::default()
            },
            headroom: read("headroom", &self.headroom, size)?,
            file: FileOptions {
                optimizer: self.optimizer.clone(),
                checkpoint: read("checkpoint", &self.checkpoint, checkpoint)?,
                inference: self.is_for_inference,
                pytorch_rules: read("pytorch_rules", &self.pytorch_rules, one_of::<Counting>)?.unwrap_or_default(),
                pytorch_update: read("pytorch_update", &self.pytorch_update, one_of::<Implementation>)?,
                attention: read("attention", &self.attention, one_of::<Kernels>)?.unwrap_or_default(),
                name: self.name.clone(),
            },
            ..Fit::default()
        })
    }
}

fn value<T>(of: &'static str, read: Result<T, String>) -> Result<T, Refused> {
    read.map_err(|why| Refused::Value { of, why })
}

/// Reads a setting, if it is given.
fn read<T>(
    of: &'static str,
    text: &Option<String>,
    from: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Refused> {
    value(of, text.as_deref().map(from).transpose())
}

/// Reads one of several words.
fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, true).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = values.map(|it| it.get_name().to_string()).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let meant = nearest(text, &all).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        format!("{meant}write {}", all.join(", "))
    })
}

/// Returns all cards as JSON, as `cargo gpumem cards --format json` prints them.
pub fn cards() -> String {
    crate::cards::as_json(&gpumem_core::cards::ALL.iter().collect::<Vec<_>>()).to_string()
}

/// Returns a number of bytes for people, such as `1.91 GiB`.
pub fn bytes(value: u64) -> String {
    crate::text::bytes(value)
}
