//! Indices: places of elements, and elements at places.

use super::layers::Made;
use super::{Writer, int, table, text};
use gpumem_core::graph::NodeId;
use gpumem_core::program::Op;
use gpumem_core::program::ops::AsStrided;

impl Writer<'_> {
    /// Writes an operation on indices. `None` if it is another one, or has no form in ONNX.
    pub(super) fn of_places(&mut self, id: NodeId, op: &Op, inputs: &[NodeId]) -> Option<Made> {
        let shape = self.dims(id);
        let before = i64::from(self.is_batched(id));
        let name = |writer: &Self, at: usize| Some(writer.names[*inputs.get(at)?].clone());
        match op {
            Op::ArgMax(_) => {
                let attributes = vec![int("axis", before), int("keepdims", 1)];
                Some((self.add("ArgMax", &[&name(self, 0)?], attributes), shape))
            }
            Op::TopK(top) => {
                let k = self.integers(&[top.k as i64]);
                let attributes = vec![
                    int("axis", top.axis as i64 + before),
                    int("largest", i64::from(!top.smallest)),
                    int("sorted", 1),
                ];
                let _values = self.add("TopK", &[&name(self, 0)?, &k], attributes);
                let node = self.nodes.last_mut()?;
                // The places are the second output.
                let places = format!("{}_places", node.output.first()?);
                node.output.push(places.clone());
                Some((places, shape))
            }
            Op::TakeAlong(take) => {
                let (x, index) = (self.of_samples(inputs, 0)?, self.of_samples(inputs, 1)?);
                Some((self.add("GatherElements", &[&x, &index], vec![int("axis", take.axis as i64 + before)]), shape))
            }
            Op::ScatterAdd(add) => {
                let (x, index) = (self.of_samples(inputs, 0)?, self.of_samples(inputs, 1)?);
                let source = self.of_samples(inputs, 2)?;
                let attributes = vec![int("axis", add.axis as i64 + before), text("reduction", "add")];
                Some((self.add("ScatterElements", &[&x, &index, &source], attributes), shape))
            }
            Op::AsStrided(view) => self.strided(view, inputs),
            _ => None,
        }
    }

    /// Returns an operand, repeated for each sample if others have samples.
    fn of_samples(&mut self, inputs: &[NodeId], at: usize) -> Option<String> {
        let &input = inputs.get(at)?;
        match inputs.iter().find(|&&other| self.is_batched(other)) {
            Some(&sample) => {
                let sample = self.names[sample].clone();
                Some(self.repeated(input, &sample))
            }
            None => Some(self.names[input].clone()),
        }
    }

    /// Writes a view of indices: as a part along one axis, as another order of axes, or by places.
    fn strided(&mut self, op: &AsStrided, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let before = u64::from(self.is_batched(input));
        let (own, shape) = (op.input.dims().to_vec(), op.output.dims().to_vec());
        for axis in 0..own.len().min(shape.len()) {
            let first = op.start / own[axis + 1..].iter().product::<u64>().max(1);
            let is_inside = first.checked_add(shape[axis]).is_some_and(|end| end <= own[axis]);
            if is_inside && *op == AsStrided::part(op.input, axis, [first, shape[axis]]) {
                let x = self.as_shape(input, &own);
                let made = self.part(&x, (axis as u64 + before) as i64, [first, first + shape[axis]]);
                return Some((made, shape));
            }
        }
        if let Some(order) = order(op) {
            let x = self.as_shape(input, &own);
            let order = (0..before).chain(order.into_iter().map(|axis| axis + before));
            return Some((self.add("Transpose", &[&x], vec![super::list("perm", order)]), shape));
        }
        let x = self.as_shape(input, &[own.iter().product()]);
        let AsStrided { input: from, output: to, start, strides } = op;
        let name = format!("/places({:?},{:?},{start},{strides:?})", from.dims(), to.dims()).replace(' ', "");
        let count = table(to.dims())?;
        let places = self.indices(name, &[count], || (0..count).map(|element| op.place(element) as i64).collect());
        Some((self.add("Gather", &[&x, &places], vec![int("axis", before as i64)]), vec![count]))
    }
}

/// Returns the order of axes that a view of all elements gives. `None` if it is another view.
fn order(op: &AsStrided) -> Option<Vec<u64>> {
    let rank = op.input.rank();
    if op.output.rank() != rank || op.start != 0 {
        return None;
    }
    let own = AsStrided::permuted(op.input, &(0..rank as u64).collect::<Vec<_>>()).strides;
    let mut order: Vec<u64> = Vec::new();
    for (&stride, &length) in op.strides.iter().zip(op.output.dims()) {
        let found = (0..rank)
            .find(|&axis| own[axis] == stride && op.input.dims()[axis] == length && !order.contains(&(axis as u64)));
        order.push(found? as u64);
    }
    Some(order)
}
