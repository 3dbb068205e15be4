//! Functions of one number, arithmetic, comparisons, choices and types.

use super::{Bound, Call, Result, Translator, refuse};
use crate::model::{Argument, Dtype, ValueId};

/// Functions without arguments whose names in ONNX and in ATen differ in capitals only.
const FUNCTIONS: [&str; 32] = [
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "neg",
    "abs",
    "sqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "floor",
    "ceil",
    "round",
    "sign",
    "isnan",
    "isinf",
    "softplus",
    "softsign",
    "selu",
    "mish",
    "hardswish",
];

/// Functions with another name in ATen.
const RENAMED: [(&str, &str); 4] =
    [("Not", "logical_not"), ("BitwiseNot", "bitwise_not"), ("FastGelu", "gelu"), ("QuickGelu", "quick_gelu")];

/// Operations of two values, by their names in ONNX and in ATen.
const BINARY: [(&str, &str); 17] = [
    ("Add", "add"),
    ("Sub", "sub"),
    ("Mul", "mul"),
    ("Div", "div"),
    ("Pow", "pow"),
    ("Equal", "eq"),
    ("Greater", "gt"),
    ("Less", "lt"),
    ("GreaterOrEqual", "ge"),
    ("LessOrEqual", "le"),
    ("And", "logical_and"),
    ("Or", "logical_or"),
    ("Xor", "logical_xor"),
    ("BitwiseAnd", "bitwise_and"),
    ("BitwiseOr", "bitwise_or"),
    ("Mod", "remainder"),
    ("PRelu", "prelu"),
];

