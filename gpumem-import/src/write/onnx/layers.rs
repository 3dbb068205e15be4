//! Convolutions and products, and the choice among operations that compute numbers.

use super::{Writer, float, int, list};
use gpumem_core::graph::NodeId;
use gpumem_core::program::Op;
use gpumem_core::program::ops::{Binary, BinaryFunction, Convolution, Product, Window};

/// A name, and the shape of its value without the batch.
pub(super) type Made = (String, Vec<u64>);

/// Returns the convolution of a signal that is counted as a map of one row. `None` if windows have several rows.
fn of_signal(op: &Convolution) -> Option<Convolution<1>> {
    let Window { kernel_size, stride, padding, dilation } = op.window;
    let is_row = kernel_size[0] == 1 && padding[0] == 0 && op.input[0] == 1 && op.output[0] == 1;
    let window =
        Window { kernel_size: [kernel_size[1]], stride: [stride[1]], padding: [padding[1]], dilation: [dilation[1]] };
    let Convolution { in_channels, out_channels, groups, bias, transposed, input, output, .. } = *op;
    let (input, output) = ([input[1]], [output[1]]);
    is_row.then_some(Convolution { in_channels, out_channels, window, groups, bias, transposed, input, output })
}

impl Writer<'_> {
    /// Writes an operation that computes numbers. `None` if it is another one, or has no form in ONNX.
    pub(super) fn layer(&mut self, id: NodeId, op: &Op, inputs: &[NodeId], buffers: &[usize]) -> Option<Made> {
        match op {
            Op::Product(product) => self.product(product, inputs),
            Op::Convolution(convolution) => match of_signal(convolution).filter(|_| self.dims(inputs[1]).len() == 3) {
                Some(signal) => self.convolution(&signal, inputs),
                None => self.convolution(convolution, inputs),
            },
            Op::Convolution3d(convolution) => self.convolution(convolution, inputs),
            Op::BatchNorm(norm) => self.batch_norm(norm, inputs, buffers),
            Op::InplaceNorm(norm) => {
                let (made, shape) = self.batch_norm(&norm.norm(), inputs, buffers)?;
                Some((self.add("LeakyRelu", &[&made], vec![float("alpha", norm.slope)]), shape))
            }
            Op::Normalize(norm) => self.row_norm(norm, inputs),
            Op::Reparametrize(weight) => self.reparametrize(weight, inputs),
            Op::SpectralNorm(norm) => self.spectral_norm(norm, inputs, buffers),
            Op::Pointwise(function) => self.pointwise(function, inputs),
            Op::Formula(formula) => self.formula(id, formula, inputs),
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
            Op::Attention(attention) => self.attention(id, attention, inputs),
            Op::Recurrence(recurrence) => self.recurrence(recurrence, inputs),
            Op::SelectiveScan(scan) => self.selective_scan(scan, inputs),
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
        let x = self.as_maps(*inputs.first()?, &[&[op.in_channels], &op.input[..]].concat());
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
            let padded = from + 2 * padding[axis];
            // As much padding after the map as before it, as PyTorch has it, if the sizes follow from that.
            let is_even =
                if op.transposed { padded >= reach } else { (padded - span.min(padded)) / stride[axis] + 1 == to };
            after[axis] = if is_even { padding[axis] } else { reach.saturating_sub(from + padding[axis]) };
            extra[axis] = (from + padding[axis] + after[axis]).saturating_sub(reach);
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
        let shape = self.of_maps(inputs[0], [&[op.out_channels], &op.output[..]].concat());
        Some((self.add(kind, &operands, attributes), shape))
    }

    /// Returns a value in this shape, with an axis of samples before it if it has none.
    pub(super) fn as_maps(&mut self, id: NodeId, shape: &[u64]) -> String {
        if self.is_batched(id) {
            return self.as_shape(id, shape);
        }
        let name = self.names[id].clone();
        self.shaped(&name, false, &[&[1], shape].concat())
    }

    /// Returns the shape of what is made of [`Writer::as_maps`] of a value.
    pub(super) fn of_maps(&self, id: NodeId, shape: Vec<u64>) -> Vec<u64> {
        if self.is_batched(id) { shape } else { [&[1], &shape[..]].concat() }
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
        let shape = self.dims(id);
        let kind = match op.function {
            BinaryFunction::Add => "Add",
            BinaryFunction::Subtract => "Sub",
            BinaryFunction::Multiply => "Mul",
            BinaryFunction::Divide => "Div",
            BinaryFunction::Rectify if self.is_whole(id, left) => "PRelu",
            BinaryFunction::Rectify => {
                // Slopes of `PRelu` cannot have more elements than its input.
                let zero = self.number(0.0);
                let is_above = self.add("Greater", &[&a, &zero], vec![]);
                let scaled = self.add("Mul", &[&a, &b], vec![]);
                return Some((self.add("Where", &[&is_above, &a, &scaled], vec![]), shape));
            }
            BinaryFunction::Maximum => "Max",
            BinaryFunction::Minimum => "Min",
        };
        Some((self.add(kind, &[&a, &b], vec![]), shape))
    }

    /// True if an operand has the shape of the result.
    fn is_whole(&self, result: NodeId, operand: NodeId) -> bool {
        self.dims(operand) == self.dims(result) && self.is_batched(operand) == self.is_batched(result)
    }
}
