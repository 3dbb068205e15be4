// Row norms: rows normalised by their own statistics, as in LayerNorm, RMSNorm and GroupNorm.
//
// ROWS      rows in all: B samples of T rows
// STEPS     T
// FEATURES  D elements of a row
// CENTER    1 if the mean is subtracted; if 0, the mean is 0 below, and the variance is the mean square
// GROUPS    number of consecutive rows with different weights and biases, after which they repeat
// SHARED    neighbouring elements that share a weight and a bias: there are P = GROUPS * FEATURES / SHARED of each
// NORM_REAL number format of weight, bias and their gradients: a type, as REAL is
// AFFINE, BIAS  1 if there is a weight, and 1 if there is a bias
// EPS       added to the variance
// WARP_ROWS 1 if a warp works on a row, 0 if a block does
// COLUMNS   columns of a block of normalize_parameters, a power of two
// PARTS     parts of the rows in normalize_parameters and normalize_backward, none of them empty
// PARAMETERS_TOO  1 if one kernel takes the place of normalize_parameters and normalize_input: normalize_backward or normalize_gradients
// TOGETHER  1 if the grid has a barrier and all its blocks run at once, else undefined
// RESIDUAL  1 if the forward pass adds two inputs and stores their sum, 2 if all samples share the second one, 0 else
// THRESHOLD, SCALE  given if x first goes through dropout: an element is dropped if its random word is below THRESHOLD, else multiplied by SCALE.
//           There is a residual, and PACK is a multiple of 4, since a draw decides about four elements
// DRAWN     given if the batch is split: draws of each micro-batch
// ADD, ADD_WEIGHT, ADD_BIAS  1 if dx, dweight and dbias are added to their tensors (+=), 0 if they overwrite them
//
// x, y, dy, dx [B, T, D]; residual [B, T, D], or [T, D] if it is shared; weight, bias, dweight, dbias [P]; saved in f32 [B, 2, T]: the means of a sample's rows, then their
// 1 / sqrt(variance + EPS), or [B, T] without the means if CENTER is 0; partial [2, PARTS, P] in f32; state [words].
//
// forward:    y = (x - mean) rstd weight + bias with mean and biased variance of each row, where y may be x; saved
//             may be absent. With RESIDUAL, x is x + residual and stored in `sum`, which may be either of them. What comes out of dropout
//             is rounded before it is added
// parameters: with n = (x - mean) rstd: dbias = sum of dy, dweight = sum of dy n; each may be absent.
//             With several parts they are written to `partial`, and normalize_sum adds them up in order
// input:      with g = dy weight and means over the row: dx = rstd (g - mean(g) - n mean(g n)), without mean(g) if CENTER is 0;
//             dx may be dy; runs after parameters, which read dy
// backward:   both in one pass, which reads x and dy once, and whose parts normalize_sum adds up
// gradients:  as backward, and adds up the parts after a grid barrier, to the same bits
//
// Rows are read once from memory and then again from the cache.
#include "base.cuh"
#include "real.cuh"
#include "mask.cuh"
#include "part.cuh"
#include "partial_sums.cuh"
#include "grid_barrier.cuh"

typedef NORM_REAL Norm;

// Elements in 16 bytes, if rows consist of whole packs of that.
constexpr int WIDE = 16 / sizeof(real), PACK = FEATURES % WIDE == 0 ? WIDE : 1;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};
// Two 16-byte loads if the parameters are wider than the elements.
struct alignas(sizeof(Norm) * PACK > 16 ? 16 : sizeof(Norm) * PACK) NormPack {
    Norm at[PACK];
};

// Number of a row's threads, index of this one among them, and their sum.
#if WARP_ROWS
#define LANES 32
#define LANE (threadIdx.x & 31)
#define ROW ((u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5))
#define ROW_SUM(x) warp_sum(x)
#else
#define LANES blockDim.x
#define LANE threadIdx.x
#define ROW ((u64)blockIdx.x)
#define ROW_SUM(x) block_sum(x, scratch)
#endif

// Weights or biases of a row, and of all rows.
constexpr u64 OWN = FEATURES / SHARED;
constexpr u64 PARAMETERS = GROUPS * OWN;

// Return the statistics of a row.
#if CENTER
static __device__ __forceinline__ u64 kept(u64 row) { return row / STEPS * (2 * STEPS) + row % STEPS; }
static __device__ __forceinline__ float mean_of(const float *saved, u64 row) { return saved[kept(row)]; }
static __device__ __forceinline__ float rstd_of(const float *saved, u64 row) { return saved[kept(row) + STEPS]; }
#else
static __device__ __forceinline__ float mean_of(const float *, u64) { return 0.0f; }
static __device__ __forceinline__ float rstd_of(const float *saved, u64 row) { return saved[row]; }
#endif

