// L2 normalisation: elements along an axis divided by their Euclidean norm.
//
// OUTER     positions before the axis, in all samples
// LENGTH    C, length of the axis
// INNER     positions after the axis
// WARP_ROWS 1 if a warp works on a row, 0 if a block does
// EPS       the least divisor
// ADD       1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// x, y, dy, dx [OUTER, C, INNER]; norms [OUTER, INNER] of f32
//
// forward:  y = x / max(|x|, EPS), where y may be x; norms are |x| and may be absent
// backward: dx = (dy - y (sum along the axis of dy y)) / |x| if |x| is not below EPS, else dy / EPS; dx may be dy
//
// l2_norm_rows, l2_norm_rows_backward: INNER is 1; the elements of a position are adjacent and are read by a warp or a block.
// l2_norm_maps, l2_norm_maps_backward: neighbouring threads have neighbouring positions; the 8 warps of a block share the elements of 32 positions.
#include "base.cuh"
#include "real.cuh"
#include "rows.cuh"

constexpr float LEAST = EPS;

// Returns 1, or the scale with which a sum of squares is recomputed: 2^70 or its inverse. Squares of large numbers overflow, and those of small
// ones underflow.
static __device__ __forceinline__ float scale_for(float sum) { return sum > 1e30f ? 8.470329472543003e-22f : sum < 1e-30f ? 1.180591620717411e21f : 1.0f; }

// Returns an element of the gradient, from the sum along the axis.
static __device__ __forceinline__ float slope_of(float dy, float y, float sum, float norm) {
    return norm < LEAST ? dy / LEAST : (dy - y * sum) / norm;
}

KERNEL(__launch_bounds__(1024) l2_norm_rows)(const real *x, real *y, float *norms) {
#if !WARP_ROWS
    __shared__ float scratch[32];
#endif
    const u64 row = ROW;
    // Whole warps leave, and only if no barrier follows.
    if (row >= OUTER) return;
    const Pack *from = (const Pack *)(x + row * LENGTH);
    Pack *to = (Pack *)(y + row * LENGTH);
    float sum = 0.0f;
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        const Pack pack = from[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) sum += widen(pack.at[k]) * widen(pack.at[k]);
    }
    sum = ROW_SUM(sum);
    float norm = sqrtf(sum);
    const float scale = scale_for(sum);
    // All threads of a row take this branch, or none.
    if (scale != 1.0f) {
        sum = 0.0f;
        for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
            const Pack pack = from[j];
#pragma unroll
            for (int k = 0; k < PACK; k++) sum += widen(pack.at[k]) * scale * (widen(pack.at[k]) * scale);
        }
        norm = sqrtf(ROW_SUM(sum)) / scale;
    }
    const float divisor = at_least(LEAST, norm);
    if (norms && LANE == 0) norms[row] = norm;
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        Pack pack = from[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(widen(pack.at[k]) / divisor, &pack.at[k]);
        to[j] = pack;
    }
}

KERNEL(__launch_bounds__(1024) l2_norm_rows_backward)(const real *dy, const real *y, const float *norms, real *dx) {
#if !WARP_ROWS
    __shared__ float scratch[32];
#endif
    const u64 row = ROW;
    // Whole warps leave, and only if no barrier follows.
    if (row >= OUTER) return;
    const Pack *gradients = (const Pack *)(dy + row * LENGTH), *outputs = (const Pack *)(y + row * LENGTH);
    Pack *to = (Pack *)(dx + row * LENGTH);
    float sum = 0.0f;
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        const Pack gradient = gradients[j], output = outputs[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) sum += widen(gradient.at[k]) * widen(output.at[k]);
    }
    sum = ROW_SUM(sum);
    const float norm = norms[row];
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        const Pack gradient = gradients[j], output = outputs[j];
#if ADD
        Pack out = to[j];
#else
        Pack out = gradient;
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float value = slope_of(widen(gradient.at[k]), widen(output.at[k]), sum, norm);
            narrow(ADD ? widen(out.at[k]) + value : value, &out.at[k]);
        }
        to[j] = out;
    }
}

KERNEL(__launch_bounds__(1024) l2_norm_maps)(const real *x, real *y, float *norms) {
    __shared__ float scratch[SLICES * 32];
    const u64 p = (u64)blockIdx.x * 32 + (threadIdx.x & 31), base = first_element(p);
    // No thread leaves before the barrier. Threads without a position have no elements.
    const u32 slice = threadIdx.x >> 5, length = p < OUTER * INNER ? LENGTH : 0;
    float sum = 0.0f;
    for (u32 c = slice; c < length; c += SLICES) sum += widen(x[base + c * INNER]) * widen(x[base + c * INNER]);
    sum = slices_sum(sum, scratch);
    float norm = sqrtf(sum);
    const float scale = length ? scale_for(sum) : 1.0f;
    // A barrier follows for all positions of a block, or for none.
    if (block_max(scale != 1.0f ? 1.0f : 0.0f, scratch) != 0.0f) {
        sum = 0.0f;
        for (u32 c = slice; c < length; c += SLICES) sum += widen(x[base + c * INNER]) * scale * (widen(x[base + c * INNER]) * scale);
        norm = sqrtf(slices_sum(sum, scratch)) / scale;
    }
    const float divisor = at_least(LEAST, norm);
    if (norms && slice == 0 && length) norms[p] = norm;
    for (u32 c = slice; c < length; c += SLICES) {
        const u64 at = base + c * INNER;
        narrow(widen(x[at]) / divisor, &y[at]);
    }
}

KERNEL(__launch_bounds__(1024) l2_norm_maps_backward)(const real *dy, const real *y, const float *norms, real *dx) {
    __shared__ float scratch[SLICES * 32];
    const u64 p = (u64)blockIdx.x * 32 + (threadIdx.x & 31), base = first_element(p);
    const u32 slice = threadIdx.x >> 5, length = p < OUTER * INNER ? LENGTH : 0;
    float sum = 0.0f;
    for (u32 c = slice; c < length; c += SLICES) sum += widen(dy[base + c * INNER]) * widen(y[base + c * INNER]);
    sum = slices_sum(sum, scratch);
    const float norm = length ? norms[p] : 1.0f;
    for (u32 c = slice; c < length; c += SLICES) {
        const u64 at = base + c * INNER;
        const float value = slope_of(widen(dy[at]), widen(y[at]), sum, norm);
        narrow(ADD ? widen(dx[at]) + value : value, &dx[at]);
    }
}
#undef LANES
#undef LANE
#undef ROW
#undef ROW_SUM
#undef ROW_MAX
