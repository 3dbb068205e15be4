//! Attention as products and a softmax.

use super::layers::Made;
use super::{Writer, int, list};
use gpumem_core::graph::NodeId;
use gpumem_core::program::ops::{Attention, Seen};

impl Writer<'_> {
    /// Writes attention without a bias and over all keys. `None` for other forms.
    pub(super) fn attention(&mut self, op: &Attention, inputs: &[NodeId]) -> Option<Made> {
        let shape = op.shape.dims().to_vec();
        let steps = *shape.len().checked_sub(2).and_then(|at| shape.get(at))?;
        let is_masked = op.causal || op.window > 0;
        if op.bias[0] != 0
            || op.seen != Seen::All
            || is_masked && op.keys != steps
            || !self.is_batched(*inputs.first()?)
        {
            return None;
        }
        let (query, key, value) = match (op.apart, inputs) {
            (true, &[query, key, value]) => {
                (self.names[query].clone(), self.names[key].clone(), self.names[value].clone())
            }
            (false, &[joined]) => {
                let sizes = [op.heads * op.width, op.kv_heads * op.width, op.kv_heads * op.values];
                let joined = self.names[joined].clone();
                let mut start = 0;
                let parts = sizes.map(|size| {
                    let bounds = [start as i64, (start + size) as i64, -1].map(|number| self.integers(&[number]));
                    start += size;
                    self.add("Slice", &[&joined, &bounds[0], &bounds[1], &bounds[2]], vec![])
                });
                let [query, key, value] = parts;
                (query, key, value)
            }
            _ => return None,
        };
        let query = self.heads(&query, [steps, op.heads, op.width], [0, 2, 1, 3]);
        let key = self.heads(&key, [op.keys, op.kv_heads, op.width], [0, 2, 3, 1]);
        let value = self.heads(&value, [op.keys, op.kv_heads, op.values], [0, 2, 1, 3]);
        let key = self.shared(key, op, [op.width, op.keys])?;
        let value = self.shared(value, op, [op.keys, op.values])?;
        let scale = self.number(op.scale);
        let query = self.add("Mul", &[&query, &scale], vec![]);
        let mut scores = self.add("MatMul", &[&query, &key], vec![]);
        if is_masked {
            let mask = self.mask(op, steps)?;
            scores = self.add("Add", &[&scores, &mask], vec![]);
        }
        let weights = self.add("Softmax", &[&scores], vec![int("axis", -1)]);
        let made = self.add("MatMul", &[&weights, &value], vec![]);
        let made = self.add("Transpose", &[&made], vec![list("perm", [0, 2, 1, 3])]);
        let wide = op.heads * op.values;
        let sizes = self.integers(&[-1, steps as i64, wide as i64]);
        let made = self.add("Reshape", &[&made, &sizes], vec![]);
        match shape.len() {
            2 => Some((made, shape)),
            // Sequences of a sample were counted as samples.
            _ => {
                let sizes: Vec<i64> = [-1].into_iter().chain(shape.iter().map(|&size| size as i64)).collect();
                let sizes = self.integers(&sizes);
                Some((self.add("Reshape", &[&made, &sizes], vec![]), shape))
            }
        }
    }

    /// Splits features into heads, and orders the axes.
    fn heads(&mut self, value: &str, [steps, heads, width]: [u64; 3], order: [u64; 4]) -> String {
        let sizes = self.integers(&[-1, steps as i64, heads as i64, width as i64]);
        let split = self.add("Reshape", &[value, &sizes], vec![]);
        self.add("Transpose", &[&split], vec![list("perm", order)])
    }

    /// Repeats each head of the keys or the values for the heads of the queries that share it.
    fn shared(&mut self, value: String, op: &Attention, [rows, columns]: [u64; 2]) -> Option<String> {
        let times = op.heads.checked_div(op.kv_heads)?;
        if times == 1 {
            return Some(value);
        }
        let axis = self.integers(&[2]);
        let apart = self.add("Unsqueeze", &[&value, &axis], vec![]);
        let sizes = self.integers(&[1, 1, times as i64, 1, 1]);
        let wide = self.add("Expand", &[&apart, &sizes], vec![]);
        let sizes = self.integers(&[-1, op.heads as i64, rows as i64, columns as i64]);
        Some(self.add("Reshape", &[&wide, &sizes], vec![]))
    }

    /// Returns 0 for the keys that a query sees, and minus infinity for the others.
    fn mask(&mut self, op: &Attention, steps: u64) -> Option<String> {
        let name = format!("/mask({},{}){steps}", op.causal, op.window);
        if self.constants.contains_key(&name) {
            return Some(name);
        }
        if steps > 1 << 14 {
            return None;
        }
        let is_seen = |query: u64, key: u64| {
            let is_near = op.window == 0 || query.abs_diff(key) < op.window;
            is_near && (!op.causal || key <= query)
        };
        let cells = (0..steps).flat_map(|query| (0..steps).map(move |key| (query, key)));
        let numbers: Vec<f32> =
            cells.map(|(query, key)| if is_seen(query, key) { 0.0 } else { f32::NEG_INFINITY }).collect();
        let made = self.numbers(&numbers, &[steps, steps]);
        let mut tensor = self.constants.remove(&made)?;
        tensor.name = Some(name.clone());
        self.constants.insert(name.clone(), tensor);
        Some(name)
    }
}
