//! The command line.

mod change;
mod commands;
mod timeline;

use crate::values::{Batch, batch, checkpoint, device, precision, shard, size};
pub use change::Change;
use clap::{Args, Parser, Subcommand, ValueEnum};
#[cfg(feature = "watch")]
pub use commands::Watch;
pub use commands::{Advise, Comparison, Diff, Explain, New, Pack, Show, Sort};
use gpumem_core::Precision;
pub use gpumem_core::report::Device;
use gpumem_core::train::{Ranks, Shard};
use gpumem_language::source::Overrides;
use std::path::{Path, PathBuf};
pub use timeline::{Target, Timeline, TimelineFormat};

/// `cargo gpumem ..` calls `cargo-gpumem gpumem ..`.
#[derive(Parser)]
#[command(name = "cargo", bin_name = "cargo")]
pub enum Cargo {
    /// Plans the networks of a crate: the cards that they fit, the largest batches, and the cost of a change.
    #[command(version)]
    Gpumem(Arguments),
}

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Lists the cards that each network fits, the memory that is left, and the largest batch.
    #[command(
        after_help = "Exit code 0: all of them fit, or `--all` was asked; 1: one does not fit a card that was named, here, \
                            in its `cards:`, by a `fits!` or by a Cargo feature; 2: no answer, or none for a network that \
                            was named without a card or whose record cannot be read. Networks and programs that no card is \
                            named for are listed as left out."
    )]
    Fit(Fit),
    /// Writes a model of PyTorch as a network, and its weights as safetensors.
    #[command(
        after_help = "Exit code 0: the whole model was written, and with `--check` it fits the cards and its outputs are within 1e-4 of the \
                      standard deviation of those that PyTorch recorded in evaluation; 1: `--check` found that it does not fit, or \
                      has other outputs; 2: the model was not written, or a part of it with `--partial`, or there was nothing to \
                      compare with. `scripts/export.py` records samples. Export a model with \
                      `torch.export.save(torch.export.export(model.train(), (torch.randn(2, 3, 224, 224),)), \"model.pt2\")`."
    )]
    #[cfg(feature = "import")]
    Import(Import),
    /// Makes a crate with a network that trains, a test and a workflow; with `--from`, that of a model of PyTorch.
    New(New),
    /// Writes the forward pass of a network as an ONNX file, with weights of a safetensors file.
    Export(Export),
    /// Shows the layers and the budget of one network, and the tensors that are alive at its peak.
    Show(Show),
    /// Draws the memory of one step over its operations, as a page for a browser.
    Timeline(Timeline),
    /// Lists changes of a network that save memory or time on a card, each planned, with its price.
    Advise(Advise),
    /// Compares every network with itself at another revision.
    Diff(Diff),
    /// Says what a line of the budget, a message or a term means.
    Explain(Explain),
    /// Places buffers of a file, whichever program they are from, in as little memory as it finds.
    #[command(
        after_help = "The file has comma-separated values with the columns `lower`, `upper` and `size`, as MiniMalloc's files do, or those of \
                      `cargo gpumem timeline --format csv`. Exit code 0: packed; 1: the packing is larger than `--capacity`; 2: no packing."
    )]
    Pack(Pack),
    /// Shows cards and their processes while they run, with the budgets of those of gpumem beside what is measured.
    #[cfg(feature = "watch")]
    Watch(Watch),
    /// Lists the known cards with their usable memory, and the source of that figure.
    Cards(Cards),
}

/// Options of the build.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "What to build")]
pub struct Build {
    /// A package of the workspace, instead of those that cargo would build: a name, a pattern, or another spec of cargo's
    #[arg(short, long, value_name = "SPEC")]
    pub package: Vec<String>,
    /// All packages of the workspace
    #[arg(long)]
    pub workspace: bool,
    /// Cargo features, with commas
    #[arg(short = 'F', long, value_name = "LIST")]
    pub features: Vec<String>,
    /// All Cargo features
    #[arg(long)]
    pub all_features: bool,
    /// No default features
    #[arg(long)]
    pub no_default_features: bool,
    /// The profile `release`
    #[arg(short, long, conflicts_with = "profile")]
    pub release: bool,
    /// The profile to build with, instead of `dev`
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Path to Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
    /// True if the messages of cargo and of the compiler are printed as JSON, instead of for people
    #[arg(skip)]
    pub prints_messages: bool,
}

impl Build {
    /// Returns the profile's name.
    pub fn profile(&self) -> &str {
        match &self.profile {
            Some(name) => name,
            None if self.release => "release",
            None => "dev",
        }
    }
}

