//! Profiles of a network's programs: the library or kernel that computes each launch, and the time that it takes.
//!
//! [`Session::profile`](crate::Session::profile) measures them. Training steps do not record any of this.

use crate::calls::product::Element;
use crate::traffic::Counted;
use gpumem_core::cards::Card;
use gpumem_core::error::Error;
use std::collections::BTreeMap;

/// The algorithm that a library uses for a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// The library.
    pub library: &'static str,
    /// The algorithm or engine, by the library's name or number.
    pub algorithm: String,
    /// The algorithm's settings, by name.
    pub settings: Vec<(String, i64)>,
    /// Bytes of scratch memory that it needs, at most those that the program has for it.
    pub workspace: u64,
}

/// A launch of a program.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Launched {
    /// Counts of its bytes and operations.
    pub counted: Counted,
    /// The library's choice; `None` for one of gpumem's own kernels.
    pub choice: Option<Choice>,
    /// Runs in a step: once, or with micro-batches once for each, unless the launch comes after the last one.
    pub runs: u64,
    /// Microseconds of one run in each of several steps; with micro-batches, of the run for the last one. Empty if it was not timed.
    pub us: Vec<f64>,
}

/// The number of a graph's nodes of each kind.
pub type Nodes = BTreeMap<&'static str, u64>;

/// A program of a network.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Program {
    /// `train`, `evaluation`, `infer` or `served`.
    pub name: &'static str,
    /// Its launches, in order.
    pub launches: Vec<Launched>,
    /// The graphs that it was captured into; empty if it is launched call by call. A training step has one for each half of the input buffer. With
    /// micro-batches, these are followed by one for each half with the launches for micro-batches before the last.
    pub graphs: Vec<Nodes>,
}

/// Measurements of a loaded network.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Its programs. A network that is trained has the training step first, and only its launches are timed.
    pub programs: Vec<Program>,
    /// Microseconds of whole training steps that are replayed from graphs.
    pub step_us: Vec<f64>,
}

/// The result of a product whose first factor is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NanProduct {
    /// Number format of the factors and the result.
    pub element: Element,
    /// The operation on each sum, by the library's name.
    pub epilogue: &'static str,
    /// True if the result is NaN; `None` if the library has no algorithm for the product.
    pub keeps_nan: Option<bool>,
}

/// Facts that a card and its libraries report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CardFacts {
    /// The driver's name of the card.
    pub name: String,
    /// Its row in the table of cards, by name and memory; `None` if no row matches.
    pub row: Option<&'static Card>,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Bytes of its memory.
    pub memory: u64,
    /// cuDNN's serialised device property, in JSON, as [`AbsentCard::new`](crate::AbsentCard::new) accepts it. `None` without cuDNN, and before
    /// cuDNN 9.8; an error if the library fails.
    pub device_property: Result<Option<String>, Error>,
    /// Results of cuBLASLt's products with NaN, with a Relu and without; an error if the library fails. Empty if matrix products are not computed
    /// by the library.
    pub nan_products: Result<Vec<NanProduct>, Error>,
}
