//! Operations on each element of one tensor, as a table.

use super::super::Device;
use super::super::call::{Call, Outputs};
use super::super::meta::{Backward, Gradients, Tensor};
use super::elementwise::changed;
use crate::model::Dtype;

/// The tensor that a derivative reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Saves {
    Nothing,
    Input,
    Output,
}

use Saves::{Input, Nothing, Output};

/// A row of the table.
pub(super) struct Row {
    pub name: &'static str,
    pub saves: Saves,
    /// The tensors of the gradient's size that the formula of the derivative holds at once, its result included.
    pub tensors: u8,
    /// The masks of one byte an element that the formula holds at once with them.
    pub masks: u8,
    /// True if the derivative of the operation in place reads the output.
    pub saves_output_in_place: bool,
}

const fn row(name: &'static str, saves: Saves, tensors: u8) -> Row {
    Row { name, saves, tensors, masks: 0, saves_output_in_place: matches!(saves, Output) }
}

const fn masked(name: &'static str, saves: Saves, tensors: u8, masks: u8) -> Row {
    Row { masks, ..row(name, saves, tensors) }
}

/// In place its derivative reads the output, which has the sign of the input.
const fn signed(name: &'static str) -> Row {
    Row { saves_output_in_place: true, ..row(name, Input, 1) }
}

/// The table. Its figures were measured with PyTorch 2.15 on tensors without data.
pub(super) static ROWS: &[Row] = &[
    row("abs", Input, 2),
    row("acos", Input, 6),
    row("acosh", Input, 4),
    row("asin", Input, 5),
    row("asinh", Input, 4),
    row("atan", Input, 3),
    row("atanh", Input, 4),
    row("ceil", Nothing, 1),
    signed("celu"),
    masked("clamp", Input, 1, 1),
    masked("clamp_max", Input, 1, 1),
    masked("clamp_min", Input, 1, 1),
    row("cos", Input, 3),
    row("cosh", Input, 2),
    row("deg2rad", Nothing, 1),
    row("digamma", Input, 2),
    signed("elu"),
    row("erf", Input, 5),
    row("erfc", Input, 5),
    row("erfinv", Input, 5),
    row("exp", Output, 1),
    row("exp2", Output, 2),
    row("expm1", Output, 2),
    row("floor", Nothing, 1),
    row("frac", Nothing, 1),
    row("gelu", Input, 1),
    row("hardshrink", Input, 1),
    row("hardsigmoid", Input, 1),
    row("hardswish", Input, 1),
    row("hardtanh", Input, 1),
    signed("leaky_relu"),
    row("lgamma", Input, 2),
    row("log", Input, 1),
    row("log10", Input, 2),
    row("log1p", Input, 2),
    row("log2", Input, 2),
    row("logit", Input, 1),
    row("mish", Input, 1),
    masked("nan_to_num", Input, 1, 1),
    row("neg", Nothing, 1),
    row("rad2deg", Nothing, 1),
    row("reciprocal", Output, 3),
    row("relu", Output, 1),
    row("relu6", Input, 1),
    row("round", Nothing, 1),
    row("rsqrt", Output, 3),
    signed("selu"),
    row("sigmoid", Output, 1),
    row("sign", Nothing, 1),
    row("silu", Input, 1),
    row("sin", Input, 2),
    row("sinc", Input, 8),
    row("sinh", Input, 2),
    row("softplus", Input, 1),
    row("softshrink", Input, 1),
    row("sqrt", Output, 2),
    row("square", Input, 3),
    row("tan", Output, 3),
    row("tanh", Output, 1),
    row("threshold", Input, 1),
    row("trunc", Nothing, 1),
];

/// Returns the row of an operation.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.binary_search_by(|row| row.name.cmp(name)).ok().map(|index| &ROWS[index])
}

fn derivative(row: &'static Row) -> impl Fn(&Backward<'_>) -> Gradients {
    move |b| {
        let _masks: Vec<Tensor> = (0..row.masks).map(|_| b.e.mask_of(b.gradient)).collect();
        let _temporaries: Vec<Tensor> = (1..row.tensors).map(|_| b.e.like(b.gradient)).collect();
        vec![b.needs(0).then(|| b.e.like(b.gradient))]
    }
}

/// Runs an operation of the table.
pub(super) fn run(c: &Call<'_>, row: &'static Row, is_in_place: bool) -> Outputs {
    let input = c.first()?;
    if !is_in_place {
        let dtype = match c.output_dtype(0) {
            Some(dtype) if !input.is_float() => dtype,
            _ => input.dtype,
        };
        let output = c.e.like_as(&input, dtype);
        let saved = match row.saves {
            Nothing => None,
            Input => Some(&input),
            Output => Some(&output),
        };
        c.e.record(&[&output], &[Some(&input)], vec![saved], derivative(row));
        return Ok(vec![output]);
    }
    if !c.e.needs(&[Some(&input)]) {
        return Ok(vec![input]);
    }
    // The input is about to change, so that a copy of it is made first.
    let copy = match row.saves {
        Input if !row.saves_output_in_place => Some(c.e.like(&input)),
        _ => None,
    };
    let saved = if row.saves == Nothing { None } else { copy.as_ref().or(Some(&input)) };
    changed(c, &[Some(&input)], vec![saved], derivative(row))
}

/// `log_sigmoid`: on the CPU a buffer of the input's size is kept, too.
pub(super) fn log_sigmoid(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let output = c.e.like(&input);
    let buffer = (c.e.rules.device == Device::Cpu).then(|| c.e.like(&input));
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input), buffer.as_ref()], |b| vec![Some(b.e.like(b.gradient))]);
    Ok(vec![output])
}

/// Runs comparisons.
pub(super) fn compare(c: &Call<'_>) -> Outputs {
    super::elementwise::plain(c, Dtype::Bool)
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn rows_are_sorted() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
    }
}
