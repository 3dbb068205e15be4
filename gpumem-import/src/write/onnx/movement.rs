//! Shapes, parts, joins, tables and reductions.

use super::layers::Made;
use super::{Writer, int, list};
use gpumem_core::graph::NodeId;
use gpumem_core::program::Op;
use gpumem_core::program::ops::{Reduce, Reduction, Softmax, Standardize};

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
            Op::Resize(resize) => return self.resize(resize, inputs),
            Op::Interpolate(interpolate) => return self.interpolate(interpolate, inputs),
            Op::Expand(_) => {
                let other = self.names[*inputs.get(1)?].clone();
                let target = self.for_each_sample(&other, &shape);
                let wide: Vec<u64> = [1].into_iter().chain(shape.iter().copied()).collect();
                let value = self.shaped(&first?, false, &wide);
                self.add("Expand", &[&value, &target], vec![])
            }
            Op::Constant(constant) => {
                let numbers: Vec<f32> = constant.numbers.iter().map(|&number| number as f32).collect();
                match numbers[..] {
                    [one] => {
                        let (number, sizes) =
                            (self.number(one.into()), self.integers(&super::ints(shape.iter().copied())));
                        self.add("Expand", &[&number, &sizes], vec![])
                    }
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
            Op::VectorNorm(norm) => return self.vector_norm(norm, inputs),
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
        let &input = inputs.first()?;
        let sizes = [op.outer, op.length, op.inner];
        let batched = self.is_batched(id);
        let kind = match op.reduction {
            Reduction::Sum => "ReduceSum",
            Reduction::Mean => "ReduceMean",
            Reduction::Max => "ReduceMax",
        };
        let axis = self.integers(&[1 + i64::from(batched)]);
        let whole = vec![int("keepdims", 0)];
        if !op.counted {
            let x = self.as_shape(input, &sizes);
            return Some((self.add(kind, &[&x, &axis], whole), vec![op.outer, op.inner]));
        }
        // Elements after the first n do not count.
        let x = if batched { self.as_maps(input, &sizes) } else { self.as_shape(input, &sizes) };
        let n = self.as_shape(*inputs.get(1)?, &[1, 1, 1]);
        let step = self.counted(op.length, &[op.length, 1]);
        let counts = self.add("Less", &[&step, &n], vec![]);
        let is_max = op.reduction == Reduction::Max;
        let (zero, other) = (self.number(0.0), self.number(if is_max { f64::NEG_INFINITY } else { 0.0 }));
        let x = self.add("Where", &[&counts, &x, &other], vec![]);
        let made = self.add(if is_max { kind } else { "ReduceSum" }, &[&x, &axis], whole);
        let n = self.as_shape(*inputs.get(1)?, &[1, 1]);
        let made = match op.reduction {
            Reduction::Sum => made,
            Reduction::Mean => {
                let one = self.integers(&[1]);
                let count = self.add("Max", &[&n, &one], vec![]);
                let count = self.add("Cast", &[&count], vec![int("to", 1)]);
                self.add("Div", &[&made, &count], vec![])
            }
            Reduction::Max => {
                let none = self.integers(&[0]);
                let is_empty = self.add("Equal", &[&n, &none], vec![]);
                self.add("Where", &[&is_empty, &zero, &made], vec![])
            }
        };
        Some((made, vec![op.outer, op.inner]))
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
