// Causal convolution for decoding. Windows of the current time steps extend back to earlier ones: the last REACH of those are cached.
//
// IN, OUT           channels of x and y
// WIDTH, DILATION   columns of the kernel, and time steps between them
// GROUPS            groups of channels
// STEPS             current time steps
// BIAS              1 if a number is added to each output channel
// SAMPLES           samples of the batch
//
// x [B, IN, STEPS], weight [OUT, IN / GROUPS, WIDTH], bias [OUT], y [B, OUT, STEPS]; kept [B, IN, REACH], the column of time step t in t % REACH.
//
// cached_convolution:       y[b, o, t] = bias[o] + sum over c and j of w[o, c, j] x[b, c, t - REACH + j DILATION]; x[b, c, t] is 0 for t < 0
// cached_convolution_keep:  copies the last columns that belong to the sequence to the cache
#include "base.cuh"
#include "real.cuh"

constexpr u32 REACH = (WIDTH - 1) * DILATION, EACH = IN / GROUPS;

// Grid: blocks of 256 threads, a thread for each element of y.
KERNEL(cached_convolution)(const real *x, const real *weight, const real *bias, const real *kept, const u32 *state, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)SAMPLES * OUT * STEPS) return;
    const u64 before = steps_before(state), sample = i / STEPS / OUT;
    const u32 t = (u32)(i % STEPS), channel = (u32)(i / STEPS % OUT);
    const u64 first = sample * IN + channel / (OUT / GROUPS) * EACH;
    float sum = BIAS ? widen(bias[channel]) : 0.0f;
    for (u32 c = 0; c < EACH; c++) {
        for (u32 j = 0; j < WIDTH; j++) {
            const u32 back = REACH - j * DILATION;
            float arriving = 0.0f;
            if (t >= back) {
                arriving = widen(x[(first + c) * STEPS + t - back]);
            } else if (before >= back - t) {
                arriving = widen(kept[(first + c) * REACH + (before - (back - t)) % REACH]);
            }
            sum += widen(weight[((u64)channel * EACH + c) * WIDTH + j]) * arriving;
        }
    }
    narrow(sum, &y[i]);
}

// Grid: blocks of 256 threads, a thread for each column of a channel in the cache. It finds the last current time step that belongs there.
KERNEL(cached_convolution_keep)(const real *x, const u32 *state, real *kept) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)SAMPLES * IN * REACH) return;
    const u64 before = steps_before(state), row = i / REACH;
    const u32 count = steps_at_hand(state, STEPS), place = (u32)(i % REACH);
    // Time steps from the first current one to the first that belongs there.
    const u32 begin = (u32)(before % REACH), first = place >= begin ? place - begin : REACH - begin + place;
    if (first >= count) return;
    kept[i] = x[row * STEPS + first + (count - 1 - first) / REACH * REACH];
}