// Loads the weights or biases of pack `j` of a row.
static __device__ __forceinline__ void load_own(const Norm *all, u64 row, u32 j, float to[PACK]) {
    const Norm *own = all + (GROUPS > 1 ? row % GROUPS * OWN : 0);
#if SHARED == 1
    const NormPack pack = ((const NormPack *)own)[j];
#pragma unroll
    for (int k = 0; k < PACK; k++) to[k] = widen(pack.at[k]);
#else
#pragma unroll
    for (int k = 0; k < PACK; k++) to[k] = widen(own[((u64)j * PACK + k) / SHARED]);
#endif
}

// 2^-70: the largest number times this has a square that is finite, even in a sum.
constexpr float SHRUNK = 8.470329472543003e-22f;

#ifdef THRESHOLD
// Applies dropout to a pack whose first element has this index.
static __device__ __forceinline__ Pack drop(Pack pack, u64 first, const Draws &draws) {
    u32 words[4];
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        if (k % 4 == 0) drop_words(draws, (first + k) / 4, words);
        narrow(drop(words[k % 4], THRESHOLD, widen(pack.at[k]), (float)(SCALE)), &pack.at[k]);
    }
    return pack;
}
#endif

// Normalises a row. With THRESHOLD, x goes through dropout first. Only whole warps have no row, and only if no barrier follows.
static __device__ __forceinline__ void
normalize_row(u64 row, const real *x, const Draws &draws, const real *residual, real *sum, const Norm *weight, const Norm *bias, real *y,
              float *saved, float *scratch) {
    const Pack *from = (const Pack *)(x + row * FEATURES);
    Pack *to = (Pack *)(y + row * FEATURES);
    float total = 0.0f, squares = 0.0f;
#if RESIDUAL
    const Pack *others = (const Pack *)(residual + (RESIDUAL == 2 ? row % STEPS : row) * FEATURES);
    Pack *sums = (Pack *)(sum + row * FEATURES);
#endif
#if CENTER || RESIDUAL
    for (u32 j = LANE; j < FEATURES / PACK; j += LANES) {
#if RESIDUAL
        Pack pack = from[j];
#ifdef THRESHOLD
        pack = drop(pack, row * FEATURES + (u64)j * PACK, draws);
#endif
        const Pack other = others[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(widen(pack.at[k]) + widen(other.at[k]), &pack.at[k]);
        sums[j] = pack;
#else
        const Pack pack = from[j];
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) total += widen(pack.at[k]);
    }
#endif
#if RESIDUAL
    // Each thread continues with elements that it has written itself.
    from = sums;
#endif
#if CENTER
    const float mean = ROW_SUM(total) / (float)FEATURES;
#else
    const float mean = 0.0f;
#endif
    for (u32 j = LANE; j < FEATURES / PACK; j += LANES) {
        const Pack pack = from[j];
#pragma unroll
        for (int k = 0; k < PACK; k++) squares += (widen(pack.at[k]) - mean) * (widen(pack.at[k]) - mean);
    }
    float rstd = 1.0f / sqrtf(ROW_SUM(squares) / (float)FEATURES + (float)(EPS));
    // The squares overflowed, so they are recomputed from smaller numbers. All threads of a row take this branch, or none.
    if (rstd == 0.0f) {
        squares = 0.0f;
        for (u32 j = LANE; j < FEATURES / PACK; j += LANES) {
            const Pack pack = from[j];
#pragma unroll
            for (int k = 0; k < PACK; k++) {
                const float small = (widen(pack.at[k]) - mean) * SHRUNK;
                squares += small * small;
            }
        }
        rstd = SHRUNK / sqrtf(ROW_SUM(squares) / (float)FEATURES);
    }
    if (saved != nullptr && LANE == 0) {
#if CENTER
        saved[kept(row)] = mean;
        saved[kept(row) + STEPS] = rstd;
#else
        saved[row] = rstd;
#endif
    }
    for (u32 j = LANE; j < FEATURES / PACK; j += LANES) {
        Pack pack = from[j];
#if AFFINE
        float scale[PACK];
        load_own(weight, row, j, scale);
#endif
#if BIAS
        float shift[PACK];
        load_own(bias, row, j, shift);
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            float value = (widen(pack.at[k]) - mean) * rstd;
#if AFFINE
            value *= scale[k];
#endif
#if BIAS
            value += shift[k];
#endif
            narrow(value, &pack.at[k]);
        }
        to[j] = pack;
    }
}

