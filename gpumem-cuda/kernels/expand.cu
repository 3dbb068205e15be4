// What is the same for all samples, for each of them.
//
// COUNT  elements of all samples
// LENGTH elements of one
//
// y[s, i] = x[i]
#include "base.cuh"
#include "real.cuh"

KERNEL(expand)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) y[i] = x[i % LENGTH];
}
