//! The arguments between a layer's parentheses, and how a layer reads them.
//!
//! A layer asks for its arguments by name, in the order in which they are written. These calls *are* its signature: the number of
//! arguments, the options, and the type of each. A reading collects mistakes and goes on with the value that was probably meant.

use super::mistake::{At, Kind, Mistake};
use super::recovery::{Guess, Guessed};
pub use super::signature::{Asked, Place, Signature};
pub(super) use super::values::sizes_text;
use super::values::{ABOVE_0, LENGTHS, all_above_0, number, signed, signed_list, whole};
pub use super::values::{Argument, NUMBERS, PAIR, extent, lengths, list, numbers, sizes, sizes_wanted};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// An argument as it is written between the parentheses: `64`, `padding = 1`, `inplace`.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The name, if it has one.
    pub name: Option<String>,
    /// The value.
    pub value: Argument,
}

impl Written {
    /// Returns a value without a name.
    pub fn positional(value: Argument) -> Written {
        Written { name: None, value }
    }

    /// Returns the argument `name = value`. A bare `name` has the value `true`.
    pub fn named(name: impl Into<String>, value: Argument) -> Written {
        Written { name: Some(name.into()), value }
    }
}

/// The written arguments, while a layer reads them.
#[derive(Debug)]
pub struct Arguments<'w> {
    pub(super) written: &'w [Written],
    /// The argument that each written value is taken for; `None` if it is ignored.
    pub(super) names: Vec<Option<&'static str>>,
    /// Indices of values that were written under another name or none. They are ignored after all if the value does not fit.
    pub(super) assumed: Vec<usize>,
    asked: Signature,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) guess: Guess,
    pub(super) guessed: Guessed,
}

/// A layer, made from its arguments.
#[derive(Debug)]
pub struct Reading<L> {
    /// The layer. After a mistake, the wrong value is replaced by its default or an assumed value.
    pub layer: L,
    /// The argument that each written value is taken for; `None` if it is ignored.
    pub names: Vec<Option<&'static str>>,
    /// The mistakes in the arguments.
    pub mistakes: Vec<Mistake>,
    /// The values that had to be assumed.
    pub guessed: Guessed,
}

