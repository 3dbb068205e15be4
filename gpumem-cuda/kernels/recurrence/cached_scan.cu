// Selective scan for decoding: continues from the cached states of earlier time steps. See selective_scan.cuh.
//
// kept [B, D, N] in f32 are the cached states, which are 0 before the first time step. They are updated for time steps of the sequence only; after
// those y is 0.
#include "selective_scan.cuh"

// Grid: a block for HERE channels of a sample.
KERNEL(__launch_bounds__(THREADS, 1) cached_scan)
(const real *u, const real *delta, const norm *a_log, const real *b, const real *c, const norm *skip, const u32 *state, float *kept, real *y) {
    const u64 sample = blockIdx.x / BLOCKS;
    const u32 first_channel = blockIdx.x % BLOCKS * HERE, channel = first_channel + own_channel();
    const bool is_first = steps_before(state) == 0;
    const u32 count = steps_at_hand(state, STEPS);
    kept += (sample * CHANNELS + channel) * STATES;
    float h[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const u32 n = j * LANES + own_lane();
        h[j] = !is_first && channel < CHANNELS && n < STATES ? kept[n] : 0.0f;
    }
    walk(u, delta, a_log, b, c, skip, sample, first_channel, count, h, y);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const u32 n = j * LANES + own_lane();
        if (channel < CHANNELS && n < STATES) kept[n] = h[j];
    }
    for (u32 e = threadIdx.x; e < (STEPS - count) * HERE; e += THREADS) {
        const u32 other = first_channel + e % HERE;
        if (other < CHANNELS) narrow(0.0f, &y[(sample * STEPS + count + e / HERE) * CHANNELS + other]);
    }
}
