//! Why a layer cannot stand where it stands.

use crate::graph::{RowId, TooLarge};
use crate::shape::Shape;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Where a mistake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The layer as a whole.
    Layer,
    /// What was written between its parentheses, by its number.
    Written(usize),
    /// An argument by its name: where it was written, or the layer if it was left out.
    Argument(&'static str),
    /// One of the values that arrive, by its number.
    Input(usize),
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A named argument that the layer does not know.
    NoOption {
        /// What was written.
        given: String,
        /// What was probably meant.
        meant: Option<&'static str>,
        /// What there is.
        options: Vec<&'static str>,
    },
    /// A named argument that is given already.
    Repeated(String),
    /// A number of arguments that no form of the layer has.
    Arity {
        /// The ways to write the layer.
        forms: Vec<Vec<&'static str>>,
        /// Arguments without a name.
        given: usize,
    },
    /// A value of another kind than is wanted.
    Value {
        /// The argument.
        name: &'static str,
        /// What is wanted.
        wanted: String,
        /// What was written.
        found: String,
    },
    /// A value outside its range.
    Range {
        /// The argument.
        name: &'static str,
        /// The range, to be read after `to be`.
        range: String,
        /// What was written.
        found: String,
    },
    /// A shared parameter that has another shape than is needed here.
    Shared(Box<Shared>),
    /// A tensor of more elements than one can have.
    Elements(TooLarge),
    /// Anything else, to be read after the layer's name.
    Says(String),
}

/// A shared parameter that has another shape than is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// The layer whose parameter it is.
    pub owner: RowId,
    /// The parameter's name within that layer.
    pub parameter: String,
    /// Its shape.
    pub own: Shape,
    /// The shape that is needed.
    pub needed: Shape,
}

/// Why a layer cannot stand where it stands. Its text is to be read after the layer's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// Where to point.
    pub at: At,
    /// What is wrong.
    pub kind: Kind,
}

impl Mistake {
    /// A mistake of the layer as a whole, in words.
    pub fn new(text: impl Into<String>) -> Mistake {
        Mistake { at: At::Layer, kind: Kind::Says(text.into()) }
    }

    /// A mistake of an argument, in words.
    pub fn of(argument: &'static str, text: impl Into<String>) -> Mistake {
        Mistake { at: At::Argument(argument), kind: Kind::Says(text.into()) }
    }

    /// A mistake of one of the values that arrive, in words.
    pub fn of_input(input: usize, text: impl Into<String>) -> Mistake {
        Mistake { at: At::Input(input), kind: Kind::Says(text.into()) }
    }
}

impl From<Kind> for Mistake {
    fn from(kind: Kind) -> Mistake {
        Mistake { at: At::Layer, kind }
    }
}

impl From<TooLarge> for Mistake {
    fn from(tensor: TooLarge) -> Mistake {
        Kind::Elements(tensor).into()
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::NoOption { given, meant: Some(meant), .. } => {
                write!(f, "has no option `{given}`; did you mean `{meant}`?")
            }
            Kind::NoOption { given, options, .. } if options.is_empty() => {
                write!(f, "has no option `{given}`; it has no options")
            }
            Kind::NoOption { given, options, .. } => {
                write!(f, "has no option `{given}`; its options are {}", listed(options))
            }
            Kind::Repeated(name) => write!(f, "is given `{name}` twice; remove one"),
            Kind::Arity { forms, given } => {
                let given = match given {
                    0 => "none is given".to_string(),
                    1 => "1 is given".to_string(),
                    count => format!("{count} are given"),
                };
                let forms: Vec<String> = forms.iter().map(|form| format!("({})", form.join(", "))).collect();
                match forms.as_slice() {
                    [only] if only == "()" => write!(f, "takes no arguments in front of its options, but {given}"),
                    _ => write!(f, "takes {}, but {given}", forms.join(" or ")),
                }
            }
            Kind::Value { name, wanted, found } => write!(f, "needs {wanted} for `{name}`, not {found}"),
            Kind::Range { name, range, found } => write!(f, "needs `{name}` to be {range}, not {found}"),
            Kind::Shared(shared) => {
                let Shared { parameter, own, needed, .. } = &**shared;
                write!(
                    f,
                    "shares `{parameter}`, whose shape is {own}, but here it needs {needed}; use a layer of its own"
                )
            }
            Kind::Elements(tensor) => tensor.fmt(f),
            Kind::Says(text) => f.write_str(text),
        }
    }
}

/// `` `a`, `b` and `c` ``.
pub fn listed(names: &[&str]) -> String {
    joined(names, "and")
}

/// `` `a`, `b` or `c` ``
pub fn either(names: &[&str]) -> String {
    joined(names, "or")
}

fn joined(names: &[&str], word: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {word} {last}", rest.join(", ")),
    }
}
