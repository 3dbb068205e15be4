//! Convolutions, products, normalisations, functions and pools.

use super::{Writer, float, int, list, text};
use gpumem_core::graph::NodeId;
use gpumem_core::program::Op;
use gpumem_core::program::ops::{
    AveragePool, BatchNorm, Binary, BinaryFunction, Convolution, MaxPool, Normalize, Window, Windows,
};
use gpumem_core::program::ops::{Pointwise, Product};

/// A name, and the shape of its value without the batch.
pub(super) type Made = (String, Vec<u64>);

/// Functions that have their name in ONNX too, but for capitals.
const PLAIN: [&str; 12] =
    ["relu", "sigmoid", "exp", "tanh", "selu", "softsign", "mish", "abs", "sqrt", "log", "sin", "cos"];

impl Writer<'_> {
    /// Writes an operation that computes numbers. `None` if it is another one, or has no form in ONNX.
    pub(super) fn layer(&mut self, id: NodeId, op: &Op, inputs: &[NodeId], buffers: &[usize]) -> Option<Made> {
        match op {
            Op::Product(product) => self.product(product, inputs),
            Op::Convolution(convolution) => self.convolution(convolution, inputs),
            Op::Convolution3d(convolution) => self.convolution(convolution, inputs),
            Op::BatchNorm(norm) => self.batch_norm(norm, inputs, buffers),
            Op::Normalize(norm) => self.row_norm(norm, inputs),
            Op::Pointwise(function) => self.pointwise(function, inputs),
            Op::MaxPool(pool) => self.max_pool(pool, inputs),
            Op::MaxPool3d(pool) => self.max_pool(pool, inputs),
            Op::AveragePool(pool) => self.average_pool(pool, inputs),
            Op::AveragePool3d(pool) => self.average_pool(pool, inputs),
            Op::Binary(binary) => self.binary(id, binary, inputs),
            Op::Sum(sum) => {
                let mut whole = self.names[*inputs.first()?].clone();
                for &input in inputs.get(1..)? {
                    let other = self.names[input].clone();
                    whole = self.add("Add", &[&whole, &other], vec![]);
                }
                Some((whole, sum.shape.dims().to_vec()))
            }
            Op::Attention(attention) => self.attention(attention, inputs),
            _ => None,
        }
    }

    fn product(&mut self, product: &Product, inputs: &[NodeId]) -> Option<Made> {
        let shape = product.shape.dims().to_vec();
        let outer = shape.split_last()?.1;
        let x = self.as_shape(*inputs.first()?, &[outer, &[product.in_features]].concat());
        let weight = self.names[*inputs.get(1)?].clone();
        let bias = inputs.get(2).filter(|_| product.bias).map(|&bias| self.names[bias].clone());
        if outer.is_empty() && self.is_batched(inputs[0]) {
            let mut operands = vec![&x[..], &weight];
            operands.extend(bias.as_deref());
            return Some((self.add("Gemm", &operands, vec![int("transB", i64::from(!product.transposed))]), shape));
        }
        let weight =
            if product.transposed { weight } else { self.add("Transpose", &[&weight], vec![list("perm", [1, 0])]) };
        let mut made = self.add("MatMul", &[&x, &weight], vec![]);
        if let Some(bias) = bias {
            made = self.add("Add", &[&made, &bias], vec![]);
        }
        Some((made, shape))
    }

    fn convolution<const N: usize>(&mut self, op: &Convolution<N>, inputs: &[NodeId]) -> Option<Made> {
        let x = self.as_shape(*inputs.first()?, &[&[op.in_channels], &op.input[..]].concat());
        let (first, second) = match op.transposed {
            true => (op.in_channels, op.out_channels / op.groups),
            false => (op.out_channels, op.in_channels / op.groups),
        };
        let weight = self.as_shape(*inputs.get(1)?, &[&[first, second], &op.window.kernel_size[..]].concat());
        let mut operands = vec![x, weight];
        if op.bias {
            operands.push(self.names[*inputs.get(2)?].clone());
        }
        let operands: Vec<&str> = operands.iter().map(|name| &name[..]).collect();
        let Window { kernel_size, stride, padding, dilation } = op.window;
        let mut after = [0u64; N];
        let mut extra = [0u64; N];
        for axis in 0..N {
            let span = dilation[axis] * (kernel_size[axis] - 1) + 1;
            let (from, to) =
                if op.transposed { (op.output[axis], op.input[axis]) } else { (op.input[axis], op.output[axis]) };
            let reach = (to - 1) * stride[axis] + span;
            // Elements beyond the last window, or the padding that it needs.
            after[axis] = reach.saturating_sub(from + padding[axis]);
            extra[axis] = (from + padding[axis]).saturating_sub(reach);
        }
        let mut attributes = vec![
            list("kernel_shape", kernel_size),
            list("strides", stride),
            list("dilations", dilation),
            list("pads", padding.into_iter().chain(after)),
            int("group", op.groups as i64),
        ];
        let kind = if op.transposed { "ConvTranspose" } else { "Conv" };
        if op.transposed {
            attributes.push(list("output_padding", extra));
        }
        let shape = [&[op.out_channels], &op.output[..]].concat();
        Some((self.add(kind, &operands, attributes), shape))
    }

    fn batch_norm(&mut self, norm: &BatchNorm, inputs: &[NodeId], buffers: &[usize]) -> Option<Made> {
        let shape = self.dims(*inputs.first()?);
        let x = self.as_shape(inputs[0], &[norm.channels, norm.size[0], norm.size[1]]);
        let (scale, shift) = match inputs {
            [_, scale, shift] => (self.names[*scale].clone(), self.names[*shift].clone()),
            _ => (self.filled(1.0, norm.channels), self.filled(0.0, norm.channels)),
        };
        let statistics = |at: usize| Some(super::key(&self.graph.buffers.get(*buffers.get(at)?)?.name));
        let (mean, variance) = (statistics(0)?, statistics(1)?);
        let made =
            self.add("BatchNormalization", &[&x, &scale, &shift, &mean, &variance], vec![float("epsilon", norm.eps)]);
        let made = if shape.len() == 3 { made } else { self.shaped(&made, self.is_batched(inputs[0]), &shape) };
        Some((made, shape))
    }

    /// Returns a vector of one number.
    fn filled(&mut self, number: f32, length: u64) -> String {
        let name = format!("/filled({number}){length}");
        let numbers = vec![number; usize::try_from(length).unwrap_or(0)];
        if !self.constants.contains_key(&name) {
            let made = self.numbers(&numbers, &[length]);
            if let Some(mut tensor) = self.constants.remove(&made) {
                tensor.name = Some(name.clone());
                self.constants.insert(name.clone(), tensor);
            }
        }
        name
    }

    fn row_norm(&mut self, norm: &Normalize, inputs: &[NodeId]) -> Option<Made> {
        let shape = norm.shape.dims().to_vec();
        let x = self.as_shape(*inputs.first()?, &shape);
        let suffix = (0..shape.len()).rev().find(|&axis| shape[axis..].iter().product::<u64>() == norm.length);
        let rows = suffix.filter(|_| norm.groups == 1 && norm.shared == 1);
        let Some(axis) = rows else { return self.group_norm(norm, &x, inputs) };
        let axes = &shape[axis..];
        let scale = match norm.scale {
            true => self.as_shape(*inputs.get(1)?, axes),
            false => self.numbers(&vec![1.0; usize::try_from(norm.length).ok()?], axes),
        };
        if norm.center {
            let mut operands = vec![x, scale];
            if norm.shift {
                operands.push(self.as_shape(*inputs.get(2)?, axes));
            }
            let operands: Vec<&str> = operands.iter().map(|name| &name[..]).collect();
            let from_end = axis as i64 - shape.len() as i64;
            let attributes = vec![int("axis", from_end), float("epsilon", norm.eps)];
            return Some((self.add("LayerNormalization", &operands, attributes), shape));
        }
        let two = self.number(2.0);
        let square = self.add("Pow", &[&x, &two], vec![]);
        let from_end: Vec<i64> = (axis..shape.len()).map(|at| at as i64 - shape.len() as i64).collect();
        let listed = self.integers(&from_end);
        let mean = self.add("ReduceMean", &[&square, &listed], vec![]);
        let eps = self.number(norm.eps);
        let sum = self.add("Add", &[&mean, &eps], vec![]);
        let root = self.add("Sqrt", &[&sum], vec![]);
        let made = self.add("Div", &[&x, &root], vec![]);
        let made = if norm.scale { self.add("Mul", &[&made, &scale], vec![]) } else { made };
        Some((made, shape))
    }

    /// Writes norms of groups of channels as norms of instances.
    fn group_norm(&mut self, norm: &Normalize, x: &str, inputs: &[NodeId]) -> Option<Made> {
        let batched = self.is_batched(*inputs.first()?);
        let outer = norm.rows.checked_div(norm.groups)?;
        let parameters = (norm.length * norm.groups).checked_div(norm.shared)?;
        if !norm.center || !batched {
            return None;
        }
        let rows = self.shaped(x, batched, &[norm.rows, norm.length]);
        let (ones, zeros) = (self.filled(1.0, norm.rows), self.filled(0.0, norm.rows));
        let made = self.add("InstanceNormalization", &[&rows, &ones, &zeros], vec![float("epsilon", norm.eps)]);
        let mut made = self.shaped(&made, batched, &[outer, parameters, norm.shared]);
        for (index, op) in [(1, "Mul"), (2, "Add")].into_iter().take(usize::from(norm.scale) + usize::from(norm.shift))
        {
            let factor = self.as_shape(*inputs.get(index)?, &[parameters, 1]);
            made = self.add(op, &[&made, &factor], vec![]);
        }
        Some((made, vec![outer, parameters, norm.shared]))
    }

    fn pointwise(&mut self, op: &Pointwise, inputs: &[NodeId]) -> Option<Made> {
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
            "Softplus" if argument(0) == 1.0 => plain(self, "Softplus"),
            "Affine" => {
                let (factor, shift) = (self.number(argument(0)), self.number(argument(1)));
                let made = if argument(0) == 1.0 { x.clone() } else { self.add("Mul", &[&x, &factor], vec![]) };
                if argument(1) == 0.0 { made } else { self.add("Add", &[&made, &shift], vec![]) }
            }
            _ => return None,
        };
        Some((made, op.shape.dims().to_vec()))
    }

    /// Returns the attributes of a sliding window, and true for one that begins inside of the map and ends outside.
    fn window<const N: usize>(window: &Window<N>, input: [u64; N], output: [u64; N]) -> Vec<super::AttributeProto> {
        let reach = |axis: usize| {
            (output[axis] - 1) * window.stride[axis] + window.dilation[axis] * (window.kernel_size[axis] - 1) + 1
        };
        let rounds_up = (0..N).any(|axis| reach(axis) > input[axis] + 2 * window.padding[axis]);
        vec![
            list("kernel_shape", window.kernel_size),
            list("strides", window.stride),
            list("dilations", window.dilation),
            list("pads", window.padding.into_iter().chain(window.padding)),
            int("ceil_mode", i64::from(rounds_up)),
        ]
    }

    /// Returns the window of an adaptive pool whose windows are all alike. `None` if they are not.
    fn equal<const N: usize>(input: [u64; N], output: [u64; N]) -> Option<Window<N>> {
        let mut kernel_size = [1; N];
        for axis in 0..N {
            if output[axis] == 0 || !input[axis].is_multiple_of(output[axis]) {
                return None;
            }
            kernel_size[axis] = input[axis] / output[axis];
        }
        Some(Window { kernel_size, stride: kernel_size, padding: [0; N], dilation: [1; N] })
    }

    fn max_pool<const N: usize>(&mut self, op: &MaxPool<N>, inputs: &[NodeId]) -> Option<Made> {
        let x = self.as_shape(*inputs.first()?, &[&[op.channels], &op.input[..]].concat());
        let window = if op.adaptive { Self::equal(op.input, op.output)? } else { op.window };
        let made = self.add("MaxPool", &[&x], Self::window(&window, op.input, op.output));
        Some((made, [&[op.channels], &op.output[..]].concat()))
    }

    fn average_pool<const N: usize>(&mut self, op: &AveragePool<N>, inputs: &[NodeId]) -> Option<Made> {
        let x = self.as_shape(*inputs.first()?, &[&[op.channels], &op.input[..]].concat());
        let (window, counts) = match op.windows {
            Windows::Sliding { window, count_include_pad } => (window, count_include_pad),
            Windows::Adaptive => (Self::equal(op.input, op.output)?, false),
        };
        let shape = [&[op.channels], &op.output[..]].concat();
        if window.kernel_size == op.input && window.padding == [0; N] {
            return Some((self.add("GlobalAveragePool", &[&x], vec![]), shape));
        }
        let mut attributes = Self::window(&window, op.input, op.output);
        attributes.push(int("count_include_pad", i64::from(counts)));
        Some((self.add("AveragePool", &[&x], attributes), shape))
    }

    fn binary(&mut self, id: NodeId, op: &Binary, inputs: &[NodeId]) -> Option<Made> {
        let (&left, &right) = (inputs.first()?, inputs.get(1)?);
        let rank = op.left.rank().max(op.right.rank());
        // Values of samples have the batch before all other axes.
        let mut wide = |id: NodeId, shape: &[u64]| {
            let mut sizes = vec![1; rank - shape.len()];
            sizes.extend(shape);
            self.as_shape(id, &sizes)
        };
        let (a, b) = (wide(left, op.left.dims()), wide(right, op.right.dims()));
        let kind = match op.function {
            BinaryFunction::Add => "Add",
            BinaryFunction::Subtract => "Sub",
            BinaryFunction::Multiply => "Mul",
            BinaryFunction::Divide => "Div",
            BinaryFunction::Rectify => "PRelu",
            BinaryFunction::Maximum => "Max",
            BinaryFunction::Minimum => "Min",
        };
        let shape = self.dims(id);
        Some((self.add(kind, &[&a, &b], vec![]), shape))
    }
}
