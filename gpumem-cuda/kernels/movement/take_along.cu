// Elements along an axis by indices, and elements that are added by indices.
//
// COUNT    elements of what is written
// LENGTH   T, elements of the indexed side along the axis
// EACH     C, indices along the axis
// INNER    positions after the axis
// ADD      whether what is taken is added to what is there
// ROWS     elements of y that a thread of add_along sums, at most 32
//
// index [I, C, INNER] of u32, where I are the positions before the axis in all samples
//
// take_along: x [I, T, INNER], y [I, C, INNER]: y[i, c, j] = x[i, index[i, c, j], j]; an index from T on gives NaN
// add_along:  src [I, C, INNER], x and y [I, T, INNER]: y[i, t, j] = x[i, t, j] + sum of src[i, c, j] over the places c whose index is t, in
//             their order; an index from T on adds nothing. x may be y, or null for zeros.
#include "base.cuh"
#include "real.cuh"

// Blocks of 256 threads, an element of y each.
KERNEL(take_along)(const real *x, const u32 *index, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const u64 outer = i / (EACH * INNER), inner = i % INNER, place = index[i];
    const float value = place < LENGTH ? widen(x[(outer * LENGTH + place) * INNER + inner]) : __int_as_float(0x7fc00000);
    narrow(ADD ? widen(y[i]) + value : value, &y[i]);
}

#define THREADS 256

// A thread sums ROWS elements of a column in shared memory, where nobody else looks. Blocks are those of all columns for the first ROWS elements
// along the axis, then for the next.
KERNEL(add_along)(const real *x, const u32 *index, const real *src, real *y) {
    __shared__ float sums[ROWS * THREADS];
    constexpr u64 columns = COUNT / LENGTH, blocks = (columns + THREADS - 1) / THREADS;
    const u64 column = blockIdx.x % blocks * THREADS + threadIdx.x, first = blockIdx.x / blocks * ROWS;
    if (column >= columns) return;
    float *own = &sums[threadIdx.x];
    const u64 outer = column / INNER, inner = column % INNER;
    const u64 begin = (outer * LENGTH + first) * INNER + inner, start = outer * (EACH * INNER) + inner;
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) {
        own[row * THREADS] = x && first + row < LENGTH ? widen(x[begin + row * INNER]) : 0.0f;
    }
#pragma unroll 8
    for (u64 c = 0; c < EACH; c++) {
        // A place before the first row becomes a large unsigned number.
        const u64 row = (u64)index[start + c * INNER] - first;
        if (row < ROWS) own[row * THREADS] += widen(src[start + c * INNER]);
    }
#pragma unroll
    for (u32 row = 0; row < ROWS; row++) {
        if (first + row < LENGTH) narrow(own[row * THREADS], &y[begin + row * INNER]);
    }
}
#undef THREADS
