//! Launches of a user's formula: `kernels/elementwise/formula.cu`.

use crate::calls::formulas::called;
use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::pieces;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::formula::{BinaryOperator, Formula, Term};
use gpumem_core::program::ops;

/// Returns the terms as C++ without spaces, `t[0]=x;t[1]=expf(t[0])`, since constants are listed with spaces between them.
pub(in crate::operations) fn terms(formula: &Formula) -> Result<String, Error> {
    if !formula.is_sound() {
        return Err(Error::Damaged("a formula names terms that do not exist"));
    }
    let lines = formula.terms.iter().enumerate().map(|(index, term)| format!("t[{index}]={}", text(*term)));
    Ok(lines.collect::<Vec<_>>().join(";"))
}

fn text(term: Term) -> String {
    match term {
        Term::X => "x".into(),
        Term::Y => "y".into(),
        Term::Number(value) => number(value as f32),
        Term::Unary(operator, a) => format!("{}(t[{a}])", called(operator.text())),
        Term::Binary(operator, a, b) => match operator {
            BinaryOperator::Add | BinaryOperator::Subtract | BinaryOperator::Multiply | BinaryOperator::Divide => {
                format!("t[{a}]{}t[{b}]", operator.text())
            }
            BinaryOperator::Power | BinaryOperator::Minimum | BinaryOperator::Maximum => {
                format!("{}(t[{a}],t[{b}])", called(operator.text()))
            }
            BinaryOperator::Less | BinaryOperator::LessOrEqual | BinaryOperator::Equal => {
                format!("t[{a}]{}t[{b}]?1.0f:0.0f", operator.text())
            }
        },
        Term::Select(condition, a, b) => format!("t[{condition}]!=0.0f?t[{a}]:t[{b}]"),
    }
}

/// Returns a float as C++, exact to the last bit. C++ has no literals for infinities and NaN.
fn number(value: f32) -> String {
    if value.is_finite() { format!("{value:e}f") } else { format!("from_bits({}u)", value.to_bits()) }
}

fn kernel(
    context: &Context<'_>,
    op: &ops::Formula,
    (entry, count): (&'static str, u64),
    add: u8,
) -> Result<Kernel, Error> {
    let kernel = context.kernel("formula.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("TERMS", op.value.terms.len()).with("VALUE", terms(&op.value)?);
    Ok(kernel.with("SLOPES", op.slope.terms.len()).with("SLOPE", terms(&op.slope)?).with("ADD", add))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &ops::Formula) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.elements(y);
    let kernel = kernel(context, op, ("formula", count), 0)?;
    Ok(vec![Launch::elementwise(kernel, pieces(context, count), vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &ops::Formula) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let x = if op.slope.reads_x() { Some(context.read(Slot::Input(0))?) } else { None };
    let y = if op.slope.reads_y() { Some(context.read(Slot::Output)?) } else { None };
    let count = context.elements(dx);
    let kernel = kernel(context, op, ("formula_backward", count), context.adds(Slot::InputGradient(0)))?;
    Ok(vec![Launch::elementwise(kernel, pieces(context, count), vec![Some(dy), x, y, Some(dx)])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::program::formula::UnaryOperator;

    #[test]
    fn terms_are_cpp_without_spaces() {
        let all = UnaryOperator::ALL.iter().map(|&operator| Term::Unary(operator, 0));
        let pairs = BinaryOperator::ALL.iter().map(|&operator| Term::Binary(operator, 0, 1));
        let numbers = [0.1, -2.0, f64::INFINITY].map(Term::Number);
        let formula = Formula {
            terms: [Term::X, Term::Y, Term::Select(0, 1, 1)]
                .into_iter()
                .chain(numbers)
                .chain(all)
                .chain(pairs)
                .collect(),
        };
        let text = terms(&formula).unwrap();
        assert!(!text.contains(' '), "{text}");
        assert!(
            text.starts_with(
                "t[0]=x;t[1]=y;t[2]=t[0]!=0.0f?t[1]:t[1];t[3]=1e-1f;t[4]=-2e0f;t[5]=from_bits(2139095040u);"
            )
        );
        assert!(terms(&Formula { terms: vec![Term::Select(0, 0, 0)] }).is_err());
    }
}
