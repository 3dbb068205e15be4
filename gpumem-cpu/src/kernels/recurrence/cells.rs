//! One step of one sample. The gates of all units are side by side, [G, H].
//!
//! Loops go through blocks of units and write to arrays on the stack, which are copied to the tensors when a block is done. An array
//! overlaps no tensor, so the compiler vectorises the loops without comparing the addresses of ten slices.

use crate::math::{sigmoid, tanh};
use crate::simd::{Loop, wide};
use gpumem_core::program::ops::Cell;

/// Units of a block.
const BLOCK: usize = 64;

/// Returns the blocks of `0..units`, each as its first unit and its length.
#[inline(always)]
fn blocks(units: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..units).step_by(BLOCK).map(move |first| [first, BLOCK.min(units - first)])
}

/// Returns a block of a gate.
#[inline(always)]
fn gate(gates: &[f32], hidden: usize, index: usize, [first, count]: [usize; 2]) -> &[f32] {
    &gates[index * hidden + first..][..count]
}

/// Returns a block of a gate for writing.
#[inline(always)]
fn gate_mut(gates: &mut [f32], hidden: usize, index: usize, [first, count]: [usize; 2]) -> &mut [f32] {
    &mut gates[index * hidden + first..][..count]
}

/// Returns `max(x, 0)`. NaN stays NaN.
#[inline(always)]
fn rectified(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// The addends of the gates of a step: those of the input, `p`, and those of the previous output, `s`. The gates overwrite one of them.
pub(super) enum Addends<'a> {
    /// The gates overwrite `p`, and are kept.
    Arriving(&'a mut [f32], &'a [f32]),
    /// The gates overwrite `s`.
    Sums(&'a [f32], &'a mut [f32]),
}

/// Computes a step: its gates, its state (an LSTM's c, or a GRU's previous output), and its output `h`.
pub(super) fn forward(cell: Cell, addends: Addends<'_>, state: &mut [f32], h: &mut [f32]) {
    wide(Forward { cell, addends, state, h });
}

struct Forward<'a> {
    cell: Cell,
    addends: Addends<'a>,
    state: &'a mut [f32],
    h: &'a mut [f32],
}

impl Loop for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Forward { cell, addends, state, h } = self;
        let (gates, others, is_arriving) = match addends {
            Addends::Arriving(p, s) => (p, s, true),
            Addends::Sums(p, s) => (s, p, false),
        };
        for at in blocks(h.len()) {
            match cell {
                Cell::Lstm => lstm(gates, others, state, h, at),
                Cell::Gru if is_arriving => gru::<true>(gates, others, state, h, at),
                Cell::Gru => gru::<false>(gates, others, state, h, at),
                Cell::Tanh => plain(gates, others, h, at, tanh),
                Cell::Relu => plain(gates, others, h, at, rectified),
            }
        }
    }
}

/// Computes `gates = f(gates + others)` for a block of one gate.
#[inline(always)]
fn activate(gates: &mut [f32], others: &[f32], f: impl Fn(f32) -> f32) {
    for (gate, other) in gates.iter_mut().zip(others) {
        *gate = f(*gate + other);
    }
}

#[inline(always)]
fn lstm(gates: &mut [f32], others: &[f32], state: &mut [f32], h: &mut [f32], at: [usize; 2]) {
    let (hidden, [first, count]) = (h.len(), at);
    for index in [0, 1, 3] {
        activate(gate_mut(gates, hidden, index, at), gate(others, hidden, index, at), sigmoid);
    }
    activate(gate_mut(gates, hidden, 2, at), gate(others, hidden, 2, at), tanh);
    let of = |index| gate(gates, hidden, index, at);
    let (state, h) = (&mut state[first..][..count], &mut h[first..][..count]);
    let mut c = [0.0; BLOCK];
    let c = &mut c[..count];
    for ((c, (f, state)), (i, g)) in c.iter_mut().zip(of(1).iter().zip(&*state)).zip(of(0).iter().zip(of(2))) {
        *c = f * state + i * g;
    }
    state.copy_from_slice(c);
    for (c, o) in c.iter_mut().zip(of(3)) {
        *c = o * tanh(*c);
    }
    h.copy_from_slice(c);
}

