//! Rules of optimizers as C++. A rule is called once with symbols: each of its operations becomes a statement `t[n]=..;`.
//!
//! The text has no spaces, since constants of kernels are listed with spaces between them.

use gpumem_core::train::optim::{ElementRule, Optimizer, RuleVisitor, STATES, Scalar, StepScalars};
use std::cell::RefCell;
use std::ops::{Add, BitAnd, Div, Mul, Sub};

/// Statements of C++, and the number of variables that they assign: `t[0]`, `t[1]` and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Text {
    /// The statements.
    pub(super) statements: String,
    /// The number of variables.
    pub(super) variables: usize,
}

/// Notes statements in double or single precision.
#[derive(Default)]
struct Notes {
    is_double: bool,
    text: RefCell<Text>,
}

impl Notes {
    /// Adds a statement that assigns an expression to a new variable.
    fn variable(&self, expression: &str) -> Symbol<'_> {
        let mut text = self.text.borrow_mut();
        let index = text.variables;
        text.variables += 1;
        text.statements += &format!("t[{index}]={expression};");
        Symbol::Variable(self, index)
    }

    /// Assigns each number to a new variable.
    fn copies<'a, const COUNT: usize>(&'a self, all: [Symbol<'a>; COUNT]) -> [Symbol<'a>; COUNT] {
        all.map(|symbol| self.variable(&self.operand(symbol)))
    }

    /// Adds a statement that assigns a number to a variable that exists.
    fn assign(&self, to: Symbol<'_>, value: Symbol<'_>) {
        self.add(&format!("{}={};", self.operand(to), self.operand(value)));
    }

    /// Adds other text between statements.
    fn add(&self, text: &str) {
        self.text.borrow_mut().statements += text;
    }

    /// Returns a constant as a literal, in parentheses if it is negative.
    fn literal(&self, value: f64) -> String {
        let text = if self.is_double { format!("{value:e}") } else { format!("{:e}f", value as f32) };
        if text.starts_with('-') { format!("({text})") } else { text }
    }

    /// Returns the name of a function of one float, or of doubles.
    fn function(&self, name: &str) -> String {
        if self.is_double { name.into() } else { format!("{name}f") }
    }

    /// Returns a symbol as an operand.
    fn operand(&self, symbol: Symbol<'_>) -> String {
        match symbol {
            Symbol::Constant(value) => self.literal(value),
            Symbol::Named(_, name) => name.into(),
            Symbol::Variable(_, index) => format!("t[{index}]"),
        }
    }
}

/// A number in the text of a rule.
#[derive(Clone, Copy)]
enum Symbol<'a> {
    Constant(f64),
    Named(&'a Notes, &'static str),
    Variable(&'a Notes, usize),
}

impl<'a> Symbol<'a> {
    /// Returns where its operations are noted. `None` for a constant.
    fn notes(self) -> Option<&'a Notes> {
        match self {
            Symbol::Constant(_) => None,
            Symbol::Named(notes, _) | Symbol::Variable(notes, _) => Some(notes),
        }
    }

    /// Returns a function of several numbers: `compute` of constants, and else the variable that has the value of `expression`.
    fn of_all<const COUNT: usize>(
        all: [Symbol<'a>; COUNT],
        compute: impl FnOnce([f64; COUNT]) -> f64,
        expression: impl FnOnce(&Notes, [String; COUNT]) -> String,
    ) -> Symbol<'a> {
        match all.iter().find_map(|symbol| symbol.notes()) {
            Some(notes) => notes.variable(&expression(notes, all.map(|symbol| notes.operand(symbol)))),
            None => Symbol::Constant(compute(all.map(|symbol| match symbol {
                Symbol::Constant(value) => value,
                Symbol::Named(..) | Symbol::Variable(..) => f64::NAN,
            }))),
        }
    }
}

/// Implements an operator for two symbols, and for a symbol and a constant.
macro_rules! operator {
    ($trait:ident, $method:ident, $text:literal) => {
        impl<'a> $trait for Symbol<'a> {
            type Output = Symbol<'a>;

            fn $method(self, other: Symbol<'a>) -> Symbol<'a> {
                Symbol::of_all([self, other], |[a, b]| a.$method(b), |_, [a, b]| format!("{a}{}{b}", $text))
            }
        }

        impl<'a> $trait<f64> for Symbol<'a> {
            type Output = Symbol<'a>;

            fn $method(self, constant: f64) -> Symbol<'a> {
                self.$method(Symbol::Constant(constant))
            }
        }
    };
}

operator!(Add, add, "+");
operator!(Sub, sub, "-");
operator!(Mul, mul, "*");
operator!(Div, div, "/");

/// Both of two comparisons, each of which is 0 or 1.
impl<'a> BitAnd for Symbol<'a> {
    type Output = Symbol<'a>;

