// Vector norms along an axis, and their gradients.
//
// OUTER    positions before the axis, in all samples
// LENGTH   length of the axis
// INNER    positions after the axis
// ORDER    type of the norm: One, Two, Most (maximum) or Power
// POWER    the order of Power
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// x, dx [OUTER, LENGTH, INNER]; y, dy [OUTER, INNER]; ties, of Most only, as y in f32: number of elements as large as the largest,
// null if they are not wanted
//
// vector_norm_rows:     INNER is 1; a warp processes the elements of a norm.
// vector_norm_maps:     neighbouring threads have neighbouring norms; the 8 warps of a block share the elements of 32 of them.
// vector_norm_backward: a thread for each element of dx
//
// Elements are divided by the largest before they are raised to powers, so that these neither overflow nor underflow. Sums are added in the same
// order in every run.
#include "base.cuh"
#include "real.cuh"

// Returns -1, 0 or 1; NaN stays NaN.
static __device__ __forceinline__ float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

// Functions of a norm of order 1. `term` is summed for each element as a share of the largest; `root` returns the norm as a share of the largest from
// that sum; `slope` is the norm's slope by an element. The other orders have the same functions.
struct One {
    static __device__ __forceinline__ float term(float share) { return share; }
    static __device__ __forceinline__ float root(float sum) { return sum; }
    static __device__ __forceinline__ float slope(float x, float, float) { return sign(x); }
};

// Slopes are 0 if the norm is 0.
struct Two {
    static __device__ __forceinline__ float term(float share) { return share * share; }
    static __device__ __forceinline__ float root(float sum) { return sqrtf(sum); }
    static __device__ __forceinline__ float slope(float x, float y, float) { return x == 0.0f || y == 0.0f ? 0.0f : x / y; }
};

struct Power {
    static __device__ __forceinline__ float term(float share) { return powf(share, (float)(POWER)); }
    static __device__ __forceinline__ float root(float sum) { return powf(sum, (float)(1.0 / (POWER))); }
    // Also if the order is below 1, and the slope near 0 is infinite.
    static __device__ __forceinline__ float slope(float x, float y, float) {
        return x == 0.0f || y == 0.0f ? 0.0f : sign(x) * powf(fabsf(x) / y, (float)((POWER) - 1.0));
    }
};

// The largest elements share the gradient. The sum is their number, and no root is taken of it.
struct Most {
    static __device__ __forceinline__ float term(float) { return 0.0f; }
    static __device__ __forceinline__ float root(float) { return 1.0f; }
    static __device__ __forceinline__ float slope(float x, float y, float ties) {
        return fabsf(x) == y || x != x ? sign(x) / ties : 0.0f;
    }
};

// Returns the larger number; NaN if one of them is.
static __device__ __forceinline__ float larger(float a, float b) { return b > a || b != b ? b : a; }

// Returns the term of an element in the sum, given the largest element. The sum is not read if the largest is 0 or not finite.
static __device__ __forceinline__ float term(float x, float most) {
    if (SAME<ORDER, Most>) return fabsf(x) == most ? 1.0f : 0.0f;
    return ORDER::term(fabsf(x) / most);
}

static __device__ __forceinline__ void store(float most, float sum, u64 at, real *y, float *ties) {
    const bool is_plain = most > 0.0f && most <= 3.4028234663852886e38f;
    narrow(is_plain ? most * ORDER::root(sum) : most, &y[at]);
    if (SAME<ORDER, Most> && ties) ties[at] = sum;
}

KERNEL(vector_norm_rows)(const real *x, real *y, float *ties) {
    const u64 row = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    // Whole warps leave.
    if (row >= OUTER) return;
    const u32 lane = threadIdx.x & 31;
    float most = 0.0f, sum = 0.0f;
    for (u64 i = lane; i < LENGTH; i += 32) most = larger(most, fabsf(widen(x[row * LENGTH + i])));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) most = larger(most, __shfl_xor_sync(FULL_WARP, most, offset));
    for (u64 i = lane; i < LENGTH; i += 32) sum += term(widen(x[row * LENGTH + i]), most);
    sum = warp_sum(sum);
    if (lane == 0) store(most, sum, row, y, ties);
}

#define SLICES 8

KERNEL(vector_norm_maps)(const real *x, real *y, float *ties) {
    __shared__ float slices[SLICES * 32];
    const u32 slice = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const u64 p = (u64)blockIdx.x * 32 + lane;
    const u64 base = p / INNER * (LENGTH * INNER) + p % INNER;
    // No thread leaves before the barriers. Threads without a norm have no elements.
    const u64 length = p < OUTER * INNER ? LENGTH : 0;
    float most = 0.0f, sum = 0.0f;
    for (u64 i = slice; i < length; i += SLICES) most = larger(most, fabsf(widen(x[base + i * INNER])));
    slices[threadIdx.x] = most;
    __syncthreads();
#pragma unroll
    for (int other = 0; other < SLICES; other++) most = larger(most, slices[other * 32 + lane]);
    __syncthreads();
    for (u64 i = slice; i < length; i += SLICES) sum += term(widen(x[base + i * INNER]), most);
    slices[threadIdx.x] = sum;
    __syncthreads();
    if (slice != 0 || length == 0) return;
#pragma unroll
    for (int other = 1; other < SLICES; other++) sum += slices[other * 32 + lane];
    store(most, sum, p, y, ties);
}
#undef SLICES

KERNEL(vector_norm_backward)(const real *dy, const real *x, const real *y, const float *ties, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= OUTER * LENGTH * INNER) return;
    const u64 at = i / (LENGTH * INNER) * INNER + i % INNER;
    const float shared = SAME<ORDER, Most> ? ties[at] : 1.0f;
    const float value = widen(dy[at]) * ORDER::slope(widen(x[i]), widen(y[at]), shared);
    narrow(ADD ? widen(dx[i]) + value : value, &dx[i]);
}
