//! Layers of the language, with the values that they read and make.

use crate::model::{Module, ValueId};
use std::fmt;
use std::rc::Rc;

/// An argument as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text, in quotes.
    Text(String),
    /// A name or an expression, written without changes.
    Word(String),
    /// Several arguments in brackets.
    Tuple(Vec<Literal>),
}

impl From<i64> for Literal {
    fn from(number: i64) -> Literal {
        Literal::Int(number)
    }
}

impl From<u64> for Literal {
    fn from(number: u64) -> Literal {
        Literal::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Literal {
    fn from(number: f64) -> Literal {
        Literal::Float(number)
    }
}

impl From<bool> for Literal {
    fn from(flag: bool) -> Literal {
        Literal::Bool(flag)
    }
}

impl From<&str> for Literal {
    fn from(text: &str) -> Literal {
        Literal::Text(text.into())
    }
}

impl Literal {
    /// Returns sizes: one number if all are equal, else a tuple.
    pub fn sizes(sizes: &[i64]) -> Literal {
        match sizes {
            [first, rest @ ..] if rest.iter().all(|size| size == first) => Literal::Int(*first),
            _ => Literal::Tuple(sizes.iter().copied().map(Literal::Int).collect()),
        }
    }

    /// Returns dimensions: one number if there is one, else a tuple.
    pub fn dims(dims: &[i64]) -> Literal {
        match dims {
            [only] => Literal::Int(*only),
            _ => Literal::Tuple(dims.iter().copied().map(Literal::Int).collect()),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Int(number) => write!(f, "{number}"),
            // `{:?}` writes a point or an exponent, and as many digits as are needed.
            Literal::Float(number) => write!(f, "{number:?}"),
            Literal::Bool(flag) => write!(f, "{flag}"),
            Literal::Text(text) => write!(f, "{text:?}"),
            Literal::Word(word) => f.write_str(word),
            Literal::Tuple(all) => {
                f.write_str("(")?;
                for (index, literal) in all.iter().enumerate() {
                    f.write_str(if index > 0 { ", " } else { "" })?;
                    literal.fmt(f)?;
                }
                f.write_str(if all.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

/// The difference between a tensor of the state dict and the parameter that it becomes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Its two axes change places.
    Transposed,
}

/// A layer of the language at its place in a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its name in the language, such as `Conv2d`.
    pub kind: &'static str,
    /// Arguments without names.
    pub arguments: Vec<Literal>,
    /// Options, in the order in which they are written.
    pub options: Vec<(&'static str, Literal)>,
    /// Options that are true.
    pub flags: Vec<&'static str>,
    /// The values that it reads: of a join one a branch, of a source none.
    pub inputs: Vec<ValueId>,
    /// True if each input is a branch.
    pub is_join: bool,
    /// The value that it makes.
    pub output: ValueId,
    /// The keys of its parameters in the state dict, each with its name in the layer.
    pub keys: Vec<(&'static str, String)>,
    /// The changes of tensors that do not become parameters as they are, each with the parameter's name in the layer.
    pub changes: Vec<(&'static str, Change)>,
    /// The modules in which it runs, from the model inwards.
    pub modules: Rc<[Module]>,
    /// The node of the model that it comes from.
    pub node: usize,
}

impl Layer {
    /// Makes a layer of one input, without arguments.
    pub fn new(kind: &'static str, input: ValueId, output: ValueId) -> Layer {
        Layer {
            kind,
            arguments: Vec::new(),
            options: Vec::new(),
            flags: Vec::new(),
            inputs: vec![input],
            is_join: false,
            output,
            keys: Vec::new(),
            changes: Vec::new(),
            modules: Rc::new([]),
            node: 0,
        }
    }

    /// Makes a join of branches.
    pub fn join(kind: &'static str, inputs: Vec<ValueId>, output: ValueId) -> Layer {
        Layer { inputs, is_join: true, ..Layer::new(kind, 0, output) }
    }

    /// Makes a layer that reads nothing.
    pub fn source(kind: &'static str, output: ValueId) -> Layer {
        Layer { inputs: Vec::new(), ..Layer::new(kind, 0, output) }
    }

    /// Adds an argument.
    pub fn with(mut self, argument: impl Into<Literal>) -> Layer {
        self.arguments.push(argument.into());
        self
    }

    /// Adds an option, unless it has its default.
    pub fn option(mut self, name: &'static str, value: impl Into<Literal>, default: impl Into<Literal>) -> Layer {
        let value = value.into();
        if value != default.into() {
            self.options.push((name, value));
        }
        self
    }

    /// Adds an option.
    pub fn set(mut self, name: &'static str, value: impl Into<Literal>) -> Layer {
        self.options.push((name, value.into()));
        self
    }

    /// Adds a flag if it is true.
    pub fn flag(mut self, name: &'static str, is_set: bool) -> Layer {
        if is_set {
            self.flags.push(name);
        }
        self
    }

    /// Says that a parameter is not its tensor as it is.
    pub fn change(mut self, name: &'static str, change: Change) -> Layer {
        self.changes.push((name, change));
        self
    }

    /// Names a parameter. Nothing if there is none.
    pub fn key(mut self, name: &'static str, key: Option<&str>) -> Layer {
        if let Some(key) = key {
            self.keys.push((name, key.to_string()));
        }
        self
    }
}
