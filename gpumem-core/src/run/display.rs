//! Tensors as text, in the format in which numpy prints arrays.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The characters of a line.
const LINE: usize = 75;
/// The most elements of a tensor that is printed in full.
const MOST: usize = 1000;
/// The indices that are printed at each end of an axis that is cut.
const EDGE: usize = 3;
/// The most digits after the decimal point.
const DIGITS: usize = 8;

/// Returns the row-major positions of the elements that are printed of a tensor of these dimensions.
pub(super) fn shown(dims: &[usize]) -> Vec<usize> {
    let is_cut = is_cut(dims);
    dims.iter().fold(Vec::from([0]), |positions, &dim| {
        let along =
            |position: usize| places(dim, is_cut).into_iter().flatten().map(move |place| position * dim + place);
        positions.into_iter().flat_map(along).collect()
    })
}

/// Returns the elements in brackets, one pair for each axis. `texts` are those of [`shown`].
pub(super) fn array(dims: &[usize], texts: Vec<String>) -> String {
    if texts.is_empty() {
        return "[]".into();
    }
    nested(dims, is_cut(dims), " ", LINE, &mut texts.into_iter())
}

fn is_cut(dims: &[usize]) -> bool {
    dims.iter().try_fold(1, |product: usize, &dim| product.checked_mul(dim)).is_none_or(|elements| elements > MOST)
}

/// Returns the indices along an axis that are printed; `None` stands for those that are left out.
fn places(dim: usize, is_cut: bool) -> Vec<Option<usize>> {
    if !is_cut || dim <= 2 * EDGE {
        return (0..dim).map(Some).collect();
    }
    (0..EDGE).map(Some).chain([None]).chain((dim - EDGE..dim).map(Some)).collect()
}

/// Returns the text of an axis and the axes inside it. `indent` begins each line but the first, and `width` characters are left in a line.
fn nested(
    dims: &[usize],
    is_cut: bool,
    indent: &str,
    width: usize,
    texts: &mut impl Iterator<Item = String>,
) -> String {
    let Some((&dim, inner)) = dims.split_first() else { return texts.next().unwrap_or_default() };
    let (more, narrower) = (format!("{indent} "), width.saturating_sub(1));
    let mut word = |place: Option<usize>| match place {
        Some(_) => nested(inner, is_cut, &more, narrower, texts),
        None => "...".into(),
    };
    let words: Vec<String> = places(dim, is_cut).into_iter().map(&mut word).collect();
    if inner.is_empty() {
        return format!("[{}]", row(&words, indent, narrower));
    }
    let between = "\n".repeat(inner.len()) + indent;
    format!("[{}]", words.join(&between))
}

/// Returns the text of the innermost axis, in lines of at most `width` characters.
fn row(words: &[String], indent: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = indent.to_string();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        if line.len() + word.len() > width && line.len() > indent.len() {
            text += line.trim_end();
            text.push('\n');
            line = indent.to_string();
        }
        line += word;
    }
    text += &line;
    text[indent.len()..].to_string()
}

/// Returns whole numbers as texts of equal width.
pub(super) fn integers(values: impl Iterator<Item = u32>) -> Vec<String> {
    let texts: Vec<String> = values.map(|value| value.to_string()).collect();
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    texts.into_iter().map(|text| format!("{text:>width$}")).collect()
}

/// Returns numbers as texts with aligned decimal points. Each has the digits that tell it from its neighbours in `f32`, at most eight after
/// the point. All have exponents if some are very large or very small, or if they differ by more than a factor of 1000.
pub(super) fn floats(values: &[f32]) -> Vec<String> {
    let finite = values.iter().filter(|value| value.is_finite());
    let sizes = || finite.clone().map(|value| value.abs()).filter(|&size| size > 0.0);
    let (least, most) = (sizes().fold(f32::INFINITY, f32::min), sizes().fold(0.0, f32::max));
    let has_exponents = most > 0.0 && (most >= 1e8 || least < 1e-4 || most / least > 1000.0);
    let parts: Vec<Option<Digits>> = values.iter().map(|&value| Digits::of(value, has_exponents)).collect();
    let widest = |of: fn(&Digits) -> usize| parts.iter().flatten().map(of).max().unwrap_or(0);
    let (fraction, exponent) = (widest(|parts| parts.fraction.len()), widest(|parts| parts.exponent.len()));
    let after_point = fraction + if has_exponents { exponent + 1 } else { 0 };
    let others = values.iter().filter(|value| !value.is_finite()).map(|value| other(*value).len());
    let widest_other = others.max().unwrap_or(0).saturating_sub(after_point + 1);
    let before_point = widest(|parts| parts.whole.len()).max(widest_other);
    let one = |(parts, &value): (&Option<Digits>, &f32)| match parts {
        None => format!("{:>1$}", other(value), before_point + 1 + after_point),
        Some(Digits { whole, fraction: digits, exponent }) if has_exponents => {
            format!("{whole:>before_point$}.{digits:0<fraction$}e{exponent}")
        }
        Some(Digits { whole, fraction: digits, .. }) => format!("{whole:>before_point$}.{digits:<fraction$}"),
    };
    parts.iter().zip(values).map(one).collect()
}

/// Returns the text of a number that is not finite.
fn other(value: f32) -> &'static str {
    match value {
        f32::INFINITY => "inf",
        f32::NEG_INFINITY => "-inf",
        _ => "nan",
    }
}

