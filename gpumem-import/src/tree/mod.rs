//! From lifted layers to the source of a network, as a person would write it.
//!
//! * `graph` prepares the layers, and `units` finds the modules that can be functions.
//! * `flow` and `lists` write the nodes of a function as a list, with joins, branches and taps.
//! * `repeat` folds equal elements, and `blocks` with `unify` make one function of modules that differ in numbers or in one branch.
//! * `parts` writes the modules that can be said, if the whole cannot.
//! * `names` finds the names that must be printed, and `print` prints.

mod blocks;
pub mod element;
mod flow;
mod graph;
mod inline;
mod lists;
mod names;
mod parts;
mod print;
mod repeat;
mod types;
mod unify;
mod units;
mod words;

pub use graph::simplified;
pub use parts::{Said, parts};

use crate::batch::Batch;
use crate::lift::{Layer, Lifted};
use crate::model::{Model, ValueId};
use element::{Body, Element, Function};
use std::fmt;

/// The most layers of a network: the language has no more.
const MOST_LAYERS: usize = 65_534;

/// Settings of a network that is printed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the file, of which the name of the struct is made.
    pub name: String,
    /// Samples of a batch.
    pub batch: u64,
    /// The optimizer, as it is written in `TRAIN`.
    pub optimizer: String,
    /// The loss, as it is written in `TRAIN`. `None` for one that suits the outputs.
    pub loss: Option<String>,
    /// Further fields of `TRAIN`, such as `cards: [RTX_3060]`.
    pub fields: Vec<String>,
}

/// An input of a network: its name and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The name.
    pub name: String,
    /// The type, such as `Image<3, 224, 224>`.
    pub kind: String,
}

/// A network, ready to be printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The name of the struct.
    pub name: String,
    /// The lines of its documentation.
    pub docs: Vec<String>,
    /// The fields of `TRAIN`.
    pub train: Vec<String>,
    /// The inputs.
    pub inputs: Vec<Signature>,
    /// The values of the model that the inputs are. Those that are no inputs of the model are numbers that it draws.
    pub given: Vec<ValueId>,
    /// The types of the outputs.
    pub outputs: Vec<String>,
    /// The contents of `forward`.
    pub forward: Body,
    /// All other functions.
    pub functions: Vec<Function>,
    /// The parameters that have another name in the state dict: their names here, and their keys.
    pub renamed: Vec<(String, String)>,
}

/// The reason why no source can be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    fn shared(a: &Layer, b: &Layer) -> Refusal {
        let key = b.keys.first().map_or("", |(_, key)| key);
        Refusal(format!(
            "`{key}` belongs to a `{}` and to a `{}`, and the language shares whole layers only",
            a.kind, b.kind
        ))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print::source(self))
    }
}

impl Network {
    /// Makes a network of a model that has been lifted whole.
    pub fn new(model: &Model, batch: &Batch, lifted: &Lifted, options: &Options) -> Result<Network, Refusal> {
        if lifted.layers.len() > MOST_LAYERS {
            return Err(Refusal(format!(
                "it has {} layers, and the language has at most {MOST_LAYERS}",
                lifted.layers.len()
            )));
        }
        let graph = graph::Graph::new(lifted, model);
        graph.check()?;
        let units = units::Units::new(&graph);
        Network::of_units(model, batch, &units, options)
    }

    /// Makes the same network without functions and repeats, as one list.
    pub fn flat(model: &Model, batch: &Batch, lifted: &Lifted, options: &Options) -> Result<Network, Refusal> {
        let mut lifted = lifted.clone();
        for layer in &mut lifted.layers {
            layer.modules = std::rc::Rc::new([]);
        }
        let graph = graph::Graph::new(&lifted, model);
        graph.check()?;
        let units = units::Units::new(&graph);
        let inputs = types::read(&graph);
        let Some(whole) = units.all.last() else { return Err(Refusal("it has no layers".into())) };
        let forward = lists::body(&units, whole, &inputs)?;
        types::network(model, batch, &graph, options, &inputs, forward, Vec::new())
    }

    fn of_units(model: &Model, batch: &Batch, units: &units::Units<'_>, options: &Options) -> Result<Network, Refusal> {
        let inputs = types::read(units.graph);
        let mut functions = blocks::functions(units, &inputs)?;
        inline::inline(&mut functions);
        types::network(model, batch, units.graph, options, &inputs, functions.forward, functions.all)
    }

    /// Returns the number of layers, calls and references that are written.
    pub fn elements(&self) -> usize {
        let bodies = self.functions.iter().map(|function| &function.body).chain([&self.forward]);
        bodies.flat_map(|body| &body.elements).map(Element::count).sum()
    }
}
