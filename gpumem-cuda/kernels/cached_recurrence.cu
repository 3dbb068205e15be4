// The steps at hand of a recurrent layer of one direction behind those before: recurrence_steps.cuh. There is a launch for each step.
//
// p [B, STEPS, G H], y [B, STEPS, H]; outputs [B, 2, H] has the output of step t of the sequence in row t % 2, and cells [B, H] of f32 an
// LSTM's c. Both go as far as the steps that are of the sequence; behind those y is 0.
#include "base.cuh"
#include "real.cuh"
#include "recurrence_steps.cuh"

KERNEL(__launch_bounds__(256) cached_recurrence)
(const real *p, const real *w, const real *bias, const u32 *state, real *outputs, float *cells, real *y, u32 step) {
    __shared__ Rooms rooms;
    const Own own;
    const u64 number = steps_before(state) + step, at = own.sample * HIDDEN + own.unit;
    if (step >= steps_at_hand(state, STEPS)) {
        if (own.exists) narrow(0.0f, &y[own.output(own.sample, step) + own.unit]);
        return;
    }
    // Rows of this step and of the one before.
    real *row = outputs + number % 2 * HIDDEN;
    const real *before = outputs + (number + 1) % 2 * HIDDEN;
    float s[GATES] = {};
    if (number > 0) {
        const Rows<real> rows = {before + own.first_sample * 2 * HIDDEN, 2 * HIDDEN, own.samples(), HIDDEN};
        multiply<GATES>(rows, Forth{w, own.first_unit}, HIDDEN, rooms, s);
    }
    if (!own.exists) return;
    p += Own::gates(own.sample, step) + own.unit;
    float arrived[GATES], gates[GATES], c = 0.0f;
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) {
        arrived[gate] = widen(p[gate * HIDDEN]);
        if (bias != nullptr) s[gate] += widen(bias[gate * HIDDEN + own.unit]);
    }
    const u64 place = own.sample * 2 * HIDDEN + own.unit;
    if (cells != nullptr && number > 0) c = cells[at];
    const float h = step_of(arrived, s, gates, &c, number > 0 ? widen(before[place]) : 0.0f);
    if (cells != nullptr) cells[at] = c;
    narrow(h, &row[place]);
    narrow(h, &y[own.output(own.sample, step) + own.unit]);
}
