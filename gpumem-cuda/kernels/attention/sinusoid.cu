// Sinusoidal embeddings: sines and cosines of numbers, each at several frequencies.
//
// COUNT    elements of the output
// ANGLES   the numbers: Given; Indices; Steps, the indices of the rows; Parts, those as fractions of a grid; or Following, the indices of rows
//          after earlier time steps
// FEATURES elements of a row
// ROWS, WIDTH  rows of a sample, and columns of the grid that they are, for Steps
// EACH     elements of a row for one number: half of a row if a grid has one number for the column and one for the row
// MORE, DOWN, ALONG  added to a position, and then factors of rows and columns
// ROWS_FIRST  1 if the row's half is before the column's
// FREQUENCIES  frequency of each pair of a sine and a cosine
// COSINES_FIRST, INTERLEAVED  1 if cosines are before sines; 1 if they alternate, 0 if all of each are adjacent
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it; 0 for the forward pass
#include "base.cuh"
#include "real.cuh"

static __device__ const float frequencies[] = FREQUENCIES;

enum Angles { Given, Indices, Steps, Parts, Following };

constexpr u32 PAIRS = EACH / 2;

// The frequency of an element of a row, and true if it is a cosine.
struct Place {
    float frequency;
    bool is_cosine;
};

static __device__ __forceinline__ Place place(u32 element) {
    const u32 own = element % EACH;
    const bool is_second = INTERLEAVED ? own % 2 == 1 : own >= PAIRS;
    return {frequencies[INTERLEAVED ? own / 2 : own % PAIRS], is_second != (bool)COSINES_FIRST};
}

// Grid: blocks of 256 threads, an element each. For Following, `indices` points to the state.
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

// Grid: a block of 256 threads for each number.
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
