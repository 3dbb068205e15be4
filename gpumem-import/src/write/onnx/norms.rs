//! Norms of values and of weights.

use super::layers::Made;
use super::{Writer, float, int};
use gpumem_core::graph::NodeId;
use gpumem_core::network::torch_name;
use gpumem_core::program::ops::{BatchNorm, Normalize, Reparametrize, SpectralNorm, VectorNorm};

impl Writer<'_> {
    pub(super) fn batch_norm(&mut self, norm: &BatchNorm, inputs: &[NodeId], buffers: &[usize]) -> Option<Made> {
        let maps = [norm.channels, norm.size[0], norm.size[1]];
        let x = self.as_maps(*inputs.first()?, &maps);
        let (scale, shift) = match inputs {
            [_, scale, shift] => (self.names[*scale].clone(), self.names[*shift].clone()),
            _ => (self.filled(1.0, norm.channels), self.filled(0.0, norm.channels)),
        };
        let statistics = |at: usize| Some(torch_name(&self.graph.buffers.get(*buffers.get(at)?)?.name));
        let (mean, variance) = (statistics(0)?, statistics(1)?);
        let made =
            self.add("BatchNormalization", &[&x, &scale, &shift, &mean, &variance], vec![float("epsilon", norm.eps)]);
        Some((made, self.of_maps(inputs[0], maps.to_vec())))
    }

    /// Returns a vector of one number.
    fn filled(&mut self, number: f32, length: u64) -> String {
        let numbers = || vec![number; usize::try_from(length).unwrap_or(0)];
        self.constant(format!("/filled({number}){length}"), &[length], numbers)
    }

    pub(super) fn row_norm(&mut self, norm: &Normalize, inputs: &[NodeId]) -> Option<Made> {
        let shape = norm.shape.dims().to_vec();
        let x = self.as_shape(*inputs.first()?, &shape);
        let suffix = (0..shape.len()).rev().find(|&axis| shape[axis..].iter().product::<u64>() == norm.length);
        let rows = suffix.filter(|_| norm.groups == 1 && norm.shared == 1);
        let Some(axis) = rows else { return self.group_norm(norm, &x, inputs) };
        let axes = &shape[axis..];
        let scale = match norm.scale {
            true => self.as_shape(*inputs.get(1)?, axes),
            false => {
                let ones = self.filled(1.0, norm.length);
                if axes.len() == 1 { ones } else { self.shaped(&ones, false, axes) }
            }
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

    /// Writes norms whose rows have factors of their own: as norms of instances, if there is a mean and a sample.
    fn group_norm(&mut self, norm: &Normalize, x: &str, inputs: &[NodeId]) -> Option<Made> {
        let batched = self.is_batched(*inputs.first()?);
        let outer = norm.rows.checked_div(norm.groups)?;
        let parameters = (norm.length * norm.groups).checked_div(norm.shared)?;
        let rows = self.shaped(x, batched, &[norm.rows, norm.length]);
        let made = if norm.center && batched {
            let (ones, zeros) = (self.filled(1.0, norm.rows), self.filled(0.0, norm.rows));
            self.add("InstanceNormalization", &[&rows, &ones, &zeros], vec![float("epsilon", norm.eps)])
        } else {
            self.standardized(rows, &[-1], norm.center, norm.eps)
        };
        // One group of rows after the other, and a channel's elements together: the map itself, if that has its channels first.
        let own = norm.shape.dims();
        let (shape, axes) = match own {
            [channels, rest @ ..] if outer == 1 && *channels == parameters => (own.to_vec(), rest.len()),
            _ => (vec![outer, parameters, norm.shared], 1),
        };
        let wide: Vec<u64> = [parameters].into_iter().chain(vec![1; axes]).collect();
        let mut made = self.shaped(&made, batched, &shape);
        for (index, op) in [(1, "Mul"), (2, "Add")].into_iter().take(usize::from(norm.scale) + usize::from(norm.shift))
        {
            let factor = self.as_shape(*inputs.get(index)?, &wide);
            made = self.add(op, &[&made, &factor], vec![]);
        }
        Some((made, shape))
    }

    /// Brings the elements along axes to a mean of 0, with `center`, and a mean square of 1.
    fn standardized(&mut self, mut x: String, axes: &[i64], center: bool, eps: f64) -> String {
        let listed = self.integers(axes);
        if center {
            let mean = self.add("ReduceMean", &[&x, &listed], vec![]);
            x = self.add("Sub", &[&x, &mean], vec![]);
        }
        let square = self.add("Mul", &[&x, &x], vec![]);
        let mean = self.add("ReduceMean", &[&square, &listed], vec![]);
        let eps = self.number(eps);
        let sum = self.add("Add", &[&mean, &eps], vec![]);
        let root = self.add("Sqrt", &[&sum], vec![]);
        self.add("Div", &[&x, &root], vec![])
    }

    /// Writes a weight whose slices have one length, and then factors.
    pub(super) fn reparametrize(&mut self, op: &Reparametrize, inputs: &[NodeId]) -> Option<Made> {
        let v = self.as_shape(*inputs.first()?, &op.sizes);
        let mut made = self.standardized(v, &[0, 2], op.center, op.eps);
        if op.scale {
            let g = self.as_shape(*inputs.get(1)?, &[1, op.sizes[1], 1]);
            made = self.add("Mul", &[&made, &g], vec![]);
        }
        let factor = self.number(op.factor);
        Some((self.add("Mul", &[&made, &factor], vec![]), op.sizes.to_vec()))
    }

    /// Writes a weight divided by the singular value that its vectors estimate.
    pub(super) fn spectral_norm(&mut self, op: &SpectralNorm, inputs: &[NodeId], buffers: &[usize]) -> Option<Made> {
        let w = self.as_shape(*inputs.first()?, &op.sizes);
        let mut vector = |at: usize, shape: [u64; 3]| {
            let name = torch_name(&self.graph.buffers.get(*buffers.get(at)?)?.name);
            Some(self.shaped(&name, false, &shape))
        };
        let (u, v) = (vector(0, [1, op.sizes[1], 1])?, vector(1, [op.sizes[0], 1, op.sizes[2]])?);
        let rows = self.add("Mul", &[&w, &v], vec![]);
        let all = self.add("Mul", &[&rows, &u], vec![]);
        let sigma = self.add("ReduceSum", &[&all], vec![]);
        Some((self.add("Div", &[&w, &sigma], vec![]), op.sizes.to_vec()))
    }

    /// Writes the norm of the elements along an axis.
    pub(super) fn vector_norm(&mut self, op: &VectorNorm, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let x = self.as_shape(input, &[op.outer, op.length, op.inner]);
        let axis = self.integers(&[1 + i64::from(self.is_batched(input))]);
        let reduced = |writer: &mut Self, kind: &str, x: &str| writer.add(kind, &[x, &axis], vec![int("keepdims", 0)]);
        let shape = vec![op.outer, op.inner];
        if op.p == 1.0 || op.p == 2.0 {
            let kind = if op.p == 1.0 { "ReduceL1" } else { "ReduceL2" };
            return Some((reduced(self, kind, &x), shape));
        }
        let size = self.add("Abs", &[&x], vec![]);
        if op.p.is_infinite() {
            return Some((reduced(self, "ReduceMax", &size), shape));
        }
        let [p, root] = [op.p, 1.0 / op.p].map(|exponent| self.number(exponent));
        let powers = self.add("Pow", &[&size, &p], vec![]);
        let sum = reduced(self, "ReduceSum", &powers);
        Some((self.add("Pow", &[&sum, &root], vec![]), shape))
    }
}
