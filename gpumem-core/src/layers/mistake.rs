//! Mistakes in the use of a layer.

use crate::graph::{RowId, TooLarge};
use crate::shape::Shape;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The place of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The layer as a whole.
    Layer,
    /// A value between its parentheses, by its index.
    Written(usize),
    /// An argument by its name: the place where it was written, or the layer if it was left out.
    Argument(&'static str),
    /// An input, by its index.
    Input(usize),
}

/// The kind of a mistake.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A named argument that the layer does not know.
    NoOption(Box<NoOption>),
    /// A named argument that is given already.
    Repeated(String),
    /// A number of arguments that no form of the layer has.
    Arity(Box<Arity>),
    /// A value of another kind than the wanted one.
    Value {
        /// The argument.
        name: &'static str,
        /// The kind that is wanted.
        wanted: String,
        /// The value that was written.
        found: String,
    },
    /// A value outside its range.
    Range {
        /// The argument.
        name: &'static str,
        /// The range, to be read after `to be`.
        range: String,
        /// The value that was written.
        found: String,
    },
    /// A shared parameter that has another shape than is needed here.
    Shared(Box<Shared>),
    /// A tensor with more elements than a tensor can have.
    Elements(TooLarge),
    /// Anything else, to be read after the layer's name.
    Says(String),
}

/// A named argument that a layer does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct NoOption {
    /// The name that was written.
    pub given: String,
    /// The name that was probably meant. `None` if none is near.
    pub meant: Option<&'static str>,
    /// The arguments before the options, in every form of the layer.
    pub forms: Vec<Vec<&'static str>>,
    /// The options of the layer.
    pub options: Vec<&'static str>,
}

/// A number of arguments that no form of a layer has.
#[derive(Clone, Debug, PartialEq)]
pub struct Arity {
    /// The ways to write the layer.
    pub forms: Vec<Vec<&'static str>>,
    /// Arguments without a name.
    pub given: usize,
    /// Required arguments that are missing, if others are given by name.
    pub missing: Vec<&'static str>,
    /// Superfluous arguments, as they would be written: `stride = 1`.
    pub extras: Vec<String>,
    /// Arguments that it takes by name only.
    pub options: Vec<&'static str>,
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

/// A mistake in the use of a layer. Its text is to be read after the layer's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// The place that the message points to.
    pub at: At,
    /// The kind.
    pub kind: Kind,
}

impl Mistake {
    /// Returns a mistake of the layer as a whole, in words.
    pub fn new(text: impl Into<String>) -> Mistake {
        Mistake { at: At::Layer, kind: Kind::Says(text.into()) }
    }

    /// Returns a mistake of an argument, in words.
    pub fn of(argument: &'static str, text: impl Into<String>) -> Mistake {
        Mistake { at: At::Argument(argument), kind: Kind::Says(text.into()) }
    }

    /// Returns a mistake of an input, in words.
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
            Kind::NoOption(mistake) => mistake.fmt(f),
            Kind::Repeated(name) => write!(f, "is given `{name}` twice; remove one"),
            Kind::Arity(mistake) => mistake.fmt(f),
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

impl fmt::Display for NoOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoOption { given, meant, forms, options } = self;
        if let Some(instead) = in_place_of(given) {
            return write!(f, "has no option `{given}`; {instead}");
        }
        if let Some(meant) = meant {
            return write!(f, "has no option `{given}`; did you mean `{meant}`?");
        }
        let before = match in_parentheses(forms) {
            forms if forms == "()" => String::new(),
            forms => format!(", after {forms}"),
        };
        match options.as_slice() {
            [] => write!(f, "has no option `{given}`; it has no options{before}"),
            [option] => write!(f, "has no option `{given}`; its only option is `{option}`{before}"),
            _ => write!(f, "has no option `{given}`; its options are {}{before}", listed(options)),
        }
    }
}

/// Returns what to write in place of an option that PyTorch's layers have and these lack. `None` for other options.
pub fn in_place_of(option: &str) -> Option<&'static str> {
    match option {
        "key_padding_mask" | "src_key_padding_mask" | "tgt_key_padding_mask" | "memory_key_padding_mask" => Some(
            "padding is left out by `lengths(n, ..)` around the layers, with an input `n: Lengths<T>`; a mask that is no prefix is the last \
             branch of `Attention(q, k, v, mask)`",
        ),
        "attn_mask" | "attention_mask" | "attn_bias" | "src_mask" | "tgt_mask" | "memory_mask" | "mask" => Some(
            "a mask is the last branch of `Attention(q, k, v, mask)`: numbers that are added to the scores, -infinity where a key is \
             hidden, [M] for all queries or [T, M]; an input of the network is read as `from(mask)`",
        ),
        "batch_first" => Some("the batch is always first, so leave it out"),
        "padding_mode" => Some("other edges than zeros are those of a layer in front, as `Pad(1, mode = \"reflect\")`"),
        "track_running_stats" => {
            Some("layers called `BatchNorm` have running statistics, and no others have, so leave it out")
        }
        _ => None,
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arity { forms, given, missing, extras, options } = self;
        match in_parentheses(forms) {
            none if none == "()" && options.is_empty() => f.write_str("takes no arguments")?,
            none if none == "()" => f.write_str("takes no arguments in front of its options")?,
            forms => write!(f, "takes {forms}")?,
        }
        match (missing.as_slice(), given) {
            ([], 0) => f.write_str(", but none is given")?,
            ([], 1) => f.write_str(", but 1 is given")?,
            ([], count) => write!(f, ", but {count} are given")?,
            ([one], _) => write!(f, ", but `{one}` is missing")?,
            (several, _) => write!(f, ", but {} are missing", listed(several))?,
        }
        match extras.as_slice() {
            [] => Ok(()),
            extras => write!(f, "; options are given by name: `{}`", extras.join(", ")),
        }
    }
}

/// Returns `(a, b) or (c, a, b)`.
fn in_parentheses(forms: &[Vec<&'static str>]) -> String {
    let forms: Vec<String> = forms.iter().map(|form| format!("({})", form.join(", "))).collect();
    forms.join(" or ")
}

/// Returns `` `a`, `b` and `c` ``.
pub fn listed(names: &[&str]) -> String {
    joined(names, "and")
}

/// Returns `` `a`, `b` or `c` ``.
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
