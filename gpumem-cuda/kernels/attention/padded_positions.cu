// Positions of tokens among those that are not padding, counted from PADDING + 1 on; padding itself has PADDING.
//
// SAMPLES  samples
// STEPS    T, tokens of each sample
// PADDING  the token that is padding
//
// token, y [SAMPLES, T] of u32
// y[b, t] = PADDING + (number of token[b, 0], .., token[b, t] that are not padding), or PADDING if token[b, t] is padding
#include "base.cuh"

// Grid: a warp for each sample, 32 tokens at a time; eight warps a block.
KERNEL(padded_positions)(const u32 *token, u32 *y) {
    const u64 sample = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    // Whole warps leave.
    if (sample >= SAMPLES) return;
    const u32 lane = threadIdx.x & 31;
    u32 before = 0;
    for (u64 first = 0; first < STEPS; first += 32) {
        const u64 step = first + lane;
        const u32 counts = step < STEPS && token[sample * STEPS + step] != PADDING;
        u32 upto = counts;
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 other = __shfl_sync(FULL_WARP, upto, lane >= distance ? lane - distance : lane);
            if (lane >= distance) upto += other;
        }
        if (step < STEPS) y[sample * STEPS + step] = counts ? (u32)PADDING + before + upto : (u32)PADDING;
        before += __shfl_sync(FULL_WARP, upto, 31);
    }
}
