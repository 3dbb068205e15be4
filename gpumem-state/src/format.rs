//! The files of a state: their names, and the numbers in `state.json`.

use crate::Progress;
use crate::error::{Differences, Error};
use gpumem_core::network::{Network, StepInfo};
use gpumem_core::number::Format;
use gpumem_core::run::state::{StateNumbers, StateTensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The file with the tensors.
pub(crate) const TENSORS: &str = "state.safetensors";
/// The file with the numbers.
pub(crate) const NUMBERS: &str = "state.json";
/// The longest file of numbers that is read. One of 100 000 tensors has about 8 MiB.
pub(crate) const LONGEST_NUMBERS: u64 = 64 << 20;
/// The version of the format that is written.
const VERSION: u32 = 1;
/// The start of the first line, which has the checksum of all others.
const FIRST_LINE: &str = "{ \"crc32c\": \"";
/// The rest of the first line, after the checksum.
const AFTER_CHECKSUM: &str = "\",\n";

/// The contents of `state.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbers {
    pub(crate) version: u32,
    pub(crate) gpumem: String,
    pub(crate) network: String,
    /// The checksum of the layer table.
    pub(crate) fingerprint: String,
    pub(crate) optimizer: String,
    pub(crate) precision: String,
    pub(crate) batch: u64,
    pub(crate) steps: u64,
    pub(crate) seed: u64,
    pub(crate) lr: f64,
    pub(crate) loss_scale: f32,
    pub(crate) good_steps: u32,
    #[serde(default)]
    pub(crate) skipped: u32,
    #[serde(default)]
    pub(crate) averaged: u32,
    /// The `total` of the schedule. `None` unless the program had set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    /// The numbers of the steps after the first, of a network with named steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<OtherNumbers>,
    pub(crate) progress: Progress,
    /// The checksum of the header of the file of tensors.
    pub(crate) header: String,
    /// The checksum of each tensor's bytes.
    pub(crate) tensors: BTreeMap<String, String>,
}

/// The numbers of one of several training steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OtherNumbers {
    /// The name of its constant.
    pub(crate) name: String,
    pub(crate) optimizer: String,
    pub(crate) steps: u64,
    pub(crate) seed: u64,
    pub(crate) lr: f64,
    pub(crate) loss_scale: f32,
    pub(crate) good_steps: u32,
    pub(crate) skipped: u32,
    /// The `total` of the schedule. `None` unless the program had set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
}

impl OtherNumbers {
    fn of(step: &StepInfo, numbers: StateNumbers) -> OtherNumbers {
        // Named steps have no averages.
        let StateNumbers { steps, seed, lr, loss_scale, good_steps, skipped, averaged: _, total } = numbers;
        let (name, optimizer) = (step.name.to_string(), step.train.optimizer.row().name.to_string());
        OtherNumbers { name, optimizer, steps, seed, lr, loss_scale, good_steps, skipped, total }
    }

    fn state_numbers(&self) -> StateNumbers {
        let &OtherNumbers { steps, seed, lr, loss_scale, good_steps, skipped, total, .. } = self;
        StateNumbers { steps, seed, lr, loss_scale, good_steps, skipped, averaged: 0, total }
    }
}

/// Returns a checksum as files have it.
pub(crate) fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Returns the checksum of the layers: paths, kinds and output shapes.
fn fingerprint<N: Network>() -> String {
    let mut sum = 0;
    for layer in N::LAYERS {
        sum = crc32c::crc32c_append(sum, layer.path.as_bytes());
        sum = crc32c::crc32c_append(sum, b"\0");
        sum = crc32c::crc32c_append(sum, layer.kind.as_bytes());
        sum = crc32c::crc32c_append(sum, format!("{:?}", layer.output_shape).as_bytes());
    }
    format!("{sum:08x}")
}

/// Returns the name of the optimizer of the network's first training step.
fn optimizer<N: Network>() -> &'static str {
    let first = N::TRAIN.or_else(|| N::STEPS.first().map(|step| step.train));
    first.map_or("none", |train| train.optimizer.row().name)
}

/// Returns the names of the steps after the first, each with its optimizer.
fn others<N: Network>() -> String {
    let named = N::STEPS.iter().skip(1).map(|step| format!("{} ({})", step.name, step.train.optimizer.row().name));
    listed(named.collect())
}

