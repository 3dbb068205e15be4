// The position of each token among those that are no padding, behind the index of padding, which padding itself has.
//
// SAMPLES  samples
// STEPS    T, tokens of each
// PADDING  the token that is padding
//
// token, y [SAMPLES, T] of u32
// y[b, t] = PADDING + (how many of token[b, 0], .., token[b, t] are no padding), or PADDING where token[b, t] is
#include "base.cuh"

// A warp for each sample, 32 tokens at a time; eight warps a block.
KERNEL(padded_positions)(const u32 *token, u32 *y) {
    const u64 sample = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    // Whole warps.
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
