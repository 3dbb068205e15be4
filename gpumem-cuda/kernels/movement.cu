// Gradients on their way: sums, copies, and the sum over the batch.
//
// COUNT elements of the result
// BATCH samples that are summed
// ADD   whether the sum is added to what is there
//
// accumulate: y += x
// copy:       y = x
// clear:      y = 0
// sum_batch:  dx[i] = sum over b of dy[b, i]
#include "base.cuh"
#include "real.cuh"

KERNEL(accumulate)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) narrow(widen(y[i]) + widen(x[i]), &y[i]);
}

KERNEL(copy)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) y[i] = x[i];
}

KERNEL(clear)(real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) narrow(0.0f, &y[i]);
}

KERNEL(sum_batch)(const real *dy, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    float sum = 0.0f;
    for (u64 b = 0; b < BATCH; b++) sum += widen(dy[b * COUNT + i]);
#if ADD
    sum += widen(dx[i]);
#endif
    narrow(sum, &dx[i]);
}
