//! Networks in texts, outside a compiler: their graphs, or their mistakes with lines and columns.
//!
//! ```
//! let text = "network! {
//!     pub struct Mlp;
//!
//!     fn forward(features: Features<64>) -> Logits<10> {
//!         [Linear(128), Relu, Linear(10)]
//!     }
//! }";
//! let network = gpumem_language::source::resolve(text).unwrap();
//! assert_eq!(network.graph.parameters[0].name, "linear[0].weight");
//!
//! let mistakes = gpumem_language::source::resolve(&text.replace("Relu", "Relo")).unwrap_err();
//! assert_eq!(mistakes[0].to_string(), "5:23: no layer or block is called `Relo`; did you mean `Relu`?");
//! ```

mod declared;
mod evaluate;
mod fetch;
mod overrides;
mod text;

pub use declared::{Declared, Facts, Fit, declared};
pub use overrides::Overrides;
pub use text::Text;

use crate::errors::{Error, Errors};
use crate::resolve;
use crate::syntax::Source;
use gpumem_core::graph::{Graph, NodeId, Type};
use proc_macro2::Span;
use std::fmt;
use syn::ext::IdentExt as _;

/// A mistake in a text, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The message of the macro.
    pub message: String,
    /// The line of the first token that the compiler would underline, from 1.
    pub line: usize,
    /// The column of that token in characters, from 1.
    pub column: usize,
}

impl Mistake {
    fn at(span: Span, message: impl Into<String>) -> Mistake {
        let start = span.start();
        Mistake { message: message.into(), line: start.line, column: start.column + 1 }
    }
}

impl From<&Error> for Mistake {
    fn from(error: &Error) -> Mistake {
        Mistake::at(error.place.start, &error.message)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for Mistake {}

/// A network without mistakes, as a graph.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The name of the struct.
    pub name: String,
    /// The graph. It has the parameters, with their names and shapes.
    pub graph: Graph,
    /// The inputs of `forward`, in order.
    pub inputs: Vec<Input>,
    /// The values that `forward` returns, in order.
    pub outputs: Vec<NodeId>,
}

/// An input of a network.
#[derive(Clone, Debug)]
pub struct Input {
    /// The name of the parameter of `forward`.
    pub name: String,
    /// The type of one sample.
    pub value: Type,
}

/// Resolves the only network in a text. See [`Text::read`] for what a text may be.
///
/// # Errors
/// All mistakes that the macro would report, in its order.
pub fn resolve(text: &str) -> Result<Resolved, Vec<Mistake>> {
    Text::read(text)?.resolve(None)
}

/// A network as syntax and as a graph.
struct Network {
    source: Source,
    resolved: resolve::Resolved,
}

impl Network {
    /// Resolves a network. Fails with its mistakes, those of its settings among them.
    fn of(source: Source, mut errors: Errors) -> Result<Network, Vec<Mistake>> {
        let resolved = resolve::resolve(&source, &mut errors);
        crate::read(&source, &resolved, &mut errors);
        mistakes(&errors)?;
        Ok(Network { source, resolved })
    }

    /// Returns the graph with the names of its inputs. Fails if the graph has no outputs, which is the case after a mistake alone.
    fn into_resolved(self) -> Result<Resolved, Vec<Mistake>> {
        let name = &self.source.declaration.name;
        let (Some(outputs), Some(declared), Some(forward)) =
            (self.resolved.outputs, &self.resolved.inputs, &self.source.forward)
        else {
            return Err(vec![Mistake::at(name.span(), format!("`{name}` has no outputs"))]);
        };
        let inputs = forward.parameters.iter().zip(declared);
        let input = |(parameter, declared): (&crate::syntax::Parameter, &resolve::Declared)| Input {
            name: parameter.name.unraw().to_string(),
            value: declared.value(),
        };
        let inputs = inputs.map(input).collect();
        Ok(Resolved { name: name.unraw().to_string(), graph: self.resolved.graph, inputs, outputs })
    }
}

/// Fails with the mistakes that were found, if there are any.
fn mistakes(errors: &Errors) -> Result<(), Vec<Mistake>> {
    match errors.list() {
        [] => Ok(()),
        list => Err(list.iter().map(Mistake::from).collect()),
    }
}
