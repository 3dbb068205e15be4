// Sum of several values, with a rectifier.
//
// COUNT     elements of the sum
// SAMPLE    elements of a sample of it
// INPUTS    number of pointers that are not null
// SHARED    bit k is set if value k has one sample for the whole batch
// OWN       how often the output itself is one of the values
// RECTIFIER function applied to the sum: see rectify.cuh
//
// y = rectify(OWN * y + x0 + x1 + ..), y and values [B, SAMPLE], shared values [SAMPLE]
#include "base.cuh"
#include "real.cuh"
#include "rectify.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Elements that a thread works on in one access: 16 bytes, or four, if all samples begin at a multiple of that.
constexpr int WIDE = 16 / sizeof(real), SUMMED = SAMPLE % WIDE == 0 ? WIDE : SAMPLE % 4 == 0 ? 4 : 1;

struct alignas(SUMMED * sizeof(real)) Pack {
    real at[SUMMED];
};

static __device__ __forceinline__ void accumulate(const real *x, u64 at, float sum[SUMMED]) {
    const Pack pack = *(const Pack *)(x + at);
#pragma unroll
    for (int e = 0; e < SUMMED; e++) sum[e] += widen(pack.at[e]);
}

KERNEL(sum)(const real *x0, const real *x1, const real *x2, const real *x3, const real *x4, const real *x5, const real *x6,
            const real *x7, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / SUMMED) return;
    const Index at = i * SUMMED;
    const real *branches[8] = {x0, x1, x2, x3, x4, x5, x6, x7};
    float total[SUMMED] = {};
#if OWN > 0
    accumulate(y, at, total);
#pragma unroll
    for (int e = 0; e < SUMMED; e++) total[e] *= OWN;
#endif
#pragma unroll
    for (int k = 0; k < INPUTS; k++) accumulate(branches[k], SHARED >> k & 1 ? at % (Index)SAMPLE : at, total);
    Pack pack;
#pragma unroll
    for (int e = 0; e < SUMMED; e++) narrow(rectify(total[e]), &pack.at[e]);
    *(Pack *)(y + at) = pack;
}
