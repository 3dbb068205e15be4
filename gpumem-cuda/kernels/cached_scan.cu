// The selective scan of the steps at hand of a sequence behind those before, whose states are kept: selective_scan.cuh.
//
// kept [B, D, N] of f32. States begin with 0 where no step went before. They go as far as the steps that are of the sequence; behind those y
// is 0.
#include "selective_scan.cuh"

// A block for HERE channels of a sample.
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
