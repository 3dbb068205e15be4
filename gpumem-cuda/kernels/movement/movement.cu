// Sums and copies of gradients, and the sum over the batch.
//
// COUNT elements of the result
// BATCH samples that are summed
// ADD   1 if the sum is added to its tensor (+=), 0 if it overwrites it
//
// accumulate: y += x
// collect:    y += x, where y is f32
// copy:       y = x
// clear:      y = 0
// sum_batch:  dx[i] = sum over b of dy[b, i]; += with ADD
#include "base.cuh"
#include "real.cuh"
#include "vector16.cuh"

KERNEL(accumulate)(const real *x, real *y) {
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Piece added = load_piece(x, first);
    Piece sum = load_piece(y, first);
#pragma unroll
    for (int e = 0; e < PIECE; e++) narrow(widen(sum.at[e]) + widen(added.at[e]), &sum.at[e]);
    store_piece(sum, y, first);
}

KERNEL(collect)(const real *x, float *y) {
    struct alignas(16) Four {
        float at[4];
    };
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    const Piece added = load_piece(x, first);
    if (is_whole(first)) {
#pragma unroll
        for (int four = 0; four < PIECE; four += 4) {
            Four *to = (Four *)(y + first + four);
            Four sum = *to;
#pragma unroll
            for (int e = 0; e < 4; e++) sum.at[e] += widen(added.at[four + e]);
            *to = sum;
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < PIECE; e++)
        if (first + e < COUNT) y[first + e] += widen(added.at[e]);
}

KERNEL(copy)(const real *x, real *y) {
    const u64 first = first_of_piece();
    if (first < COUNT) store_piece(load_piece(x, first), y, first);
}

KERNEL(clear)(real *y) {
    const u64 first = first_of_piece();
    if (first >= COUNT) return;
    Piece zeros;
#pragma unroll
    for (int e = 0; e < PIECE; e++) narrow(0.0f, &zeros.at[e]);
    store_piece(zeros, y, first);
}

// Grid: a thread for each pack if all samples begin at one, else for each element.
KERNEL(sum_batch)(const real *dy, real *dx) {
    constexpr int SUMMED = COUNT % PIECE == 0 ? PIECE : 1;
    struct alignas(sizeof(real) * SUMMED) Summed {
        real at[SUMMED];
    };
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / SUMMED) return;
    float sums[SUMMED] = {};
    for (u64 b = 0; b < BATCH; b++) {
        const Summed part = *(const Summed *)(dy + b * COUNT + i * SUMMED);
#pragma unroll
        for (int e = 0; e < SUMMED; e++) sums[e] += widen(part.at[e]);
    }
    Summed *to = (Summed *)(dx + i * SUMMED);
#if ADD
    Summed out = *to;
#else
    Summed out;
#endif
#pragma unroll
    for (int e = 0; e < SUMMED; e++) narrow(ADD ? sums[e] + widen(out.at[e]) : sums[e], &out.at[e]);
    *to = out;
}
