// Argmax of indices: the place of the largest, or of the first of several largest.
//
// SAMPLES  samples
// STEPS    T, indices of each sample
//
// token [SAMPLES, T], y [SAMPLES], both u32. y is overwritten.
#include "base.cuh"

// Grid: a warp for each sample, eight warps a block.
KERNEL(arg_max)(const u32 *token, u32 *y) {
    const u64 sample = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    // Warps leave as a whole, so that all lanes take part in shuffles.
    if (sample >= SAMPLES) return;
    const u32 lane = threadIdx.x & 31;
    u32 largest = 0, place = 0xffffffffu;
    for (u64 step = lane; step < STEPS; step += 32) {
        const u32 here = token[sample * STEPS + step];
        if (place == 0xffffffffu || here > largest) {
            largest = here;
            place = (u32)step;
        }
    }
#pragma unroll
    for (u32 distance = 16; distance > 0; distance /= 2) {
        const u32 other = __shfl_xor_sync(FULL_WARP, largest, distance), at = __shfl_xor_sync(FULL_WARP, place, distance);
        // A lane without indices has no candidate.
        const bool is_better = at != 0xffffffffu && (place == 0xffffffffu || other > largest || (other == largest && at < place));
        if (is_better) {
            largest = other;
            place = at;
        }
    }
    if (lane == 0) y[sample] = place;
}