impl Translator<'_> {
    /// Translates an elementwise operation. `None` if it is another one.
    pub(super) fn elementwise(&mut self, call: &Call<'_, '_>) -> Result<Option<ValueId>> {
        let renamed = RENAMED.iter().find_map(|(name, op)| (*name == call.kind).then_some(*op));
        let function = renamed.or_else(|| FUNCTIONS.into_iter().find(|op| op.eq_ignore_ascii_case(call.kind)));
        if let Some(op) = function {
            return self.function(call, op).map(Some);
        }
        if let Some((_, op)) = BINARY.iter().find(|(name, _)| *name == call.kind) {
            let (a, b) = (call.tensor(0)?, call.tensor(1)?);
            return match *op {
                "prelu" => self.prelu(a, b),
                "remainder" if call.int("fmod", 0) == 1 => self.binary("fmod", a, b),
                op => self.binary(op, a, b),
            }
            .map(Some);
        }
        let number = |name: &str, default: f64| Argument::Float(call.float(name, default));
        Ok(Some(match call.kind {
            "LeakyRelu" => self.of_one("leaky_relu", call.tensor(0)?, &[("negative_slope", number("alpha", 0.01))])?,
            "Elu" => self.of_one("elu", call.tensor(0)?, &[("alpha", number("alpha", 1.0))])?,
            "Celu" => self.of_one("celu", call.tensor(0)?, &[("alpha", number("alpha", 1.0))])?,
            "Gelu" => {
                let form = Argument::Text(call.text("approximate").unwrap_or("none").to_string());
                self.of_one("gelu", call.tensor(0)?, &[("approximate", form)])?
            }
            "HardSigmoid" => self.hard_sigmoid(call)?,
            "Swish" => {
                let (value, alpha) = (call.tensor(0)?, call.float("alpha", 1.0));
                if alpha == 1.0 {
                    self.of_one("silu", value, &[])?
                } else {
                    let scaled = self.of_one("mul", value, &[("other", Argument::Float(alpha))])?;
                    let gate = self.of_one("sigmoid", scaled, &[])?;
                    self.binary("mul", value, gate)?
                }
            }
            "Clip" => self.clip(call)?,
            "Max" | "Min" | "Sum" | "Mean" => self.folded(call)?,
            "Where" => self.choice(call)?,
            "Cast" => {
                let code = i32::try_from(call.int("to", 1)).unwrap_or(0);
                let Some(dtype) = super::super::tensor::dtype(code) else {
                    return refuse("it converts to a type that is not read");
                };
                self.cast(call.tensor(0)?, dtype)?
            }
            "CastLike" => self.cast(call.tensor(0)?, self.dtype(call.tensor(1)?))?,
            "Dropout" => self.dropout(call)?,
            "Softmax" | "LogSoftmax" => self.softmax(call)?,
            _ => return Ok(None),
        }))
    }

    /// Adds an operation that keeps shape and type of a value, which is its argument `self`.
    pub(super) fn of_one(&mut self, op: &str, value: ValueId, more: &[(&str, Argument)]) -> Result<ValueId> {
        let mut arguments = vec![("self", Argument::Tensor(value))];
        arguments.extend(more.iter().cloned());
        let (dtype, shape) = (self.dtype(value), self.dims(value));
        self.emit(op, &arguments, dtype, shape)
    }

    fn function(&mut self, call: &Call<'_, '_>, op: &str) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let (dtype, shape) = (self.dtype(value), self.dims(value));
        match op {
            "isnan" | "isinf" => self.emit(op, &[("self", Argument::Tensor(value))], Dtype::Bool, shape),
            "quick_gelu" => {
                let scaled = self.of_one("mul", value, &[("other", Argument::Float(call.float("alpha", 1.702)))])?;
                let gate = self.of_one("sigmoid", scaled, &[])?;
                self.binary("mul", value, gate)
            }
            "gelu" => self.of_one(op, value, &[("approximate", Argument::Text("tanh".into()))]),
            // The sign changes nothing in a comparison, so integers are negated as they are.
            _ => self.emit(op, &[("self", Argument::Tensor(value))], dtype, shape),
        }
    }

    /// Adds arithmetic or a comparison. A constant of one element becomes a number, as it was in Python.
    pub(super) fn binary(&mut self, op: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        let shape = self.common(&self.dims(a), &self.dims(b))?;
        let dtype = match op {
            "eq" | "ne" | "gt" | "lt" | "ge" | "le" | "logical_and" | "logical_or" | "logical_xor" => Dtype::Bool,
            _ => self.dtype(a),
        };
        let is_constant = |t: &Self, value: ValueId| t.numbers(value).is_some();
        let both = is_constant(self, a) && is_constant(self, b);
        let right = if both { None } else { self.scalar(b, shape.len()).filter(|_| self.dims(a) == shape) };
        let left = if both { None } else { self.scalar(a, shape.len()).filter(|_| self.dims(b) == shape) };
        let rounds = op == "div" && !dtype.is_float();
        let (first, second) = match (left, right) {
            (_, Some(number)) => (Argument::Tensor(a), number),
            (Some(number), None) => match op {
                "add" | "mul" | "eq" => (Argument::Tensor(b), number),
                "pow" => (number, Argument::Tensor(b)),
                "sub" => return self.emit("rsub", &[("self", Argument::Tensor(b)), ("other", number)], dtype, shape),
                "div" if !rounds => {
                    let inverse = self.of_one("reciprocal", b, &[])?;
                    if number == Argument::Float(1.0) {
                        return Ok(inverse);
                    }
                    return self.of_one("mul", inverse, &[("other", number)]);
                }
                _ => (Argument::Tensor(a), Argument::Tensor(b)),
            },
            (None, None) => (Argument::Tensor(a), Argument::Tensor(b)),
        };
        let name = if op == "pow" { "exponent" } else { "other" };
        let mut arguments = vec![("self", first), (name, second)];
        if rounds {
            arguments.push(("rounding_mode", Argument::Text("trunc".into())));
        }
        self.emit(op, &arguments, dtype, shape)
    }

    fn prelu(&mut self, value: ValueId, slope: ValueId) -> Result<ValueId> {
        // The exporter shapes `[C]` as `[C, 1, 1]`.
        let mut weight = slope;
        while let Some(source) = self
            .maker(weight)
            .filter(|_| self.state(weight).is_none())
            .and_then(|node| matches!(&node.op[..], "unsqueeze" | "reshape").then(|| node.tensors().next()).flatten())
        {
            weight = source;
        }
        let elements = self.model.values[weight].elements().unwrap_or(0);
        if self.rank(weight) > 1 && self.state(weight).is_some() {
            weight = self.reshaped(weight, vec![elements])?;
        }
        self.of_one("prelu", value, &[("weight", Argument::Tensor(weight))])
    }

    fn hard_sigmoid(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let (alpha, beta) = (call.float("alpha", 0.2), call.float("beta", 0.5));
        if (alpha - 1.0 / 6.0).abs() < 1e-6 && beta == 0.5 {
            return self.of_one("hardsigmoid", value, &[]);
        }
        let scaled = self.of_one("mul", value, &[("other", Argument::Float(alpha))])?;
        let moved = self.of_one("add", scaled, &[("other", Argument::Float(beta))])?;
        self.of_one("clamp", moved, &[("min", Argument::Float(0.0)), ("max", Argument::Float(1.0))])
    }

    fn clip(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let mut bounds = Vec::new();
        for (index, name) in [(1, "min"), (2, "max")] {
            let bound = match call.optional(index) {
                Some(bound) => match self.scalar(bound, 1) {
                    Some(number) => Some(number),
                    None => return refuse("its bounds are computed"),
                },
                None if call.has(name) => Some(Argument::Float(call.float(name, 0.0))),
                None => None,
            };
            // The largest numbers are no bounds.
            let bound = bound.filter(|bound| !matches!(bound, Argument::Float(number) if number.abs() > 3.4e38));
            bounds.extend(bound.map(|bound| (name, bound)));
        }
        match &bounds[..] {
            [] => Ok(value),
            [("min", bound)] => self.of_one("clamp_min", value, &[("min", bound.clone())]),
            _ => self.of_one("clamp", value, &bounds),
        }
    }

    /// Translates an operation of any number of values.
    fn folded(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let values = call.tensors()?;
        let op = match call.kind {
            "Max" => "maximum",
            "Min" => "minimum",
            _ => "add",
        };
        let Some((&first, rest)) = values.split_first() else { return refuse("it joins nothing") };
        let mut whole = first;
        for &value in rest {
            whole = match (op, self.scalar(value, self.rank(whole)), self.numbers(whole)) {
                ("maximum", Some(bound), None) => self.of_one("clamp_min", whole, &[("min", bound)])?,
                ("minimum", Some(bound), None) => self.of_one("clamp", whole, &[("max", bound)])?,
                _ => self.binary(op, whole, value)?,
            };
        }
        match call.kind {
            "Mean" => self.of_one("div", whole, &[("other", Argument::Int(values.len() as i64))]),
            _ => Ok(whole),
        }
    }

    fn choice(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let (condition, a, b) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
        let shape = self.common(&self.common(&self.dims(condition), &self.dims(a))?, &self.dims(b))?;
        let dtype = self.dtype(a);
        let number = |t: &Self, value: ValueId| match t.numbers(condition) {
            Some(_) => Argument::Tensor(value),
            None => t.scalar(value, shape.len()).unwrap_or(Argument::Tensor(value)),
        };
        let (first, second) = (number(self, a), number(self, b));
        self.emit(
            "where",
            &[("condition", Argument::Tensor(condition)), ("self", first), ("other", second)],
            dtype,
            shape,
        )
    }

    fn dropout(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let number = |t: &Self, index: usize| call.optional(index).and_then(|value| t.numbers(value)?.first().copied());
        let ratio = number(self, 1)
            .map(|ratio| super::call::shortest(ratio, Dtype::F32))
            .unwrap_or_else(|| call.float("ratio", 0.5));
        let trains = number(self, 2).map_or(self.opset < 12, |flag| flag != 0.0);
        let (dtype, shape) = (self.dtype(value), self.dims(value));
        let arguments =
            [("input", Argument::Tensor(value)), ("p", Argument::Float(ratio)), ("train", Argument::Bool(trains))];
        self.emit("dropout", &arguments, dtype, shape)
    }

    fn softmax(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let op = if call.kind == "Softmax" { "softmax" } else { "log_softmax" };
        let rank = self.rank(value);
        if self.opset >= 13 {
            let dim = self.dim(call.int("axis", -1), rank)?;
            let dim = if dim + 1 == rank { -1 } else { dim as i64 };
            return self.of_one(op, value, &[("dim", Argument::Int(dim))]);
        }
        // It runs over all axes from this one on.
        let dim = self.dim(call.int("axis", 1), rank)?;
        let shape = self.dims(value);
        if dim + 1 == rank {
            return self.of_one(op, value, &[("dim", Argument::Int(-1))]);
        }
        let mut flat = shape[..dim].to_vec();
        flat.push(shape[dim..].iter().product());
        let flat = self.reshaped(value, flat)?;
        let made = self.of_one(op, flat, &[("dim", Argument::Int(-1))])?;
        self.reshaped(made, shape)
    }

    /// Translates an operation of any kind.
    pub(super) fn call(&mut self, call: &Call<'_, '_>) -> Result<Vec<Bound>> {
        if let Some(value) = self.elementwise(call)? {
            // The mask of a dropout is read by nothing but its backward pass.
            return Ok(vec![Bound::Tensor(value), Bound::Unknown]);
        }
        if let Some(values) = self.reduction(call)? {
            return Ok(values.into_iter().map(Bound::Tensor).collect());
        }
        if let Some(bounds) = self.movement(call)? {
            return Ok(bounds);
        }
        if let Some(value) = self.pool(call)? {
            return Ok(vec![Bound::Tensor(value)]);
        }
        if let Some(values) = self.recurrent(call)? {
            return Ok(values.into_iter().map(Bound::Tensor).collect());
        }
        if let Some(values) = self.layer(call)? {
            return Ok(values.into_iter().map(Bound::Tensor).collect());
        }
        refuse("it is not read yet")
    }
}
