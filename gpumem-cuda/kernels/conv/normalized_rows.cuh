// The matrices that normalized_convolution.cu computes from sums over pixels. A block of THREADS has ROWS rows of a matrix.
//
// Nothing is declared constant (__restrict__ or __ldg): with TOGETHER, other blocks of the kernel write memory that is read here. No include guard:
// the tests include it once for each kernel they compile.

#include "normalized_direct.cuh"

constexpr u32 ROWS = 4, THREADS = 256, OUTS = CHANNELS;
constexpr float ALL = (float)COUNT;

// Adjacent columns of a thread, threads across all columns, and groups (slices) of such threads in a block. Each slice has a part of the terms.
constexpr u32 SIDE_BY_SIDE = INS % 4 == 0 ? 4 : 1, LINE = INS / SIDE_BY_SIDE, LANES = LINE < THREADS ? LINE : THREADS;
constexpr u32 SLICES = THREADS / LANES;

// A block's rows in shared memory.
struct Rows {
    float weight[ROWS * INS], products[ROWS * INS];
    float joined[SLICES][ROWS * INS];
    float scratch[32], sums[ROWS], scales[ROWS];
};
static_assert(SLICES * ROWS * INS >= THREADS, "each thread has a place");

static __device__ __forceinline__ float factor_of(const Norm *factor, u32 row) {
#if AFFINE
    return widen(factor[row]);
#else
    return 1.0f;
#endif
}

// Returns the shift of a channel of y that would otherwise have this mean.
static __device__ __forceinline__ float summand_of(const Norm *summand, u32 row, float mean) {
#if AFFINE
    return widen(summand[row]) - mean;
#else
    return -mean;
#endif
}

// Returns the mean of the result of a row of V. It uses V as rounded, so that the mean of y is exactly its shift. Both passes call it, by a warp.
static __device__ __forceinline__ float mean_of(const real *scaled, const float *totals) {
    float sum = 0.0f;
    for (u32 c = threadIdx.x % 32; c < INS; c += 32) sum = fmaf(widen(scaled[c]), totals[c] / ALL, sum);
    return warp_sum(sum);
}

// Loads rows of the weight, with zeros after the last.
static __device__ __forceinline__ void load_rows(const real *weight, u32 first, Rows &rows) {
    for (u32 i = threadIdx.x; i < ROWS * INS; i += THREADS) {
        const u32 row = first + i / INS;
        rows.weight[i] = row < OUTS ? widen(weight[row * (u64)(INS) + i % INS]) : 0.0f;
    }
    __syncthreads();
}

// Computes products of ROWS rows of DEPTH numbers with columns, into joined[0]. `left` returns the rows' numbers for a k, `right` some adjacent
// columns. Slices of the threads take ks in turns, and their results are added up in the same order in every run.
template <u32 DEPTH, class Left, class Right>
static __device__ __forceinline__ void multiply_rows(const Left &left, const Right &right, Rows &rows) {
    const u32 lane = threadIdx.x % LANES, slice = threadIdx.x / LANES;
    if (slice < SLICES) {
        for (u32 at = lane; at < LINE; at += LANES) {
            float totals[ROWS][SIDE_BY_SIDE];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                for (u32 i = 0; i < SIDE_BY_SIDE; i++) totals[r][i] = 0.0f;
#pragma unroll 4
            for (u32 k = slice; k < DEPTH; k += SLICES) {
                float own[ROWS], others[SIDE_BY_SIDE];
                left(k, own);
                right(k, at * SIDE_BY_SIDE, others);
#pragma unroll
                for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                    for (u32 i = 0; i < SIDE_BY_SIDE; i++) totals[r][i] += own[r] * others[i];
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                for (u32 i = 0; i < SIDE_BY_SIDE; i++) rows.joined[slice][r * INS + at * SIDE_BY_SIDE + i] = totals[r][i];
        }
    }
    __syncthreads();
    if (SLICES > 1) {
        for (u32 i = threadIdx.x; i < ROWS * INS; i += THREADS) {
            float total = rows.joined[0][i];
            for (u32 other = 1; other < SLICES; other++) total += rows.joined[other][i];
            rows.joined[0][i] = total;
        }
        __syncthreads();
    }
}

// Loads adjacent numbers.
static __device__ __forceinline__ void take(const float *from, float *to) {
    if constexpr (SIDE_BY_SIDE == 4) {
        const float4 four = *(const float4 *)from;
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        to[0] = *from;
    }
}

// Computes the rows of the weight times the covariance of x.
static __device__ __forceinline__ void spread_rows(const float *squares, const float *totals, Rows &rows) {
    const auto left = [&](u32 k, float *to) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) to[r] = rows.weight[r * INS + k];
    };
    const auto right = [&](u32 k, u32 column, float *to) {
        float means[SIDE_BY_SIDE];
        take(squares + k * (u64)(INS) + column, to);
        take(totals + column, means);
        const float own = totals[k] / ALL;
#pragma unroll
        for (u32 i = 0; i < SIDE_BY_SIDE; i++) to[i] = to[i] / ALL - own * (means[i] / ALL);
    };
    multiply_rows<INS>(left, right, rows);
}

// Arguments and results of the forward pass.
struct Forward {
    const real *weight;
    const Norm *factor, *summand;
    const float *squares, *totals;
    float *saved, *running_mean, *running_var;
    real *scaled, *added;
};