/// Options of the program that is planned.
#[derive(Args, Clone, Default)]
pub struct Settings {
    /// Samples in a step instead of those in the source, or `largest`: the most that fit
    #[arg(long, value_name = "N", value_parser = batch)]
    pub batch: Option<Batch>,
    /// F32, Bf16, F16, "Mixed(Bf16)" or "Mixed(F16)", instead of the precision in the source
    #[arg(long, value_name = "P", value_parser = precision)]
    pub precision: Option<Precision>,
    /// Processes that share a step, each with a card of its own, instead of those in the source
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=Ranks::MOST))]
    pub ranks: Option<u64>,
    /// Tensors of which each rank keeps a shard: None, Optimizer, Gradients or Parameters, instead of those in the source
    #[arg(long, value_name = "S", value_parser = shard)]
    pub shard: Option<Shard>,
}

impl Settings {
    /// Returns the number of samples. `None` if there is none, or the largest is asked for.
    pub fn samples(&self) -> Option<u64> {
        match self.batch {
            Some(Batch::Samples(samples)) => Some(samples),
            Some(Batch::Largest) | None => None,
        }
    }

    /// Fails if the largest batch is asked for, since a command without cards has none.
    pub fn refuse_largest(&self) -> Result<(), String> {
        match self.takes_largest() {
            true => Err("`--batch largest` is for `cargo gpumem fit`; write a number of samples".into()),
            false => Ok(()),
        }
    }

    /// True if the largest batch is asked for.
    pub fn takes_largest(&self) -> bool {
        self.batch == Some(Batch::Largest)
    }
}