/// Computes a block of a GRU. Its last gate has `r` as a factor of `s`, which is among the gates or among the others.
#[inline(always)]
fn gru<const ARRIVING: bool>(gates: &mut [f32], others: &[f32], state: &mut [f32], h: &mut [f32], at: [usize; 2]) {
    let (hidden, [first, count]) = (h.len(), at);
    for index in [0, 1] {
        activate(gate_mut(gates, hidden, index, at), gate(others, hidden, index, at), sigmoid);
    }
    let mut new = [0.0; BLOCK];
    let new = &mut new[..count];
    let (r, own, other) = (gate(gates, hidden, 0, at), gate(gates, hidden, 2, at), gate(others, hidden, 2, at));
    let (p, s) = if ARRIVING { (own, other) } else { (other, own) };
    for ((new, p), (r, s)) in new.iter_mut().zip(p).zip(r.iter().zip(s)) {
        *new = tanh(p + r * s);
    }
    gate_mut(gates, hidden, 2, at).copy_from_slice(new);
    let (z, state) = (gate(gates, hidden, 1, at), &mut state[first..][..count]);
    for (new, (z, state)) in new.iter_mut().zip(z.iter().zip(&*state)) {
        *new += z * (state - *new);
    }
    state.copy_from_slice(new);
    h[first..][..count].copy_from_slice(new);
}

#[inline(always)]
fn plain(gates: &mut [f32], others: &[f32], h: &mut [f32], at: [usize; 2], f: impl Fn(f32) -> f32) {
    let gates = gate_mut(gates, h.len(), 0, at);
    activate(gates, gate(others, h.len(), 0, at), f);
    h[at[0]..][..at[1]].copy_from_slice(gates);
}

/// Computes a step of a plain cell. `h` holds `p` at first, and the output overwrites it.
pub(super) fn forward_plain(cell: Cell, s: &[f32], h: &mut [f32]) {
    wide(Plain { is_tanh: cell == Cell::Tanh, s, h });
}

struct Plain<'a> {
    is_tanh: bool,
    s: &'a [f32],
    h: &'a mut [f32],
}

impl Loop for Plain<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        if self.is_tanh { activate(self.h, self.s, tanh) } else { activate(self.h, self.s, rectified) }
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
        wide(States { gates, states, steps, hidden, reverse });
    }
}

struct States<'a> {
    gates: &'a [f32],
    states: &'a mut [f32],
    steps: usize,
    hidden: usize,
    reverse: bool,
}

impl Loop for States<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let States { gates, states, steps, hidden, reverse } = self;
        for at in blocks(hidden) {
            let [first, count] = at;
            let mut c = [0.0; BLOCK];
            let c = &mut c[..count];
            for step in 0..steps {
                let t = if reverse { steps - 1 - step } else { step };
                let gates = &gates[t * 4 * hidden..][..4 * hidden];
                let [i, f, g] = [0, 1, 2].map(|index| gate(gates, hidden, index, at));
                for k in 0..count {
                    c[k] = f[k] * c[k] + i[k] * g[k];
                }
                states[t * hidden + first..][..count].copy_from_slice(c);
            }
        }
    }
}

/// Computes `o * tanh(c)` for a step of an LSTM.
pub(super) fn lstm_units(gates: &[f32], c: &[f32], units: &mut [f32]) {
    wide(Units { o: &gates[3 * c.len()..], c, units });
}

struct Units<'a> {
    o: &'a [f32],
    c: &'a [f32],
    units: &'a mut [f32],
}

impl Loop for Units<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for ((unit, o), &c) in self.units.iter_mut().zip(self.o).zip(self.c) {
            *unit = o * tanh(c);
        }
    }
}