static __device__ __forceinline__ void weight_of_rows(u32 first, const Forward &it, Rows &rows) {
    load_rows(it.weight, first, rows);
    spread_rows(it.squares, it.totals, rows);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        float variance = 0.0f, center = 0.0f, squares = 0.0f;
        for (u32 c = threadIdx.x; c < INS; c += THREADS) {
            const float own = rows.weight[r * INS + c];
            variance += own * rows.joined[0][r * INS + c];
            center += own * (it.totals[c] / ALL);
            squares += own * own * (it.squares[c * (u64)(INS) + c] / ALL);
        }
        const float found = block_sum(variance, rows.scratch), of_row = block_sum(center, rows.scratch);
        // This includes a filter of 0: the gradient of its weights may be that of channels far from 0.
        const bool direct = found <= LEAST_SHARE * block_sum(squares, rows.scratch);
        const u32 row = first + r;
        if (threadIdx.x != 0 || row >= OUTS) continue;
        if (direct) {
            // normalized_direct_output computes its statistics.
            it.saved[row] = 0.0f, it.saved[OUTS + row] = -1.0f, rows.scales[r] = 0.0f;
            continue;
        }
        // Rounding may make the variance negative. NaN stays NaN.
        keep(row, of_row, at_least(0.0f, found) * ALL, it.saved, it.running_mean, it.running_var);
        rows.scales[r] = it.saved[OUTS + row] * factor_of(it.factor, row);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < ROWS * INS; i += THREADS) {
        const u32 row = first + i / INS;
        if (row < OUTS) narrow(rows.scales[i / INS] * rows.weight[i], &it.scaled[row * (u64)(INS) + i % INS]);
    }
    // The block reads again what it has written.
    __syncthreads();
    const u32 own = threadIdx.x / 32, row = first + own;
    if (own < ROWS && row < OUTS) {
        const float of_row = mean_of(it.scaled + row * (u64)(INS), it.totals);
        if (threadIdx.x % 32 == 0) narrow(summand_of(it.summand, row, of_row), &it.added[row]);
    }
    __syncthreads();
}

// Inputs and results of the gradients.
struct Gradients {
    const real *weight;
    const Norm *factor;
    const float *saved, *totals, *squares;
    float *products;
    real *scaled, *dweight;
    Norm *dfactor, *dsummand;
};

// Computes gradients from rows of products and their sums of dy, which are already in `rows`.
static __device__ __forceinline__ void gradients_of_rows(u32 first, const Gradients &it, Rows &rows) {
    load_rows(it.weight, first, rows);
    spread_rows(it.squares, it.totals, rows);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const u32 row = first + r < OUTS ? first + r : OUTS - 1;
        if (is_direct(it.saved, row)) {
            // normalized_direct_parameters computes its gradients.
            for (u32 c = threadIdx.x; c < INS && first + r < OUTS; c += THREADS) {
                it.products[row * (u64)(INS) + c] = 0.0f;
                narrow(0.0f, &it.scaled[row * (u64)(INS) + c]);
            }
            continue;
        }
        const float sum = rows.sums[r];
        float along = 0.0f;
        for (u32 c = threadIdx.x; c < INS; c += THREADS)
            along += rows.weight[r * INS + c] * (rows.products[r * INS + c] - sum * (it.totals[c] / ALL));
        const float rstd = it.saved[OUTS + row], product = block_sum(along, rows.scratch);
        const float turned = product * rstd * rstd, scale = rstd * factor_of(it.factor, row);
        if (first + r >= OUTS) continue;
        if (threadIdx.x == 0) parameters(row, rstd, sum, product, it.dfactor, it.dsummand);
        for (u32 c = threadIdx.x; c < INS; c += THREADS) {
            const u64 at = row * (u64)(INS) + c;
            const float own = rows.weight[r * INS + c];
            const float gradient = rows.products[r * INS + c] - sum * (it.totals[c] / ALL) - turned * rows.joined[0][r * INS + c];
            if (it.dweight != nullptr) narrow((ADD ? widen(it.dweight[at]) : 0.0f) + scale * gradient, &it.dweight[at]);
            it.products[at] = -scale * turned / ALL * own;
            narrow(scale * own, &it.scaled[at]);
        }
    }
    __syncthreads();
}

struct Map {
    const real *weight, *scaled;
    const float *totals, *sums, *products;
    real *matrix, *added;
};

static __device__ __forceinline__ void matrix_of_rows(u32 first, const Map &it, Rows &rows) {
    const auto left = [&](u32 k, float *to) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) to[r] = first + r < INS ? widen(it.weight[k * (u64)(INS) + first + r]) : 0.0f;
    };
    const auto right = [&](u32 k, u32 column, float *to) { take(it.products + k * (u64)(INS) + column, to); };
    multiply_rows<OUTS>(left, right, rows);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const u32 row = first + r;
        float along = 0.0f;
        if (row < INS) {
            for (u32 c = threadIdx.x; c < INS; c += THREADS) {
                real rounded;
                narrow(rows.joined[0][r * INS + c], &rounded);
                it.matrix[row * (u64)(INS) + c] = rounded;
                along += widen(rounded) * it.totals[c];
            }
            for (u32 o = threadIdx.x; o < OUTS; o += THREADS) along += widen(it.scaled[o * (u64)(INS) + row]) * it.sums[o];
        }
        const float found = block_sum(along, rows.scratch);
        if (threadIdx.x == 0 && row < INS) narrow(-found / ALL, &it.added[row]);
    }
    __syncthreads();
}