/// Options of models and sources in files.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Networks in files")]
pub struct FileOptions {
    /// Another optimizer, such as adamw or "Sgd { lr: 0.1, momentum: 0.9 }"
    #[arg(long, value_name = "O")]
    pub optimizer: Option<String>,
    /// Another choice of activations to recompute: None, Norms, Cheap, Auto or "Budget(0.5)"
    #[arg(long, value_name = "C", value_parser = checkpoint)]
    pub checkpoint: Option<String>,
    /// Read a model that was exported for inference: its training would lack BatchNorm and Dropout
    #[arg(long)]
    pub inference: bool,
    /// Rules by which PyTorch's memory is counted: those of its allocator on a card, or of its tracker on a CPU with for-loop optimizers
    #[arg(long, value_enum, default_value = "card", value_name = "R")]
    pub pytorch_rules: Counting,
    /// PyTorch's implementation of the optimizer, instead of its default
    #[arg(long, value_enum, value_name = "U")]
    pub pytorch_update: Option<Implementation>,
    /// PyTorch's kernels of attention: fused ones, or products and a softmax as on older cards
    #[arg(long, value_enum, default_value = "fused", value_name = "A")]
    pub attention: Kernels,
    /// The name of the file in answers. `None` for its path.
    #[arg(skip)]
    pub name: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Counting {
    #[default]
    Card,
    Tracker,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Implementation {
    Foreach,
    ForLoop,
    Fused,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Kernels {
    #[default]
    Fused,
    Math,
}

#[derive(Args, Clone, Default)]
pub struct Fit {
    /// Names of networks; all of them if none is named. Or files, which are read without a build: `model.pt2`, `model.onnx`, `src/net.rs`
    #[arg(value_name = "NETWORK")]
    pub networks: Vec<String>,
    /// Cards instead of those in the source: slugs with commas, or sizes such as 11.5GiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = device)]
    pub cards: Vec<Device>,
    /// All known cards
    #[arg(long, conflicts_with = "cards")]
    pub all: bool,
    #[command(flatten)]
    pub settings: Settings,
    /// Memory of each card to leave to others, instead of the headroom in the source
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub headroom: Option<u64>,
    /// Format of the output: a table, JSON, annotations for GitHub Actions, a JUnit report, or a matrix in Markdown
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Diagnostics of the compiler, with an answer for each network, as lines of JSON for an editor
    #[arg(long, value_enum, value_name = "FMT", conflicts_with = "format")]
    pub message_format: Option<MessageFormat>,
    #[command(flatten)]
    pub file: FileOptions,
    #[command(flatten)]
    pub build: Build,
}

impl Fit {
    /// Returns the fields that replace those of networks in files. `None` if networks of a build are asked for.
    pub fn of_files(&self) -> Result<Option<Overrides>, String> {
        // A network may have the name of a folder here.
        let is_path = |name: &str| name.contains(['/', '\\', '.']);
        if let Some(folder) = self.networks.iter().find(|name| is_path(name) && Path::new(name).is_dir()) {
            return Err(format!("{folder} is a folder; name files in it, or networks of a crate"));
        }
        let files = self.networks.iter().filter(|name| is_file(name)).count();
        if files > 0 && files < self.networks.len() {
            return Err("name networks of a build, or files, but not both".into());
        }
        if files > 0 && self.message_format.is_some() {
            return Err("`--message-format` is for networks of a build; for files write `--format json`".into());
        }
        let FileOptions { optimizer, checkpoint, .. } = &self.file;
        if files == 0 && (optimizer.is_some() || checkpoint.is_some()) {
            return Err(
                "`--optimizer` and `--checkpoint` are for files, which are named: `cargo gpumem fit model.pt2`".into(),
            );
        }
        let mut overrides = Overrides::default();
        if let Some(optimizer) = optimizer {
            overrides.set_optimizer(optimizer)?;
        }
        if let Some(checkpoint) = checkpoint {
            overrides.set_checkpoint(checkpoint)?;
        }
        // A network without constants has no batch. Others keep theirs in the blueprint, as networks of a build do.
        if self.settings.batch.is_some() {
            overrides.set_default("batch", &self.settings.samples().unwrap_or(1).to_string())?;
        }
        Ok((files > 0).then_some(overrides))
    }
}

#[cfg(feature = "import")]
#[derive(Args)]
pub struct Import {
    /// The model: a file of `torch.export.save` or of ONNX
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The source file to write, instead of standard output
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// A file of safetensors to write the weights to
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
    /// Name of the network, instead of that of the file
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Samples in a step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// F32, Bf16, F16, "Mixed(Bf16)" or "Mixed(F16)"
    #[arg(long, value_name = "P", value_parser = precision)]
    pub precision: Option<Precision>,
    /// The optimizer, such as adamw or "Sgd { lr: 0.1, momentum: 0.9 }"
    #[arg(long, value_name = "O")]
    pub optimizer: Option<String>,
    /// Choice of activations to recompute: None, Norms, Cheap, Auto or "Budget(0.5)"
    #[arg(long, value_name = "C", value_parser = checkpoint)]
    pub checkpoint: Option<String>,
    /// Cards that the network must fit: slugs with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = device)]
    pub cards: Vec<Device>,
    /// Read a model that was exported for inference: its training would lack BatchNorm and Dropout
    #[arg(long)]
    pub inference: bool,
    /// Compare the network with its cards, and its outputs with recorded ones: those in `--samples`
    #[arg(long)]
    pub check: bool,
    /// Recorded inputs and outputs, instead of those beside the model: `model.samples.safetensors` for `model.pt2`
    #[arg(long, value_name = "PATH", requires = "check")]
    pub samples: Option<PathBuf>,
    /// Write the modules that can be said, if the whole model cannot
    #[arg(long)]
    pub partial: bool,
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
}

#[derive(Args)]
pub struct Export {
    /// Name of the network, or a file such as `src/net.rs`; may be left out if there is one only
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// The ONNX file to write
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// The weights: a file of safetensors, as `save_weights` writes it
    #[arg(long, value_name = "PATH")]
    pub weights: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub build: Build,
}

#[derive(Args)]
pub struct Cards {
    /// A card, or the beginning of its name; all cards if left out
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Plain,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Github,
    Junit,
    Markdown,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MessageFormat {
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plain {
    Table,
    Json,
}

/// True if an argument names a file, and no network.
pub fn is_file(argument: &str) -> bool {
    is_source(argument) || ends(argument, "pt2") || ends(argument, "onnx")
}

/// True if an argument names a file of Rust.
pub fn is_source(argument: &str) -> bool {
    ends(argument, "rs")
}

fn ends(argument: &str, end: &str) -> bool {
    Path::new(argument).extension().is_some_and(|other| other.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cargo::command().debug_assert();
    }

    #[test]
    fn a_profile_is_named_or_that_of_releases() {
        let profile = |arguments: &[&str]| {
            let all = ["cargo", "gpumem", "fit"].iter().chain(arguments);
            let Cargo::Gpumem(Arguments { command: Command::Fit(fit) }) = Cargo::try_parse_from(all).ok()? else {
                return None;
            };
            Some(fit.build.profile().to_string())
        };
        let named = |name: &str| Some(name.to_string());
        assert_eq!(
            (profile(&[]), profile(&["-r"]), profile(&["--release"])),
            (named("dev"), named("release"), named("release"))
        );
        assert_eq!((profile(&["--profile", "ci"]), profile(&["-r", "--profile", "ci"])), (named("ci"), None));
    }
}
