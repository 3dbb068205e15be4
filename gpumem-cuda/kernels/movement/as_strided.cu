// Indices of a value at strides.
//
// COUNT    elements of y in all samples
// AXES     axes of y with the samples as the first
// LENGTHS  their lengths
// STRIDES  elements of x from one index of each axis to the next; 0 along an axis that repeats
// START    the element of a sample of x that is its first of y
//
// x, y of u32; y[s, i, j] = x[START + s * STRIDES[0] + i * STRIDES[1] + j * STRIDES[2]]
#include "base.cuh"

static __device__ constexpr u64 length_of(int axis) {
    constexpr u64 lengths[] = LENGTHS;
    return lengths[axis];
}

static __device__ constexpr u64 stride_of(int axis) {
    constexpr u64 strides[] = STRIDES;
    return strides[axis];
}

// Blocks of 256 threads, an element of y each.
KERNEL(as_strided)(const u32 *x, u32 *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    u64 rest = i, place = START;
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; axis--) {
        place += rest % length_of(axis) * stride_of(axis);
        rest /= length_of(axis);
    }
    y[i] = x[place];
}
