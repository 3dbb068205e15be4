//! The options of commands about one network or none. Those of `fit`, `import` and `export` are in the parent.

use super::{Build, Device, Plain, Settings, device, size};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args)]
pub struct Show {
    /// Name of the network; may be left out if there is one only. Or a file, which is read without a build: `src/net.rs`, `src/net.rs::Net`
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// Number of layers and tensors to list, the largest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Order of the layers
    #[arg(long, value_enum, default_value = "kept")]
    pub sort: Sort,
    /// The forward pass instead of the training step
    #[arg(long)]
    pub inference: bool,
    #[command(flatten)]
    pub settings: Settings,
    /// Format of the output. A terminal gets bars and a curve, unless `NO_COLOR` is set
    #[arg(long, value_enum, default_value = "table")]
    pub format: Plain,
    #[command(flatten)]
    pub build: Build,
}

#[derive(Args)]
pub struct Advise {
    /// Name of the network; may be left out if there is one only. Or a file, which is read without a build: `src/net.rs`, `src/net.rs::Net`
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// The card, such as rtx3060, instead of the first that the network names
    #[arg(long, value_name = "CARD", value_parser = device)]
    pub card: Option<Device>,
    /// The forward pass instead of the training step
    #[arg(long)]
    pub inference: bool,
    #[command(flatten)]
    pub settings: Settings,
    /// Memory of the card to leave to others, instead of the headroom in the source
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub headroom: Option<u64>,
    /// Format of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Plain,
    #[command(flatten)]
    pub build: Build,
}

#[derive(Args)]
pub struct Diff {
    /// Revision to compare with: a branch, tag or commit of git
    #[arg(value_name = "REV")]
    pub revision: String,
    #[command(flatten)]
    pub settings: Settings,
    /// Format of the output: a table, JSON, or Markdown for a comment on a pull request
    #[arg(long, value_enum, default_value = "table")]
    pub format: Comparison,
    #[command(flatten)]
    pub build: Build,
}

#[derive(Args)]
pub struct Explain {
    /// A line of the budget, a field of TRAIN, a line of a refusal, a variable, or a term of the glossary; all of them if left out
    #[arg(value_name = "TERM")]
    pub term: Vec<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Plain,
}

#[derive(Args)]
pub struct New {
    /// The folder to make; its last part is the name of the crate
    #[arg(value_name = "NAME")]
    pub path: PathBuf,
    /// A model of PyTorch or ONNX to begin with, with its weights
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Samples in a step, with `--from`
    #[arg(long, value_name = "N", requires = "from", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Cards with a Cargo feature of their own, each of which the workflow checks: slugs with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = device)]
    pub cards: Vec<Device>,
    /// A folder with gpumem, instead of its repository
    #[arg(long, value_name = "PATH")]
    pub gpumem: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    // Sorted by the bytes kept for the backward pass.
    Kept,
    Parameters,
    Macs,
    // In the order of the forward pass.
    Order,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Comparison {
    Table,
    Json,
    Markdown,
}
