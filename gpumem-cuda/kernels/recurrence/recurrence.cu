// Recurrent layers after the product p of input and input weight. With s[t] = h[t - 1] W^T + b, and h = 0 before the first time step, a time step
// computes h[t] from p[t] and s[t]. There is a launch for each time step, for both directions at once; consecutive launches do not wait for the
// host.
//
// The constants are those of recurrence_steps.cuh.
//
// forward:  LSTM  i, f, o = sigmoid(p + s), g = tanh(p + s), c[t] = f c[t - 1] + i g, h = o tanh(c)
//           GRU   r, z = sigmoid(p + s), n = tanh(p_n + r s_n), h[t] = (1 - z) n + z h[t - 1]
//           plain h = tanh(p + s) or relu(p + s)
//           `kept` has the gates after their functions, and may be p, or absent; y may be p if a plain cell has one direction.
//           `states` [DIRECTIONS, B, H] has an LSTM's c, and after it o tanh(c), if a projection computes h from that.
// backward: dh[t] = dy[t] + ds[t + 1] W and the cell's own direct gradient; dp is the gradient of p, and ds of s: they
//           differ in a GRU's n only, where ds_n = dp_n r. dp may be `kept`, and dy if a plain cell has one direction.
//           With a projection, recurrence_projection.cu computes dh[t] before the launch of the step, which then stores o tanh(c) in
//           place of c.
//           recurrence_states recomputes an LSTM's c first, from the saved gates.
#include "base.cuh"
#include "real.cuh"
#include "recurrence_steps.cuh"

// The gradients of s of a time step. Those of a GRU's last gate are stored elsewhere.
struct Slopes {
    Rows<real> gates;
    Rows<float> of_n;

    __device__ __forceinline__ float at(u32 row, u32 k) const {
        return k < SHARED_WIDTH ? gates.at(row, k) : of_n.at(row, k - SHARED_WIDTH);
    }
};

KERNEL(__launch_bounds__(256) recurrence_forward)
(const real *p0, const real *w0, const real *b0, const real *p1, const real *w1, const real *b1, real *kept0, real *kept1,
 float *states, real *y, u32 step) {
    __shared__ Rooms rooms;
    const Own own;
    const bool second = own.direction == 1;
    const u32 t = on_the_way(own.direction, step), before = step > 0 ? on_the_way(own.direction, step - 1) : 0;
    float s[GATES] = {};
    if (step > 0) {
        const Forth<HIDDEN, OUTPUTS> weight = {second ? w1 : w0, own.first_unit};
        multiply<GATES>(own.outputs(y, before), weight, OUTPUTS, rooms, s);
    }
    if (!own.exists) return;
    const real *p = (second ? p1 : p0) + Own::gates(own.sample, t) + own.unit;
    const real *bias = second ? b1 : b0;
    float arrived[GATES], gates[GATES];
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) {
        arrived[gate] = widen(p[gate * HIDDEN]);
        if (bias != nullptr) s[gate] += widen(bias[gate * HIDDEN + own.unit]);
    }
    float c = 0.0f, last = 0.0f;
#if CELL == LSTM
    float *state = &states[((u64)own.direction * BATCH + own.sample) * HIDDEN + own.unit];
    if (step > 0) c = *state;
#elif CELL == GRU
    if (step > 0) last = widen(y[own.output(own.sample, before) + own.unit]);
#endif
    const float h = step_of(arrived, s, gates, &c, last);
#if CELL == LSTM
    *state = c;
#endif
    real *kept = second ? kept1 : kept0;
    if (kept != nullptr) {
        kept += Own::gates(own.sample, t) + own.unit;
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) narrow(gates[gate], &kept[gate * HIDDEN]);
    }
    if constexpr (PROJECTED) {
        states[(((u64)DIRECTIONS + own.direction) * BATCH + own.sample) * HIDDEN + own.unit] = h;
    } else {
        narrow(h, &y[own.output(own.sample, t) + own.unit]);
    }
}

#if CELL == LSTM

// Grid: a thread for each unit of each sample.
KERNEL(recurrence_states)(const real *kept0, const real *kept1, float *rows) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)DIRECTIONS * BATCH * HIDDEN) return;
    const u32 unit = (u32)(i % HIDDEN), direction = (u32)(i / HIDDEN / BATCH);
    const u64 sample = i / HIDDEN % BATCH;
    const real *kept = direction == 1 ? kept1 : kept0;
    float c = 0.0f;
    for (u32 step = 0; step < STEPS; step++) {
        const u32 t = on_the_way(direction, step);
        const real *gates = kept + Own::gates(sample, t) + unit;
        c = widen(gates[HIDDEN]) * c + widen(gates[0]) * widen(gates[2 * HIDDEN]);
        rows[room(direction, t, sample) + unit] = c;
    }
}