    fn bitand(self, other: Symbol<'a>) -> Symbol<'a> {
        self.mul(other)
    }
}

impl<'a> Scalar for Symbol<'a> {
    type Truth = Symbol<'a>;

    fn of(value: f64) -> Symbol<'a> {
        Symbol::Constant(value)
    }

    fn sqrt(self) -> Symbol<'a> {
        Symbol::of_all([self], |[x]| x.sqrt(), |notes, [x]| format!("{}({x})", notes.function("sqrt")))
    }

    fn abs(self) -> Symbol<'a> {
        Symbol::of_all([self], |[x]| x.abs(), |notes, [x]| format!("{}({x})", notes.function("fabs")))
    }

    fn sign(self) -> Symbol<'a> {
        let [zero, one] = [0.0, 1.0].map(Symbol::Constant);
        let not_positive = Symbol::select(self.less(zero), zero - one, self);
        Symbol::select(zero.less(self), one, not_positive)
    }

    fn max(self, other: Symbol<'a>) -> Symbol<'a> {
        let text = |notes: &Notes, [a, b]: [String; 2]| format!("{}({a},{b})", notes.function("fmax"));
        Symbol::of_all([self, other], |[a, b]| a.max(b), text)
    }

    fn power(base: f64, exponent: Symbol<'a>) -> Symbol<'a> {
        if base > 0.0 && exponent.notes().is_some_and(|notes| !notes.is_double) {
            // Much faster than `powf`.
            return Symbol::of_all([exponent * base.log2()], |[x]| x.exp2(), |_, [x]| format!("exp2f({x})"));
        }
        let text = |notes: &Notes, [x]: [String; 1]| format!("{}({},{x})", notes.function("pow"), notes.literal(base));
        Symbol::of_all([exponent], |[x]| base.powf(x), text)
    }

    fn to_the(self, exponent: f64) -> Symbol<'a> {
        let text =
            |notes: &Notes, [x]: [String; 1]| format!("{}({x},{})", notes.function("pow"), notes.literal(exponent));
        Symbol::of_all([self], |[x]| x.powf(exponent), text)
    }

    fn less(self, other: Symbol<'a>) -> Symbol<'a> {
        Symbol::of_all([self, other], |[a, b]| f64::from(u8::from(a < b)), |_, [a, b]| format!("{a}<{b}"))
    }

    fn select(condition: Symbol<'a>, then: Symbol<'a>, otherwise: Symbol<'a>) -> Symbol<'a> {
        let compute = |[condition, then, otherwise]: [f64; 3]| if condition != 0.0 { then } else { otherwise };
        Symbol::of_all([condition, then, otherwise], compute, |_, [condition, then, otherwise]| {
            format!("{condition}!=0?{then}:{otherwise}")
        })
    }

    fn repeat<const COUNT: usize>(
        numbers: [Symbol<'a>; COUNT],
        goes_on: impl Fn([Symbol<'a>; COUNT]) -> Symbol<'a>,
        next: impl Fn([Symbol<'a>; COUNT]) -> [Symbol<'a>; COUNT],
    ) -> [Symbol<'a>; COUNT] {
        let condition = goes_on(numbers);
        let Some(notes) = condition.notes() else {
            let is_true = matches!(condition, Symbol::Constant(value) if value != 0.0);
            return if is_true { Symbol::repeat(next(numbers), goes_on, next) } else { numbers };
        };
        let [condition] = notes.copies([condition]);
        let numbers = notes.copies(numbers);
        notes.add(&format!("while({}!=0){{", notes.operand(condition)));
        // All are computed before the first is assigned.
        let nexts = notes.copies(next(numbers));
        numbers.into_iter().zip(nexts).for_each(|(number, next)| notes.assign(number, next));
        notes.assign(condition, goes_on(numbers));
        notes.add("}");
        numbers
    }
}

/// The names of the states that are kept, in a kernel.
const STATE_NAMES: [&str; STATES] = ["first", "second", "third"];

/// Notes the update of an element.
struct Update {
    /// The states that are kept.
    kept: [bool; STATES],
    /// The weight decay if it is the same for all parameters. `None` if each has its own.
    weight_decay: Option<f64>,
}

impl RuleVisitor for Update {
    type Output = Text;

    fn visit<const FACTORS: usize>(self, rule: impl ElementRule<FACTORS>) -> Text {
        let notes = Notes::default();
        let named = |name| Symbol::Named(&notes, name);
        let factors = rule.factors(StepScalars {
            lr: named("step.lr"),
            weight_decay: self.weight_decay.map_or(named("step.weight_decay"), Symbol::Constant),
            corrections: ["step.corrections[0]", "step.corrections[1]"].map(named),
            t: named("step.t"),
            is_first: named("step.is_first"),
        });
        let mut names = STATE_NAMES.into_iter();
        let own = self.kept.map(|is_kept| is_kept.then(|| names.next().map(named)).flatten());
        let (mut w, mut states) = (named("w"), own.map(|state| state.unwrap_or(Symbol::Constant(0.0))));
        rule.update(factors, &mut w, named("g"), states.each_mut());
        // A state may become what another one was: all are computed before the first is assigned.
        let kept = own.into_iter().zip(states).filter_map(|(own, state)| Some((own?, notes.copies([state])[0])));
        let kept: Vec<(Symbol<'_>, Symbol<'_>)> = kept.collect();
        notes.assign(named("w"), w);
        kept.into_iter().for_each(|(own, state)| notes.assign(own, state));
        notes.text.into_inner()
    }
}

/// Returns statements that update an element: its weight `w` and its states `first`, `second` and `third`, from its gradient `g` and the
/// numbers of `step`. `None` if the optimizer does not update each element by itself. Without a `weight_decay`, each parameter has its own.
pub(super) fn update(optimizer: &Optimizer, weight_decay: Option<f64>) -> Option<Text> {
    optimizer.visit(Update { kept: optimizer.kept_states(), weight_decay })
}

/// Returns statements that assign the two corrections of step `steps`, counted from 1, to `both`.
pub(super) fn corrections(optimizer: &Optimizer) -> Text {
    let notes = Notes { is_double: true, ..Notes::default() };
    let named = |name| Symbol::Named(&notes, name);
    let all = optimizer.corrections(named("steps"));
    ["both[0]", "both[1]"].map(named).into_iter().zip(all).for_each(|(name, value)| notes.assign(name, value));
    notes.text.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::train::optim::{Adadelta, Adagrad, Muon, RmsProp, Sgd};

    /// A rule without branches, one with a state less than it may have, and one that depends on the step.
    #[test]
    fn rules_are_statements() {
        let statements = |optimizer, weight_decay| update(&optimizer, weight_decay).unwrap().statements;
        assert_eq!(
            statements(Optimizer::Adadelta(Adadelta { rho: 0.75, eps: 0.5, ..Adadelta::DEFAULT }), Some(0.0)),
            "t[0]=w*0e0f;t[1]=g+t[0];t[2]=first*7.5e-1f;t[3]=t[1]*2.5e-1f;t[4]=t[3]*t[1];t[5]=t[2]+t[4];t[6]=second+5e-1f;\
             t[7]=sqrtf(t[6]);t[8]=t[5]+5e-1f;t[9]=sqrtf(t[8]);t[10]=t[7]/t[9];t[11]=t[10]*t[1];t[12]=second*7.5e-1f;\
             t[13]=t[11]*2.5e-1f;t[14]=t[13]*t[11];t[15]=t[12]+t[14];t[16]=step.lr*t[11];t[17]=w-t[16];t[18]=t[5];t[19]=t[15];\
             w=t[17];first=t[18];second=t[19];"
        );
        let centered = RmsProp { centered: true, ..RmsProp::DEFAULT };
        assert!(statements(Optimizer::RmsProp(centered), None).contains("second=t["));
        assert!(!statements(Optimizer::RmsProp(centered), None).contains("third"));
        let sgd = Sgd { momentum: 0.5, ..Sgd::DEFAULT };
        assert!(statements(Optimizer::Sgd(sgd), None).starts_with("t[0]=step.is_first!=0?0e0f:5e-1f;"));
        assert!(Optimizer::DEFAULTS.iter().filter_map(|it| update(it, None)).all(|it| !it.statements.contains(' ')));
        assert_eq!(update(&Optimizer::Muon(Muon::DEFAULT), None), None);
    }

    #[test]
    fn corrections_are_statements_in_double_precision() {
        let adagrad = Optimizer::Adagrad(Adagrad { lr_decay: 0.5, ..Adagrad::DEFAULT });
        assert_eq!(
            corrections(&adagrad).statements,
            "t[0]=steps-1e0;t[1]=t[0]*5e-1;t[2]=t[1]+1e0;both[0]=t[2];both[1]=0e0;"
        );
    }

    /// Powers of two below `x`: the condition is computed before the loop and at the end of each turn.
    #[test]
    fn a_loop_is_a_statement() {
        let notes = Notes { is_double: true, ..Notes::default() };
        let x = Symbol::Named(&notes, "x");
        let [power] = Symbol::repeat([Symbol::of(1.0)], |[power]| power.less(x), |[power]| [power * 2.0]);
        assert_eq!(notes.operand(power), "t[2]");
        assert_eq!(
            notes.text.into_inner().statements,
            "t[0]=1e0<x;t[1]=t[0];t[2]=1e0;while(t[1]!=0){t[3]=t[2]*2e0;t[4]=t[3];t[2]=t[4];t[5]=t[2]<x;t[1]=t[5];}"
        );
        let known = |most: f64| Symbol::repeat([Symbol::of(1.0)], |[it]| it.less(Symbol::of(most)), |[it]| [it * 2.0]);
        assert!(matches!(known(100.0), [Symbol::Constant(128.0)]));
    }
}
