// Slices: a part of each sample, and the gradient.
//
// SAMPLES number of samples
// WHOLE   elements of a sample
// START   the first element of the part
// PART    its elements
// ADD     1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// x, dx [SAMPLES, WHOLE]; y, dy [SAMPLES, PART]
//
// slice:          y[s, i] = x[s, START + i]
// slice_backward: dx[s, START + i] = dy[s, i], and 0 outside the part
#include "base.cuh"
#include "real.cuh"

// Division by a constant is cheap in 32 bits only.
#if SAMPLES * WHOLE < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

constexpr u64 WIDE = 16 / sizeof(real);
constexpr u64 PACK = PART % WIDE == 0 && WHOLE % WIDE == 0 && START % WIDE == 0 ? WIDE : 1;
// Packs of a part and of a sample, and those before the part.
constexpr Index PARTS = PART / PACK, WHOLES = WHOLE / PACK, BEFORE = START / PACK;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Grid: a thread for each pack of the output.
KERNEL(slice)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < SAMPLES * PARTS) ((Pack *)y)[i] = ((const Pack *)x)[i / PARTS * WHOLES + BEFORE + i % PARTS];
}

#if ADD

// Grid: a thread for each pack of the part; outside it nothing is added.
KERNEL(slice_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SAMPLES * PARTS) return;
    const Index at = i / PARTS * WHOLES + BEFORE + i % PARTS;
    const Pack gradients = ((const Pack *)dy)[i];
    Pack sums = ((const Pack *)dx)[at];
#pragma unroll
    for (int k = 0; k < PACK; k++) narrow(widen(sums.at[k]) + widen(gradients.at[k]), &sums.at[k]);
    ((Pack *)dx)[at] = sums;
}

#else

// Grid: a thread for each pack of a sample.
KERNEL(slice_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SAMPLES * WHOLES) return;
    // Before the part this wraps around to a very large number.
    const Index at = i % WHOLES - BEFORE;
    Pack pack;
    if (at < PARTS) {
        pack = ((const Pack *)dy)[i / WHOLES * PARTS + at];
    } else {
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(0.0f, &pack.at[k]);
    }
    ((Pack *)dx)[i] = pack;
}

#endif