#endif

KERNEL(__launch_bounds__(256) recurrence_backward)
(const real *dy, const real *y, const real *w0, const real *b0, const real *w1, const real *b1, const real *kept0,
 const real *kept1, real *dp0, real *dp1, float *rows, u32 step) {
    __shared__ Rooms rooms;
    const Own own;
    const bool second = own.direction == 1, is_last = step + 1 == STEPS;
    const u32 t = on_the_way(own.direction, step), before = step > 0 ? on_the_way(own.direction, step - 1) : 0;
    const u32 after = is_last ? 0 : on_the_way(own.direction, step + 1);
    const real *weight = second ? w1 : w0;
    real *dp = second ? dp1 : dp0;
    float handed = 0.0f;
    if constexpr (PROJECTED) {
        const float *dh = rows + room_of_outputs(own.direction, t, own.first_sample);
        const Back<HIDDEN, OUTPUTS> projection = {weight, own.first_unit};
        multiply<1>(Rows<float>{dh, OUTPUTS, own.samples(), OUTPUTS}, projection, OUTPUTS, rooms, &handed);
    } else if (!is_last) {
        const Rows<real> gates = {dp + Own::gates(own.first_sample, after), (u64)STEPS * WIDTH, own.samples(), SHARED_WIDTH};
        const Rows<float> of_n = {rows + (CELL == GRU ? room(own.direction, after, own.first_sample) : 0), HIDDEN,
                                  own.samples(), CELL == GRU ? HIDDEN : 0};
        multiply<1>(Slopes{gates, of_n}, Back<HIDDEN, WIDTH>{weight, own.first_unit}, WIDTH, rooms, &handed);
    }
#if CELL == GRU
    float s = 0.0f;
    if (step > 0) {
        const Forth<HIDDEN, HIDDEN> last_gate = {weight + (u64)SHARED_WIDTH * HIDDEN, own.first_unit};
        multiply<1>(own.outputs(y, before), last_gate, HIDDEN, rooms, &s);
    }
#endif
    if (!own.exists) return;
    const u64 at = own.output(own.sample, t) + own.unit;
    float dh = PROJECTED ? handed : widen(dy[at]) + handed;
    dp += Own::gates(own.sample, t) + own.unit;
#if CELL == LSTM || CELL == GRU
    const real *kept = (second ? kept1 : kept0) + Own::gates(own.sample, t) + own.unit;
    float gates[GATES];
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) gates[gate] = widen(kept[gate * HIDDEN]);
    float *own_row = &rows[room(own.direction, t, own.sample) + own.unit];
    float *direct = &rows[room(own.direction, STEPS, own.sample) + own.unit];
#endif
#if CELL == LSTM
    const float i = gates[0], f = gates[1], g = gates[2], o = gates[3], squashed = tanhf(*own_row);
    const float last = step > 0 ? rows[room(own.direction, before, own.sample) + own.unit] : 0.0f;
    const float dc = (is_last ? 0.0f : *direct) + dh * o * (1.0f - squashed * squashed);
    *direct = dc * f;
    narrow(dc * g * i * (1.0f - i), &dp[0]);
    narrow(dc * last * f * (1.0f - f), &dp[HIDDEN]);
    narrow(dc * i * (1.0f - g * g), &dp[2 * HIDDEN]);
    narrow(dh * squashed * o * (1.0f - o), &dp[3 * HIDDEN]);
    if constexpr (PROJECTED) *own_row = o * squashed;
#elif CELL == GRU
    const real *bias = second ? b1 : b0;
    if (bias != nullptr) s += widen(bias[SHARED_WIDTH + own.unit]);
    const float r = gates[0], z = gates[1], n = gates[2];
    const float last = step > 0 ? widen(y[own.output(own.sample, before) + own.unit]) : 0.0f;
    if (!is_last) dh += *direct;
    const float dn = dh * (1.0f - z) * (1.0f - n * n);
    *direct = dh * z;
    *own_row = dn * r;
    narrow(dn * s * r * (1.0f - r), &dp[0]);
    narrow(dh * (last - n) * z * (1.0f - z), &dp[HIDDEN]);
    narrow(dn, &dp[2 * HIDDEN]);
#else
    const float h = widen(y[at]);
    narrow(CELL == PLAIN_TANH ? dh * (1.0f - h * h) : h > 0.0f ? dh : 0.0f, &dp[0]);
#endif
}
