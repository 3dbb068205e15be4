//! What a network's programs do on a card, launch by launch: who computes each, and how long it takes.
//!
//! [`Session::profile`](crate::Session::profile) measures it. No training step keeps any of this.

use crate::calls::product::Element;
use crate::launches::Counted;
use gpumem_core::cards::Card;
use gpumem_core::error::Error;
use std::collections::BTreeMap;

/// How a library computes a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// The library.
    pub library: &'static str,
    /// The algorithm or engine, by the library's name or number.
    pub algorithm: String,
    /// The algorithm's settings, by their names.
    pub settings: Vec<(String, i64)>,
    /// Bytes of scratch memory that it takes, of those that the program has for it.
    pub workspace: u64,
}

/// A launch of a program.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Launched {
    /// What it is, moves and multiplies.
    pub counted: Counted,
    /// The library's choice; `None` for a kernel of the project's own.
    pub choice: Option<Choice>,
    /// How often it runs in a step: where a batch is split, once for each part, unless it comes behind the last one.
    pub runs: u64,
    /// Microseconds that one run took in each of several steps, where a batch is split that of the last part; empty if it was not timed.
    pub us: Vec<f64>,
}

/// Nodes of a graph, by their kind.
pub type Nodes = BTreeMap<&'static str, u64>;

/// A program of a network.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Program {
    /// `train`, `evaluation`, `infer` or `served`.
    pub name: &'static str,
    /// Its launches, in order.
    pub launches: Vec<Launched>,
    /// The graphs that it was captured into: of a training step one for each half of the input, and where its batch is split, behind these one
    /// for each half with what runs for a part that is not the last. None if it is launched call by call.
    pub graphs: Vec<Nodes>,
}

/// What was measured of a loaded network.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Its programs: the training step first, if it is trained, whose launches alone are timed.
    pub programs: Vec<Program>,
    /// Microseconds of whole training steps, as they are replayed.
    pub step_us: Vec<f64>,
}

/// What comes out of a product whose first factor is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NanProduct {
    /// Number format of the factors and the result.
    pub element: Element,
    /// What is done to each sum, by the library's name.
    pub epilogue: &'static str,
    /// Whether NaN comes out; `None` if the library has no algorithm for it.
    pub keeps_nan: Option<bool>,
}

/// A card as it says of itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CardFacts {
    /// The driver's name for it.
    pub name: String,
    /// Its row in the table of cards, by name and memory.
    pub row: Option<&'static Card>,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Bytes of its memory.
    pub memory: u64,
    /// cuDNN's serialised device property, in JSON, as [`AbsentCard::new`](crate::AbsentCard::new) takes it. `None` without cuDNN, and
    /// from one before 9.8; what the library failed with.
    pub device_property: Result<Option<String>, Error>,
    /// cuBLASLt's Relu on NaN, beside products without it; what the library failed with. Empty where matrix products do not go to the
    /// library.
    pub nan_products: Result<Vec<NanProduct>, Error>,
}
