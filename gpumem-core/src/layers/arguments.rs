//! What is written between a layer's parentheses, and how a layer reads it.
//!
//! A layer asks for its arguments by name, in the order in which they are written. What it asks for *is* its signature: how
//! many arguments it takes, which options it has, what each of them must be. A reading collects mistakes and goes on with what
//! was probably meant.

use super::mistake::{At, Kind, Mistake};
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

/// One thing between the parentheses: `64`, `padding = 1`, `inplace`.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The name, if it has one.
    pub name: Option<String>,
    /// The value.
    pub value: Argument,
}

impl Written {
    /// A value without a name.
    pub fn positional(value: Argument) -> Written {
        Written { name: None, value }
    }

    /// `name = value`, or a bare `name` with the value `true`.
    pub fn named(name: impl Into<String>, value: Argument) -> Written {
        Written { name: Some(name.into()), value }
    }
}

/// Where an argument stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the others, where it may be left out: it is only checked.
    Leading,
    /// In its place.
    Required,
    /// After the others, where it may be left out.
    Trailing,
    /// By its name.
    Option,
}

/// An argument that a layer asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The name.
    pub name: &'static str,
    /// Where it stands.
    pub place: Place,
    /// What it must be.
    pub wanted: String,
    /// What it is where it is left out, if that is a value.
    pub default: Option<String>,
}

/// The arguments that a layer takes, in the order in which it asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature(pub Vec<Asked>);

impl Signature {
    fn at(&self, places: &[Place]) -> Vec<&'static str> {
        self.0.iter().filter(|asked| places.contains(&asked.place)).map(|asked| asked.name).collect()
    }

    /// The ways to write the arguments in front of the options, shortest first.
    pub fn forms(&self) -> Vec<Vec<&'static str>> {
        let mut forms = Vec::new();
        let whole = self.at(&[Place::Required]);
        forms.push(whole.clone());
        for trailing in self.at(&[Place::Trailing]) {
            let mut form = forms.last().cloned().unwrap_or_default();
            form.push(trailing);
            forms.push(form);
        }
        for leading in self.at(&[Place::Leading]) {
            let mut form = alloc::vec![leading];
            form.extend(&whole);
            forms.push(form);
        }
        forms
    }

    /// Everything that may be given by name.
    pub fn options(&self) -> Vec<&'static str> {
        self.at(&[Place::Option])
    }

    /// Everything that it takes.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|asked| asked.name).collect()
    }
}

/// What a layer reads its arguments from.
#[derive(Debug)]
pub struct Arguments<'w> {
    written: &'w [Written],
    /// The name of each thing that was written; `None` if it is left out.
    names: Vec<Option<&'static str>>,
    asked: Signature,
    mistakes: Vec<Mistake>,
    /// Whether a mistake leaves open what the layer produces.
    is_open: bool,
}

/// A layer's arguments as it read them.
#[derive(Debug)]
pub struct Reading<L> {
    /// The layer. After a mistake the value that was wrong is its default.
    pub layer: L,
    /// The name of each thing that was written.
    pub names: Vec<Option<&'static str>>,
    /// What is wrong.
    pub mistakes: Vec<Mistake>,
    /// Whether a mistake leaves open what the layer produces.
    pub is_open: bool,
}