#ifdef THRESHOLD
KERNEL(__launch_bounds__(1024) normalize_drop)
(const real *x, const u32 *state, const real *residual, real *sum, const Norm *weight, const Norm *bias, real *y, float *saved,
 u32 row_of_layer) {
#if WARP_ROWS
    float *scratch = nullptr;
#else
    __shared__ float scratch[32];
#endif
    const u64 row = ROW;
    if (row < ROWS) normalize_row(row, x, draws_of(state, row_of_layer), residual, sum, weight, bias, y, saved, scratch);
}
#else
KERNEL(__launch_bounds__(1024) normalize)
(const real *x, const real *residual, real *sum, const Norm *weight, const Norm *bias, real *y, float *saved) {
#if WARP_ROWS
    float *scratch = nullptr;
#else
    __shared__ float scratch[32];
#endif
    const u64 row = ROW;
    if (row < ROWS) normalize_row(row, x, Draws{}, residual, sum, weight, bias, y, saved, scratch);
}
#endif

// Store the gradients of a weight and a bias from all rows, if they are wanted.
static __device__ __forceinline__ void put_weight(u64 column, float product, Norm *dweight) {
    if (dweight != nullptr) narrow(ADD_WEIGHT ? widen(dweight[column]) + product : product, &dweight[column]);
}
static __device__ __forceinline__ void put_bias(u64 column, float sum, Norm *dbias) {
    if (dbias != nullptr) narrow(ADD_BIAS ? widen(dbias[column]) + sum : sum, &dbias[column]);
}

// Stores the gradients of a weight and a bias from a part of the rows, or from all of them.
static __device__ __forceinline__ void put_parameter(u64 column, float sum, float product, float *partial, Norm *dweight,
                                                     Norm *dbias) {
#if PARTS > 1
    partial[blockIdx.y * PARAMETERS + column] = sum;
    partial[(PARTS + blockIdx.y) * PARAMETERS + column] = product;
#else
    put_weight(column, product, dweight);
    put_bias(column, sum, dbias);
#endif
}

// GROUPS rows are treated as one, so that a weight belongs to the same elements of each.
constexpr u64 WIDE_ROWS = ROWS / GROUPS, WIDE_ROW = GROUPS * FEATURES;

#if SHARED == 1
// Grid: a block for each COLUMNS columns (x) and part of the rows (y). COLUMNS threads in a row read a sector of 32 bytes or more of one row; the
// block's other threads work on other rows, and their sums are added in a tree.
KERNEL(__launch_bounds__(1024) normalize_parameters)
(const real *dy, const real *x, const float *saved, float *partial, Norm *dweight, Norm *dbias) {
    __shared__ float sums[1024], products[1024];
    constexpr u64 PORTION = (WIDE_ROWS + PARTS - 1) / PARTS;
    const u32 slices = blockDim.x / COLUMNS, slice = threadIdx.x / COLUMNS;
    const u64 column = (u64)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const u64 first = blockIdx.y * PORTION, last = first + PORTION < WIDE_ROWS ? first + PORTION : WIDE_ROWS;
    float sum = 0.0f, product = 0.0f;
    if (column < PARAMETERS) {
#pragma unroll 8
        for (u64 row = first + slice; row < last; row += slices) {
            const u64 group = GROUPS > 1 ? row * GROUPS + column / FEATURES : row, at = row * WIDE_ROW + column;
            const float gradient = widen(dy[at]);
            sum += gradient;
            product += gradient * ((widen(x[at]) - mean_of(saved, group)) * rstd_of(saved, group));
        }
    }
    sums[threadIdx.x] = sum;
    products[threadIdx.x] = product;
    for (u32 half = slices / 2; half > 0; half /= 2) {
        __syncthreads();
        if (slice < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half * COLUMNS];
            products[threadIdx.x] += products[threadIdx.x + half * COLUMNS];
        }
    }
    // This thread has itself written the sums that it reads here.
    if (slice != 0 || column >= PARAMETERS) return;
    put_parameter(column, sums[threadIdx.x], products[threadIdx.x], partial, dweight, dbias);
}
#else
// Grid: a block for each parameter (x) and part of the rows (y).
KERNEL(__launch_bounds__(1024) normalize_parameters)
(const real *dy, const real *x, const float *saved, float *partial, Norm *dweight, Norm *dbias) {
    __shared__ float scratch[32];
    constexpr u64 PORTION = (WIDE_ROWS + PARTS - 1) / PARTS;
    const u64 column = blockIdx.x;
    const u64 first = blockIdx.y * PORTION, last = first + PORTION < WIDE_ROWS ? first + PORTION : WIDE_ROWS;
    float sum = 0.0f, product = 0.0f;
    for (u64 i = first * SHARED + threadIdx.x; i < last * SHARED; i += blockDim.x) {
        const u64 row = i / SHARED, group = row * GROUPS + column / OWN;
        const u64 at = row * WIDE_ROW + column * SHARED + i % SHARED;
        const float gradient = widen(dy[at]);
        sum += gradient;
        product += gradient * ((widen(x[at]) - mean_of(saved, group)) * rstd_of(saved, group));
    }
    sum = block_sum(sum, scratch);
    product = block_sum(product, scratch);
    if (threadIdx.x == 0) put_parameter(column, sum, product, partial, dweight, dbias);
}
#endif

