// A recurrent layer of one direction for decoding: continues from earlier time steps, with a launch for each current one. See recurrence_steps.cuh.
//
// p [B, STEPS, G H], y [B, STEPS, P]. The cache outputs [B, 2, P] has the output of time step t in row t % 2, and cells [B, H] in f32 an LSTM's c.
// Both are updated for time steps of the sequence only; after those y is 0. With a projection, cached_recurrence writes o tanh(c) to `units` [B,
// H], from which a second launch computes the output.
#include "base.cuh"
#include "real.cuh"
#include "recurrence_steps.cuh"

KERNEL(__launch_bounds__(256) cached_recurrence)
(const real *p, const real *w, const real *bias, const u32 *state, real *outputs, float *cells, float *units, real *y,
 u32 step) {
    __shared__ Rooms rooms;
    const Own own;
    const u64 number = steps_before(state) + step, at = own.sample * HIDDEN + own.unit;
    if (step >= steps_at_hand(state, STEPS)) {
        if (own.exists && !PROJECTED) narrow(0.0f, &y[own.output(own.sample, step) + own.unit]);
        return;
    }
    // Rows of this time step and of the previous one.
    real *row = outputs + number % 2 * OUTPUTS;
    const real *before = outputs + (number + 1) % 2 * OUTPUTS;
    float s[GATES] = {};
    if (number > 0) {
        const Rows<real> rows = {before + own.first_sample * 2 * OUTPUTS, 2 * OUTPUTS, own.samples(), OUTPUTS};
        multiply<GATES>(rows, Forth<HIDDEN, OUTPUTS>{w, own.first_unit}, OUTPUTS, rooms, s);
    }
    if (!own.exists) return;
    p += Own::gates(own.sample, step) + own.unit;
    float arrived[GATES], gates[GATES], c = 0.0f;
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) {
        arrived[gate] = widen(p[gate * HIDDEN]);
        if (bias != nullptr) s[gate] += widen(bias[gate * HIDDEN + own.unit]);
    }
    const u64 place = own.sample * 2 * OUTPUTS + own.unit;
    if (cells != nullptr && number > 0) c = cells[at];
    const float last = number > 0 && !PROJECTED ? widen(before[place]) : 0.0f;
    const float h = step_of(arrived, s, gates, &c, last);
    if (cells != nullptr) cells[at] = c;
    if constexpr (PROJECTED) {
        units[at] = h;
    } else {
        narrow(h, &row[place]);
        narrow(h, &y[own.output(own.sample, step) + own.unit]);
    }
}

KERNEL(__launch_bounds__(256) cached_recurrence_project)
(const real *projection, const u32 *state, const float *units, real *outputs, real *y, u32 step) {
    __shared__ Rooms rooms;
    const OwnOf<OUTPUTS> own;
    const bool is_of_sequence = step < steps_at_hand(state, STEPS);
    float h = 0.0f;
    if (is_of_sequence) {
        const Rows<float> rows = {units + own.first_sample * HIDDEN, HIDDEN, own.samples(), HIDDEN};
        multiply<1>(rows, Forth<OUTPUTS, HIDDEN>{projection, own.first_unit}, HIDDEN, rooms, &h);
    }
    if (!own.exists) return;
    const u64 row = (steps_before(state) + step) % 2;
    if (is_of_sequence) narrow(h, &outputs[(own.sample * 2 + row) * OUTPUTS + own.unit]);
    narrow(h, &y[own.output(own.sample, step) + own.unit]);
}