/// A finite number in decimal digits.
struct Digits {
    /// Digits before the point, with the sign.
    whole: String,
    fraction: String,
    /// A sign and at least two digits; empty without an exponent.
    exponent: String,
}

impl Digits {
    fn of(value: f32, has_exponent: bool) -> Option<Digits> {
        if !value.is_finite() {
            return None;
        }
        let text = if has_exponent { format!("{value:e}") } else { positional(value) };
        let (number, exponent) = text.split_once('e').unwrap_or((&text, ""));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let exponent = match exponent.strip_prefix('-') {
            _ if exponent.is_empty() => String::new(),
            Some(digits) => format!("-{digits:0>2}"),
            None => format!("+{exponent:0>2}"),
        };
        Some(Digits { whole: whole.into(), fraction: fraction.into(), exponent })
    }
}

/// Returns the fewest digits that identify the number; if these are too many, the digits up to the last printed one.
fn positional(value: f32) -> String {
    let text = value.to_string();
    if text.split_once('.').is_none_or(|(_, fraction)| fraction.len() <= DIGITS) {
        return text;
    }
    format!("{value:.DIGITS$}").trim_end_matches('0').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tensor::Tensor;
    use crate::typed::D;

    fn vector(values: &[f32]) -> String {
        array(&[values.len()], floats(values))
    }

    /// The texts are those of `print(numpy.array(.., numpy.float32))`, numpy 2.
    #[test]
    fn vectors_are_printed_as_numpy_prints_them() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        for (values, expected) in [
            (&[1.0, -0.25, 3.5][..], "[ 1.   -0.25  3.5 ]"),
            (&[1e8, 1.0], "[1.e+08 1.e+00]"),
            (&[1e-5, 1.0], "[1.e-05 1.e+00]"),
            (&[0.1, 1.0 / 3.0, 123.456], "[1.0000000e-01 3.3333334e-01 1.2345600e+02]"),
            (&[nan, infinity, -infinity, 1.5], "[ nan  inf -inf  1.5]"),
            (&[nan, nan], "[nan nan]"),
            (&[1e-20, infinity], "[1.e-20    inf]"),
            (&[0.0001, 0.05], "[0.0001 0.05  ]"),
            (&[0.0, 0.0], "[0. 0.]"),
            (&[-0.0, 1.0], "[-0.  1.]"),
            (&[3e-39, 2.0], "[3.e-39 2.e+00]"),
            (&[0.000_123_456_78, 0.1], "[0.00012346 0.1       ]"),
            (&[16_777_216.0, 1.0], "[1.6777216e+07 1.0000000e+00]"),
            (&[-1e-7, 2e10], "[-1.e-07  2.e+10]"),
        ] {
            assert_eq!(vector(values), expected);
        }
        let sevenths: Vec<f32> = (0..14_u8).map(|n| f32::from(n) / 7.0).collect();
        let expected = "[0.         0.14285715 0.2857143  0.42857143 0.5714286  0.71428573\n 0.85714287 1.         1.1428572  \
                        1.2857143  1.4285715  1.5714285\n 1.7142857  1.8571428 ]";
        assert_eq!(vector(&sevenths), expected);
    }

    #[test]
    fn axes_are_nested_and_large_ones_cut() {
        let cube: Tensor<f32, (D<2>, D<2>, D<2>)> = Tensor::from_fn(|index| index as f32 + 1.0);
        assert_eq!(cube.to_string(), "[[[1. 2.]\n  [3. 4.]]\n\n [[5. 6.]\n  [7. 8.]]]");
        let long: Tensor<f32, (D<1001>,)> = Tensor::from_fn(|index| index as f32);
        assert_eq!(long.to_string(), "[   0.    1.    2. ...  998.  999. 1000.]");
        let wide: Tensor<u32, (D<2>, D<600>)> = Tensor::from_fn(|index| index as u32);
        assert_eq!(wide.to_string(), "[[   0    1    2 ...  597  598  599]\n [ 600  601  602 ... 1197 1198 1199]]");
        let bytes: Tensor<u8, (D<3>,)> = Tensor::from([1, 200, 3]);
        assert_eq!(bytes.to_string(), "[  1 200   3]");
        let many: Tensor<f32, (D<3>, D<7>, D<60>)> = Tensor::zeros();
        let row = "[0. 0. 0. ... 0. 0. 0.]";
        let plane = format!("[{row}\n  {row}\n  {row}\n  ...\n  {row}\n  {row}\n  {row}]");
        assert_eq!(many.to_string(), format!("[{plane}\n\n {plane}\n\n {plane}]"));
        let nothing: Tensor<f32, (D<2>, D<0>)> = Tensor::zeros();
        assert_eq!(nothing.to_string(), "[]");
        assert_eq!(format!("{bytes:>15}"), "  [  1 200   3]");
    }

    /// Float64: `exp(x - max) / sum`.
    #[test]
    fn probabilities_are_of_the_last_axis() {
        let logits: Tensor<f32, (D<2>, D<2>, D<3>)> = Tensor::from([
            [[1.0, 2.0, 3.0], [1000.0, 1000.0, 1000.0]],
            [[-200.0, 0.0, f32::NEG_INFINITY], [0.0, f32::NAN, 0.0]],
        ]);
        let found = logits.softmax();
        let third = 1.0 / 3.0;
        let expected = [0.090_030_57, 0.244_728_48, 0.665_240_94, third, third, third, 0.0, 1.0, 0.0];
        assert_eq!(found.as_slice()[..9], expected);
        assert!(found.as_slice()[9..].iter().all(|value| value.is_nan()));
    }
}
