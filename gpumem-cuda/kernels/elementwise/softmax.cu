// Softmax or log-softmax along one axis, and its gradient.
//
// OUTER     positions before the axis, in all samples
// LENGTH    C, length of the axis
// INNER     positions after the axis
// WARP_ROWS 1 if a warp works on a row, 0 if a block does
// ADD       1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// LOGARITHM 1 for log-softmax
//
// x, y, dy, dx [OUTER, C, INNER]
//
// forward:  y = exp(x - max(x)) / sum of exp(x - max(x)) over the classes, where y may be x
// backward: dx = y (dy - sum over the classes of dy y), where dx may be dy
// With LOGARITHM y = x - max(x) - log(sum of exp(x - max(x))), and dx = dy - exp(y) (sum over the classes of dy).
//
// softmax_rows, softmax_rows_backward: INNER is 1; the classes of a position are adjacent and are read by a warp or a block.
// softmax_maps, softmax_maps_backward: neighbouring threads have neighbouring positions; the 8 warps of a block share the classes of 32 positions.
#include "base.cuh"
#include "real.cuh"
#include "rows.cuh"

// Return the number that normalises a position, from its sum, and an element of y from it.
static __device__ __forceinline__ float end_of(float sum) { return LOGARITHM ? logf(sum) : 1.0f / sum; }
static __device__ __forceinline__ float value_of(float x, float largest, float end) {
    return LOGARITHM ? x - largest - end : expf(x - largest) * end;
}

// Return a term of the gradient's sum, and an element of the gradient from it.
static __device__ __forceinline__ float term_of(float dy, float y) { return LOGARITHM ? dy : dy * y; }
static __device__ __forceinline__ float slope_of(float dy, float y, float sum) {
    return LOGARITHM ? dy - expf(y) * sum : y * (dy - sum);
}

KERNEL(__launch_bounds__(1024) softmax_rows)(const real *x, real *y) {
#if !WARP_ROWS
    __shared__ float scratch[32];
#endif
    const u64 row = ROW;
    // Whole warps leave, and only if no barrier follows.
    if (row >= OUTER) return;
    const Pack *from = (const Pack *)(x + row * LENGTH);
    Pack *to = (Pack *)(y + row * LENGTH);
    float largest = -__int_as_float(0x7f800000), sum = 0.0f;
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        const Pack pack = from[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) largest = fmaxf(largest, widen(pack.at[k]));
    }
    largest = ROW_MAX(largest);
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        const Pack pack = from[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) sum += expf(widen(pack.at[k]) - largest);
    }
    const float end = end_of(ROW_SUM(sum));
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        Pack pack = from[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(value_of(widen(pack.at[k]), largest, end), &pack.at[k]);
        to[j] = pack;
    }
}

KERNEL(__launch_bounds__(1024) softmax_rows_backward)(const real *dy, const real *y, real *dx) {
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
        for (int k = 0; k < PACK; k++) sum += term_of(widen(gradient.at[k]), widen(output.at[k]));
    }
    sum = ROW_SUM(sum);
    for (u32 j = LANE; j < LENGTH / PACK; j += LANES) {
        const Pack gradient = gradients[j], output = outputs[j];
#if ADD
        Pack out = to[j];
#else
        Pack out = gradient;
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float value = slope_of(widen(gradient.at[k]), widen(output.at[k]), sum);
            narrow(ADD ? widen(out.at[k]) + value : value, &out.at[k]);
        }
        to[j] = out;
    }
}

KERNEL(__launch_bounds__(1024) softmax_maps)(const real *x, real *y) {
    __shared__ float scratch[SLICES * 32];
    const u64 p = (u64)blockIdx.x * 32 + (threadIdx.x & 31), base = first_element(p);
    // No thread leaves before the barriers. Threads without a position have no classes.
    const u32 slice = threadIdx.x >> 5, classes = p < OUTER * INNER ? LENGTH : 0;
    float largest = -__int_as_float(0x7f800000), sum = 0.0f;
    for (u32 c = slice; c < classes; c += SLICES) largest = fmaxf(largest, widen(x[base + c * INNER]));
    scratch[threadIdx.x] = largest;
    __syncthreads();
#pragma unroll
    for (int other = 0; other < SLICES; other++) largest = fmaxf(largest, scratch[other * 32 + (threadIdx.x & 31)]);
    for (u32 c = slice; c < classes; c += SLICES) sum += expf(widen(x[base + c * INNER]) - largest);
    const float end = end_of(slices_sum(sum, scratch));
    for (u32 c = slice; c < classes; c += SLICES) {
        narrow(value_of(widen(x[base + c * INNER]), largest, end), &y[base + c * INNER]);
    }
}

KERNEL(__launch_bounds__(1024) softmax_maps_backward)(const real *dy, const real *y, real *dx) {
    __shared__ float scratch[SLICES * 32];
    const u64 p = (u64)blockIdx.x * 32 + (threadIdx.x & 31), base = first_element(p);
    const u32 slice = threadIdx.x >> 5, classes = p < OUTER * INNER ? LENGTH : 0;
    float sum = 0.0f;
    for (u32 c = slice; c < classes; c += SLICES) {
        sum += term_of(widen(dy[base + c * INNER]), widen(y[base + c * INNER]));
    }
    sum = slices_sum(sum, scratch);
    for (u32 c = slice; c < classes; c += SLICES) {
        const u64 at = base + c * INNER;
        const float value = slope_of(widen(dy[at]), widen(y[at]), sum);
        narrow(ADD ? widen(dx[at]) + value : value, &dx[at]);
    }
}
#undef LANES
#undef LANE
#undef ROW
#undef ROW_SUM
#undef ROW_MAX
