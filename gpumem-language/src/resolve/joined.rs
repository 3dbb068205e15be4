//! Reports `a + b`, `3 * a` and `0.5 * a` in the place of a layer, with what to write instead.

use super::Resolver;
use super::frame::{Frame, Known};
use crate::syntax::{Expression, Kind, Operand, Operator};

/// The kind of a number among layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Whole,
    Real,
}

impl<'s> Resolver<'s, '_> {
    /// Reports an element that contains an operator.
    pub(super) fn joined(&mut self, element: &Expression, frame: &Frame<'s>) {
        if element.all().iter().any(|part| matches!(part.kind, Kind::Broken)) {
            return;
        }
        let message = match self.instead(element, frame) {
            Some((said, text)) => format!("{said} `{text}`"),
            None => format!("expected a layer, a block or a list `[..]`, found `{element}`"),
        };
        self.report(element.id, element.place, frame, &message);
    }

    /// Returns the beginning of the message about an operator between elements, and the element that was meant.
    ///
    /// `None` if both operands are numbers, or if no join has this operator.
    fn instead(&self, element: &Expression, frame: &Frame<'s>) -> Option<(&'static str, String)> {
        let Kind::Binary { operator, operands } = &element.kind else { return None };
        let join = operator.join()?;
        let [left, right] = &**operands;
        let (number, layer) = match (self.number(left, frame), self.number(right, frame)) {
            (Some(_), Some(_)) => return None,
            (None, None) => {
                let branches = [left, right].map(|branch| self.element_for(branch, frame)).join(", ");
                return Some(("layers are joined by name; write", format!("{join}({branches})")));
            }
            (Some(number), None) => (number, right),
            (None, Some(number)) => (number, left),
        };
        let is_first = std::ptr::eq(layer, right);
        let written = if is_first { left } else { right };
        let text = self.element_for(layer, frame);
        if *operator == Operator::Times && number == Number::Whole && !is_value(layer, frame) {
            return Some(("what is repeated is written", format!("repeat({written}, {text})")));
        }
        let said = "a number is no layer; write";
        let arguments = match (operator, is_first) {
            (Operator::Plus, _) => format!("1.0, {written}"),
            (Operator::Minus, true) => format!("-1.0, {written}"),
            (Operator::Minus, false) => format!("1.0, -{}", Operand(written, u8::MAX)),
            (Operator::Over, true) => return Some((said, format!("[{text}, Pow(-1.0), Affine({written})]"))),
            (Operator::Over, false) if number == Number::Real => {
                format!("1.0 / {}", Operand(written, Operator::Over.precedence() + 1))
            }
            // The inverse of a whole number would be written as a division of whole numbers, which rounds. So an example is shown.
            (Operator::Over, false) => {
                return Some(("a number is no layer; write its inverse, as", format!("[{text}, Affine(0.5)]")));
            }
            _ => written.to_string(),
        };
        Some((said, format!("[{text}, Affine({arguments})]")))
    }

    /// Returns the text of an element in a suggestion. A value is read with `from`, and an operator is replaced.
    fn element_for(&self, element: &Expression, frame: &Frame<'s>) -> String {
        match self.instead(element, frame) {
            Some((_, text)) => text,
            None if is_value(element, frame) => format!("from({element})"),
            None => element.to_string(),
        }
    }

    /// Returns the kind of number that an expression is, without evaluating it. `None` if it is not a number.
    fn number(&self, expression: &Expression, frame: &Frame<'s>) -> Option<Number> {
        match &expression.kind {
            Kind::Integer(_) => Some(Number::Whole),
            Kind::Float(_) => Some(Number::Real),
            Kind::Negative(value) => self.number(value, frame).map(|_| Number::Real),
            Kind::Binary { operands, .. } => {
                let [left, right] = [0, 1].map(|side| self.number(&operands[side], frame));
                Some(if left? == Number::Whole && right? == Number::Whole { Number::Whole } else { Number::Real })
            }
            Kind::Name(name) => {
                let name = name.to_string();
                let constant = || frame.module.constants.iter().find(|constant| constant.name == name);
                match frame.parameter(&name) {
                    Some(Known::Integer(_)) => Some(Number::Whole),
                    Some(known) => known.number().map(|_| Number::Real),
                    None if frame.binding(&name).is_some() => None,
                    None => constant().map(|constant| match constant.kind.to_string().as_str() {
                        "f64" | "f32" => Number::Real,
                        _ => Number::Whole,
                    }),
                }
            }
            _ => None,
        }
    }
}

/// True if an element is the name of a value, which has to be read with `from`.
fn is_value(element: &Expression, frame: &Frame<'_>) -> bool {
    matches!(&element.kind, Kind::Name(name) if frame.tapped(&name.to_string()).is_some())
}