impl<'w> Arguments<'w> {
    fn new(written: &'w [Written]) -> Arguments<'w> {
        let names = alloc::vec![None; written.len()];
        Arguments { written, names, asked: Signature::default(), mistakes: Vec::new(), is_open: false }
    }

    /// What `read` asks for.
    pub fn signature<L>(read: impl Fn(&mut Arguments<'_>) -> L) -> Signature {
        let mut recorder = Arguments::new(&[]);
        read(&mut recorder);
        recorder.asked
    }

    /// Reads what was written. An option that is not known is taken for the one that was probably meant, or left out.
    pub fn read<L>(written: &'w [Written], read: impl Fn(&mut Arguments<'_>) -> L) -> Reading<L> {
        let signature = Arguments::signature(&read);
        let mut arguments = Arguments::new(written);
        arguments.match_names(&signature);
        arguments.match_places(&signature);
        let layer = read(&mut arguments);
        let Arguments { names, mistakes, is_open, .. } = arguments;
        Reading { layer, names, mistakes, is_open }
    }

    /// Every name must be one that the layer knows, and be given once.
    fn match_names(&mut self, signature: &Signature) {
        let known = signature.names();
        for (index, written) in self.written.iter().enumerate() {
            let Some(name) = &written.name else { continue };
            let own = known.iter().copied().find(|known| known == name);
            let is_repeated = self.written[..index].iter().any(|earlier| earlier.name.as_ref() == Some(name));
            if own.is_some() && !is_repeated {
                self.names[index] = own;
                continue;
            }
            let kind = if is_repeated {
                Kind::Repeated(name.clone())
            } else {
                let meant = nearest(name, &known);
                // A bare name is a flag; most options are not.
                let is_bare = written.value == Argument::Flag(true);
                let is_free = |meant: &&str| self.written.iter().all(|other| other.name.as_deref() != Some(*meant));
                self.names[index] = meant.filter(is_free).filter(|_| !is_bare);
                Kind::NoOption { given: name.clone(), meant, options: signature.options() }
            };
            self.mistakes.push(Mistake { at: At::Written(index), kind });
        }
    }

    /// Gives every value without a name its name.
    fn match_places(&mut self, signature: &Signature) {
        let positional: Vec<usize> = (0..self.written.len()).filter(|&i| self.written[i].name.is_none()).collect();
        let named: Vec<&'static str> = self.names.iter().flatten().copied().collect();
        let fits = |form: &&Vec<&'static str>| {
            let (given, rest) = form.split_at(positional.len().min(form.len()));
            given.len() == positional.len()
                && given.iter().all(|name| !named.contains(name))
                && rest.iter().all(|name| named.contains(name))
        };
        let forms = signature.forms();
        let form = match forms.iter().find(fits) {
            Some(form) => form,
            None => {
                let given = positional.len();
                self.mistakes.push(Kind::Arity { forms: forms.clone(), given }.into());
                // With too many, those that are known are; with too few, nothing is.
                let longest = forms.iter().max_by_key(|form| form.len());
                match longest
                    .filter(|longest| longest.len() < given && longest.iter().all(|name| !named.contains(name)))
                {
                    Some(longest) => longest,
                    None => {
                        self.is_open = true;
                        return;
                    }
                }
            }
        };
        for (&index, name) in positional.iter().zip(form) {
            self.names[index] = Some(name);
        }
    }

    fn ask(&mut self, name: &'static str, place: Place) -> Asking<'_, 'w> {
        Asking { arguments: self, name, place }
    }

    /// An argument that may stand before the others. It is only checked.
    pub fn leading(&mut self, name: &'static str) -> Asking<'_, 'w> {
        self.ask(name, Place::Leading)
    }

    /// An argument that must be there.
    pub fn required(&mut self, name: &'static str) -> Needing<'_, 'w> {
        Needing(self.ask(name, Place::Required))
    }

    /// An argument that may stand after the others.
    pub fn trailing(&mut self, name: &'static str) -> Asking<'_, 'w> {
        self.ask(name, Place::Trailing)
    }

    /// An argument that is given by name only.
    pub fn option(&mut self, name: &'static str) -> Asking<'_, 'w> {
        self.ask(name, Place::Option)
    }
}

/// An argument that may be left out.
#[derive(Debug)]
pub struct Asking<'a, 'w> {
    arguments: &'a mut Arguments<'w>,
    name: &'static str,
    place: Place,
}

/// An argument that must be there. Where it is missing, which is a mistake of its own, the value is 1.
#[derive(Debug)]
pub struct Needing<'a, 'w>(Asking<'a, 'w>);

