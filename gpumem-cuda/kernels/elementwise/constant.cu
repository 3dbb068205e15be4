// A constant of the network: y[i] = NUMBERS[i].
//
// COUNT   elements of the output
// NUMBERS the elements in braces, or one for all of them
#include "base.cuh"
#include "real.cuh"

static __device__ const float numbers[] = NUMBERS;

// Grid: blocks of 256 threads, an element each.
KERNEL(constant)(real *y) {
    const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= COUNT) return;
    narrow(numbers[sizeof numbers == sizeof(float) ? 0 : index], &y[index]);
}