KERNEL(__launch_bounds__(256) normalize_sum)(const float *partial, Norm *dweight, Norm *dbias) {
    __shared__ float scratch[256];
    const float sum = sum_of_parts<PARAMETERS>(partial, scratch);
    const float product = sum_of_parts<PARAMETERS>(partial + (u64)(PARTS)*PARAMETERS, scratch);
    const u64 column = own_sum();
    if (!has_sum() || column >= PARAMETERS) return;
    put_weight(column, product, dweight);
    put_bias(column, sum, dbias);
}

// Threads that have the packs of a row in a kernel with PARAMETERS_TOO, a warp or the block, and the packs that each of them has.
constexpr int THREADS = 512, ROW_LANES = WARP_ROWS ? 32 : THREADS, PACKS = (FEATURES / PACK + ROW_LANES - 1) / ROW_LANES;

// Registers for the sums of a thread and for its packs of x and dy.
constexpr int KEPT_REGISTERS = 2 * PACKS * PACK + 2 * PACKS * (int)sizeof(Pack) / 4;

// Calls each(j, i) for every pack j of a row that belongs to this thread, its i-th. With KNOWN, a row has ROW_LANES threads and i is a compile-time
// constant, so that arrays indexed by it stay in registers.
template <bool KNOWN, class Each> static __device__ __forceinline__ void packs_of_row(Each each) {
    if constexpr (KNOWN) {
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const u32 j = LANE + ROW_LANES * i;
            if (j < FEATURES / PACK) each(j, i);
            // No load passes this: all packs at once have no registers beside many sums.
            if (KEPT_REGISTERS >= 96 && i % 2 == 1) __syncwarp();
        }
    } else {
        for (u32 j = LANE; j < FEATURES / PACK; j += LANES) each(j, 0);
    }
}

// Computes dx of a row. With SUMS, also adds the row's share of the gradients of biases and weights to `sums` and `products`, which have the
// columns of this thread's packs.
template <bool SUMS>
static __device__ __forceinline__ void gradient_of_row(u64 row, const real *dy, const real *x, const Norm *weight, const float *saved,
                                                       real *dx, float *scratch, float *sums, float *products) {
    const Pack *gradients = (const Pack *)(dy + row * FEATURES), *inputs = (const Pack *)(x + row * FEATURES);
    Pack *to = (Pack *)(dx + row * FEATURES);
    const float mean = mean_of(saved, row), rstd = rstd_of(saved, row);
    float sum = 0.0f, product = 0.0f;
    packs_of_row<SUMS>([&](u32 j, int) {
        const Pack gradient = gradients[j], input = inputs[j];
#if AFFINE
        float scale[PACK];
        load_own(weight, row, j, scale);
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            float g = widen(gradient.at[k]);
#if AFFINE
            g *= scale[k];
#endif
            sum += g;
            product += g * ((widen(input.at[k]) - mean) * rstd);
        }
    });
    sum = CENTER ? ROW_SUM(sum) / (float)FEATURES : 0.0f;
    product = ROW_SUM(product) / (float)FEATURES;
    packs_of_row<SUMS>([&](u32 j, int i) {
        const Pack gradient = gradients[j], input = inputs[j];
#if ADD
        Pack out = to[j];
#else
        Pack out = gradient;
#endif
#if AFFINE
        float scale[PACK];
        load_own(weight, row, j, scale);
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float normal = (widen(input.at[k]) - mean) * rstd;
            float g = widen(gradient.at[k]);
            if constexpr (SUMS) {
                sums[i * PACK + k] += g;
                products[i * PACK + k] += g * normal;
            }
#if AFFINE
            g *= scale[k];
#endif
            const float value = rstd * (g - sum - normal * product);
            narrow(ADD ? widen(out.at[k]) + value : value, &out.at[k]);
        }
        to[j] = out;
    });
}

