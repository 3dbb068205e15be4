//! Attention as products and a softmax.

use super::layers::Made;
use super::{Writer, int, list};
use gpumem_core::graph::{NodeId, Source};
use gpumem_core::program::Op;
use gpumem_core::program::ops::{Attention, BinaryFunction, Rotary, Seen};

impl<'g> Writer<'g> {
    pub(super) fn attention(&mut self, id: NodeId, op: &Attention, inputs: &[NodeId]) -> Option<Made> {
        let shape = op.shape.dims().to_vec();
        let parts = if op.apart { 3 } else { 1 };
        let all = op.sequences().checked_mul(op.heads)?;
        // Sequences of a sample are counted as samples, so that all inputs need samples then.
        if op.sequences() > 1 && inputs.get(..parts)?.iter().any(|&input| !self.is_batched(input)) {
            return None;
        }
        let ([query, key, value], turn) = self.queries_keys_values(op, inputs)?;
        let steps = op.steps();
        let query = self.heads(&query, [steps, op.heads, op.width], [0, 2, 1, 3], turn);
        let key = self.heads(&key, [op.keys, op.kv_heads, op.width], [0, 2, 3, 1], turn);
        let value = self.heads(&value, [op.keys, op.kv_heads, op.values], [0, 2, 1, 3], None);
        let key = self.shared(key, op, [op.width, op.keys])?;
        let value = self.shared(value, op, [op.keys, op.values])?;
        let scale = self.number(op.scale);
        let query = self.add("Mul", &[&query, &scale], vec![]);
        let mut scores = self.add("MatMul", &[&query, &key], vec![]);
        let is_of_samples = op.bias[0] > 0 || op.seen != Seen::All;
        if is_of_samples && all != op.heads {
            let sizes = self.integers(&[-1, all as i64, steps as i64, op.keys as i64]);
            scores = self.add("Reshape", &[&scores, &sizes], vec![]);
        }
        if let Some(bias) = op.added() {
            let bias = self.bias(op, *inputs.get(usize::from(bias))?, all)?;
            scores = self.add("Add", &[&scores, &bias], vec![]);
        }
        if let Some(seen) = self.seen(op, inputs)? {
            let (zero, hidden) = (self.number(0.0), self.number(f64::NEG_INFINITY));
            let mask = self.add("Where", &[&seen, &zero, &hidden], vec![]);
            scores = self.add("Add", &[&scores, &mask], vec![]);
        }
        let mut weights = self.add("Softmax", &[&scores], vec![int("axis", -1)]);
        if op.seen == Seen::Lengths || op.added().is_some_and(|bias| self.may_hide(inputs[usize::from(bias)])) {
            // A query that sees no key has an output of 0.
            let (zero, nothing) = (self.number(0.0), self.add("IsNaN", &[&weights], vec![]));
            weights = self.add("Where", &[&nothing, &zero, &weights], vec![]);
        }
        if is_of_samples && all != op.heads {
            let sizes = self.integers(&[-1, op.heads as i64, steps as i64, op.keys as i64]);
            weights = self.add("Reshape", &[&weights, &sizes], vec![]);
        }
        let made = self.add("MatMul", &[&weights, &value], vec![]);
        let made = self.add("Transpose", &[&made], vec![list("perm", [0, 2, 1, 3])]);
        // The samples, which the first axis has together with their sequences.
        let lead: &[i64] = if self.is_batched(id) { &[-1] } else { &[] };
        let sizes: Vec<i64> = lead.iter().copied().chain(super::ints(shape.iter().copied())).collect();
        let sizes = self.integers(&sizes);
        Some((self.add("Reshape", &[&made, &sizes], vec![]), shape))
    }

    /// Returns queries, keys and values, and by which positions queries and keys still have to turn. If they share a row, it is cut into them,
    /// and each is turned by itself, as PyTorch's models do it.
    fn queries_keys_values(&mut self, op: &Attention, inputs: &[NodeId]) -> Option<([String; 3], Option<&'g Rotary>)> {
        if op.apart {
            let &[query, key, value] = inputs.first_chunk::<3>()?;
            return Some(([query, key, value].map(|input| self.names[input].clone()), None));
        }
        let &input = inputs.first()?;
        let (joined, turn) = match self.turned(op, input) {
            Some((before, rotary)) => (self.names[before].clone(), Some(rotary)),
            None => (self.names[input].clone(), None),
        };
        let sizes = [op.heads * op.width, op.kv_heads * op.width, op.kv_heads * op.values];
        let mut start = 0;
        let parts = sizes.map(|size| {
            let part = self.part(&joined, -1, [start, start + size]);
            start += size;
            part
        });
        Some((parts, turn))
    }