impl<'w> Arguments<'w> {
    fn new(written: &'w [Written], guess: Guess) -> Arguments<'w> {
        Arguments {
            written,
            names: alloc::vec![None; written.len()],
            assumed: Vec::new(),
            asked: Signature::default(),
            mistakes: Vec::new(),
            guess,
            guessed: Guessed::default(),
        }
    }

    /// The description, in messages, of an argument that may be numbers in nested brackets.
    pub const TABLE: &'static str = "a number, or numbers as `[[1.0, 0.0], [0.5, 1.0]]`";

    /// Returns the signature of the layer that `read` reads: all arguments that it asks for.
    pub fn signature<L>(read: impl Fn(&mut Arguments<'_>) -> L) -> Signature {
        let mut recorder = Arguments::new(&[], Guess::default());
        read(&mut recorder);
        recorder.asked
    }

    /// Reads the written arguments. An unknown option is taken for the one that was probably meant, or ignored.
    pub fn read<L>(written: &'w [Written], guess: Guess, read: impl Fn(&mut Arguments<'_>) -> L) -> Reading<L> {
        let signature = Arguments::signature(&read);
        let mut arguments = Arguments::new(written, guess);
        arguments.match_all(&signature);
        let layer = read(&mut arguments);
        let Arguments { names, mistakes, guessed, .. } = arguments;
        Reading { layer, names, mistakes, guessed }
    }

    /// Returns the place and the value of an argument, and true if that is all that was written for it. Several numbers are one argument.
    /// Of other values that are written several times, returns the first that is not a number. `None` if nothing was written.
    fn given(&self, name: &str) -> Option<(usize, Argument, bool)> {
        let places: Vec<usize> = (0..self.names.len()).filter(|&place| self.names[place] == Some(name)).collect();
        let value = |place: usize| &self.written[place].value;
        let first = *places.first()?;
        if places.len() == 1 {
            return Some((first, value(first).clone(), true));
        }
        match places.iter().find(|&&place| number(value(place)).is_none()) {
            Some(&other) => Some((other, value(other).clone(), false)),
            None => {
                let numbers = places.iter().filter_map(|&place| number(value(place))).collect();
                Some((first, Argument::Numbers(numbers), true))
            }
        }
    }

    fn ask(&mut self, name: &'static str, place: Place) -> Asking<'_, 'w> {
        Asking { arguments: self, name, place }
    }

    /// Asks for an argument that may stand before the others. Its value is only checked.
    pub fn leading(&mut self, name: &'static str) -> Asking<'_, 'w> {
        self.ask(name, Place::Leading)
    }

    /// Asks for an argument that must be there.
    pub fn required(&mut self, name: &'static str) -> Needing<'_, 'w> {
        Needing(self.ask(name, Place::Required))
    }

    /// Asks for an argument that must be there. It may be several values one after another, as in `Permute(0, 2, 1)`.
    pub fn several(&mut self, name: &'static str) -> Needing<'_, 'w> {
        Needing(self.ask(name, Place::Several))
    }

    /// Asks for an argument that may stand after the others.
    pub fn trailing(&mut self, name: &'static str) -> Asking<'_, 'w> {
        self.ask(name, Place::Trailing)
    }

    /// Asks for an argument that is given by name only.
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

/// An argument that must be there. If it is missing, which is reported as a mistake, its value is unknown.
#[derive(Debug)]
pub struct Needing<'a, 'w>(Asking<'a, 'w>);

/// The outcome of reading an argument.
enum Found<T> {
    /// The value that was written.
    Given(T),
    /// Nothing.
    LeftOut,
    /// A value that does not fit.
    Open,
}

impl Asking<'_, '_> {
    /// Adds the argument to the signature, and reads it. `take` converts the value; `range` describes and checks the values that are
    /// allowed.
    fn find<T>(
        &mut self,
        wanted: &str,
        default: Option<String>,
        take: impl Fn(&Argument) -> Option<T>,
        range: (&str, impl Fn(&T) -> bool),
    ) -> Found<T> {
        let Asking { arguments, name, place } = self;
        arguments.asked.0.push(Asked { name, place: *place, wanted: wanted.into(), default });
        let Some((index, value, is_all)) = arguments.given(name) else { return Found::LeftOut };
        let found = value.to_string();
        let kind = match take(&value).filter(|_| is_all) {
            Some(taken) if (range.1)(&taken) => return Found::Given(taken),
            _ if value == Argument::Unknown => return Found::Open,
            _ if arguments.assumed.contains(&index) => return Found::LeftOut,
            Some(_) => Kind::Range { name, range: range.0.into(), found },
            None if wanted.contains("whole number") && value.is_whole_below_0() => {
                Kind::Value { name, wanted: wanted.into(), found: format!("{found}, which is below 0") }
            }
            None => Kind::Value { name, wanted: wanted.into(), found },
        };
        arguments.mistakes.push(Mistake { at: At::Written(index), kind });
        Found::Open
    }

    /// Returns the argument, converted by `take`. If it is wrong, returns `default` or `other`. `wanted` describes it in messages.
    pub fn take<T>(
        mut self,
        wanted: &str,
        text: Option<String>,
        take: impl Fn(&Argument) -> Option<T>,
        [default, other]: [T; 2],
    ) -> T {
        let found = self.find(wanted, text, take, ("", |_: &T| true));
        self.settle(found, [default, other])
    }

    /// Returns the argument, converted by `take`, if it is within its range. If it is wrong, returns one of `values`. `None` if it is left
    /// out.
    pub fn take_if_any<T>(
        mut self,
        wanted: &str,
        take: impl Fn(&Argument) -> Option<T>,
        range: (&str, impl Fn(&T) -> bool),
        values: [T; 2],
    ) -> Option<T> {
        match self.find(wanted, None, take, range) {
            Found::LeftOut => None,
            found => Some(self.settle(found, values)),
        }
    }

    /// Returns the value of an argument: `default` if it is left out, and one of both values if it does not fit.
    fn settle<T>(&mut self, found: Found<T>, [default, other]: [T; 2]) -> T {
        match found {
            Found::Given(value) => value,
            Found::LeftOut => default,
            Found::Open => {
                self.arguments.guessed.number = true;
                if self.arguments.guess.other_number { other } else { default }
            }
        }
    }

    /// Returns `default` and another number.
    fn two(default: u64) -> [u64; 2] {
        [false, true].map(|other_number| Guess { second: false, other_number }.number(default))
    }

    /// Returns `default` and another number for each axis.
    fn two_sizes<const N: usize>(default: [u64; N]) -> [[u64; N]; 2] {
        let both = default.map(Self::two);
        [0, 1].map(|which| both.map(|two| two[which]))
    }

    /// Returns a whole number that is only checked; `None` if it is left out.
    pub fn integer(self) -> Option<u64> {
        self.take("a whole number", None, |value| whole(value).map(Some), [None, None])
    }

    /// Returns a whole number.
    pub fn whole(mut self, default: u64) -> u64 {
        let found = self.find("a whole number", Some(default.to_string()), whole, ("", |_: &u64| true));
        self.settle(found, Self::two(default))
    }

    /// Returns lengths of axes, one or several; `None` if they are left out.
    pub fn lengths(mut self) -> Option<Vec<u64>> {
        let range = ("at least 1", |lengths: &Vec<u64>| !lengths.contains(&0));
        match self.find(LENGTHS, None, lengths, range) {
            Found::Given(lengths) => Some(lengths),
            // No later check depends on it.
            Found::LeftOut | Found::Open => None,
        }
    }

    /// Returns a whole number above 0.
    pub fn positive(mut self, default: u64) -> u64 {
        let found = self.find("a whole number", Some(default.to_string()), whole, ABOVE_0);
        self.settle(found, Self::two(default))
    }

    /// Returns a whole number above 0; `None` if it is left out.
    pub fn positive_if_any(mut self) -> Option<u64> {
        match self.find("a whole number", None, whole, ABOVE_0) {
            Found::LeftOut => None,
            found => Some(self.settle(found, Self::two(1))),
        }
    }

    /// Returns a number for each axis: `[H, W]`, or `[D, H, W]` of a volume. One number stands for all.
    pub fn sizes<const N: usize>(self, default: [u64; N]) -> [u64; N] {
        self.take(sizes_wanted::<N>(), Some(sizes_text(default)), sizes, Self::two_sizes(default))
    }

    /// Returns a number above 0 for each axis; `None` if they are left out. Unlike [`Asking::positive_sizes`], has no default.
    pub fn positive_sizes_if_any<const N: usize>(mut self) -> Option<[u64; N]> {
        match self.find(sizes_wanted::<N>(), None, sizes, all_above_0()) {
            Found::LeftOut => None,
            found => Some(self.settle(found, Self::two_sizes([1; N]))),
        }
    }

    /// Returns a number above 0 for each axis. Unlike [`Asking::sizes`], refuses 0.
    pub fn positive_sizes<const N: usize>(mut self, default: [u64; N]) -> [u64; N] {
        let found = self.find(sizes_wanted::<N>(), Some(sizes_text(default)), sizes, all_above_0());
        self.settle(found, Self::two_sizes(default))
    }

    /// Returns height and width; one number stands for both.
    pub fn pair(self, default: [u64; 2]) -> [u64; 2] {
        self.sizes(default)
    }

    /// Returns height and width, both above 0; `None` if they are left out.
    pub fn positive_pair_if_any(self) -> Option<[u64; 2]> {
        self.positive_sizes_if_any()
    }

    /// Returns height and width, both above 0.
    pub fn positive_pair(self, default: [u64; 2]) -> [u64; 2] {
        self.positive_sizes(default)
    }

    /// Returns a number; `None` if it is left out.
    pub fn number_if_any(self) -> Option<f64> {
        self.take("a number", None, |value| number(value).map(Some), [None, None])
    }

    /// Returns a number.
    pub fn number(self, default: f64) -> f64 {
        self.take("a number", Some(format!("{default}")), number, [default; 2])
    }

    /// Returns a finite number.
    pub fn finite(self, default: f64) -> f64 {
        self.number_within(default, ("finite", |value: &f64| value.is_finite()))
    }

    /// Returns a finite number that is not below `least`.
    pub fn number_from(self, default: f64, least: f64) -> f64 {
        let range = format!("at least {least}");
        self.number_within(default, (&range, |value: &f64| value.is_finite() && *value >= least))
    }

    /// Returns a finite number that is not below `least`; `None` if it is left out.
    pub fn number_from_if_any(self, least: f64) -> Option<f64> {
        let range = format!("at least {least}");
        let is_within = |value: &f64| value.is_finite() && *value >= least;
        self.take_if_any("a number", number, (&range, is_within), [least; 2])
    }

    /// Returns a finite number above `bound`.
    pub fn number_above(self, default: f64, bound: f64) -> f64 {
        let range = format!("above {bound}");
        self.number_within(default, (&range, |value: &f64| value.is_finite() && *value > bound))
    }

    /// Returns a finite number above `bound`; `None` if it is left out.
    pub fn number_above_if_any(self, bound: f64) -> Option<f64> {
        let range = format!("above {bound}");
        let is_within = |value: &f64| value.is_finite() && *value > bound;
        self.take_if_any("a number", number, (&range, is_within), [bound + 1.0; 2])
    }

    /// Returns a probability, at least 0 and below 1.
    pub fn probability(self, default: f64) -> f64 {
        self.number_within(default, ("at least 0 and below 1", |value: &f64| (0.0..1.0).contains(value)))
    }

    /// Returns a finite number for all channels, or one for each.
    pub fn numbers(self, default: f64) -> Vec<f64> {
        self.numbers_within(default, ("finite", |numbers: &Vec<f64>| numbers.iter().all(|number| number.is_finite())))
    }

    /// Returns a number above 0 for all channels, or one for each. Unlike [`Asking::numbers`], refuses 0 and negative numbers.
    pub fn numbers_above_0(self, default: f64) -> Vec<f64> {
        let above_0 = |numbers: &Vec<f64>| numbers.iter().all(|number| number.is_finite() && *number > 0.0);
        self.numbers_within(default, ("above 0", above_0))
    }

    fn numbers_within(mut self, default: f64, range: (&str, impl Fn(&Vec<f64>) -> bool)) -> Vec<f64> {
        // No shape depends on it.
        match self.find(NUMBERS, Some(format!("{default}")), numbers, range) {
            Found::Given(value) => value,
            Found::LeftOut | Found::Open => vec![default],
        }
    }

    fn number_within(mut self, default: f64, range: (&str, impl Fn(&f64) -> bool)) -> f64 {
        // No shape depends on it.
        match self.find("a number", Some(format!("{default}")), number, range) {
            Found::Given(value) => value,
            Found::LeftOut | Found::Open => default,
        }
    }

    /// Returns an axis as PyTorch counts them: the batch is 0, and -1 is the last. `None` if it is left out.
    pub fn axis(self) -> Option<i64> {
        self.take("an axis, as `dim = 1` or `dim = -1`", None, |value| signed(value).map(Some), [None, Some(-1)])
    }

    /// Returns an axis; 1 if it is left out.
    pub fn axis_or_1(self) -> i64 {
        self.axis().unwrap_or(1)
    }

    /// Returns a whole number that counts from the end if it is negative; `None` if it is left out.
    pub fn offset(self) -> Option<i64> {
        self.take("a whole number", None, |value| signed(value).map(Some), [None, None])
    }

    /// Returns a flag.
    pub fn flag(self, default: bool) -> bool {
        let flag = |value: &Argument| if let Argument::Flag(value) = value { Some(*value) } else { None };
        self.take("`true` or `false`", Some(default.to_string()), flag, [default, !default])
    }

    /// Returns the index of one of several texts; the first is the default.
    pub fn choice(self, choices: &[&str]) -> usize {
        let texts: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
        let chosen = |value: &Argument| match value {
            Argument::Text(text) => choices.iter().position(|choice| choice == text),
            _ => None,
        };
        self.take(&texts.join(" or "), texts.first().cloned(), chosen, [0, 0])
    }
}

impl Needing<'_, '_> {
    /// Returns a whole number above 0.
    pub fn positive(mut self) -> u64 {
        let found = self.0.find("a whole number", None, whole, ABOVE_0);
        self.settle(found, Asking::two(1))
    }

    /// Returns a number above 0 for each axis: `[H, W]`, or `[D, H, W]` of a volume. One number stands for all.
    pub fn positive_sizes<const N: usize>(mut self) -> [u64; N] {
        let found = self.0.find(sizes_wanted::<N>(), None, sizes, all_above_0());
        self.settle(found, Asking::two_sizes([1; N]))
    }

    /// Returns height and width, both above 0; one number stands for both.
    pub fn positive_pair(self) -> [u64; 2] {
        self.positive_sizes()
    }

    /// Returns height and width; one number stands for both.
    pub fn pair(self) -> [u64; 2] {
        self.take(sizes_wanted::<2>(), sizes, [[0; 2], [1; 2]])
    }

    /// Returns the argument, converted by `take`. If it is wrong, returns one of `values`. `wanted` describes it in messages.
    pub fn take<T>(mut self, wanted: &str, take: impl Fn(&Argument) -> Option<T>, values: [T; 2]) -> T {
        let found = self.0.find(wanted, None, take, ("", |_: &T| true));
        self.settle(found, values)
    }

    fn settle<T>(&mut self, found: Found<T>, values: [T; 2]) -> T {
        // While a signature is recorded, no argument has been written.
        let found = if matches!(found, Found::LeftOut) { Found::Open } else { found };
        self.0.settle(found, values)
    }

    /// Returns a whole number that counts from the end if it is negative.
    pub fn offset(self) -> i64 {
        self.take("a whole number", signed, [0, 1])
    }

    /// Returns one axis or several, as PyTorch counts them: the batch is 0, and -1 is the last.
    pub fn axes(self) -> Vec<i64> {
        self.take("an axis, or several as `(1, 2)`", signed_list, [vec![1], vec![-1]])
    }

    /// Returns whole numbers, one or several, which may be below 0.
    pub fn offsets(self) -> Vec<i64> {
        self.take("a whole number, or several as `(-3, -3)`", signed_list, [vec![0], vec![1]])
    }

    /// Returns lengths of axes. One of them may be -1.
    pub fn sizes(self) -> Vec<i64> {
        self.take("a whole number, or one for each axis as `(4, 6)`", signed_list, [vec![-1], vec![-1]])
    }
}
