//! Turns the expressions of an operation's formulas into terms.

use super::Resolver;
use super::frame::{Frame, Known};
use crate::syntax::{Argument, Body, Expression, Kind, Operator, Place};
use gpumem_core::program::formula::{BinaryOperator, Formula, MOST_TERMS, Term, TermId, UnaryOperator};
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;
use std::rc::Rc;

/// Functions that are composed of other terms.
const COMPOSED: [&str; 6] = ["pow", "min", "max", "clamp", "relu", "rsqrt"];

/// Names of functions in other languages, with the names used here.
const ELSEWHERE: [(&str, &str); 10] = [
    ("ln", "log"),
    ("ln_1p", "log1p"),
    ("exp_m1", "expm1"),
    ("powf", "pow"),
    ("powi", "pow"),
    ("signum", "sign"),
    ("logistic", "sigmoid"),
    ("maximum", "max"),
    ("minimum", "min"),
    ("square", "pow"),
];

/// A formula that is being built.
pub(super) struct Making {
    formula: Formula,
    names: Vec<(String, TermId)>,
}

impl Making {
    /// Begins a formula with the name of the input and, in a derivative, of the output `y`.
    pub(super) fn new(x: &Ident, has_output: bool) -> Making {
        let mut formula = Formula::default();
        let mut names = vec![(x.to_string(), formula.add(Term::X))];
        if has_output {
            names.push(("y".into(), formula.add(Term::Y)));
        }
        Making { formula, names }
    }

    /// Adds a term. If it combines only numbers, adds the resulting number.
    fn add(&mut self, term: Term) -> TermId {
        let number = |id: TermId| match self.formula.terms[id as usize] {
            Term::Number(value) => Some(value),
            _ => None,
        };
        let folded = match term {
            Term::Unary(UnaryOperator::Negate, a) => number(a).map(|a| -a),
            Term::Binary(operator, a, b) => number(a).zip(number(b)).and_then(|(a, b)| match operator {
                BinaryOperator::Add => Some(a + b),
                BinaryOperator::Subtract => Some(a - b),
                BinaryOperator::Multiply => Some(a * b),
                BinaryOperator::Divide => Some(a / b),
                _ => None,
            }),
            _ => None,
        };
        self.formula.add(folded.map_or(term, Term::Number))
    }

    fn number(&mut self, value: f64) -> TermId {
        self.add(Term::Number(value))
    }

    fn binary(&mut self, operator: BinaryOperator, a: TermId, b: TermId) -> TermId {
        self.add(Term::Binary(operator, a, b))
    }
}