KERNEL(__launch_bounds__(1024) normalize_input)(const real *dy, const real *x, const Norm *weight, const float *saved, real *dx) {
#if WARP_ROWS
    float *scratch = nullptr;
#else
    __shared__ float scratch[32];
#endif
    const u64 row = ROW;
    // Whole warps leave, and only if no barrier follows.
    if (row >= ROWS) return;
    gradient_of_row<false>(row, dy, x, weight, saved, dx, scratch, nullptr, nullptr);
}

#if PARAMETERS_TOO
// Computes the gradient of the input, and to `partial` the sums of a part of the rows for weights and biases: PARTS blocks of THREADS threads, whose
// warps, or which themselves, take rows in turns.
static __device__ __forceinline__ void
gradients_of_part(const real *dy, const real *x, const Norm *weight, const float *saved, real *dx, float *partial) {
    float *const own_sums = partial + blockIdx.x * PARAMETERS, *const own_products = partial + (PARTS + blockIdx.x) * PARAMETERS;
    float sums[PACKS * PACK] = {}, products[PACKS * PACK] = {};
#if WARP_ROWS
    __shared__ float totals[2][FEATURES];
    const u32 warps = THREADS / 32, warp = threadIdx.x / 32;
    for (u64 row = (u64)blockIdx.x * warps + warp; row < ROWS; row += (u64)PARTS * warps) {
        gradient_of_row<true>(row, dy, x, weight, saved, dx, nullptr, sums, products);
    }
    // The sums of the warps are added one after the other.
    for (u32 turn = 0; turn < warps; turn++) {
        if (turn == warp) {
            packs_of_row<true>([&](u32 j, int i) {
#pragma unroll
                for (int k = 0; k < PACK; k++) {
                    float *sum = &totals[0][j * PACK + k], *product = &totals[1][j * PACK + k];
                    *sum = turn == 0 ? sums[i * PACK + k] : *sum + sums[i * PACK + k];
                    *product = turn == 0 ? products[i * PACK + k] : *product + products[i * PACK + k];
                }
            });
        }
        __syncthreads();
    }
    for (u32 column = threadIdx.x; column < FEATURES; column += THREADS) {
        own_sums[column] = totals[0][column];
        own_products[column] = totals[1][column];
    }
#else
    __shared__ float scratch[32];
    for (u64 row = blockIdx.x; row < ROWS; row += PARTS) {
        gradient_of_row<true>(row, dy, x, weight, saved, dx, scratch, sums, products);
    }
    // A thread has its columns to itself.
    packs_of_row<true>([&](u32 j, int i) {
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            own_sums[j * PACK + k] = sums[i * PACK + k];
            own_products[j * PACK + k] = products[i * PACK + k];
        }
    });
#endif
}

#ifdef TOGETHER
// The gradients of input, weights and biases in one launch. After the barrier, blocks take groups of 32 weights and biases in turns; half of a
// block's threads add up the parts of the biases, and half those of the weights.
KERNEL(__launch_bounds__(512, 1) normalize_gradients)
(const real *dy, const real *x, const Norm *weight, const float *saved, real *dx, float *partial, u32 *state, Norm *dweight, Norm *dbias) {
    __shared__ float sums[THREADS];
    gradients_of_part(dy, x, weight, saved, dx, partial);
    wait_for_grid(state);
    const bool is_weight = threadIdx.x >= THREADS / 2;
    const float *const parts = is_weight ? partial + (u64)(PARTS)*PARAMETERS : partial;
    for (u64 group = blockIdx.x; group * SUMS_OF_BLOCK < PARAMETERS; group += PARTS) {
        const u64 column = own_sum(group);
        const float sum = sum_of_parts<PARAMETERS>(parts, sums, column);
        if (!has_sum() || column >= PARAMETERS) continue;
        if (is_weight) {
            put_weight(column, sum, dweight);
        } else {
            put_bias(column, sum, dbias);
        }
    }
}
#else
// The gradient of the input, and the parts that normalize_sum adds up.
KERNEL(__launch_bounds__(512, 1) normalize_backward)
(const real *dy, const real *x, const Norm *weight, const float *saved, real *dx, float *partial) {
    gradients_of_part(dy, x, weight, saved, dx, partial);
}
#endif
#endif
#undef LANES
#undef LANE
#undef ROW
#undef ROW_SUM
