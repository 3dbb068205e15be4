// One row of a table for each position, one for the whole batch.
//
// USED  T * D, elements of the rows that are used
// TABLE P * D, elements of the table of P rows
// ADD   whether the gradient is added to what is there
//
// weight, dweight [P, D]; y, dy [T, D] with T <= P
//
// forward:  y[t, :] = weight[t, :]
// backward: dweight[t, :] = dy[t, :] where t < T, and 0 beyond
#include "base.cuh"
#include "real.cuh"

#if REAL == 0
#define WIDE 4
#else
#define WIDE 8
#endif
#if USED % WIDE == 0 && TABLE % WIDE == 0
#define PACK WIDE
#else
#define PACK 1
#endif

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// A thread for each pack of the output.
KERNEL(position_embedding_forward)(const real *weight, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < USED / PACK) ((Pack *)y)[i] = ((const Pack *)weight)[i];
}

// A thread for each pack of the table, or of its used part where there is nothing to do beyond.
KERNEL(position_embedding_backward)(const real *dy, real *dweight) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (ADD ? USED : TABLE) / PACK) return;
    Pack pack;
    if (i < USED / PACK) {
        pack = ((const Pack *)dy)[i];
#if ADD
        const Pack before = ((const Pack *)dweight)[i];
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(widen(before.at[k]) + widen(pack.at[k]), &pack.at[k]);
#endif
    } else {
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(0.0f, &pack.at[k]);
    }
    ((Pack *)dweight)[i] = pack;
}
#undef WIDE
#undef PACK
