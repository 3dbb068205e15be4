// Gather of rows of a sample by indices of its own, and the gradient.
//
// COUNT  elements of the result
// ROWS   T, rows of a sample
// EACH   C, indices of a sample
// WIDTH  D, elements of a row
// ADD    1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// index [B, C] of u32; x, dx [B, T, D]; y, dy [B, C, D]
//
// forward:  y[b, c, :] = x[b, index[b, c], :]; an index from T on gives NaN
// backward: dx[b, t, :] = sum of dy[b, c, :] over the places c whose index is t, in their order
#include "base.cuh"
#include "real.cuh"

// Grid: blocks of 256 threads, an element of y each.
KERNEL(take)(const real *x, const u32 *index, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 row = i / WIDTH, column = i % WIDTH, place = index[row];
    if (place < ROWS) {
        y[i] = x[(row / EACH * ROWS + place) * WIDTH + column];
    } else {
        narrow(__int_as_float(0x7fc00000), &y[i]);
    }
}

// Grid: blocks of 256 threads, an element of dx each. A thread goes through the sample's indices.
KERNEL(take_backward)(const real *dy, const u32 *index, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 row = i / WIDTH, column = i % WIDTH, sample = row / ROWS, place = row % ROWS;
    float sum = ADD ? widen(dx[i]) : 0.0f;
    for (u64 c = sample * EACH; c < (sample + 1) * EACH; c++) {
        if (index[c] == place) sum += widen(dy[c * WIDTH + column]);
    }
    narrow(sum, &dx[i]);
}
