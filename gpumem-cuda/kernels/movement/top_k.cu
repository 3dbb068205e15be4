// Places of the largest or smallest elements along an axis, the best first.
//
// OUTER    positions before the axis, in all samples
// LENGTH   length of the axis, below 2^32 - 1
// INNER    positions after the axis
// K        places that are found, at most LENGTH
// SMALLEST whether the smallest are found: 1 or 0
// WARPS    warps that share a row: 1 or 8, the warps of a block
//
// x [OUTER, LENGTH, INNER]; y [OUTER, K, INNER] of u32
//
// top_k_rows: INNER is 1, and WARPS warps go through the elements of a row.
// top_k_maps: a thread for each position after the axis; neighbouring threads have neighbouring ones.
//
// Each of the K places is the best of those that are worse than the place before it, so that a row is read K times. An element with its place
// is one number of 64 bits, of which no two are equal: a NaN is larger than any number, -0 is 0, and of equal elements the first is better.
#include "base.cuh"
#include "real.cuh"

static __device__ __forceinline__ u64 rank_of(float x, u64 place) {
    // The bits of numbers below 0 fall where these grow.
    const u32 bits = x == 0.0f ? 0u : bits_of(x);
    const u32 ordered = x != x ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (u64)(SMALLEST ? ~ordered : ordered) << 32 | (u32)~(u32)place;
}

static __device__ __forceinline__ u32 place_of(u64 rank) { return ~(u32)rank; }

// The best rank up to `most` among elements `first`, `first + step` and so on of a row or column; 0, which no element has, if there is none.
static __device__ __forceinline__ u64 best_of(const real *x, u64 first, u64 step, u64 most) {
    u64 best = 0;
    for (u64 i = first; i < LENGTH; i += step) {
        const u64 rank = rank_of(widen(x[i * INNER]), i);
        if (rank <= most && rank > best) best = rank;
    }
    return best;
}

static __device__ __forceinline__ u64 best_of_warp(u64 best) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const u64 other = __shfl_xor_sync(FULL_WARP, best, offset);
        if (other > best) best = other;
    }
    return best;
}

// Blocks of 256 threads.
KERNEL(top_k_rows)(const real *x, u32 *y) {
    __shared__ u64 bests[8];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 row = WARPS == 1 ? (u64)blockIdx.x * 8 + warp : blockIdx.x;
    // Whole warps, and no barriers where a warp has a row of its own.
    if (row >= OUTER) return;
    const u64 first = WARPS == 1 ? lane : threadIdx.x;
    u64 most = ~0ull;
    for (u64 k = 0; k < K; k++) {
        u64 best = best_of_warp(best_of(x + row * LENGTH, first, WARPS * 32, most));
        if (WARPS > 1) {
            if (lane == 0) bests[warp] = best;
            __syncthreads();
#pragma unroll
            for (int other = 0; other < 8; other++) best = bests[other] > best ? bests[other] : best;
            __syncthreads();
        }
        if (first == 0) y[row * K + k] = place_of(best);
        most = best - 1;
    }
}

// Blocks of 256 threads, a column each.
KERNEL(top_k_maps)(const real *x, u32 *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= OUTER * INNER) return;
    const u64 outer = i / INNER, inner = i % INNER;
    u64 most = ~0ull;
    for (u64 k = 0; k < K; k++) {
        const u64 best = best_of(x + outer * (LENGTH * INNER) + inner, 0, 1, most);
        y[(outer * K + k) * INNER + inner] = place_of(best);
        most = best - 1;
    }
}
