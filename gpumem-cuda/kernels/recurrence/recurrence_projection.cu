// The projection of an LSTM's units to fewer outputs, between the launches of recurrence.cu: h[t] = W_r (o tanh(c)), with W_r [P, H]. There is a
// launch for each time step and pass, for both directions at once.
//
// The constants are those of recurrence_steps.cuh.
//
// recurrence_project: after recurrence_forward: computes y of the time step from o tanh(c), which that stored after the states.
// recurrence_hand_on: before recurrence_backward: computes the gradient of the output in f32, dh[t] = dy[t] + ds[t + 1] W. For its place in
//                     `rows`, see recurrence.cuh.
#include "base.cuh"
#include "real.cuh"
#include "recurrence_steps.cuh"

KERNEL(__launch_bounds__(256) recurrence_project)(const real *r0, const real *r1, const float *states, real *y, u32 step) {
    __shared__ Rooms rooms;
    const OwnOf<OUTPUTS> own;
    const float *units = states + (((u64)DIRECTIONS + own.direction) * BATCH + own.first_sample) * HIDDEN;
    const Forth<OUTPUTS, HIDDEN> projection = {own.direction == 1 ? r1 : r0, own.first_unit};
    float h = 0.0f;
    multiply<1>(Rows<float>{units, HIDDEN, own.samples(), HIDDEN}, projection, HIDDEN, rooms, &h);
    if (own.exists) narrow(h, &y[own.output(own.sample, on_the_way(own.direction, step)) + own.unit]);
}

KERNEL(__launch_bounds__(256) recurrence_hand_on)
(const real *dy, const real *w0, const real *w1, const real *dp0, const real *dp1, float *rows, u32 step) {
    __shared__ Rooms rooms;
    const OwnOf<OUTPUTS> own;
    const bool second = own.direction == 1;
    const u32 t = on_the_way(own.direction, step);
    float handed = 0.0f;
    if (step + 1 < STEPS) {
        const real *dp = (second ? dp1 : dp0) + own.gates(own.first_sample, on_the_way(own.direction, step + 1));
        const Back<OUTPUTS, WIDTH> weight = {second ? w1 : w0, own.first_unit};
        multiply<1>(Rows<real>{dp, (u64)STEPS * WIDTH, own.samples(), WIDTH}, weight, WIDTH, rooms, &handed);
    }
    if (!own.exists) return;
    const float dh = widen(dy[own.output(own.sample, t) + own.unit]) + handed;
    rows[room_of_outputs(own.direction, t, own.sample) + own.unit] = dh;
}