impl<'w> Asking<'_, 'w> {
    /// Notes what the argument must be, and its default; the value that was written, if one was.
    fn note(&mut self, wanted: &str, default: Option<String>) -> Option<(usize, &'w Argument)> {
        let Asking { arguments, name, place } = self;
        arguments.asked.0.push(Asked { name, place: *place, wanted: wanted.into(), default });
        let index = arguments.names.iter().position(|known| *known == Some(*name))?;
        Some((index, &arguments.written[index].value))
    }

    /// A mistake of the argument, after which nobody knows what the layer produces.
    fn wrong(&mut self, index: usize, kind: Kind) {
        self.arguments.mistakes.push(Mistake { at: At::Written(index), kind });
        self.arguments.is_open = true;
    }

    /// The argument as `wanted`, if `take` makes it that.
    pub fn take<T>(
        mut self,
        wanted: &str,
        default: Option<String>,
        take: impl Fn(&Argument) -> Option<T>,
    ) -> Option<T> {
        let (index, value) = self.note(wanted, default)?;
        let taken = take(value);
        if taken.is_none() {
            let (name, found) = (self.name, value.to_string());
            self.wrong(index, Kind::Value { name, wanted: wanted.into(), found });
        }
        taken
    }

    /// The argument as `take` makes it, if that is within a range.
    fn take_within<T: fmt::Display>(
        mut self,
        (wanted, range): (&str, &str),
        default: Option<String>,
        take: impl Fn(&Argument) -> Option<T>,
        is_within: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let (index, value) = self.note(wanted, default)?;
        let (name, found) = (self.name, value.to_string());
        match take(value) {
            Some(taken) if is_within(&taken) => return Some(taken),
            Some(_) => self.wrong(index, Kind::Range { name, range: range.into(), found }),
            None => self.wrong(index, Kind::Value { name, wanted: wanted.into(), found }),
        }
        None
    }

    /// A whole number.
    pub fn integer(self) -> Option<u64> {
        self.take("a whole number", None, whole)
    }

    /// A whole number above 0.
    pub fn positive(self, default: u64) -> u64 {
        let default_text = Some(default.to_string());
        self.take_within(("a whole number", "at least 1"), default_text, whole, |&value| value > 0).unwrap_or(default)
    }

    /// Height and width; one number stands for both.
    pub fn pair(self, default: [u64; 2]) -> [u64; 2] {
        self.take(PAIR, Some(pair_text(default)), pair).unwrap_or(default)
    }

    /// Height and width, both above 0; `None` where they are left out.
    pub fn positive_pair_if_any(mut self, default: Option<[u64; 2]>) -> Option<[u64; 2]> {
        let (index, value) = self.note(PAIR, default.map(pair_text))?;
        let name = self.name;
        match pair(value) {
            Some(pair) if !pair.contains(&0) => return Some(pair),
            Some(_) => self.wrong(index, Kind::Range { name, range: "at least 1".into(), found: "0".into() }),
            None => self.wrong(index, Kind::Value { name, wanted: PAIR.into(), found: value.to_string() }),
        }
        None
    }

    /// Height and width, both above 0.
    pub fn positive_pair(self, default: [u64; 2]) -> [u64; 2] {
        self.positive_pair_if_any(Some(default)).unwrap_or(default)
    }

    /// A number; `None` where it is left out.
    pub fn number_if_any(self) -> Option<f64> {
        self.take("a number", None, number)
    }

    /// A number.
    pub fn number(self, default: f64) -> f64 {
        self.take("a number", Some(format!("{default}")), number).unwrap_or(default)
    }

    /// A number that is not below `least`.
    pub fn number_from(self, default: f64, least: f64) -> f64 {
        let range = format!("at least {least}");
        self.take_within(("a number", &range), Some(format!("{default}")), number, |&value| value >= least)
            .unwrap_or(default)
    }

    /// A probability: from 0 up to, not including, 1.
    pub fn probability(self, default: f64) -> f64 {
        let wanted = ("a number", "at least 0 and below 1");
        self.take_within(wanted, Some(format!("{default}")), number, |value| (0.0..1.0).contains(value))
            .unwrap_or(default)
    }

    /// An axis as PyTorch counts them: the batch is 0, and -1 is the last. `None` where it is left out.
    pub fn axis(self) -> Option<i64> {
        let axis = |value: &Argument| match value {
            Argument::Integer(value) => i64::try_from(*value).ok(),
            Argument::Float(value) if *value < 0.0 && *value == f64::from(*value as i32) => Some(*value as i64),
            _ => None,
        };
        self.take("an axis, as `dim = 1` or `dim = -1`", None, axis)
    }

    /// `true` or `false`.
    pub fn flag(self, default: bool) -> bool {
        let flag = |value: &Argument| if let Argument::Flag(value) = value { Some(*value) } else { None };
        self.take("`true` or `false`", Some(default.to_string()), flag).unwrap_or(default)
    }

    /// One of several texts, by its number; the first is the default.
    pub fn choice(self, choices: &[&str]) -> usize {
        let texts: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
        let chosen = |value: &Argument| match value {
            Argument::Text(text) => choices.iter().position(|choice| choice == text),
            _ => None,
        };
        self.take(&texts.join(" or "), texts.first().cloned(), chosen).unwrap_or(0)
    }
}

impl Needing<'_, '_> {
    /// A whole number above 0.
    pub fn positive(self) -> u64 {
        self.0.take_within(("a whole number", "at least 1"), None, whole, |&value| value > 0).unwrap_or(1)
    }

    /// Height and width, both above 0; one number stands for both.
    pub fn positive_pair(self) -> [u64; 2] {
        self.0.positive_pair_if_any(None).unwrap_or([1, 1])
    }
}

/// What a pair is called in messages.
pub const PAIR: &str = "a whole number or a pair (height, width)";

fn whole(value: &Argument) -> Option<u64> {
    if let Argument::Integer(value) = value { Some(*value) } else { None }
}

/// Height and width of an argument.
pub fn pair(value: &Argument) -> Option<[u64; 2]> {
    match value {
        Argument::Integer(value) => Some([*value; 2]),
        Argument::Pair(pair) => Some(*pair),
        _ => None,
    }
}

fn pair_text([height, width]: [u64; 2]) -> String {
    if height == width { format!("{height}") } else { format!("({height}, {width})") }
}

fn number(value: &Argument) -> Option<f64> {
    match value {
        Argument::Integer(value) => Some(*value as f64),
        Argument::Float(value) => Some(*value),
        _ => None,
    }
}