impl<'s> Resolver<'s, '_> {
    /// Returns the formula and the term that is its value. `None` after a mistake, which has been reported.
    pub(super) fn formula(
        &mut self,
        body: &'s Body,
        mut making: Making,
        frame: &Rc<Frame<'s>>,
    ) -> Option<(Formula, TermId)> {
        for binding in &body.lets {
            let name = binding.name.to_string();
            let value = self.term(&binding.element, &mut making, frame)?;
            if making.names.iter().any(|(known, _)| *known == name) || frame.parameter(&name).is_some() {
                let message = format!("`{name}` stands for something already; choose another name");
                self.report(binding.element.id, Place::from(&binding.name), frame, &message);
                return None;
            }
            making.names.push((name, value));
        }
        let value = self.term(&body.element, &mut making, frame)?;
        if making.formula.terms.len() > MOST_TERMS {
            let message =
                format!("the formula has more than {MOST_TERMS} terms; give the operation functions of its own");
            self.report(body.element.id, body.element.place, frame, &message);
            return None;
        }
        Some((making.formula, value))
    }

    fn term(&mut self, expression: &'s Expression, making: &mut Making, frame: &Rc<Frame<'s>>) -> Option<TermId> {
        match &expression.kind {
            Kind::Integer(value) => Some(making.number(*value as f64)),
            Kind::Float(value) => Some(making.number(*value)),
            Kind::Flag(value) => Some(making.number(f64::from(u8::from(*value)))),
            Kind::Name(name) => self.name_in_formula(expression, &name.to_string(), making, frame),
            Kind::Call { name, arguments } => self.function(expression, name, arguments, making, frame),
            Kind::Negative(value) => {
                let value = self.term(value, making, frame)?;
                Some(making.add(Term::Unary(UnaryOperator::Negate, value)))
            }
            Kind::Not(value) => {
                let (value, none) = (self.term(value, making, frame)?, making.number(0.0));
                Some(making.binary(BinaryOperator::Equal, value, none))
            }
            Kind::Binary { operator, operands } => self.operator(expression, *operator, operands, making, frame),
            Kind::If { condition, then, otherwise } => {
                let Some(otherwise) = otherwise else {
                    return self.no_term(expression, frame, "needs an `else`: a formula has a value in any case");
                };
                let condition = self.term(condition, making, frame)?;
                let then = self.term(then, making, frame)?;
                let otherwise = self.term(otherwise, making, frame)?;
                Some(making.add(Term::Select(condition, then, otherwise)))
            }
            Kind::Broken => None,
            Kind::Text(_) | Kind::Path { .. } | Kind::List(_) | Kind::Tuple(_) => {
                let message =
                    format!("a formula is made of numbers, names and functions; it cannot read `{expression}`");
                self.no_term(expression, frame, &message)
            }
        }
    }

    fn no_term(&mut self, expression: &Expression, frame: &Frame<'s>, message: &str) -> Option<TermId> {
        self.report(expression.id, expression.place, frame, message);
        None
    }

    fn name_in_formula(
        &mut self,
        expression: &'s Expression,
        name: &str,
        making: &mut Making,
        frame: &Rc<Frame<'s>>,
    ) -> Option<TermId> {
        if let Some((_, term)) = making.names.iter().rev().find(|(known, _)| known == name) {
            return Some(*term);
        }
        let known =
            frame.parameter(name).is_some() || frame.module.constants.iter().any(|constant| constant.name == name);
        if !known && !self.is_imported(expression.id, name, frame) {
            let mut names: Vec<String> = making.names.iter().map(|(name, _)| name.clone()).collect();
            names.extend(self.variables(frame));
            let near = nearest(name, &names.iter().map(String::as_str).collect::<Vec<_>>());
            let message = match (name, near) {
                ("y", _) => "`y`, the output, is known in `derivative` only".to_string(),
                (_, Some(near)) => format!("the formula has no `{name}`; did you mean `{near}`?"),
                (_, None) => format!(
                    "the formula has no `{name}`; it has {}, and what stands in the parentheses of the operation",
                    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                ),
            };
            return self.no_term(expression, frame, &message);
        }
        match self.variable(expression, name, frame)? {
            Known::Flag(value) => Some(making.number(f64::from(u8::from(value)))),
            known => match known.number() {
                Some(value) => Some(making.number(value)),
                None => {
                    let message = format!("expected a number, but `{name}` is {}", known.describe());
                    self.no_term(expression, frame, &message)
                }
            },
        }
    }

    fn operator(
        &mut self,
        expression: &'s Expression,
        operator: Operator,
        operands: &'s [Expression; 2],
        making: &mut Making,
        frame: &Rc<Frame<'s>>,
    ) -> Option<TermId> {
        let a = self.term(&operands[0], making, frame)?;
        let b = self.term(&operands[1], making, frame)?;
        Some(match operator {
            Operator::Plus => making.binary(BinaryOperator::Add, a, b),
            Operator::Minus => making.binary(BinaryOperator::Subtract, a, b),
            Operator::Times => making.binary(BinaryOperator::Multiply, a, b),
            Operator::Over => making.binary(BinaryOperator::Divide, a, b),
            Operator::Less => making.binary(BinaryOperator::Less, a, b),
            Operator::Greater => making.binary(BinaryOperator::Less, b, a),
            Operator::LessOrEqual => making.binary(BinaryOperator::LessOrEqual, a, b),
            Operator::GreaterOrEqual => making.binary(BinaryOperator::LessOrEqual, b, a),
            Operator::Equal => making.binary(BinaryOperator::Equal, a, b),
            Operator::NotEqual => {
                let equal = making.binary(BinaryOperator::Equal, a, b);
                let none = making.number(0.0);
                making.binary(BinaryOperator::Equal, equal, none)
            }
            // A condition is the number 1 or 0.
            Operator::And => making.binary(BinaryOperator::Multiply, a, b),
            Operator::Or => making.binary(BinaryOperator::Maximum, a, b),
            Operator::Remainder => {
                let message = "formulas have no `%`; write `a - b * floor(a / b)`";
                return self.no_term(expression, frame, message);
            }
        })
    }

    fn function(
        &mut self,
        expression: &'s Expression,
        name: &Ident,
        arguments: &'s [Argument],
        making: &mut Making,
        frame: &Rc<Frame<'s>>,
    ) -> Option<TermId> {
        let text = name.to_string();
        let unary = UnaryOperator::ALL.iter().find(|operator| operator.text() == text).copied();
        let Some(takes) = (match text.as_str() {
            "pow" | "min" | "max" => Some(2),
            "clamp" => Some(3),
            "relu" | "rsqrt" => Some(1),
            _ => unary.map(|_| 1),
        }) else {
            return self.unknown_function(expression, name, frame);
        };
        if arguments.len() != takes || arguments.iter().any(|argument| argument.name.is_some()) {
            let form = ["a", "b", "c"][..takes].join(", ");
            return self.no_term(
                expression,
                frame,
                &format!("`{text}` is written `{text}({form})`, not `{expression}`"),
            );
        }
        let mut of = Vec::new();
        for argument in arguments {
            of.push(self.term(&argument.value, making, frame)?);
        }
        Some(match (text.as_str(), unary) {
            (_, Some(operator)) => making.add(Term::Unary(operator, of[0])),
            ("pow", _) => making.binary(BinaryOperator::Power, of[0], of[1]),
            ("min", _) => making.binary(BinaryOperator::Minimum, of[0], of[1]),
            ("max", _) => making.binary(BinaryOperator::Maximum, of[0], of[1]),
            ("clamp", _) => {
                let above = making.binary(BinaryOperator::Maximum, of[0], of[1]);
                making.binary(BinaryOperator::Minimum, above, of[2])
            }
            ("relu", _) => {
                let none = making.number(0.0);
                making.binary(BinaryOperator::Maximum, of[0], none)
            }
            _ => {
                let (root, one) = (making.add(Term::Unary(UnaryOperator::Sqrt, of[0])), making.number(1.0));
                making.binary(BinaryOperator::Divide, one, root)
            }
        })
    }

    fn unknown_function(&mut self, expression: &Expression, name: &Ident, frame: &Frame<'s>) -> Option<TermId> {
        let text = name.to_string();
        let is_function = |operator: &&UnaryOperator| operator.text().starts_with(char::is_alphabetic);
        let mut known: Vec<&str> =
            UnaryOperator::ALL.iter().filter(is_function).map(|operator| operator.text()).collect();
        known.extend(COMPOSED);
        let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == text).map(|(_, own)| *own);
        let hint = match elsewhere.or_else(|| nearest(&text, &known)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("there are {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            }
        };
        let message = format!("formulas have no function `{text}`; {hint}");
        self.report(expression.id, Place::from(name), frame, &message);
        None
    }
}
