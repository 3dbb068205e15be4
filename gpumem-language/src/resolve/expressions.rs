//! Evaluates expressions to numbers, flags and texts, with checked arithmetic.

use super::Resolver;
use super::frame::{Frame, Known};
use crate::parse::no_paths;
use crate::syntax::{Expression, Kind, Operator, Place};
use gpumem_core::layers::Entry;
use gpumem_core::layers::arguments::extent;
use gpumem_core::shape::Shape;
use gpumem_core::suggest::nearest;
use std::rc::Rc;

/// The end of a message about a constant of other code that a layer needs.
const ELSEWHERE: &str = "a macro cannot read constants of other code; write the number here, as `pub const NAME: usize = 64;`, which \
                         is then a constant of this module that other code can use";

/// The end of a message about a difference of sizes that is negative.
const BELOW: &str = "is below 0, which no `usize` can be";

impl<'s> Resolver<'s, '_> {
    /// Returns the value of an expression. `None` after a mistake, which has been reported.
    pub(crate) fn value(&mut self, expression: &'s Expression, frame: &Rc<Frame<'s>>) -> Option<Known<'s>> {
        match &expression.kind {
            Kind::Integer(value) => Some(Known::Integer(*value)),
            Kind::Float(value) => Some(Known::Float(*value)),
            Kind::Flag(value) => Some(Known::Flag(*value)),
            Kind::Text(value) => Some(Known::Text(value.clone())),
            Kind::Name(name) => self.variable(expression, &name.to_string(), frame),
            Kind::Tuple(values) => self.tuple(values, frame),
            Kind::If { condition, then, otherwise } => match (self.flag(condition, frame)?, otherwise) {
                (true, _) => self.value(then, frame),
                (false, Some(otherwise)) => self.value(otherwise, frame),
                (false, None) => self.mistake(expression, frame, "needs an `else`: here it stands for a value"),
            },
            Kind::Not(value) => Some(Known::Flag(!self.flag(value, frame)?)),
            Kind::Negative(value) => match self.value(value, frame)? {
                Known::Float(value) => Some(Known::Float(-value)),
                other => match other.whole() {
                    Some(value) => Known::of_whole(-value),
                    None => self.mistake(expression, frame, &format!("cannot negate {}", other.describe())),
                },
            },
            Kind::Binary { operator, operands } => self.binary(expression, *operator, operands, frame),
            Kind::Path { module, .. } if !self.imports(module, frame) => {
                self.mistake(expression, frame, &no_paths(self.declaring))
            }
            Kind::List(sizes) if sizes.len() == 2 && !sizes.iter().any(crate::parse::is_element) => {
                let (height, width) = (&sizes[0], &sizes[1]);
                self.report(
                    expression.id,
                    expression.place,
                    frame,
                    &format!("a pair is written `({height}, {width})`"),
                );
                Some(Known::Pair([self.integer(height, frame)?, self.integer(width, frame)?]))
            }
            Kind::Call { name, .. } if Entry::find(&name.to_string()).is_some() => {
                let message = format!(
                    "`{expression}` is a layer, and no layer takes one as a value; layers are listed, each after the one that it \
                     follows: `[{expression}, ..]`"
                );
                self.mistake(expression, frame, &message)
            }
            Kind::Call { .. } | Kind::Path { .. } | Kind::List(_) => {
                let message = format!(
                    "expected a value, found `{expression}`; values are literals, parameters, constants of the network and \
                     operators between them"
                );
                self.mistake(expression, frame, &message)
            }
            Kind::Broken => None,
        }
    }

    /// Returns a pair of whole numbers, or a list of numbers.
    fn tuple(&mut self, values: &'s [Expression], frame: &Rc<Frame<'s>>) -> Option<Known<'s>> {
        let known: Vec<Known<'s>> = values.iter().map(|value| self.value(value, frame)).collect::<Option<_>>()?;
        if let [Known::Integer(height), Known::Integer(width)] = known[..] {
            return Some(Known::Pair([height, width]));
        }
        let mut numbers = Vec::new();
        for (value, known) in values.iter().zip(known) {
            let Some(number) = known.number() else {
                return self.mistake(value, frame, &format!("expected a number, found {}", found(&known)));
            };
            numbers.push(number);
        }
        Some(Known::Numbers(numbers))
    }

    /// Returns the shape of nested brackets of numbers, and all the numbers in order. `None` after a mistake, which has been reported.
    pub(crate) fn table(
        &mut self,
        whole: &'s Expression,
        rows: &'s [Expression],
        frame: &Rc<Frame<'s>>,
    ) -> Option<(Vec<u64>, Vec<f64>)> {
        let (mut dims, mut numbers): (Option<Vec<u64>>, _) = (None, Vec::new());
        for row in rows {
            let (own, values) = match &row.kind {
                Kind::List(rows) => self.table(row, rows, frame)?,
                _ => match self.value(row, frame)? {
                    Known::Table(dims, numbers) => (dims, numbers),
                    other => match other.number() {
                        Some(number) => (Vec::new(), vec![number]),
                        None => {
                            return self.mistake(row, frame, &format!("expected a number, found {}", found(&other)));
                        }
                    },
                },
            };
            let first = dims.get_or_insert_with(|| own.clone());
            if *first != own {
                let text = |dims: &[u64]| if dims.is_empty() { "one number".into() } else { extent(dims) };
                let message = format!("has {}, but the first of these brackets has {}", text(&own), text(first));
                return self.mistake(row, frame, &message);
            }
            numbers.extend(values);
        }
        let Some(inner) = dims else { return self.mistake(whole, frame, "has no numbers; write one at least") };
        if inner.len() >= Shape::MAX_RANK {
            return self.mistake(
                whole,
                frame,
                &format!("is nested deeper than the {} axes of a tensor", Shape::MAX_RANK),
            );
        }
        Some(([rows.len() as u64].into_iter().chain(inner).collect(), numbers))
    }

    /// Returns the value of an expression that must be a whole number. `None` after a mistake, which has been reported.
    pub(crate) fn integer(&mut self, expression: &'s Expression, frame: &Rc<Frame<'s>>) -> Option<u64> {
        match self.value(expression, frame)? {
            Known::Integer(value) => Some(value),
            below @ Known::Negative(_) => self.mistake(expression, frame, &format!("`{below}` {BELOW}")),
            other => self.mistake(expression, frame, &format!("expected a whole number, found {}", found(&other))),
        }
    }

    /// Returns the value of an expression that must be `true` or `false`. `None` after a mistake, which has been reported.
    pub(crate) fn flag(&mut self, expression: &'s Expression, frame: &Rc<Frame<'s>>) -> Option<bool> {
        match self.value(expression, frame)? {
            Known::Flag(value) => Some(value),
            other => self.mistake(expression, frame, &format!("expected `true` or `false`, found {}", found(&other))),
        }
    }

    /// Returns the value of a parameter of the block or of a constant. `None` after a mistake, which has been reported.
    pub(crate) fn variable(
        &mut self,
        expression: &'s Expression,
        name: &str,
        frame: &Rc<Frame<'s>>,
    ) -> Option<Known<'s>> {
        if let Some(value) = frame.parameter(name) {
            // The mistake in its value has been reported.
            return Some(value.clone()).filter(|value| !matches!(value, Known::Open));
        }
        if frame.module.constants.iter().any(|constant| constant.name == name) {
            return self.constant(expression, name, frame);
        }
        if self.batch.is_some_and(|batch| batch == name) {
            let message = format!("`{name}` is the batch, which no layer can depend on");
            return self.mistake(expression, frame, &message);
        }
        if self.is_imported(expression.id, name, frame) {
            return None;
        }
        let mut names = self.variables(frame);
        names.sort();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = match nearest(name, &names) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => format!("; declare it inside the {}, as `const {name}: usize = ..;`", self.around()),
        };
        let message = format!("no parameter or constant is called `{name}`{hint}");
        self.report(expression.id, expression.place, frame, &message);
        // The checks continue with the name that was probably meant.
        self.variable(expression, nearest(name, &names)?, frame)
    }

    /// Returns the word for the place of constants in a message: `module` while a module of blocks is resolved, otherwise `network`.
    pub(crate) fn around(&self) -> &'static str {
        if self.declaring { "module" } else { "network" }
    }

    /// Returns the names of all parameters and constants that `frame` sees.
    pub(crate) fn variables(&self, frame: &Frame<'s>) -> Vec<String> {
        let parameters = frame.parameters.iter().map(|(name, _)| name.clone());
        parameters.chain(frame.module.constants.iter().map(|constant| constant.name.to_string())).collect()
    }

    /// True if `name` comes from a `use`. Reports that as a mistake, because the macro cannot read its value.
    pub(crate) fn is_imported(&mut self, id: usize, name: &str, frame: &Frame<'s>) -> bool {
        let Some(imported) = frame.module.imported.iter().find(|imported| *imported == name) else { return false };
        if self.imports_named.insert((std::ptr::from_ref(frame.module), name.to_string())) {
            let (place, _) = self.shown(Place::from(imported), frame);
            self.errors.add_once(id, place, ELSEWHERE.replace("NAME", name));
        }
        true
    }

    fn constant(&mut self, expression: &'s Expression, name: &str, frame: &Rc<Frame<'s>>) -> Option<Known<'s>> {
        let module = frame.module;
        let key = (std::ptr::from_ref(module), name.to_string());
        if self.folding.contains(&key) {
            return self.mistake(expression, frame, &format!("`{name}` is defined in terms of itself"));
        }
        if let Some(value) = self.constants.get(&key) {
            return value.clone();
        }
        let constant = module.constants.iter().find(|constant| constant.name == name)?;
        let value = match &constant.value {
            Some(value) => {
                self.folding.push(key.clone());
                let around = Frame::global(module, Some(frame.clone()), expression.place);
                let value = match &value.kind {
                    Kind::List(rows) => {
                        self.table(value, rows, &around).map(|(dims, numbers)| Known::Table(dims, numbers))
                    }
                    _ => self.value(value, &around),
                };
                self.folding.pop();
                value
            }
            None => {
                let written = constant.tokens.to_string();
                // A call such as `size_of::<u8>()` is not a path to a constant.
                let is_path = written.contains("::") && !written.contains('(');
                let message = match is_path {
                    true => ELSEWHERE.replace("NAME", name),
                    false => format!(
                        "`{name}` is no expression that `network!` can read; layers need literals, and constants made of literals"
                    ),
                };
                let around = Frame::global(module, Some(frame.clone()), expression.place);
                let (place, _) = self.shown(Place::of(&constant.tokens), &around);
                self.errors.add(place, message);
                None
            }
        };
        self.constants.insert(key, value.clone());
        value
    }

    fn binary(
        &mut self,
        expression: &'s Expression,
        operator: Operator,
        operands: &'s [Expression; 2],
        frame: &Rc<Frame<'s>>,
    ) -> Option<Known<'s>> {
        let left = self.value(&operands[0], frame)?;
        // As in Rust, the right side is evaluated only if the left side does not decide the result.
        match (operator, &left) {
            (Operator::And, Known::Flag(false)) | (Operator::Or, Known::Flag(true)) => return Some(left),
            _ => {}
        }
        let right = self.value(&operands[1], frame)?;
        let folded = match (&left, &right) {
            (Known::Float(left), Known::Float(right)) => floats(operator, *left, *right),
            (Known::Flag(left), Known::Flag(right)) => flags(operator, *left, *right),
            _ => match (left.whole(), right.whole()) {
                (Some(left), Some(right)) => integers(operator, left, right, self.folds_signed(frame)),
                _ if left.number().is_some() && right.number().is_some() => {
                    Err("mixes a whole number with a fraction; write `2.0` for a fraction".to_string())
                }
                _ => Err(String::new()),
            },
        };
        match folded {
            Ok(value) => Some(value),
            Err(message) if message.is_empty() => {
                let message =
                    format!("`{}` does not apply to {} and {}", operator.symbol(), left.describe(), right.describe());
                self.mistake(expression, frame, &message)
            }
            Err(message) => {
                self.mistake(expression, frame, &format!("`{left} {} {right}` {message}", operator.symbol()))
            }
        }
    }

    /// True if the constant that is being folded, if any, has a signed type.
    fn folds_signed(&self, frame: &Frame<'s>) -> bool {
        let folded = self.folding.last();
        let constant = folded.and_then(|(_, name)| frame.module.constants.iter().find(|known| known.name == *name));
        constant.is_some_and(|constant| constant.kind.to_string().starts_with('i'))
    }

    /// Reports a mistake of `expression` and returns `None`, as the value that is missing.
    fn mistake<T>(&mut self, expression: &Expression, frame: &Frame<'s>, message: &str) -> Option<T> {
        self.report(expression.id, expression.place, frame, message);
        None
    }
}

