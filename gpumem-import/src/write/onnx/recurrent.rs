//! Recurrent layers. Their weights stay as PyTorch has them, and are put into the order of ONNX in the file.

use super::layers::Made;
use super::scan::Scan;
use super::{Writer, file, int, list, text};
use gpumem_core::graph::{NodeId, Source};
use gpumem_core::program::Op;
use gpumem_core::program::ops::{Cell, Recurrence, SelectiveScan};

/// A direction of a recurrent layer, together with the linear map of its input.
struct Direction {
    x: NodeId,
    /// The weights of inputs and of states.
    weights: [String; 2],
    /// The biases of both.
    biases: Option<[String; 2]>,
}

/// Returns the runs of gates in PyTorch's order, in which ONNX has them.
fn runs(cell: Cell) -> &'static [[u64; 2]] {
    match cell {
        // i f g o in PyTorch, i o f g in ONNX.
        Cell::Lstm => &[[0, 1], [3, 4], [1, 3]],
        // r z n in PyTorch, z r n in ONNX.
        Cell::Gru => &[[1, 2], [0, 1], [2, 3]],
        Cell::Tanh | Cell::Relu => &[[0, 1]],
    }
}

impl Writer<'_> {
    pub(super) fn recurrence(&mut self, op: &Recurrence, inputs: &[NodeId]) -> Option<Made> {
        if op.is_projected() {
            return self.projected(op, inputs);
        }
        let directions: Vec<Direction> =
            (0..op.directions as u8).map(|at| self.direction(op, at, inputs)).collect::<Option<_>>()?;
        let first = directions.first()?;
        if directions.iter().any(|direction| direction.x != first.x) {
            return None;
        }
        let ordered = |writer: &mut Self, value: &str| writer.ordered(value, op);
        let mut lists: [Vec<String>; 3] = Default::default();
        for direction in &directions {
            for (list, weight) in lists.iter_mut().zip(&direction.weights) {
                list.push(ordered(self, weight));
            }
            if let Some(biases) = &direction.biases {
                let [a, b] = biases.each_ref().map(|bias| ordered(self, bias));
                lists[2].push(self.add("Concat", &[&a, &b], vec![int("axis", 0)]));
            }
        }
        let [w, r, b] = lists.map(|parts| self.stacked(&parts));
        // Time steps come before samples.
        let dims = self.dims(first.x);
        let sequence = self.as_maps(first.x, &dims);
        let x = self.add("Transpose", &[&sequence], vec![list("perm", [1, 0, 2])]);
        let mut attributes = vec![
            int("hidden_size", op.hidden as i64),
            text("direction", if op.directions == 2 { "bidirectional" } else { "forward" }),
        ];
        let kind = match op.cell {
            Cell::Lstm => "LSTM",
            Cell::Gru => "GRU",
            Cell::Tanh | Cell::Relu => "RNN",
        };
        match op.cell {
            Cell::Gru => attributes.push(int("linear_before_reset", 1)),
            Cell::Relu => attributes.push(file::texts("activations", &vec!["Relu"; directions.len()])),
            Cell::Lstm | Cell::Tanh => {}
        }
        let operands: Vec<&str> =
            [&x, &w, &r, &b].into_iter().map(|name| &name[..]).filter(|it| !it.is_empty()).collect();
        // [T, directions, B, H]
        let made = self.add(kind, &operands, attributes);
        let made = self.add("Transpose", &[&made], vec![list("perm", [0, 2, 1, 3])]);
        let width = op.directions * op.hidden;
        let sizes = self.integers(&[0, 0, width as i64]);
        let made = self.add("Reshape", &[&made, &sizes], vec![]);
        let made = self.add("Transpose", &[&made], vec![list("perm", [1, 0, 2])]);
        Some((made, self.of_maps(first.x, vec![op.steps, width])))
    }

    /// Finds the linear map of a direction's input, which is a part of the layer in ONNX.
    fn direction(&self, op: &Recurrence, at: u8, inputs: &[NodeId]) -> Option<Direction> {
        let own = inputs.get(usize::from(op.first_input(at))..)?;
        let name = |id: &NodeId| self.names[*id].clone();
        let Source::Op { op: Op::Product(map), inputs: mapped, .. } = &self.graph.nodes[*own.first()?].source else {
            return None;
        };
        if map.transposed || map.bias != op.bias || self.dims(*mapped.first()?).len() != 2 {
            return None;
        }
        let biases = if op.bias { Some([name(mapped.get(2)?), name(own.get(2)?)]) } else { None };
        Some(Direction { x: mapped[0], weights: [name(mapped.get(1)?), name(own.get(1)?)], biases })
    }

    /// Returns a weight or a bias with its gates in the order of ONNX.
    fn ordered(&mut self, value: &str, op: &Recurrence) -> String {
        let runs = runs(op.cell);
        if runs.len() == 1 {
            return value.to_string();
        }
        let mut parts = Vec::new();
        for run in runs {
            parts.push(self.part(value, 0, run.map(|gate| gate * op.hidden)));
        }
        let parts: Vec<&str> = parts.iter().map(|part| &part[..]).collect();
        self.add("Concat", &parts, vec![int("axis", 0)])
    }

    /// Returns a part of a value along an axis.
    pub(super) fn part(&mut self, value: &str, axis: i64, [first, end]: [u64; 2]) -> String {
        let bounds = [first as i64, end as i64, axis].map(|number| self.integers(&[number]));
        self.add("Slice", &[value, &bounds[0], &bounds[1], &bounds[2]], vec![])
    }

    /// Puts the tensors of all directions one above the other. Returns an empty name if there are none.
    fn stacked(&mut self, parts: &[String]) -> String {
        let axis = self.integers(&[0]);
        let wide: Vec<String> = parts.iter().map(|part| self.add("Unsqueeze", &[part, &axis], vec![])).collect();
        match &wide[..] {
            [] => String::new(),
            [one] => one.clone(),
            all => {
                let all: Vec<&str> = all.iter().map(|part| &part[..]).collect();
                self.add("Concat", &all, vec![int("axis", 0)])
            }
        }
    }

    /// Writes a recurrent layer whose outputs are fewer than its units, step by step: ONNX has no such layer.
    fn projected(&mut self, op: &Recurrence, inputs: &[NodeId]) -> Option<Made> {
        let mut all = Vec::new();
        for at in 0..op.directions as u8 {
            let own = inputs.get(usize::from(op.first_input(at))..)?;
            let p = self.names[*own.first()?].clone();
            if !self.is_batched(own[0]) {
                return None;
            }
            let mut turned = |id: NodeId| {
                let weight = self.names[id].clone();
                self.add("Transpose", &[&weight], vec![list("perm", [1, 0])])
            };
            let (w, projection) = (turned(*own.get(1)?), turned(*own.get(usize::from(op.projection()))?));
            let bias = if op.bias { Some(self.names[*own.get(2)?].clone()) } else { None };
            let [h, c] = [op.outputs, op.hidden].map(|width| self.zeros(&p, &[width]));
            let mut scan = Scan::begin(self, &[h, c], &[p], at == 1);
            let [h, c, step] = [0, 1, 2].map(|at| scan.input(at));
            let mut gates = self.add("MatMul", &[&h, &w], vec![]);
            if let Some(bias) = bias {
                gates = self.add("Add", &[&gates, &bias], vec![]);
            }
            let gates = self.add("Add", &[&step, &gates], vec![]);
            let mut gate = |at: u64, function: &str| {
                let part = self.part(&gates, 1, [at * op.hidden, (at + 1) * op.hidden]);
                self.add(function, &[&part], vec![])
            };
            let (i, f, g, o) = (gate(0, "Sigmoid"), gate(1, "Sigmoid"), gate(2, "Tanh"), gate(3, "Sigmoid"));
            let kept = self.add("Mul", &[&f, &c], vec![]);
            let new = self.add("Mul", &[&i, &g], vec![]);
            let c = self.add("Add", &[&kept, &new], vec![]);
            let units = self.add("Tanh", &[&c], vec![]);
            let units = self.add("Mul", &[&o, &units], vec![]);
            let h = self.add("MatMul", &[&units, &projection], vec![]);
            let y = self.add("Identity", &[&h], vec![]);
            scan.results = vec![h, c, y];
            all.push(scan.end(self));
        }
        let parts: Vec<&str> = all.iter().map(|part| &part[..]).collect();
        let made = if parts.len() == 1 { all[0].clone() } else { self.add("Concat", &parts, vec![int("axis", 2)]) };
        Some((made, vec![op.steps, op.directions * op.outputs]))
    }

    /// Writes the scan of a state space model, step by step.
    pub(super) fn selective_scan(&mut self, op: &SelectiveScan, inputs: &[NodeId]) -> Option<Made> {
        let &[u, delta, a_log, b, c, d] = inputs else { return None };
        let rows = [u, delta, b, c];
        let sample = *rows.iter().find(|&&id| self.is_batched(id))?;
        let sample = self.names[sample].clone();
        let [u, delta, b, c] = rows.map(|id| self.repeated(id, &sample));
        let exp = {
            let a_log = self.names[a_log].clone();
            self.add("Exp", &[&a_log], vec![])
        };
        let a = self.add("Neg", &[&exp], vec![]);
        let state = self.zeros(&u, &[op.channels, op.states]);
        let mut scan = Scan::begin(self, &[state], &[u.clone(), delta, b, c], false);
        let [h, u_now, delta, b, c] = [0, 1, 2, 3, 4].map(|at| scan.input(at));
        let (last, middle) = (self.integers(&[2]), self.integers(&[1]));
        let wide = self.add("Unsqueeze", &[&delta, &last], vec![]);
        let rate = self.add("Mul", &[&wide, &a], vec![]);
        let decay = self.add("Exp", &[&rate], vec![]);
        let kept = self.add("Mul", &[&decay, &h], vec![]);
        let drive = self.add("Mul", &[&delta, &u_now], vec![]);
        let drive = self.add("Unsqueeze", &[&drive, &last], vec![]);
        let [b, c] = [b, c].map(|row| self.add("Unsqueeze", &[&row, &middle], vec![]));
        let new = self.add("Mul", &[&drive, &b], vec![]);
        let h = self.add("Add", &[&kept, &new], vec![]);
        let read = self.add("Mul", &[&h, &c], vec![]);
        let y = self.add("ReduceSum", &[&read, &last], vec![int("keepdims", 0)]);
        scan.results = vec![h, y];
        let y = scan.end(self);
        let d = self.names[d].clone();
        let skipped = self.add("Mul", &[&u, &d], vec![]);
        Some((self.add("Add", &[&y, &skipped], vec![]), vec![op.steps, op.channels]))
    }

    /// Returns zeros of this shape for each sample of a value.
    fn zeros(&mut self, like: &str, shape: &[u64]) -> String {
        let zero = self.number(0.0);
        let target = self.for_each_sample(like, shape);
        self.add("Expand", &[&zero, &target], vec![])
    }

    /// Returns a value that all samples share, repeated for each of them.
    pub(super) fn repeated(&mut self, id: NodeId, like: &str) -> String {
        let name = self.names[id].clone();
        if self.is_batched(id) {
            return name;
        }
        let shape = self.dims(id);
        let wide = self.shaped(&name, false, &[&[1], &shape[..]].concat());
        let target = self.for_each_sample(like, &shape);
        self.add("Expand", &[&wide, &target], vec![])
    }

    /// Returns a shape with the number of samples of a value before it.
    pub(super) fn for_each_sample(&mut self, like: &str, shape: &[u64]) -> String {
        let samples = self.add("Shape", &[like], vec![int("start", 0), int("end", 1)]);
        let rest = self.integers(&super::ints(shape.iter().copied()));
        self.add("Concat", &[&samples, &rest], vec![int("axis", 0)])
    }
}