    /// Returns the rotary positions of all heads of the queries and the keys in one row, and the row before them.
    fn turned(&self, op: &Attention, input: NodeId) -> Option<(NodeId, &'g Rotary)> {
        let Source::Op { op: Op::Rotary(rotary), inputs, .. } = &self.graph.nodes[input].source else { return None };
        let is_all = rotary.heads == op.heads + op.kv_heads && rotary.width == op.width && op.sequences() == 1;
        let is_row = is_all && self.dims(*inputs.first()?) == self.dims(input) && self.is_turned(rotary);
        is_row.then_some((inputs[0], rotary))
    }

    /// Splits features into heads, turns them, and orders the axes.
    fn heads(
        &mut self,
        value: &str,
        [steps, heads, width]: [u64; 3],
        order: [u64; 4],
        turn: Option<&Rotary>,
    ) -> String {
        let sizes = self.integers(&[-1, steps as i64, heads as i64, width as i64]);
        let mut split = self.add("Reshape", &[value, &sizes], vec![]);
        if let Some(rotary) = turn {
            split = self.turn(&split, rotary, true, [steps, heads]);
        }
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

    /// Returns the bias with a matrix for each of `all` heads of a sample's sequences, or with one for all.
    fn bias(&mut self, op: &Attention, input: NodeId, all: u64) -> Option<String> {
        let [matrices, sharing] = op.bias;
        let bias = self.as_maps(input, &[matrices, op.bias_rows, op.keys]);
        if matrices == 1 || sharing == 1 && matrices == all {
            return Some(bias);
        }
        let of = |at: u64| Some((at.checked_div(sharing)? % matrices) as i64);
        let matrix: Vec<i64> = (0..all).map(of).collect::<Option<_>>()?;
        let matrix = self.indices(format!("/matrices({matrices},{sharing}){all}"), &[all], || matrix);
        Some(self.add("Gather", &[&bias, &matrix], vec![int("axis", 1)]))
    }

    /// Returns a test of which keys a query sees: `Some(None)` if it sees all of them.
    fn seen(&mut self, op: &Attention, inputs: &[NodeId]) -> Option<Option<String>> {
        let (steps, keys) = (op.steps(), op.keys);
        let query = self.counted(steps, &[steps, 1]);
        let key = self.counted(keys, &[1, keys]);
        let mut tests = Vec::new();
        if op.causal {
            tests.push(self.add("LessOrEqual", &[&key, &query], vec![]));
        }
        if op.hides_from() > 0 {
            let distance = self.add("Sub", &[&query, &key], vec![]);
            // With `causal`, no key comes after its query.
            let distance = if op.causal { distance } else { self.add("Abs", &[&distance], vec![]) };
            let window = self.integers(&[op.window as i64]);
            tests.push(self.add("Less", &[&distance, &window], vec![]));
        }
        if let Some(seen) = op.seen_by() {
            let &input = inputs.get(usize::from(seen))?;
            tests.push(match op.seen {
                Seen::Segments => {
                    let [of_query, of_key] = [[1, keys, 1], [1, 1, keys]].map(|shape| self.as_maps(input, &shape));
                    self.add("Equal", &[&of_query, &of_key], vec![])
                }
                _ => {
                    let length = self.as_maps(input, &[1, 1, 1]);
                    self.add("Less", &[&key, &length], vec![])
                }
            });
        }
        let mut tests = tests.into_iter();
        let first = tests.next();
        Some(first.map(|first| tests.fold(first, |all, test| self.add("And", &[&all, &test], vec![]))))
    }

    /// Returns the numbers from 0 on in this shape.
    pub(super) fn counted(&mut self, count: u64, shape: &[u64]) -> String {
        let name = format!("/counted{shape:?}").replace(' ', "");
        self.indices(name, shape, || super::ints(0..count))
    }

    /// True if a bias may hide all keys of a query: nothing says that it is finite.
    fn may_hide(&self, id: NodeId) -> bool {
        let node = &self.graph.nodes[id];
        match &node.source {
            Source::Parameter(_) => false,
            Source::Input => true,
            Source::View(input) => self.may_hide(*input),
            Source::Op { op, inputs, .. } => {
                let keeps = matches!(
                    op,
                    Op::Constant(_)
                        | Op::RelativeBias(_)
                        | Op::WindowMask(_)
                        | Op::Sum(_)
                        | Op::Expand(_)
                        | Op::Permute(_)
                        | Op::Slice(_)
                        | Op::Concat(_)
                ) || matches!(op, Op::Binary(binary) if binary.function != BinaryFunction::Divide);
                // An expanded value reads a second one for its batch alone.
                let read = if matches!(op, Op::Expand(_)) { &inputs[..1] } else { &inputs[..] };
                !keeps || read.iter().any(|&input| self.may_hide(input))
            }
        }
    }
}
