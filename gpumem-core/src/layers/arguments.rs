//! What is written between a layer's parentheses, and how it is matched with the layer's signature.

use crate::suggest::nearest;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A value written in a layer's parentheses.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A whole number.
    Integer(u64),
    /// A number with a fraction, or a negative one.
    Float(f64),
    /// A flag: `true`, `false`, or an option's bare name.
    Flag(bool),
    /// A text in quotes.
    Text(String),
    /// Height and width, `(3, 5)`.
    Pair([u64; 2]),
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Integer(value) => write!(f, "{value}"),
            Argument::Float(value) => write!(f, "{value}"),
            Argument::Flag(value) => write!(f, "{value}"),
            Argument::Text(value) => write!(f, "{value:?}"),
            Argument::Pair([height, width]) => write!(f, "({height}, {width})"),
        }
    }
}

/// Everything written in a layer's parentheses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// Values without a name, in order.
    pub positional: Vec<Argument>,
    /// `name = value`, in order.
    pub named: Vec<(String, Argument)>,
}

/// Where a mistake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The layer as a whole.
    Layer,
    /// A positional argument.
    Positional(usize),
    /// A named argument.
    Named(usize),
}

/// Why a layer cannot stand where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// Where to point.
    pub at: At,
    /// What is wrong and what to do, to be read after the layer's name.
    pub message: String,
}

impl Mistake {
    /// A mistake of the layer as a whole.
    pub fn new(message: impl Into<String>) -> Mistake {
        Mistake { at: At::Layer, message: message.into() }
    }

    /// A mistake of one argument.
    pub fn at(at: At, message: impl Into<String>) -> Mistake {
        Mistake { at, message: message.into() }
    }
}

/// A named argument that the layer does not know, or knows already.
#[derive(Clone, Debug, PartialEq)]
pub struct Misnamed {
    /// Its number among the named arguments.
    pub index: usize,
    /// The name that was probably meant.
    pub meant: Option<&'static str>,
    /// What to say of it.
    pub mistake: Mistake,
}

/// The arguments a layer takes.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The names of positional arguments, one list for each way to write the layer, shortest first. Any of them may be
    /// given by name instead, as long as those before it are given too.
    pub forms: &'static [&'static [&'static str]],
    /// Positional arguments that may be left out.
    pub optional: &'static [&'static str],
    /// Arguments that are given by name only.
    pub options: &'static [&'static str],
}

impl Signature {
    /// A layer without arguments.
    pub const NONE: Signature = Signature { forms: &[&[]], optional: &[], options: &[] };
}

/// Arguments matched with a signature: every value has a name.
#[derive(Debug)]
pub struct Matched<'a> {
    values: Vec<(&'a str, &'a Argument, At)>,
}

impl Arguments {
    /// Gives every positional argument its name.
    ///
    /// # Errors
    /// An unknown or repeated name, or a number of positional arguments that no form of the layer has.
    pub fn matched<'a>(&'a self, signature: &'a Signature) -> Result<Matched<'a>, Mistake> {
        if let Some(Misnamed { mistake, .. }) = self.misnamed(signature).into_iter().next() {
            return Err(mistake);
        }
        let count = self.positional.len();
        let is_named = |name: &str| self.named.iter().any(|(given, _)| given == name);
        let fits = |form: &&&[&str]| {
            count <= form.len()
                && form[..count].iter().all(|name| !is_named(name))
                && form[count..].iter().all(|name| is_named(name) || signature.optional.contains(name))
        };
        let Some(form) = signature.forms.iter().find(fits) else {
            return Err(Mistake::new(self.arity_message(signature)));
        };
        let positional = self
            .positional
            .iter()
            .zip(*form)
            .enumerate()
            .map(|(index, (value, name))| (*name, value, At::Positional(index)));
        let named =
            self.named.iter().enumerate().map(|(index, (name, value))| (name.as_str(), value, At::Named(index)));
        Ok(Matched { values: positional.chain(named).collect() })
    }

    /// Every name must be one that the layer knows, and be given once: all names that are not.
    pub fn misnamed(&self, signature: &Signature) -> Vec<Misnamed> {
        let mut known: Vec<&'static str> = signature.forms.iter().flat_map(|form| form.iter().copied()).collect();
        known.extend(signature.options);
        let mut found = Vec::new();
        for (index, (name, _)) in self.named.iter().enumerate() {
            let is_repeated = self.named[..index].iter().any(|(earlier, _)| earlier == name);
            if known.contains(&name.as_str()) && !is_repeated {
                continue;
            }
            let meant = if is_repeated { None } else { nearest(name, &known) };
            let message = match meant {
                _ if is_repeated => format!("is given `{name}` twice; remove one"),
                Some(near) => format!("has no option `{name}`; did you mean `{near}`?"),
                None if signature.options.is_empty() => format!("has no option `{name}`; it has no options"),
                None => format!("has no option `{name}`; its options are {}", listed(signature.options)),
            };
            found.push(Misnamed { index, meant, mistake: Mistake::at(At::Named(index), message) });
        }
        found
    }

