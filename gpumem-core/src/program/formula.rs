//! Formulas of one number, and their derivatives.
//!
//! A formula is a list of terms, each of which names earlier ones. The last is its value. Equal terms are stored once, so a
//! subexpression is computed once, even if the derivative shares it with the formula.
//!
//! ```
//! use gpumem_core::program::formula::{BinaryOperator, Formula, Term, UnaryOperator};
//!
//! // x * sigmoid(x)
//! let mut silu = Formula::default();
//! let x = silu.add(Term::X);
//! let gate = silu.add(Term::Unary(UnaryOperator::Sigmoid, x));
//! let value = silu.add(Term::Binary(BinaryOperator::Multiply, x, gate));
//! let slope = silu.derivative(value);
//! assert!(slope.reads_x() && !slope.reads_y());
//! ```

use super::encoding::{Reader, Wire, wire_enum, wire_struct};
use alloc::vec;
use alloc::vec::Vec;

macro_rules! operators {
    ($(#[$meta:meta])* $kind:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $kind {
            $($(#[$doc])* $name,)*
        }
        wire_enum!($kind { $($name),* });

        impl $kind {
            /// Every operator.
            pub const ALL: &'static [$kind] = &[$($kind::$name,)*];

            /// Returns the spelling of the operator in a formula.
            pub const fn text(self) -> &'static str {
                match self { $($kind::$name => $text,)* }
            }
        }
    };
}

operators! {
    /// An operator with one operand.
    UnaryOperator {
        /// `-a`
        Negate = "-",
        /// `exp(a)`
        Exp = "exp",
        /// `exp(a) - 1`, exact near 0.
        Expm1 = "expm1",
        /// The natural logarithm.
        Log = "log",
        /// The natural logarithm of `1 + a`, exact near 0.
        Log1p = "log1p",
        /// The square root.
        Sqrt = "sqrt",
        /// The distance from 0. Its derivative at 0 is 0, as PyTorch's.
        Abs = "abs",
        /// -1, 0 or 1. Its derivative is 0.
        Sign = "sign",
        /// The sine of an angle in radians.
        Sin = "sin",
        /// The cosine of an angle in radians.
        Cos = "cos",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + exp(-a))`
        Sigmoid = "sigmoid",
        /// `log(1 + exp(a))`, without overflow.
        Softplus = "softplus",
        /// The error function.
        Erf = "erf",
        /// The largest whole number that is not above. Its derivative is 0.
        Floor = "floor",
        /// The nearest whole number, and the even one if two are as near. Its derivative is 0.
        Round = "round",
    }
}

operators! {
    /// An operator with two operands. A comparison is 1 if it holds, else 0, and its derivative is 0.
    BinaryOperator {
        /// `a + b`
        Add = "+",
        /// `a - b`
        Subtract = "-",
        /// `a * b`
        Multiply = "*",
        /// `a / b`
        Divide = "/",
        /// `a` to the power of `b`.
        Power = "pow",
        /// The smaller one; NaN if one of them is. If they are equal, the derivative is that of `b`.
        Minimum = "min",
        /// The larger one; NaN if one of them is. If they are equal, the derivative is that of `b`.
        Maximum = "max",
        /// `a < b`
        Less = "<",
        /// `a <= b`
        LessOrEqual = "<=",
        /// `a == b`
        Equal = "==",
    }
}

/// The index of a term.
pub type TermId = u32;

/// A term of a formula. It names terms before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// The element of the input.
    X,
    /// The element of the output. Only derivatives use it.
    Y,
    /// A number.
    Number(f64),
    /// An operator on one term.
    Unary(UnaryOperator, TermId),
    /// An operator on two terms.
    Binary(BinaryOperator, TermId, TermId),
    /// The second term if the first is not 0, else the third.
    Select(TermId, TermId, TermId),
}

impl Term {
    /// Returns the terms that it names.
    fn operands(self) -> Vec<TermId> {
        match self {
            Term::X | Term::Y | Term::Number(_) => Vec::new(),
            Term::Unary(_, a) => vec![a],
            Term::Binary(_, a, b) => vec![a, b],
            Term::Select(condition, a, b) => vec![condition, a, b],
        }
    }

    /// Returns the term with each operand replaced by `rename` of it.
    fn renamed(self, rename: impl Fn(TermId) -> TermId) -> Term {
        match self {
            Term::X | Term::Y | Term::Number(_) => self,
            Term::Unary(operator, a) => Term::Unary(operator, rename(a)),
            Term::Binary(operator, a, b) => Term::Binary(operator, rename(a), rename(b)),
            Term::Select(condition, a, b) => Term::Select(rename(condition), rename(a), rename(b)),
        }
    }

    /// True if the terms are identical. NaN equals itself, and 0 differs from -0.
    fn is_same(self, other: Term) -> bool {
        match (self, other) {
            (Term::Number(a), Term::Number(b)) => a.to_bits() == b.to_bits(),
            _ => self == other,
        }
    }
}

impl Wire for Term {
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Term::X => 0u64.put(out),
            Term::Y => 1u64.put(out),
            Term::Number(value) => {
                2u64.put(out);
                value.put(out);
            }
            Term::Unary(operator, a) => {
                3u64.put(out);
                operator.put(out);
                a.put(out);
            }
            Term::Binary(operator, a, b) => {
                4u64.put(out);
                operator.put(out);
                [a, b].put(out);
            }
            Term::Select(condition, a, b) => {
                5u64.put(out);
                [condition, a, b].put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Term> {
        Some(match u64::take(from)? {
            0 => Term::X,
            1 => Term::Y,
            2 => Term::Number(f64::take(from)?),
            3 => Term::Unary(UnaryOperator::take(from)?, u32::take(from)?),
            4 => {
                let operator = BinaryOperator::take(from)?;
                let [a, b] = <[u32; 2]>::take(from)?;
                Term::Binary(operator, a, b)
            }
            5 => {
                let [condition, a, b] = <[u32; 3]>::take(from)?;
                Term::Select(condition, a, b)
            }
            _ => return None,
        })
    }
}

/// Limit of a formula's terms, since a kernel holds them in registers. More are taken for a mistake.
pub const MOST_TERMS: usize = 512;

/// A formula of one number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formula {
    /// The terms. The last one is the value.
    pub terms: Vec<Term>,
}
wire_struct!(Formula { terms });

impl Formula {
    /// Returns the index of a term, and adds the term if it is not there.
    pub fn add(&mut self, term: Term) -> TermId {
        let known = self.terms.iter().position(|known| known.is_same(term));
        let index = known.unwrap_or_else(|| {
            self.terms.push(term);
            self.terms.len() - 1
        });
        index as TermId
    }

    /// True if it has a value, every term names earlier terms, and there are at most [`MOST_TERMS`].
    pub fn is_sound(&self) -> bool {
        let mut terms = self.terms.iter().enumerate();
        (1..=MOST_TERMS).contains(&self.terms.len())
            && terms.all(|(index, term)| term.operands().iter().all(|&operand| (operand as usize) < index))
    }

    /// True if a term is the element of the input.
    pub fn reads_x(&self) -> bool {
        self.terms.contains(&Term::X)
    }

    /// True if a term is the element of the output.
    pub fn reads_y(&self) -> bool {
        self.terms.contains(&Term::Y)
    }

    /// Returns the formula of `term` alone, without terms that it does not need.
    pub fn of(&self, term: TermId) -> Formula {
        let mut needed = vec![false; term as usize + 1];
        needed[term as usize] = true;
        // Operands come before the terms that name them.
        for index in (0..needed.len()).rev() {
            if needed[index] {
                self.terms[index].operands().iter().for_each(|&operand| needed[operand as usize] = true);
            }
        }
        let mut names = vec![0; needed.len()];
        let mut terms = Vec::new();
        for index in (0..needed.len()).filter(|&index| needed[index]) {
            names[index] = terms.len() as TermId;
            terms.push(self.terms[index].renamed(|operand| names[operand as usize]));
        }
        Formula { terms }
    }

    /// Returns the derivative of a term with respect to the input.
    pub fn derivative(&self, term: TermId) -> Formula {
        let mut all = self.clone();
        let mut slopes: Vec<Option<TermId>> = Vec::new();
        for index in 0..=term {
            let slope = all.slope(index, &slopes);
            slopes.push(slope);
        }
        let slope = slopes.pop().flatten();
        let slope = slope.unwrap_or_else(|| all.add(Term::Number(0.0)));
        all.of(slope)
    }

    fn number(&mut self, value: f64) -> TermId {
        self.add(Term::Number(value))
    }

    fn unary(&mut self, operator: UnaryOperator, a: TermId) -> TermId {
        self.add(Term::Unary(operator, a))
    }

    fn binary(&mut self, operator: BinaryOperator, a: TermId, b: TermId) -> TermId {
        let is_one = |id: TermId| matches!(self.terms[id as usize], Term::Number(1.0));
        match operator {
            BinaryOperator::Multiply if is_one(a) => b,
            BinaryOperator::Multiply | BinaryOperator::Divide if is_one(b) => a,
            _ => self.add(Term::Binary(operator, a, b)),
        }
    }

    /// Returns the sum of two slopes. `None` is 0.
    fn sum(&mut self, a: Option<TermId>, b: Option<TermId>) -> Option<TermId> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.binary(BinaryOperator::Add, a, b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns `slope * factor`, or `None` if there is no slope.
    fn times(&mut self, slope: Option<TermId>, factor: TermId) -> Option<TermId> {
        slope.map(|slope| self.binary(BinaryOperator::Multiply, slope, factor))
    }

    /// Returns the derivative of a term, given those of the terms before it; `None` if it is 0 everywhere.
    fn slope(&mut self, term: TermId, slopes: &[Option<TermId>]) -> Option<TermId> {
        match self.terms[term as usize] {
            Term::X => Some(self.number(1.0)),
            Term::Y | Term::Number(_) => None,
            Term::Unary(operator, a) => {
                let inner = slopes[a as usize]?;
                let outer = self.unary_slope(operator, a, term)?;
                self.times(Some(inner), outer)
            }
            Term::Binary(operator, a, b) => {
                self.binary_slope(operator, [a, b], [slopes[a as usize], slopes[b as usize]], term)
            }
            Term::Select(condition, a, b) => {
                let (then, otherwise) = (slopes[a as usize], slopes[b as usize]);
                then.or(otherwise)?;
                let [then, otherwise] = [then, otherwise].map(|slope| slope.unwrap_or_else(|| self.number(0.0)));
                Some(self.add(Term::Select(condition, then, otherwise)))
            }
        }
    }

    /// Returns the derivative of `operator` by its operand, for the chain rule; `None` if it is 0 everywhere.
    fn unary_slope(&mut self, operator: UnaryOperator, a: TermId, value: TermId) -> Option<TermId> {
        use BinaryOperator::{Add, Divide, Multiply, Subtract};
        let one = self.number(1.0);
        Some(match operator {
            UnaryOperator::Negate => self.number(-1.0),
            UnaryOperator::Exp => value,
            // `value + 1` would have no digits left if the value is near -1.
            UnaryOperator::Expm1 => self.unary(UnaryOperator::Exp, a),
            UnaryOperator::Log => self.binary(Divide, one, a),
            UnaryOperator::Log1p => {
                let shifted = self.binary(Add, one, a);
                self.binary(Divide, one, shifted)
            }
            UnaryOperator::Sqrt => {
                let half = self.number(0.5);
                self.binary(Divide, half, value)
            }
            UnaryOperator::Abs => self.unary(UnaryOperator::Sign, a),
            UnaryOperator::Sin => self.unary(UnaryOperator::Cos, a),
            UnaryOperator::Cos => {
                let sine = self.unary(UnaryOperator::Sin, a);
                self.unary(UnaryOperator::Negate, sine)
            }
            UnaryOperator::Tanh => {
                let square = self.binary(Multiply, value, value);
                self.binary(Subtract, one, square)
            }
            UnaryOperator::Sigmoid => {
                let rest = self.binary(Subtract, one, value);
                self.binary(Multiply, value, rest)
            }
            UnaryOperator::Softplus => self.unary(UnaryOperator::Sigmoid, a),
            UnaryOperator::Erf => {
                let square = self.binary(Multiply, a, a);
                let exponent = self.unary(UnaryOperator::Negate, square);
                let bell = self.unary(UnaryOperator::Exp, exponent);
                let factor = self.number(core::f64::consts::FRAC_2_SQRT_PI);
                self.binary(Multiply, factor, bell)
            }
            UnaryOperator::Sign | UnaryOperator::Floor | UnaryOperator::Round => return None,
        })
    }

    fn binary_slope(
        &mut self,
        operator: BinaryOperator,
        [a, b]: [TermId; 2],
        [of_a, of_b]: [Option<TermId>; 2],
        value: TermId,
    ) -> Option<TermId> {
        use BinaryOperator::{Divide, Less, Multiply, Power, Subtract};
        of_a.or(of_b)?;
        match operator {
            BinaryOperator::Add => self.sum(of_a, of_b),
            BinaryOperator::Subtract => {
                let negative = of_b.map(|slope| self.unary(UnaryOperator::Negate, slope));
                self.sum(of_a, negative)
            }
            BinaryOperator::Multiply => {
                let (left, right) = (self.times(of_a, b), self.times(of_b, a));
                self.sum(left, right)
            }
            BinaryOperator::Divide => {
                let left = of_a.map(|slope| self.binary(Divide, slope, b));
                // (a / b)' = (a' - (a / b) * b') / b
                let right = self.times(of_b, value).map(|product| {
                    let quotient = self.binary(Divide, product, b);
                    self.unary(UnaryOperator::Negate, quotient)
                });
                self.sum(left, right)
            }
            BinaryOperator::Power => {
                let left = of_a.map(|slope| {
                    let one = self.number(1.0);
                    let exponent = self.binary(Subtract, b, one);
                    let power = self.binary(Power, a, exponent);
                    let factor = self.binary(Multiply, b, power);
                    self.binary(Multiply, slope, factor)
                });
                let right = of_b.map(|slope| {
                    let logarithm = self.unary(UnaryOperator::Log, a);
                    let factor = self.binary(Multiply, value, logarithm);
                    self.binary(Multiply, slope, factor)
                });
                self.sum(left, right)
            }
            BinaryOperator::Minimum | BinaryOperator::Maximum => {
                let is_first = match operator {
                    BinaryOperator::Minimum => self.binary(Less, a, b),
                    _ => self.binary(Less, b, a),
                };
                let [first, second] = [of_a, of_b].map(|slope| slope.unwrap_or_else(|| self.number(0.0)));
                Some(self.add(Term::Select(is_first, first, second)))
            }
            BinaryOperator::Less | BinaryOperator::LessOrEqual | BinaryOperator::Equal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `x * sigmoid(2 * x)`, and the index of its value.
    fn swish() -> (Formula, TermId) {
        let mut formula = Formula::default();
        let x = formula.add(Term::X);
        let two = formula.add(Term::Number(2.0));
        let product = formula.add(Term::Binary(BinaryOperator::Multiply, two, x));
        let gate = formula.add(Term::Unary(UnaryOperator::Sigmoid, product));
        let value = formula.add(Term::Binary(BinaryOperator::Multiply, x, gate));
        (formula, value)
    }

    #[test]
    fn equal_terms_are_one() {
        let (mut formula, value) = swish();
        let count = formula.terms.len();
        assert_eq!(formula.add(Term::X), 0);
        assert_eq!(formula.add(Term::Number(2.0)), 1);
        assert_eq!(formula.terms.len(), count);
        assert_eq!(formula.add(Term::Number(f64::NAN)), formula.add(Term::Number(f64::NAN)));
        assert_ne!(formula.add(Term::Number(0.0)), formula.add(Term::Number(-0.0)));
        assert_eq!(formula.of(value), swish().0);
    }

    #[test]
    fn formulas_survive_the_wire() {
        let (formula, value) = swish();
        let mut clipped = formula.derivative(value);
        let last = clipped.terms.len() as TermId - 1;
        let y = clipped.add(Term::Y);
        let less = clipped.add(Term::Binary(BinaryOperator::Less, last, y));
        clipped.add(Term::Select(less, last, y));
        let mut bytes = Vec::new();
        clipped.put(&mut bytes);
        assert_eq!(Formula::take(&mut Reader::new(&bytes)), Some(clipped.clone()));
        for end in 0..bytes.len() {
            assert_eq!(Formula::take(&mut Reader::new(&bytes[..end])), None);
        }
        assert!(clipped.is_sound() && clipped.reads_x() && clipped.reads_y());
    }

    #[test]
    fn terms_name_terms_before_them() {
        assert!(!Formula::default().is_sound());
        assert!(!Formula { terms: vec![Term::Unary(UnaryOperator::Exp, 0)] }.is_sound());
        assert!(!Formula { terms: vec![Term::X, Term::Select(0, 0, 1)] }.is_sound());
        assert!(!Formula { terms: vec![Term::X; MOST_TERMS + 1] }.is_sound());
    }

    #[test]
    fn what_does_not_change_has_no_slope() {
        let mut formula = Formula::default();
        let x = formula.add(Term::X);
        let floor = formula.add(Term::Unary(UnaryOperator::Floor, x));
        assert_eq!(formula.derivative(floor).terms, [Term::Number(0.0)]);
        let sum = formula.add(Term::Binary(BinaryOperator::Add, x, floor));
        assert_eq!(formula.derivative(sum).terms, [Term::Number(1.0)]);
    }
}
