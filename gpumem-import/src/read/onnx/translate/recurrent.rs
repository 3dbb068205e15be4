//! Recurrent layers: the order of their gates, and their weights as PyTorch names them.

use super::super::{Transform, Weight};
use super::{Call, Fault, Result, Translator, refuse};
use crate::batch::Axis;
use crate::model::{Argument, Dtype, StateKind, ValueId};

/// A recurrent layer in both frameworks.
struct Kind {
    op: &'static str,
    /// The place in ONNX of each gate of PyTorch.
    gates: &'static [u64],
}

impl Translator<'_> {
    /// Translates a recurrent layer. `None` if it is another operation.
    pub(super) fn recurrent(&mut self, call: &Call<'_, '_>) -> Result<Option<Vec<ValueId>>> {
        let kind = match call.kind {
            // i o f c in ONNX, i f g o in PyTorch.
            "LSTM" => Kind { op: "lstm", gates: &[0, 2, 3, 1] },
            // z r h in ONNX, r z n in PyTorch.
            "GRU" => Kind { op: "gru", gates: &[1, 0, 2] },
            "RNN" => Kind { op: "rnn_tanh", gates: &[0] },
            _ => return Ok(None),
        };
        if call.optional(4).is_some() {
            return refuse("its sequences have lengths of their own; pad them");
        }
        if call.optional(7).is_some() || call.has("clip") || call.int("input_forget", 0) != 0 {
            return refuse("it has peepholes or clips its gates, which no layer of PyTorch does");
        }
        if call.kind == "GRU" && call.int("linear_before_reset", 0) == 0 {
            return refuse("it resets before its product, which no layer of PyTorch does");
        }
        self.recurrent_of(call, &kind).map(Some)
    }

    fn recurrent_of(&mut self, call: &Call<'_, '_>, kind: &Kind) -> Result<Vec<ValueId>> {
        let value = call.tensor(0)?;
        let (table, turns) = (call.tensor(1)?, call.tensor(2)?);
        let is_first = call.int("layout", 0) != 0;
        let directions: u64 = match call.text("direction").unwrap_or("forward") {
            "forward" => 1,
            "bidirectional" => 2,
            _ => return refuse("it runs backwards only"),
        };
        let (&[outer, inner, _], &[_, _, hidden]) = (&self.dims(value)[..], &self.dims(turns)[..]) else {
            return refuse("it reads no sequences");
        };
        let batch = if is_first { outer } else { inner };
        let params = self.params(call, kind, [directions, hidden], [table, turns])?;
        let mut states = Vec::new();
        for index in if kind.op == "lstm" { 5..7 } else { 5..6 } {
            states.push(Some(self.first_state(call.optional(index), [directions, batch, hidden])?));
        }
        let has_cell = kind.op == "lstm";
        let hx = if has_cell { Argument::Tensors(states) } else { states[0].map_or(Argument::None, Argument::Tensor) };
        let width = directions.checked_mul(hidden).ok_or_else(|| Fault("it is too wide".into()))?;
        let dtype = self.dtype(value);
        let state = (dtype, vec![directions, batch, hidden]);
        let mut outputs = vec![(dtype, vec![outer, inner, width]), state.clone()];
        if has_cell {
            outputs.push(state);
        }
        let arguments = vec![
            ("input".into(), Argument::Tensor(value)),
            ("hx".into(), hx),
            ("params".into(), Argument::Tensors(params.into_iter().map(Some).collect())),
            ("has_biases".into(), Argument::Bool(call.optional(3).is_some())),
            ("num_layers".into(), Argument::Int(1)),
            ("dropout".into(), Argument::Float(0.0)),
            ("train".into(), Argument::Bool(false)),
            ("bidirectional".into(), Argument::Bool(directions == 2)),
            ("batch_first".into(), Argument::Bool(is_first)),
        ];
        let op = match call.node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some("activations")) {
            Some(names) if kind.op == "rnn_tanh" && names.strings.iter().any(|name| &name[..] == b"Relu") => "rnn_relu",
            _ => kind.op,
        };
        let made = self.emit_all(op, arguments, &outputs)?;
        // ONNX has the directions as an axis of its own.
        let split = self.reshaped(made[0], vec![outer, inner, directions, hidden])?;
        let whole = if is_first { split } else { self.permuted(split, &[0, 2, 1, 3])? };
        let mut results = vec![whole];
        for &state in &made[1..] {
            results.push(if is_first { self.permuted(state, &[1, 0, 2])? } else { state });
        }
        Ok(results)
    }

    /// Returns the state before the first step: zeros if the file has them for any batch.
    fn first_state(&mut self, given: Option<ValueId>, [directions, batch, hidden]: [u64; 3]) -> Result<ValueId> {
        // A constant whose numbers are left out of the file is taken for zeros too, as PyTorch has them.
        let is_zero = |value: ValueId| match &self.origins[value] {
            crate::fold::Origin::Constant(Some(tensor)) => tensor.numbers().iter().all(|&number| number == 0.0),
            crate::fold::Origin::Constant(None) => true,
            _ => false,
        };
        match given {
            Some(value) if !is_zero(value) => Ok(value),
            _ => {
                let size = Argument::Ints(vec![directions as i64, batch as i64, hidden as i64]);
                let made = self.emit("zeros", &[("size", size)], Dtype::F32, vec![directions, batch, hidden])?;
                self.batch.axes[made] = (batch == self.batch.size).then(|| Axis::of(1));
                Ok(made)
            }
        }
    }

    /// Returns the parameters in PyTorch's order: for each direction the weights of inputs and of states, then their biases.
    fn params(
        &mut self,
        call: &Call<'_, '_>,
        kind: &Kind,
        [directions, hidden]: [u64; 2],
        [table, turns]: [ValueId; 2],
    ) -> Result<Vec<ValueId>> {
        let rows = hidden.checked_mul(kind.gates.len() as u64).ok_or_else(|| Fault("it is too wide".into()))?;
        let bias = call.optional(3);
        let path = self.scope.modules.last().map_or(String::new(), |module| module.path.clone());
        let base = if path.is_empty() { kind.op.to_string() } else { path };
        let layer = self.layers_of(&base);
        let [inputs, states] = [("weight_ih", table), ("weight_hh", turns)].map(|(name, value)| (name, value));
        let mut lists = Vec::new();
        for (name, value) in [inputs, states] {
            let width = self.dims(value).get(2).copied().unwrap_or(0);
            let shapes = vec![vec![rows, width]; directions as usize];
            let suffixes: Vec<String> = (0..directions).map(|at| suffix(name, layer, at)).collect();
            lists.push(self.unpacked(value, &base, &suffixes, &shapes, kind.gates)?);
        }
        if let Some(bias) = bias {
            let shapes = vec![vec![rows]; 2 * directions as usize];
            let suffixes: Vec<String> =
                (0..2 * directions).map(|at| suffix(["bias_ih", "bias_hh"][at as usize % 2], layer, at / 2)).collect();
            lists.push(self.unpacked(bias, &base, &suffixes, &shapes, kind.gates)?);
        }
        let mut params = Vec::new();
        for at in 0..directions as usize {
            params.extend([lists[0][at], lists[1][at]]);
            if let Some(biases) = lists.get(2) {
                params.extend([biases[2 * at], biases[2 * at + 1]]);
            }
        }
        Ok(params)
    }

    /// Returns how many recurrent layers of this module came before.
    fn layers_of(&self, base: &str) -> u64 {
        let mut layer = 0;
        while self.has_key(&format!("{base}.weight_ih_l{layer}")) && self.is_used(&format!("{base}.weight_ih_l{layer}"))
        {
            layer += 1;
        }
        layer
    }

    fn has_key(&self, key: &str) -> bool {
        self.model.state.iter().any(|state| state.key == key)
    }

    fn is_used(&self, key: &str) -> bool {
        let Some(state) = self.model.state.iter().find(|state| state.key == key) else { return false };
        let mut layers =
            self.model.nodes.iter().filter(|node| matches!(&node.op[..], "lstm" | "gru" | "rnn_tanh" | "rnn_relu"));
        layers.any(|node| node.tensors().any(|value| value == state.value))
    }

    /// Returns the parameters that a tensor was made of, or takes it apart.
    fn unpacked(
        &mut self,
        value: ValueId,
        base: &str,
        suffixes: &[String],
        shapes: &[Vec<u64>],
        gates: &'static [u64],
    ) -> Result<Vec<ValueId>> {
        let mut found = Vec::new();
        self.sources(value, &mut found, 0);
        let is_whole = self.state(value).is_some();
        if !is_whole
            && found.len() == shapes.len()
            && found.iter().zip(shapes).all(|(&source, shape)| self.dims(source) == *shape)
        {
            return Ok(found);
        }
        let size = |shape: &Vec<u64>| shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let expected = shapes.iter().map(size).try_fold(0u64, |sum, size| sum.checked_add(size?));
        let (true, Some(index)) = (is_whole, self.owners.get(&value).copied()) else {
            return refuse("its weights are computed from others");
        };
        if expected.is_none() || self.model.values[value].elements() != expected {
            return refuse("its weights have another shape than its states");
        }
        let dtype = self.dtype(value);
        let key = self.model.state[index].key.clone();
        let whole = self.weights.iter().find(|weight| weight.key == key).cloned();
        let (initializer, place) = whole
            .map_or_else(|| (self.model.values[value].name.clone(), None), |whole| (whole.initializer, whole.place));
        self.weights.retain(|weight| weight.key != key);
        // Its parts have the names that it was given.
        self.keys.remove(&key);
        self.model.state[index].kind = StateKind::Constant;
        self.model.state[index].key.clone_from(&initializer);
        let mut first = 0;
        let mut parts = Vec::new();
        for (suffix, shape) in suffixes.iter().zip(shapes) {
            let key = self.unique(format!("{base}.{suffix}"));
            let part = self.define(&key, dtype, shape.clone())?;
            self.weights.push(Weight {
                key: key.clone(),
                initializer: initializer.clone(),
                place: place.clone(),
                dtype,
                shape: shape.clone(),
                transform: Transform::Gates { first, order: gates },
            });
            self.own(key, part, StateKind::Parameter { trains: true }, None);
            first += shape.iter().product::<u64>();
            parts.push(part);
        }
        Ok(parts)
    }

    /// Collects the tensors of the model that a value is put together from.
    fn sources(&self, value: ValueId, found: &mut Vec<ValueId>, depth: u32) {
        if self.state(value).is_some() {
            if !found.contains(&value) {
                found.push(value);
            }
            return;
        }
        let joins = ["cat", "slice", "unsqueeze", "squeeze", "reshape", "split_with_sizes", "expand", "to"];
        if let Some(node) = self.maker(value).filter(|node| depth < 16 && joins.contains(&&node.op[..])) {
            for input in node.tensors() {
                self.sources(input, found, depth + 1);
            }
        }
    }
}

/// Returns the name of a parameter: `weight_ih_l0` or `weight_ih_l0_reverse`.
fn suffix(name: &str, layer: u64, direction: u64) -> String {
    format!("{name}_l{layer}{}", if direction == 1 { "_reverse" } else { "" })
}
