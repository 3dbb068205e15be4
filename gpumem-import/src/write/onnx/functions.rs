//! Functions of one number, and formulas of users.

use super::layers::Made;
use super::{Writer, float, int, text};
use gpumem_core::graph::NodeId;
use gpumem_core::program::formula::{BinaryOperator, Term, UnaryOperator};
use gpumem_core::program::ops::{Formula, Pointwise};

/// Functions that have their name in ONNX too, but for capitals.
const PLAIN: [&str; 12] =
    ["relu", "sigmoid", "exp", "tanh", "selu", "softsign", "mish", "abs", "sqrt", "log", "sin", "cos"];

impl Writer<'_> {
    pub(super) fn pointwise(&mut self, op: &Pointwise, inputs: &[NodeId]) -> Option<Made> {
        let x = self.names[*inputs.first()?].clone();
        let argument = |at: usize| op.arguments.get(at).copied().unwrap_or(0.0);
        let plain = |writer: &mut Self, kind: &str| writer.add(kind, &[&x], vec![]);
        let made = match op.function.name() {
            name if PLAIN.iter().any(|plain| plain.eq_ignore_ascii_case(name)) => plain(self, name),
            "SeluInPlace" => plain(self, "Selu"),
            "Hardswish" => plain(self, "HardSwish"),
            "Gelu" => plain(self, "Gelu"),
            "GeluTanh" => self.add("Gelu", &[&x], vec![text("approximate", "tanh")]),
            "LeakyRelu" => self.add("LeakyRelu", &[&x], vec![float("alpha", argument(0))]),
            "Elu" | "EluInPlace" => self.add("Elu", &[&x], vec![float("alpha", argument(0))]),
            "Celu" | "CeluInPlace" => self.add("Celu", &[&x], vec![float("alpha", argument(0))]),
            "Hardsigmoid" => self.add("HardSigmoid", &[&x], vec![float("alpha", 1.0 / 6.0), float("beta", 0.5)]),
            "Silu" | "QuickGelu" => {
                let factor = self.number(1.702);
                let scaled =
                    if op.function.name() == "Silu" { x.clone() } else { self.add("Mul", &[&x, &factor], vec![]) };
                let gate = self.add("Sigmoid", &[&scaled], vec![]);
                self.add("Mul", &[&x, &gate], vec![])
            }
            "LogSigmoid" => {
                let negative = self.add("Neg", &[&x], vec![]);
                let soft = self.add("Softplus", &[&negative], vec![]);
                self.add("Neg", &[&soft], vec![])
            }
            "Relu6" | "Hardtanh" => {
                let bounds = if op.function.name() == "Relu6" { [0.0, 6.0] } else { [argument(0), argument(1)] };
                let [least, most] = bounds.map(|bound| self.number(bound));
                self.add("Clip", &[&x, &least, &most], vec![])
            }
            "Pow" => {
                let exponent = self.number(argument(0));
                self.add("Pow", &[&x, &exponent], vec![])
            }
            "StepSize" => plain(self, "Softplus"),
            "Softplus" => self.softplus(&x, argument(0), argument(1)),
            "Hardshrink" => self.add("Shrink", &[&x], vec![float("lambd", argument(0))]),
            "Softshrink" => self.add("Shrink", &[&x], vec![float("bias", argument(0)), float("lambd", argument(0))]),
            "Tanhshrink" => self.tanhshrink(&x),
            "Affine" => {
                let (factor, shift) = (self.number(argument(0)), self.number(argument(1)));
                let made = if argument(0) == 1.0 { x.clone() } else { self.add("Mul", &[&x, &factor], vec![]) };
                if argument(1) == 0.0 { made } else { self.add("Add", &[&made, &shift], vec![]) }
            }
            _ => return None,
        };
        Some((made, op.shape.dims().to_vec()))
    }

    /// Writes `log(1 + exp(beta * x)) / beta`, and x itself beyond a threshold.
    fn softplus(&mut self, x: &str, beta: f64, threshold: f64) -> String {
        let factor = self.number(beta);
        let scaled = if beta == 1.0 { x.to_string() } else { self.add("Mul", &[x, &factor], vec![]) };
        let soft = self.add("Softplus", &[&scaled], vec![]);
        let soft = if beta == 1.0 { soft } else { self.add("Div", &[&soft, &factor], vec![]) };
        // Beyond 20 the function differs from x by less than the last bit of it.
        if threshold >= 20.0 {
            return soft;
        }
        let threshold = self.number(threshold);
        let is_above = self.add("Greater", &[&scaled, &threshold], vec![]);
        self.add("Where", &[&is_above, x, &soft], vec![])
    }

    /// Writes `x - tanh(x)`. The difference of small numbers would lose all digits, so they have its series.
    fn tanhshrink(&mut self, x: &str) -> String {
        let square = self.add("Mul", &[x, x], vec![]);
        let mut sum = self.number(-17.0 / 315.0);
        for factor in [2.0 / 15.0, -1.0 / 3.0] {
            let product = self.add("Mul", &[&sum, &square], vec![]);
            let factor = self.number(factor);
            sum = self.add("Add", &[&product, &factor], vec![]);
        }
        let cube = self.add("Mul", &[x, &square], vec![]);
        let series = self.add("Mul", &[&cube, &sum], vec![]);
        let series = self.add("Neg", &[&series], vec![]);
        let tanh = self.add("Tanh", &[x], vec![]);
        let difference = self.add("Sub", &[x, &tanh], vec![]);
        let (size, limit) = (self.add("Abs", &[x], vec![]), self.number(0.1));
        let is_small = self.add("Less", &[&size, &limit], vec![]);
        self.add("Where", &[&is_small, &series, &difference], vec![])
    }

    /// Writes a formula, term by term.
    pub(super) fn formula(&mut self, id: NodeId, op: &Formula, inputs: &[NodeId]) -> Option<Made> {
        let x = self.names[*inputs.first()?].clone();
        let mut terms: Vec<String> = Vec::new();
        for term in &op.value.terms {
            let of = |term: u32| terms.get(term as usize).cloned();
            let made = match *term {
                Term::X => x.clone(),
                Term::Y => return None,
                Term::Number(number) => self.number(number),
                Term::Unary(operator, a) => self.unary(operator, &of(a)?),
                Term::Binary(operator, a, b) => self.operator(operator, &of(a)?, &of(b)?),
                Term::Select(condition, a, b) => {
                    let zero = self.number(0.0);
                    let is_zero = self.add("Equal", &[&of(condition)?, &zero], vec![]);
                    self.add("Where", &[&is_zero, &of(b)?, &of(a)?], vec![])
                }
            };
            terms.push(made);
        }
        let mut made = terms.pop()?;
        if !op.value.reads_x() {
            let sizes = self.add("Shape", &[&x], vec![]);
            made = self.add("Expand", &[&made, &sizes], vec![]);
        }
        Some((made, self.dims(id)))
    }

    fn unary(&mut self, operator: UnaryOperator, a: &str) -> String {
        let kind = match operator {
            UnaryOperator::Negate => "Neg",
            UnaryOperator::Exp => "Exp",
            UnaryOperator::Expm1 => return self.expm1(a),
            UnaryOperator::Log => "Log",
            UnaryOperator::Log1p => return self.log1p(a),
            UnaryOperator::Sqrt => "Sqrt",
            UnaryOperator::Abs => "Abs",
            UnaryOperator::Sign => "Sign",
            UnaryOperator::Sin => "Sin",
            UnaryOperator::Cos => "Cos",
            UnaryOperator::Tanh => "Tanh",
            UnaryOperator::Sigmoid => "Sigmoid",
            UnaryOperator::Softplus => "Softplus",
            UnaryOperator::Erf => "Erf",
            UnaryOperator::Floor => "Floor",
            UnaryOperator::Round => "Round",
        };
        self.add(kind, &[a], vec![])
    }

    /// Writes `exp(a) - 1` as `tanh(a / 2) * (exp(a) + 1)`, which is exact near 0.
    fn expm1(&mut self, a: &str) -> String {
        let (half, one) = (self.number(0.5), self.number(1.0));
        let half = self.add("Mul", &[a, &half], vec![]);
        let tanh = self.add("Tanh", &[&half], vec![]);
        let exp = self.add("Exp", &[a], vec![]);
        let sum = self.add("Add", &[&exp, &one], vec![]);
        self.add("Mul", &[&tanh, &sum], vec![])
    }

    /// Writes `log(1 + a)`: near 0 as `2 * atanh(a / (a + 2))`, which is exact there.
    fn log1p(&mut self, a: &str) -> String {
        let [half, one, two] = [0.5, 1.0, 2.0].map(|number| self.number(number));
        let sum = self.add("Add", &[a, &two], vec![]);
        let share = self.add("Div", &[a, &sum], vec![]);
        let near = self.add("Atanh", &[&share], vec![]);
        let near = self.add("Mul", &[&near, &two], vec![]);
        let whole = self.add("Add", &[a, &one], vec![]);
        let far = self.add("Log", &[&whole], vec![]);
        let size = self.add("Abs", &[a], vec![]);
        let is_near = self.add("Less", &[&size, &half], vec![]);
        self.add("Where", &[&is_near, &near, &far], vec![])
    }

    fn operator(&mut self, operator: BinaryOperator, a: &str, b: &str) -> String {
        let (kind, is_comparison) = match operator {
            BinaryOperator::Add => ("Add", false),
            BinaryOperator::Subtract => ("Sub", false),
            BinaryOperator::Multiply => ("Mul", false),
            BinaryOperator::Divide => ("Div", false),
            BinaryOperator::Power => ("Pow", false),
            BinaryOperator::Minimum => ("Min", false),
            BinaryOperator::Maximum => ("Max", false),
            BinaryOperator::Less => ("Less", true),
            BinaryOperator::LessOrEqual => ("LessOrEqual", true),
            BinaryOperator::Equal => ("Equal", true),
        };
        let made = self.add(kind, &[a, b], vec![]);
        if is_comparison { self.add("Cast", &[&made], vec![int("to", 1)]) } else { made }
    }
}
