// Sines and cosines of numbers, each at several frequencies.
//
// COUNT    elements of the output
// ANGLES   which numbers: Given, Indices, Steps, those of the rows themselves, Parts, the same as parts of a grid, or Following, those of the
//          rows behind the steps that went before
// FEATURES elements of a row
// ROWS, WIDTH  rows of a sample, and columns of the grid that they are, for Steps
// EACH     elements of a row for one number: half of it where a grid has a column's and a row's
// MORE, DOWN, ALONG  what is added to a position, and what rows and columns are multiplied with then
// ROWS_FIRST  whether the row's half is before the column's
// FREQUENCIES  of each pair of a sine and a cosine
// COSINES_FIRST, INTERLEAVED  whether cosines are before sines, and whether they take turns; else each are side by side
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it; 0 for the forward pass
#include "base.cuh"
#include "real.cuh"

static __device__ const float frequencies[] = FREQUENCIES;

enum Angles { Given, Indices, Steps, Parts, Following };

constexpr u32 PAIRS = EACH / 2;

// The frequency of an element of a row, and whether it is a cosine.
struct Place {
    float frequency;
    bool is_cosine;
};

static __device__ __forceinline__ Place place(u32 element) {
    const u32 own = element % EACH;
    const bool is_second = INTERLEAVED ? own % 2 == 1 : own >= PAIRS;
    return {frequencies[INTERLEAVED ? own / 2 : own % PAIRS], is_second != (bool)COSINES_FIRST};
}

// Blocks of 256 threads, an element each. In place of the indices of numbers that follow is the state.
KERNEL(sinusoid_forward)(const real *x, const u32 *indices, real *y) {
    const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= COUNT) return;
    const u64 row = index / FEATURES;
    const u32 element = (u32)(index % FEATURES);
    const Place here = place(element);
    float number;
    if (ANGLES == Given) {
        number = widen(x[row]);
    } else if (ANGLES == Indices) {
        number = (float)indices[row];
    } else if (ANGLES == Following) {
        number = (float)(steps_before(indices) + row % ROWS);
    } else {
        const u32 step = (u32)(row % ROWS);
        const bool is_down = EACH < FEATURES && (element >= EACH) != (bool)ROWS_FIRST;
        number = ((float)(is_down ? step / WIDTH : step % WIDTH) + (float)(MORE)) * (float)(is_down ? DOWN : ALONG);
    }
    const float angle = number * here.frequency;
    narrow(here.is_cosine ? cosf(angle) : sinf(angle), &y[index]);
}

// A block of 256 threads for each number.
KERNEL(sinusoid_backward)(const real *dy, const real *x, real *dx) {
    __shared__ float scratch[8];
    const u64 row = blockIdx.x;
    const float number = widen(x[row]);
    float sum = 0.0f;
    for (u32 element = threadIdx.x; element < FEATURES; element += blockDim.x) {
        const Place here = place(element);
        const float angle = number * here.frequency;
        sum += widen(dy[row * FEATURES + element]) * here.frequency * (here.is_cosine ? -sinf(angle) : cosf(angle));
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) narrow(ADD ? sum + widen(dx[row]) : sum, &dx[row]);
}
