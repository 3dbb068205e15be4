//! One step of one sample. The gates of all units are side by side, [G, H].

use crate::kernels::elementwise::scalar::sigmoid;
use gpumem_core::program::ops::Cell;

/// Returns the activated gates of a unit. `p(k)` and `s(k)` are the values for gate `k`. Only the cell's gates of the four are used.
#[inline(always)]
fn gates(cell: Cell, p: impl Fn(usize) -> f32, s: impl Fn(usize) -> f32) -> [f32; 4] {
    let sum = |gate: usize| p(gate) + s(gate);
    match cell {
        Cell::Lstm => [sigmoid(sum(0)), sigmoid(sum(1)), sum(2).tanh(), sigmoid(sum(3))],
        Cell::Gru => {
            let r = sigmoid(sum(0));
            [r, sigmoid(sum(1)), (p(2) + r * s(2)).tanh(), 0.0]
        }
        Cell::Tanh => [sum(0).tanh(), 0.0, 0.0, 0.0],
        Cell::Relu => [rectified(sum(0)), 0.0, 0.0, 0.0],
    }
}

/// Returns `max(x, 0)`. NaN stays NaN.
fn rectified(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// Returns the output of a unit from its gates and its state. It updates the state: an LSTM's c, or a GRU's previous output.
#[inline(always)]
fn output(cell: Cell, [a, b, c, d]: [f32; 4], state: &mut f32) -> f32 {
    match cell {
        Cell::Lstm => {
            *state = b * *state + a * c;
            d * state.tanh()
        }
        Cell::Gru => {
            *state = c + b * (*state - c);
            *state
        }
        Cell::Tanh | Cell::Relu => a,
    }
}

/// Computes a step whose gates overwrite `p`.
pub(super) fn forward_in_place(cell: Cell, p: &mut [f32], s: &[f32], state: &mut [f32], h: &mut [f32]) {
    let hidden = h.len();
    for j in 0..hidden {
        let found = gates(cell, |gate| p[gate * hidden + j], |gate| s[gate * hidden + j]);
        for (gate, found) in found.into_iter().enumerate().take(p.len() / hidden) {
            p[gate * hidden + j] = found;
        }
        h[j] = output(cell, found, &mut state[j]);
    }
}

/// Computes a step whose gates are not kept.
pub(super) fn forward(cell: Cell, p: &[f32], s: &[f32], state: &mut [f32], h: &mut [f32]) {
    let hidden = h.len();
    for j in 0..hidden {
        let found = gates(cell, |gate| p[gate * hidden + j], |gate| s[gate * hidden + j]);
        h[j] = output(cell, found, &mut state[j]);
    }
}

/// Computes a step of a plain cell. `h` holds `p` at first, and the output overwrites it.
pub(super) fn forward_plain(cell: Cell, s: &[f32], h: &mut [f32]) {
    for (h, &s) in h.iter_mut().zip(s) {
        *h = gates(cell, |_| *h, |_| s)[0];
    }
}

/// The inputs of one step of the backward pass.
pub(super) struct Handed<'a> {
    /// The gradient of the step's output, without the part in [`Handed::direct`].
    pub(super) dh: &'a mut [f32],
    /// The gradient that the next step passed on inside the cell: of an LSTM's c, or of a GRU's h.
    pub(super) direct: &'a mut [f32],
    /// A GRU's `s_n`.
    pub(super) s: &'a [f32],
    /// The output of the step. The next field is the output of the previous step, `None` for the first step.
    pub(super) h: &'a [f32],
    pub(super) before: Option<&'a [f32]>,
}

/// Computes an LSTM's c of all steps [B, T, H] from the gates [B, T, 4 H].
pub(super) fn states(gates: &[f32], states: &mut [f32], [steps, hidden]: [usize; 2], reverse: bool) {
    let samples = gates.chunks_exact(steps * 4 * hidden).zip(states.chunks_exact_mut(steps * hidden));
    for (gates, states) in samples {
        for step in 0..steps {
            let (t, before) = if reverse { (steps - 1 - step, steps - step) } else { (step, step.wrapping_sub(1)) };
            for j in 0..hidden {
                let gate = |gate: usize| gates[(t * 4 + gate) * hidden + j];
                let last = if step > 0 { states[before * hidden + j] } else { 0.0 };
                states[t * hidden + j] = gate(1) * last + gate(0) * gate(2);
            }
        }
    }
}

/// Computes `o * tanh(c)` for a step of an LSTM.
pub(super) fn lstm_units(gates: &[f32], c: &[f32], units: &mut [f32]) {
    let o = &gates[3 * c.len()..];
    units.iter_mut().zip(o.iter().zip(c)).for_each(|(u, (o, c))| *u = o * c.tanh());
}

/// Overwrites an LSTM's gates with their gradients.
pub(super) fn lstm_back(gates: &mut [f32], back: Handed<'_>, c: &[f32], before: Option<&[f32]>) {
    let hidden = c.len();
    for j in 0..hidden {
        let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates[gate * hidden + j]);
        let (dh, squashed) = (back.dh[j], c[j].tanh());
        let dc = back.direct[j] + dh * o * (1.0 - squashed * squashed);
        let last = before.map_or(0.0, |before| before[j]);
        let slopes =
            [dc * g * i * (1.0 - i), dc * last * f * (1.0 - f), dc * i * (1.0 - g * g), dh * squashed * o * (1.0 - o)];
        back.direct[j] = dc * f;
        for (gate, slope) in slopes.into_iter().enumerate() {
            gates[gate * hidden + j] = slope;
        }
    }
}

/// Overwrites a GRU's gates with their gradients, and computes `ds_n`.
pub(super) fn gru_back(gates: &mut [f32], back: Handed<'_>, of_n: &mut [f32]) {
    let hidden = of_n.len();
    for j in 0..hidden {
        let [r, z, n] = [0, 1, 2].map(|gate| gates[gate * hidden + j]);
        let dh = back.dh[j] + back.direct[j];
        let before = back.before.map_or(0.0, |before| before[j]);
        let dn = dh * (1.0 - z) * (1.0 - n * n);
        gates[j] = dn * back.s[j] * r * (1.0 - r);
        gates[hidden + j] = dh * (before - n) * z * (1.0 - z);
        gates[2 * hidden + j] = dn;
        of_n[j] = dn * r;
        back.direct[j] = dh * z;
    }
}

/// Computes the gradient of a plain cell's gate. With `in_place`, the memory of the gate holds `dy`.
pub(super) fn plain_back(cell: Cell, gates: &mut [f32], back: Handed<'_>, in_place: bool) {
    for (gate, (&dh, &h)) in gates.iter_mut().zip(back.dh.iter().zip(back.h)) {
        let dh = if in_place { *gate + dh } else { dh };
        *gate = match cell {
            Cell::Relu if h > 0.0 => dh,
            Cell::Relu => 0.0,
            _ => dh * (1.0 - h * h),
        };
    }
}
