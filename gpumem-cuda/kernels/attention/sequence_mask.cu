// Masking of padded sequences: the first n time steps of each, in order or reversed, and zeros after them; and the gradient.
//
// SAMPLES  samples
// STEPS    T, time steps of a sequence
// WIDTH    D, elements of a time step
// REVERSE  1 if time step n - 1 comes first
// ADD      1 if the result is added to its tensor (+=), 0 if it overwrites it
//
// x, y [SAMPLES, T, D]; lengths [SAMPLES] of u32, n of each sample
// y[b, t] = t < n ? x[b, REVERSE ? n - 1 - t : t] : 0, where y may be x unless REVERSE. The gradient is the same function of dy.
#include "base.cuh"
#include "real.cuh"

// Grid: a thread for each element of y.
KERNEL(sequence_mask)(const real *x, const u32 *lengths, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SAMPLES * STEPS * WIDTH) return;
    const u64 sample = i / (STEPS * WIDTH), step = i / WIDTH % STEPS;
    const u64 length = lengths[sample] < STEPS ? lengths[sample] : STEPS;
    float value = 0.0f;
    if (step < length) {
        const u64 from = REVERSE ? length - 1 - step : step;
        value = widen(x[(sample * STEPS + from) * WIDTH + i % WIDTH]);
    }
    narrow(ADD ? widen(y[i]) + value : value, &y[i]);
}
