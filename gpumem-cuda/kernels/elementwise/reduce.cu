// Reductions along an axis: sum, mean or maximum, and their gradients.
//
// OUTER    positions before the axis, in all samples
// LENGTH   length of the axis
// INNER    positions after the axis
// MAXIMUM  1 for the maximum
// SCALE    factor of sums
// MEAN     with COUNTED, 1 for a mean
// COUNTED  0, or the number of positions before the axis in a sample, if only the first counts[b] elements along the axis of sample b count. A mean
//          is divided by their number; without any the result is 0
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// x, dx [OUTER, LENGTH, INNER]; y, dy [OUTER, INNER]; places, of maxima only, as y: null if they are not wanted
//
// reduce_rows:     INNER is 1; a warp processes the elements of a result.
// reduce_maps:     neighbouring threads have neighbouring results; the 8 warps of a block share the elements of 32 of them.
// reduce_backward: a thread for each element of dx
//
// Sums are added in the same order in every run. A NaN is larger than any number, and the first of several maxima counts.
#include "base.cuh"
#include "real.cuh"

#ifndef COUNTED
#define COUNTED 0
#define MEAN 0
#endif

// Returns the number of elements that count at an outer position.
static __device__ __forceinline__ u64 count_of(const u32 *counts, u64 outer) {
#if COUNTED
    const u64 count = counts[outer / COUNTED];
    return count < LENGTH ? count : LENGTH;
#else
    return LENGTH;
#endif
}

// Returns the factor of a sum of `count` elements. For a mean of all elements, SCALE is 1 / LENGTH.
static __device__ __forceinline__ float scale_of(u64 count) {
    return COUNTED && MEAN ? (count ? 1.0f / (float)count : 1.0f) : SCALE;
}

// The result of some elements: their sum, or the largest and its place.
struct Known {
    float value;
    u32 place;
};

#if MAXIMUM
static __device__ __forceinline__ Known nothing() { return {-__int_as_float(0x7f800000), 0xffffffffu}; }

static __device__ __forceinline__ Known both(Known a, Known b) {
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    const bool equal = a.value == b.value || (a_is_nan && b_is_nan);
    const bool larger = b.value > a.value || (b_is_nan && !a_is_nan);
    return larger || (equal && b.place < a.place) ? b : a;
}
#else
static __device__ __forceinline__ Known nothing() { return {0.0f, 0}; }

static __device__ __forceinline__ Known both(Known a, Known b) { return {a.value + b.value, 0}; }
#endif

static __device__ __forceinline__ void store(Known known, u64 count, u64 at, real *y, u32 *places) {
    if (COUNTED && count == 0) known.value = 0.0f;
    narrow(MAXIMUM ? known.value : known.value * scale_of(count), &y[at]);
#if MAXIMUM
    if (places) places[at] = known.place;
#endif
}

KERNEL(reduce_rows)(const real *x, const u32 *counts, real *y, u32 *places) {
    const u64 row = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    // Whole warps leave.
    if (row >= OUTER) return;
    const u32 lane = threadIdx.x & 31;
    const u64 count = count_of(counts, row);
    Known known = nothing();
    for (u64 i = lane; i < count; i += 32) known = both(known, {widen(x[row * LENGTH + i]), (u32)i});
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        Known other;
        other.value = __shfl_xor_sync(FULL_WARP, known.value, offset);
        other.place = __shfl_xor_sync(FULL_WARP, known.place, offset);
        known = both(known, other);
    }
    if (lane == 0) store(known, count, row, y, places);
}

#define SLICES 8

KERNEL(reduce_maps)(const real *x, const u32 *counts, real *y, u32 *places) {
    __shared__ Known slices[SLICES * 32];
    const u64 p = (u64)blockIdx.x * 32 + (threadIdx.x & 31);
    const bool is_one = p < OUTER * INNER;
    const u64 base = p / INNER * (LENGTH * INNER) + p % INNER;
    // No thread leaves before the barrier. Threads without a result have no elements.
    const u64 count = is_one ? count_of(counts, p / INNER) : 0;
    Known known = nothing();
    for (u64 i = threadIdx.x >> 5; i < count; i += SLICES) {
        known = both(known, {widen(x[base + i * INNER]), (u32)i});
    }
    slices[threadIdx.x] = known;
    __syncthreads();
    if (threadIdx.x >= 32 || !is_one) return;
#pragma unroll
    for (int slice = 1; slice < SLICES; slice++) known = both(known, slices[slice * 32 + threadIdx.x]);
    store(known, count, p, y, places);
}
#undef SLICES

KERNEL(reduce_backward)(const real *dy, const u32 *counts, const u32 *places, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= OUTER * LENGTH * INNER) return;
    const u64 result = i / (LENGTH * INNER) * INNER + i % INNER;
#if MAXIMUM
    const float value = places[result] == (u32)(i / INNER % LENGTH) ? widen(dy[result]) : 0.0f;
#else
    const u64 count = count_of(counts, i / (LENGTH * INNER));
    const float value = i / INNER % LENGTH < count ? widen(dy[result]) * scale_of(count) : 0.0f;
#endif
    narrow(ADD ? widen(dx[i]) + value : value, &dx[i]);
}