fn found(value: &Known<'_>) -> String {
    match value {
        Known::Element(..) => format!("the layers `{value}`"),
        _ => format!("`{value}`"),
    }
}

fn compared<'s, T: PartialOrd>(operator: Operator, left: T, right: T) -> Result<Known<'s>, String> {
    Ok(Known::Flag(match operator {
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::LessOrEqual => left <= right,
        Operator::GreaterOrEqual => left >= right,
        Operator::Less => left < right,
        Operator::Greater => left > right,
        _ => return Err(String::new()),
    }))
}

/// Computes with whole numbers. Sizes have no sign, so a difference of two of them below 0 is a mistake unless `is_signed`.
fn integers<'s>(operator: Operator, left: i128, right: i128, is_signed: bool) -> Result<Known<'s>, String> {
    let value = match operator {
        Operator::Plus => left.checked_add(right),
        Operator::Minus => left.checked_sub(right),
        Operator::Times => left.checked_mul(right),
        Operator::Over | Operator::Remainder if right == 0 => return Err("divides by zero".to_string()),
        Operator::Over => left.checked_div(right),
        Operator::Remainder => left.checked_rem(right),
        _ => return compared(operator, left, right),
    };
    match value.and_then(Known::of_whole) {
        Some(Known::Negative(_)) if !is_signed && left >= 0 && right >= 0 => Err(BELOW.to_string()),
        Some(value) => Ok(value),
        None => Err(format!("overflows: the largest number is {}", u64::MAX)),
    }
}

fn floats<'s>(operator: Operator, left: f64, right: f64) -> Result<Known<'s>, String> {
    Ok(Known::Float(match operator {
        Operator::Plus => left + right,
        Operator::Minus => left - right,
        Operator::Times => left * right,
        Operator::Over => left / right,
        Operator::Remainder => left % right,
        _ => return compared(operator, left, right),
    }))
}

fn flags<'s>(operator: Operator, left: bool, right: bool) -> Result<Known<'s>, String> {
    match operator {
        Operator::And => Ok(Known::Flag(left && right)),
        Operator::Or => Ok(Known::Flag(left || right)),
        _ => compared(operator, left, right),
    }
}
