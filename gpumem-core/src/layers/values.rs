//! Values of arguments, their conversions, and the words for their kinds in messages.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
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
    /// Two or more numbers that are no pair, `(0.5, 0.2, 0.1)`.
    Numbers(Vec<f64>),
    /// Numbers in nested brackets: how many there are along each axis, and all of them in order.
    Table(Vec<u64>, Vec<f64>),
    /// A value that could not be evaluated. Its mistake has been reported.
    Unknown,
}

impl Argument {
    /// True if it is a whole number below 0, which is stored as a `Float`.
    pub(super) fn is_whole_below_0(&self) -> bool {
        matches!(self, Argument::Float(value) if *value < 0.0 && *value == (*value as i64) as f64)
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Integer(value) => write!(f, "{value}"),
            // It was most probably written without a decimal point.
            Argument::Float(value) if self.is_whole_below_0() => write!(f, "{}", *value as i64),
            // `{value:?}` keeps the decimal point: `10.0` is not 10.
            Argument::Float(value) => write!(f, "{value:?}"),
            Argument::Flag(value) => write!(f, "{value}"),
            Argument::Text(value) => write!(f, "{value:?}"),
            Argument::Pair([height, width]) => write!(f, "({height}, {width})"),
            Argument::Numbers(numbers) => f.write_str(&list(numbers)),
            Argument::Table(dims, _) => write!(f, "a table of {}", extent(dims)),
            Argument::Unknown => f.write_str(".."),
        }
    }
}

/// A range in words, to be read after `to be`, and its check.
pub(super) type Range<T> = (&'static str, fn(&T) -> bool);

pub(super) const ABOVE_0: Range<u64> = ("at least 1", |&value| value > 0);

pub(super) const fn all_above_0<const N: usize>() -> Range<[u64; N]> {
    ("at least 1", |sizes| !sizes.contains(&0))
}

/// The words for a pair in messages.
pub const PAIR: &str = sizes_wanted::<2>();

/// Returns the words for a number for each axis in messages.
pub const fn sizes_wanted<const N: usize>() -> &'static str {
    if N == 3 { "a whole number or three (depth, height, width)" } else { "a whole number or a pair (height, width)" }
}

pub(super) fn whole(value: &Argument) -> Option<u64> {
    if let Argument::Integer(value) = value { Some(*value) } else { None }
}

/// Returns a number for each axis. `None` if the argument is no such value.
pub fn sizes<const N: usize>(value: &Argument) -> Option<[u64; N]> {
    match value {
        Argument::Integer(value) => Some([*value; N]),
        Argument::Pair(pair) => pair.to_vec().try_into().ok(),
        // Two whole numbers are a `Pair`.
        Argument::Numbers(_) if N > 2 => lengths(value)?.try_into().ok(),
        _ => None,
    }
}

/// Returns a whole number that may be negative. `None` if the argument is no such number.
pub(super) fn signed(value: &Argument) -> Option<i64> {
    match value {
        Argument::Integer(value) => i64::try_from(*value).ok(),
        Argument::Float(value) if *value == f64::from(*value as i32) => Some(*value as i64),
        _ => None,
    }
}

/// Returns one whole number or several, which may be negative. `None` if the argument is no such value.
pub(super) fn signed_list(value: &Argument) -> Option<Vec<i64>> {
    match value {
        Argument::Pair(pair) => pair.iter().map(|&number| i64::try_from(number).ok()).collect(),
        Argument::Numbers(numbers) => numbers.iter().map(|&number| signed(&Argument::Float(number))).collect(),
        one => signed(one).map(|number| vec![number]),
    }
}

/// Returns `2`, or `(2, 3)` if the axes differ.
pub(super) fn sizes_text<const N: usize>(sizes: [u64; N]) -> String {
    if sizes.iter().all(|size| *size == sizes[0]) {
        return format!("{}", sizes[0]);
    }
    let sizes = sizes.map(|size| size.to_string());
    format!("({})", sizes.join(", "))
}

/// The words for lengths of axes in messages.
pub(super) const LENGTHS: &str = "a whole number, or one for each axis as `(4, 6)`";

/// Returns lengths of axes, one or several. `None` if the argument is no such value.
pub fn lengths(value: &Argument) -> Option<Vec<u64>> {
    match value {
        Argument::Integer(length) => Some(vec![*length]),
        Argument::Pair(pair) => Some(pair.to_vec()),
        Argument::Numbers(numbers) => {
            let whole = |number: &f64| (*number >= 0.0 && *number == (*number as u64) as f64).then_some(*number as u64);
            numbers.iter().map(whole).collect()
        }
        _ => None,
    }
}

/// The words for numbers for channels in messages.
pub const NUMBERS: &str = "a number, or one for each channel as `(0.5, 0.4, 0.3)`";

/// Returns numbers, one or several. `None` if the argument is no such value.
pub fn numbers(value: &Argument) -> Option<Vec<f64>> {
    match value {
        Argument::Numbers(numbers) => Some(numbers.clone()),
        Argument::Pair(pair) => Some(pair.map(|number| number as f64).to_vec()),
        _ => Some(vec![number(value)?]),
    }
}

/// Returns the lengths of the axes of a table: `2 x 3`.
pub fn extent(dims: &[u64]) -> String {
    let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
    dims.join(" x ")
}

/// Returns numbers as they are written: `(0.5, 0.2, 0.1)`.
pub fn list(numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
    format!("({})", numbers.join(", "))
}

pub(super) fn number(value: &Argument) -> Option<f64> {
    match value {
        Argument::Integer(value) => Some(*value as f64),
        Argument::Float(value) => Some(*value),
        _ => None,
    }
}
