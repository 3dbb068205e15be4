//! The options of commands about one network or none. Those of `fit`, `import` and `export` are in the parent.

use super::{Build, Device, Plain, Settings};
use crate::values::{device, size};
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
pub struct Pack {
    /// The file with the buffers
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A file to write, with the columns of the other one and an offset for each buffer
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
    /// Memory that the buffers have; more is exit code 1
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub capacity: Option<u64>,
    /// Bytes of which every size and every offset is a multiple, such as 256 in an arena of gpumem
    #[arg(long, value_name = "BYTES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub alignment: u64,
    /// The packing of the compiler alone, without a search of seconds
    #[arg(long)]
    pub quick: bool,
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

#[cfg(feature = "watch")]
#[derive(Args)]
pub struct Watch {
    /// Print once and end, as happens without a terminal
    #[arg(long)]
    pub once: bool,
    /// Seconds between two readings
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// Format of the output; JSON is printed once
    #[arg(long, value_enum, default_value = "table")]
    pub format: Plain,
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

/// The shortest and the longest interval in seconds.
#[cfg(feature = "watch")]
const INTERVALS: [f64; 2] = [0.1, 3600.0];

#[cfg(feature = "watch")]
fn seconds(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|seconds| (INTERVALS[0]..=INTERVALS[1]).contains(seconds));
    found.ok_or_else(|| "write a number of seconds from 0.1 to 3600".into())
}

#[cfg(all(test, feature = "watch"))]
mod tests {
    use super::seconds;

    #[test]
    fn an_interval_is_neither_nothing_nor_for_ever() {
        assert_eq!([seconds("0.5"), seconds("60")], [Ok(0.5), Ok(60.0)]);
        for wrong in ["0", "-1", "NaN", "inf", "1e9", "often", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