    fn arity_message(&self, signature: &Signature) -> String {
        let given = match self.positional.len() {
            0 => "none is given".to_string(),
            1 => "1 is given".to_string(),
            count => format!("{count} are given"),
        };
        if let [[]] = signature.forms {
            return format!("takes no arguments in front of its options, but {given}");
        }
        let forms: Vec<String> = signature.forms.iter().map(|form| format!("({})", form.join(", "))).collect();
        format!("takes {}, but {given}", forms.join(" or "))
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

impl Matched<'_> {
    fn get(&self, name: &str) -> Option<(&Argument, At)> {
        self.values.iter().find(|(given, ..)| *given == name).map(|&(_, value, at)| (value, at))
    }

    /// Where `name` was written, or the layer if it was left out.
    pub fn place(&self, name: &str) -> At {
        self.get(name).map_or(At::Layer, |(_, at)| at)
    }

    /// Whether `name` was written.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A whole number.
    ///
    /// # Errors
    /// Anything else than a whole number.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, Mistake> {
        match self.get(name) {
            None => Ok(None),
            Some((Argument::Integer(value), _)) => Ok(Some(*value)),
            Some((other, at)) => Err(Mistake::at(at, format!("needs a whole number for `{name}`, not {other}"))),
        }
    }

    /// A whole number above 0 that must be given.
    ///
    /// # Errors
    /// A missing value, 0, or anything else than a whole number.
    pub fn positive(&self, name: &str) -> Result<u64, Mistake> {
        match self.integer(name)? {
            Some(0) => Err(Mistake::at(self.place(name), format!("needs `{name}` to be at least 1, not 0"))),
            Some(value) => Ok(value),
            None => Err(Mistake::new(format!("needs `{name}`"))),
        }
    }

    /// Height and width; one number stands for both.
    ///
    /// # Errors
    /// Anything else than a whole number or a pair of them.
    pub fn pair(&self, name: &str, default: [u64; 2]) -> Result<[u64; 2], Mistake> {
        match self.get(name) {
            None => Ok(default),
            Some((Argument::Integer(value), _)) => Ok([*value; 2]),
            Some((Argument::Pair(pair), _)) => Ok(*pair),
            Some((other, at)) => Err(Mistake::at(
                at,
                format!("needs a whole number or a pair (height, width) for `{name}`, not {other}"),
            )),
        }
    }

    /// Height and width, both above 0.
    ///
    /// # Errors
    /// A 0, or anything else than a whole number or a pair of them.
    pub fn positive_pair(&self, name: &str, default: [u64; 2]) -> Result<[u64; 2], Mistake> {
        let pair = self.pair(name, default)?;
        if pair.contains(&0) {
            return Err(Mistake::at(self.place(name), format!("needs `{name}` to be at least 1, not 0")));
        }
        Ok(pair)
    }

    /// A number.
    ///
    /// # Errors
    /// Anything else than a number.
    pub fn float(&self, name: &str, default: f64) -> Result<f64, Mistake> {
        match self.get(name) {
            None => Ok(default),
            Some((Argument::Integer(value), _)) => Ok(*value as f64),
            Some((Argument::Float(value), _)) => Ok(*value),
            Some((other, at)) => Err(Mistake::at(at, format!("needs a number for `{name}`, not {other}"))),
        }
    }

    /// A probability: from 0 up to, not including, 1.
    ///
    /// # Errors
    /// Anything else than a number in that range.
    pub fn probability(&self, name: &str, default: f64) -> Result<f64, Mistake> {
        let value = self.float(name, default)?;
        if (0.0..1.0).contains(&value) {
            return Ok(value);
        }
        Err(Mistake::at(self.place(name), format!("needs `{name}` to be at least 0 and below 1, not {value}")))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Anything else than `true` or `false`.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, Mistake> {
        match self.get(name) {
            None => Ok(default),
            Some((Argument::Flag(value), _)) => Ok(*value),
            Some((other, at)) => Err(Mistake::at(at, format!("needs `true` or `false` for `{name}`, not {other}"))),
        }
    }

    /// One of several texts; the first is the default.
    ///
    /// # Errors
    /// Anything else than one of `choices`.
    pub fn choice(&self, name: &str, choices: &[&str]) -> Result<usize, Mistake> {
        let Some((value, at)) = self.get(name) else { return Ok(0) };
        let found = match value {
            Argument::Text(text) => choices.iter().position(|choice| choice == text),
            _ => None,
        };
        let texts: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
        found.ok_or_else(|| Mistake::at(at, format!("needs {} for `{name}`, not {value}", texts.join(" or "))))
    }
}