/// Overwrites an LSTM's gates with their gradients. `c` are the states of the step, `before` those of the previous one.
pub(super) fn lstm_back(gates: &mut [f32], back: Handed<'_>, c: &[f32], before: Option<&[f32]>) {
    wide(LstmBack { gates, back, c, before });
}

struct LstmBack<'a> {
    gates: &'a mut [f32],
    back: Handed<'a>,
    c: &'a [f32],
    before: Option<&'a [f32]>,
}

impl Loop for LstmBack<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let LstmBack { gates, back, c, before } = self;
        let hidden = c.len();
        for at in blocks(hidden) {
            let [first, count] = at;
            let mut last = [0.0; BLOCK];
            if let Some(before) = before {
                last[..count].copy_from_slice(&before[first..][..count]);
            }
            let mut slopes = [[0.0; BLOCK]; 5];
            let [di, df, dg, d_o, direct] = slopes.each_mut().map(|slopes| &mut slopes[..count]);
            let [i, f, g, o] = [0, 1, 2, 3].map(|index| gate(gates, hidden, index, at));
            let [dh, c, handed] = [&*back.dh, c, &*back.direct].map(|all| &all[first..][..count]);
            let last = &last[..count];
            for k in 0..count {
                let squashed = tanh(c[k]);
                let dc = handed[k] + dh[k] * o[k] * (1.0 - squashed * squashed);
                di[k] = dc * g[k] * i[k] * (1.0 - i[k]);
                df[k] = dc * last[k] * f[k] * (1.0 - f[k]);
                dg[k] = dc * i[k] * (1.0 - g[k] * g[k]);
                d_o[k] = dh[k] * squashed * o[k] * (1.0 - o[k]);
                direct[k] = dc * f[k];
            }
            for (index, slopes) in slopes[..4].iter().enumerate() {
                gate_mut(gates, hidden, index, at).copy_from_slice(&slopes[..count]);
            }
            back.direct[first..][..count].copy_from_slice(&slopes[4][..count]);
        }
    }
}

/// Overwrites a GRU's gates with their gradients, and computes `ds_n`.
pub(super) fn gru_back(gates: &mut [f32], back: Handed<'_>, of_n: &mut [f32]) {
    wide(GruBack { gates, back, of_n });
}

struct GruBack<'a> {
    gates: &'a mut [f32],
    back: Handed<'a>,
    of_n: &'a mut [f32],
}

impl Loop for GruBack<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let GruBack { gates, back, of_n } = self;
        let hidden = of_n.len();
        for at in blocks(hidden) {
            let [first, count] = at;
            let mut last = [0.0; BLOCK];
            if let Some(before) = back.before {
                last[..count].copy_from_slice(&before[first..][..count]);
            }
            let mut slopes = [[0.0; BLOCK]; 5];
            let [dr, dz, dn, ds_n, direct] = slopes.each_mut().map(|slopes| &mut slopes[..count]);
            let [r, z, n] = [0, 1, 2].map(|index| gate(gates, hidden, index, at));
            let [dh, s, handed] = [&*back.dh, back.s, &*back.direct].map(|all| &all[first..][..count]);
            let last = &last[..count];
            for k in 0..count {
                let dh = dh[k] + handed[k];
                dn[k] = dh * (1.0 - z[k]) * (1.0 - n[k] * n[k]);
                dr[k] = dn[k] * s[k] * r[k] * (1.0 - r[k]);
                dz[k] = dh * (last[k] - n[k]) * z[k] * (1.0 - z[k]);
                ds_n[k] = dn[k] * r[k];
                direct[k] = dh * z[k];
            }
            for (index, slopes) in slopes[..3].iter().enumerate() {
                gate_mut(gates, hidden, index, at).copy_from_slice(&slopes[..count]);
            }
            of_n[first..][..count].copy_from_slice(&slopes[3][..count]);
            back.direct[first..][..count].copy_from_slice(&slopes[4][..count]);
        }
    }
}

/// Overwrites a plain cell's gate with its gradient. With `in_place`, the memory of the gate holds `dy`.
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