fn listed(names: Vec<String>) -> String {
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

impl Numbers {
    /// Returns the contents of `state.json` for a state. `numbers` are those of each training step.
    pub(crate) fn of<N: Network>(numbers: &[StateNumbers], progress: Progress) -> Numbers {
        let (first, rest) = numbers.split_first().expect("a network that trains has a step");
        let StateNumbers { steps, seed, lr, loss_scale, good_steps, skipped, averaged, total } = *first;
        let others = N::STEPS.iter().skip(1).zip(rest).map(|(step, numbers)| OtherNumbers::of(step, *numbers));
        Numbers {
            version: VERSION,
            gpumem: env!("CARGO_PKG_VERSION").to_string(),
            network: N::NAME.to_string(),
            fingerprint: fingerprint::<N>(),
            optimizer: optimizer::<N>().to_string(),
            precision: N::PROGRAM.precision.name().to_string(),
            batch: N::PROGRAM.batch,
            steps,
            seed,
            lr,
            loss_scale,
            good_steps,
            skipped,
            averaged,
            total,
            others: others.collect(),
            progress,
            header: String::new(),
            tensors: BTreeMap::new(),
        }
    }

    pub(crate) fn state_numbers(&self) -> StateNumbers {
        let &Numbers { steps, seed, lr, loss_scale, good_steps, skipped, averaged, total, .. } = self;
        StateNumbers { steps, seed, lr, loss_scale, good_steps, skipped, averaged, total }
    }

    /// Returns the numbers of each training step.
    pub(crate) fn all(&self) -> Vec<StateNumbers> {
        let others = self.others.iter().map(OtherNumbers::state_numbers);
        [self.state_numbers()].into_iter().chain(others).collect()
    }

    /// Returns the names of the steps after the first, each with its optimizer.
    fn others(&self) -> String {
        listed(self.others.iter().map(|other| format!("{} ({})", other.name, other.optimizer)).collect())
    }

    /// True if the state was saved with the network's optimizers.
    pub(crate) fn is_of_optimizer<N: Network>(&self) -> bool {
        self.optimizer == optimizer::<N>() && self.others() == others::<N>()
    }

    /// Adds the settings that differ from the network's to `differences`.
    pub(crate) fn compare<N: Network>(&self, differences: &mut Differences) {
        let (batch, precision) = (N::PROGRAM.batch, N::PROGRAM.precision.name());
        let mut differ = |what: &str, saved: &str, own: &str| {
            if saved != own {
                differences.settings.push(format!("{what} {saved} in the file, {own} in the network"));
            }
        };
        differ("network", &self.network, N::NAME);
        differ("optimizer", &self.optimizer, optimizer::<N>());
        differ("further training steps", &self.others(), &others::<N>());
        differ("precision", &self.precision, precision);
        differ("batch", &self.batch.to_string(), &batch.to_string());
        if self.fingerprint != fingerprint::<N>() {
            differences.settings.push("the layers are others than in the file".to_string());
        }
    }

    /// Returns the text of `state.json`.
    pub(crate) fn text(&self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string_pretty(self)?;
        // The first line has the checksum of all others, so that changed files are detected.
        let rest = text.trim_start_matches("{\n");
        Ok(format!("{FIRST_LINE}{}{AFTER_CHECKSUM}{rest}\n", checksum(format!("{rest}\n").as_bytes())))
    }

    /// Reads the text of `state.json`.
    pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Numbers, Error> {
        let damaged = |what: &str| {
            Error::file(path, format!("{what}; the file was cut off or changed after it was saved: take another state"))
        };
        let rest = text.strip_prefix(FIRST_LINE.as_bytes()).and_then(|text| text.split_at_checked(8));
        let rest = rest.and_then(|(sum, rest)| Some((sum, rest.strip_prefix(AFTER_CHECKSUM.as_bytes())?)));
        let Some((sum, rest)) = rest else { return Err(damaged("is no `state.json` of gpumem")) };
        if checksum(rest).as_bytes() != sum {
            return Err(damaged("does not have the checksum of its first line"));
        }
        /// The version, which must be known before the other fields are read.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let whole = [b"{\n", rest].concat();
        let Version { version } =
            serde_json::from_slice(&whole).map_err(|error| damaged(&format!("cannot be read ({error})")))?;
        if version != VERSION {
            return Err(Error::file(
                path,
                format!(
                    "has version {version} of the format, and this gpumem reads {VERSION}; resume with the gpumem that saved it"
                ),
            ));
        }
        serde_json::from_slice(&whole).map_err(|error| damaged(&format!("cannot be read ({error})")))
    }
}

/// Returns the type of a tensor in the file.
pub(crate) fn dtype(format: Format) -> safetensors::Dtype {
    match format {
        Format::F32 => safetensors::Dtype::F32,
        Format::Bf16 => safetensors::Dtype::BF16,
        Format::F16 => safetensors::Dtype::F16,
        Format::U32 => safetensors::Dtype::U32,
        Format::U8 => safetensors::Dtype::U8,
    }
}

/// Returns the shape of a tensor in the file.
pub(crate) fn shape(tensor: &StateTensor) -> Vec<usize> {
    tensor.shape.iter().map(|&dim| dim as usize).collect()
}
