// Spectral norm, a weight divided by its largest singular value: y = W / sigma, sigma = u^T W v.
//
// OUTER, ROWS, INNER  the weight is [OUTER, ROWS, INNER]; a row of W has all elements at one index of the middle axis
// EPS     the least divisor of W v and W^T u
// MOVES   1 if u and v are updated by one step of the power iteration
// PARTS   parts of the sum over all elements
// ADD     1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// `work` and `saved` are [1 + ROWS + COLUMNS]: 1 / sigma, an element a row, an element a column. `saved` may be absent.
//
// spectral_rows:     work[1 + r] = (W v)[r], a block a row
// spectral_left:     u = W v / |W v|, one block
// spectral_columns:  work[1 + ROWS + c] = (W^T u)[c], a block for 32 columns
// spectral_right:    v = W^T u / |W^T u| with MOVES, then 1 / sigma, and `saved`; one block
// spectral_scale:    y = W * statistics[0]
// spectral_product:  partial[p] = a part of the sum of dy * W, a block a part
// spectral_backward: dW = (dy - sum / sigma * u v^T) / sigma
#include "base.cuh"
#include "real.cuh"

constexpr u64 COLUMNS = (u64)OUTER * INNER, LENGTH = COLUMNS * ROWS;

// Returns the place of the element in a row and a column.
static __device__ __forceinline__ u64 place(u64 row, u64 column) {
    return OUTER == 1 ? row * INNER + column : (column / INNER * ROWS + row) * INNER + column % INNER;
}

KERNEL(__launch_bounds__(256) spectral_rows)(const real *w, const float *v, float *work) {
    __shared__ float scratch[32];
    const u64 row = blockIdx.x;
    float sum = 0.0f;
    for (u64 c = threadIdx.x; c < COLUMNS; c += blockDim.x) sum += widen(w[place(row, c)]) * v[c];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) work[1 + row] = sum;
}

KERNEL(__launch_bounds__(1024) spectral_left)(const float *work, float *u) {
    __shared__ float scratch[32];
    float squares = 0.0f;
    for (u64 r = threadIdx.x; r < ROWS; r += blockDim.x) squares += work[1 + r] * work[1 + r];
    const float length = fmaxf(sqrtf(block_sum(squares, scratch)), (float)(EPS));
    for (u64 r = threadIdx.x; r < ROWS; r += blockDim.x) u[r] = work[1 + r] / length;
}

// Neighbouring threads have neighbouring columns; eight warps share the rows.
KERNEL(__launch_bounds__(256) spectral_columns)(const real *w, const float *u, float *work) {
    __shared__ float sums[256];
    const u64 column = (u64)blockIdx.x * 32 + (threadIdx.x & 31);
    float sum = 0.0f;
    if (column < COLUMNS) {
        for (u64 r = threadIdx.x >> 5; r < ROWS; r += 8) sum += widen(w[place(r, column)]) * u[r];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < 32 && column < COLUMNS) {
        for (int slice = 1; slice < 8; slice++) sum += sums[slice * 32 + threadIdx.x];
        work[1 + ROWS + column] = sum;
    }
}

KERNEL(__launch_bounds__(1024) spectral_right)(float *work, const float *u, float *v, float *saved) {
    __shared__ float scratch[32];
    const float *products = work + 1 + ROWS;
    float squares = 0.0f;
    for (u64 c = threadIdx.x; c < COLUMNS; c += blockDim.x) squares += products[c] * products[c];
    const float length = fmaxf(sqrtf(block_sum(squares, scratch)), (float)(EPS));
    float sigma = 0.0f;
    for (u64 c = threadIdx.x; c < COLUMNS; c += blockDim.x) {
#if MOVES
        v[c] = products[c] / length;
#endif
        if (saved != nullptr) saved[1 + ROWS + c] = v[c];
        sigma += products[c] * v[c];
    }
    const float inverse = 1.0f / block_sum(sigma, scratch);
    if (threadIdx.x == 0) {
        work[0] = inverse;
        if (saved != nullptr) saved[0] = inverse;
    }
    if (saved == nullptr) return;
    for (u64 r = threadIdx.x; r < ROWS; r += blockDim.x) saved[1 + r] = u[r];
}

KERNEL(__launch_bounds__(256) spectral_scale)(const real *w, const float *statistics, real *y) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < LENGTH) narrow(widen(w[at]) * statistics[0], &y[at]);
}

KERNEL(__launch_bounds__(256) spectral_product)(const real *dy, const real *w, float *partial) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < LENGTH; at += (u64)PARTS * blockDim.x) {
        sum += widen(dy[at]) * widen(w[at]);
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL(__launch_bounds__(256) spectral_backward)(const real *dy, const float *saved, const float *partial, real *dw) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= LENGTH) return;
    float sum = 0.0f;
    for (int part = 0; part < PARTS; part++) sum += partial[part];
    const u64 row = at / INNER % ROWS, column = at / ((u64)INNER * ROWS) * INNER + at % INNER;
    const float inverse = saved[0];
    const float own = (widen(dy[at]) - sum * inverse * saved[1 + row] * saved[1 + ROWS + column]) * inverse;
    narrow(ADD ? widen(dw[at]) + own : own, &dw[at]);
}
