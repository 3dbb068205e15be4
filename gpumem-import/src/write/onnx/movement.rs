//! Shapes, parts, joins, tables, reductions and changes of resolution.

use super::layers::Made;
use super::{Writer, float, int, list, text};
use gpumem_core::graph::NodeId;
use gpumem_core::program::Op;
use gpumem_core::program::ops::{Beyond, Interpolate, Interpolation, Pad, Reduce, Reduction, Softmax, Standardize};

impl Writer<'_> {
    /// Writes an operation that moves or reduces numbers. `None` if it is another one, or has no form in ONNX.
    pub(super) fn movement(&mut self, id: NodeId, op: &Op, inputs: &[NodeId]) -> Option<Made> {
        let shape = self.dims(id);
        let first = inputs.first().map(|&input| self.names[input].clone());
        // The batch is an axis of its own before those of a sample.
        let shift = |writer: &Self| i64::from(writer.is_batched(id));
        let made = match op {
            Op::Mask(_) => first?,
            Op::Concat(concat) => {
                let names: Vec<String> = inputs.iter().map(|&input| self.names[input].clone()).collect();
                let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
                self.add("Concat", &names, vec![int("axis", concat.axis as i64 + shift(self))])
            }
            Op::Slice(slice) => {
                let axis = slice.axis as i64 + shift(self);
                let bounds = [slice.start as i64, (slice.start + slice.length) as i64, axis]
                    .map(|number| self.integers(&[number]));
                self.add("Slice", &[&first?, &bounds[0], &bounds[1], &bounds[2]], vec![])
            }
            Op::Permute(permute) => {
                let shift = shift(self) as u64;
                let order = (0..shift).chain(permute.order.iter().map(|axis| axis + shift));
                let order: Vec<u64> = order.collect();
                self.add("Transpose", &[&first?], vec![list("perm", order)])
            }
            Op::Softmax(softmax) => return self.softmax(softmax, inputs),
            Op::MatMul(product) => {
                let (a, mut b) = (first?, self.names[*inputs.get(1)?].clone());
                if product.transpose_b {
                    let rank = self.dims(inputs[1]).len() as u64 + u64::from(self.is_batched(inputs[1]));
                    let order = (0..rank.checked_sub(2)?).chain([rank - 1, rank - 2]);
                    b = self.add("Transpose", &[&b], vec![list("perm", order)]);
                }
                self.add("MatMul", &[&a, &b], vec![])
            }
            Op::Reduce(reduce) => return self.reduce(id, reduce, inputs),
            Op::Gather(_) => {
                let table = self.names[*inputs.get(1)?].clone();
                let made = self.add("Gather", &[&table, &first?], vec![int("axis", 0)]);
                self.shaped(&made, self.is_batched(id), &shape)
            }
            Op::Take(take) => {
                let x = self.as_shape(*inputs.first()?, &[take.rows, take.width]);
                let indices = self.as_shape(*inputs.get(1)?, &[take.count, 1]);
                let made = self.add("GatherND", &[&x, &indices], vec![int("batch_dims", 1)]);
                self.shaped(&made, self.is_batched(id), &shape)
            }
            Op::Pad(pad) => return self.pad(pad, inputs),
            Op::Resize(resize) => {
                let [h, w] = resize.scale_factor;
                let x = self.as_shape(*inputs.first()?, &[resize.channels, resize.input[0], resize.input[1]]);
                let scales = self.numbers(&[h as f32, w as f32], &[2]);
                let attributes = vec![
                    list("axes", [2, 3]),
                    text("mode", "nearest"),
                    text("coordinate_transformation_mode", "asymmetric"),
                    text("nearest_mode", "floor"),
                ];
                let made = self.add("Resize", &[&x, "", &scales], attributes);
                return Some((made, vec![resize.channels, resize.input[0] * h, resize.input[1] * w]));
            }
            Op::Interpolate(interpolate) => return self.interpolate(interpolate, inputs),
            Op::Expand(_) => {
                let other = self.names[*inputs.get(1)?].clone();
                let sizes = self.add("Shape", &[&other], vec![int("start", 0), int("end", 1)]);
                let rest = self.integers(&super::ints(shape.iter().copied()));
                let target = self.add("Concat", &[&sizes, &rest], vec![int("axis", 0)]);
                let wide: Vec<u64> = [1].into_iter().chain(shape.iter().copied()).collect();
                let value = self.shaped(&first?, false, &wide);
                self.add("Expand", &[&value, &target], vec![])
            }
            Op::Constant(constant) => {
                let count = usize::try_from(constant.shape.elements()?).ok()?;
                let numbers: Vec<f32> = constant.numbers.iter().map(|&number| number as f32).collect();
                match numbers[..] {
                    [one] => self.numbers(&vec![one; count], &shape),
                    _ => self.numbers(&numbers, &shape),
                }
            }
            Op::L2Norm(norm) => {
                let x = self.as_shape(*inputs.first()?, &[norm.outer, norm.length, norm.inner]);
                let axis = self.integers(&[1 + shift(self)]);
                let length = self.add("ReduceL2", &[&x, &axis], vec![]);
                let eps = self.number(norm.eps);
                let length = self.add("Max", &[&length, &eps], vec![]);
                return Some((self.add("Div", &[&x, &length], vec![]), vec![norm.outer, norm.length, norm.inner]));
            }
            Op::VectorNorm(norm) if norm.p == 1.0 || norm.p == 2.0 => {
                let x = self.as_shape(*inputs.first()?, &[norm.outer, norm.length, norm.inner]);
                let axis = self.integers(&[1 + shift(self)]);
                let kind = if norm.p == 1.0 { "ReduceL1" } else { "ReduceL2" };
                return Some((self.add(kind, &[&x, &axis], vec![int("keepdims", 0)]), vec![norm.outer, norm.inner]));
            }
            Op::Standardize(standardize) => return self.standardize(standardize, inputs),
            _ => return None,
        };
        Some((made, shape))
    }

    fn softmax(&mut self, op: &Softmax, inputs: &[NodeId]) -> Option<Made> {
        let shape = [op.outer, op.classes, op.inner];
        let x = self.as_shape(*inputs.first()?, &shape);
        let kind = if op.logarithm { "LogSoftmax" } else { "Softmax" };
        let made = self.add(kind, &[&x], vec![int("axis", -2)]);
        Some((made, shape.to_vec()))
    }

    fn reduce(&mut self, id: NodeId, op: &Reduce, inputs: &[NodeId]) -> Option<Made> {
        if op.counted {
            return None;
        }
        let x = self.as_shape(*inputs.first()?, &[op.outer, op.length, op.inner]);
        let axis = self.integers(&[1 + i64::from(self.is_batched(id))]);
        let kind = match op.reduction {
            Reduction::Sum => "ReduceSum",
            Reduction::Mean => "ReduceMean",
            Reduction::Max => "ReduceMax",
        };
        Some((self.add(kind, &[&x, &axis], vec![int("keepdims", 0)]), vec![op.outer, op.inner]))
    }

    fn pad(&mut self, op: &Pad, inputs: &[NodeId]) -> Option<Made> {
        let x = self.as_shape(*inputs.first()?, &[op.channels, op.input[0], op.input[1]]);
        let mode = match op.beyond {
            Beyond::Constant => "constant",
            Beyond::Reflect => "reflect",
            Beyond::Replicate => "edge",
            Beyond::Circular => "wrap",
        };
        let side = |axis: usize, end: usize| op.added[axis][end] as i64 - op.removed[axis][end] as i64;
        let pads = [0, 0, side(0, 0), side(1, 0), 0, 0, side(0, 1), side(1, 1)];
        if op.removed != [[0; 2]; 2] && op.beyond != Beyond::Constant {
            return None;
        }
        let (listed, value) = (self.integers(&pads), self.number(op.value));
        let made = self.add("Pad", &[&x, &listed, &value], vec![text("mode", mode)]);
        let size = |axis: usize| u64::try_from(op.input[axis] as i64 + side(axis, 0) + side(axis, 1)).ok();
        Some((made, vec![op.channels, size(0)?, size(1)?]))
    }

    fn interpolate(&mut self, op: &Interpolate, inputs: &[NodeId]) -> Option<Made> {
        let x = self.as_shape(*inputs.first()?, &[op.channels, op.input[0], op.input[1]]);
        let all = |test: &dyn Fn(usize) -> bool| (0..2).all(|axis| op.output[axis] == op.input[axis] || test(axis));
        let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
        let corners = |axis: usize| {
            let step = (op.input[axis] as f64 - 1.0) / (op.output[axis] as f64 - 1.0).max(1.0);
            is_near(op.start[axis], 0.0) && is_near(op.step[axis], step)
        };
        let centred = |axis: usize| is_near(op.start[axis], 0.5 * op.step[axis] - 0.5);
        let mode = match op.interpolation {
            Interpolation::Nearest => "nearest",
            Interpolation::Linear => "linear",
            Interpolation::Cubic => "cubic",
        };
        let place = match op.interpolation {
            Interpolation::Nearest if all(&|axis| is_near(op.start[axis], 0.0)) => "asymmetric",
            Interpolation::Nearest => "half_pixel",
            _ if all(&centred) => "half_pixel",
            _ if all(&corners) => "align_corners",
            _ => return None,
        };
        let mut attributes =
            vec![list("axes", [2, 3]), text("mode", mode), text("coordinate_transformation_mode", place)];
        match (op.interpolation, place) {
            (Interpolation::Nearest, "asymmetric") => attributes.push(text("nearest_mode", "floor")),
            (Interpolation::Nearest, _) => attributes.push(text("nearest_mode", "round_prefer_ceil")),
            (Interpolation::Cubic, _) => attributes.push(float("cubic_coeff_a", -0.75)),
            _ => {}
        }
        let sizes = self.integers(&super::ints(op.output));
        let made = self.add("Resize", &[&x, "", "", &sizes], attributes);
        Some((made, vec![op.channels, op.output[0], op.output[1]]))
    }

    fn standardize(&mut self, op: &Standardize, inputs: &[NodeId]) -> Option<Made> {
        let shape = op.shape.dims().to_vec();
        let mut x = self.names[*inputs.first()?].clone();
        if op.bytes {
            x = self.add("Cast", &[&x], vec![int("to", 1)]);
            let most = self.number(255.0);
            x = self.add("Div", &[&x, &most], vec![]);
        }
        let wide = |numbers: &[f64]| {
            let mut sizes = vec![1; shape.len()];
            if let Some(first) = sizes.first_mut() {
                *first = numbers.len() as u64;
            }
            (numbers.iter().map(|&number| number as f32).collect::<Vec<f32>>(), sizes)
        };
        for (numbers, kind) in [(&op.mean, "Sub"), (&op.std, "Div")] {
            let (numbers, sizes) = wide(numbers);
            let constant = self.numbers(&numbers, &sizes);
            x = self.add(kind, &[&x, &constant], vec![]);
        }
        Some((x, shape))
    }
}
