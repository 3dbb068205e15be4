// What makes of a convolution of one pixel and the normalisation behind it one map of each pixel: V and c of y = V x + c, and going back M and
// k of dx = V^T dy + M x + k. The sums over pixels and the maps themselves are those of convolution.cu or of a library.
//
// INS          C, channels of x
// ADD          whether the gradient of the weight is added to what is there
// BATCH, CHANNELS, AREA, NORM_REAL, AFFINE, EPS, MOMENTUM, ADD_WEIGHT, ADD_BIAS  those of batch_norm.cuh, of y with its factors and summands: O is
//              CHANNELS, and N samples times pixels
// KEPT         defined where statistics are what training saved, as there
//
// weight [O, C], factor, summand [O], saved [2, O] with mean and 1 / sqrt(variance + EPS), running_mean, running_var [O] in f32; mean [C],
// squares [C, C] and, going back, products [O, C] in f32, the sums of x x^T and of dy x^T; sums [C], or going back [O], of x or dy.
//
// normalized_weight:       V = factor / deviation * weight, c = summand - V mean; a block for ROWS rows
// normalized_weight_known: the same from what is known, with KEPT from `saved` and the mean of x, else from running mean and variance of W x;
//                          a warp for each row
// normalized_gradients:    gradients of weight, factor and summand, each of which may be absent; V again; products become those that M is made
//                          of, -factor * dfactor / (N * variance) * weight; a block for ROWS rows
// normalized_matrix:       M = weight^T products, k = -V^T sums / N - M mean; a block for ROWS rows of M
#include "base.cuh"
#include "real.cuh"
#include "rectify.cuh"
#include "batch_norm.cuh"

constexpr u32 ROWS = 4, THREADS = 256, OUTS = CHANNELS;
constexpr float ALL = (float)COUNT;

static __device__ __forceinline__ float factor_of(const Norm *factor, u32 row) {
#if AFFINE
    return widen(factor[row]);
#else
    return 1.0f;
#endif
}

// What is added to a channel of y that would have this mean.
static __device__ __forceinline__ float summand_of(const Norm *summand, u32 row, float mean) {
#if AFFINE
    return widen(summand[row]) - mean;
#else
    return -mean;
#endif
}

// The mean of what a row of V gives, as V is rounded: y has no other mean than its summand. The same of both passes, by a warp.
static __device__ __forceinline__ float mean_of(const real *scaled, const float *mean) {
    float sum = 0.0f;
    for (u32 c = threadIdx.x % 32; c < INS; c += 32) sum = fmaf(widen(scaled[c]), mean[c], sum);
    return warp_sum(sum);
}

// Rows of the weight in shared memory, zeros behind the last.
static __device__ __forceinline__ void load_rows(const real *weight, u32 first, float (*rows)[INS]) {
    for (u32 i = threadIdx.x; i < ROWS * INS; i += THREADS) {
        const u32 row = first + i / INS;
        rows[i / INS][i % INS] = row < OUTS ? widen(weight[row * (u64)(INS) + i % INS]) : 0.0f;
    }
    __syncthreads();
}

// Rows of the weight times a column of the covariance of x.
static __device__ __forceinline__ void
spread_of(float (*rows)[INS], const float *__restrict__ squares, const float *mean, u32 column, float *total) {
    const float own = mean[column];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) total[r] = 0.0f;
#pragma unroll 4
    for (u32 c = 0; c < INS; c++) {
        const float covariance = squares[c * (u64)(INS) + column] / ALL - mean[c] * own;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) total[r] += rows[r][c] * covariance;
    }
}

// A thread for each column, THREADS at a time; what a row of the weight has of it is added up over the block.
KERNEL(__launch_bounds__(256) normalized_weight)
(const real *__restrict__ weight, const Norm *factor, const Norm *summand, const float *__restrict__ squares,
 const float *__restrict__ sums, float *saved, float *mean, real *scaled, real *added, float *running_mean, float *running_var) {
    __shared__ float rows[ROWS][INS], means[INS];
    __shared__ float scratch[32], scales[ROWS];
    const u32 first = blockIdx.x * ROWS;
    for (u32 c = threadIdx.x; c < INS; c += THREADS) {
        means[c] = sums[c] / ALL;
        if (blockIdx.x == 0) mean[c] = means[c];
    }
    load_rows(weight, first, rows);
    float variance[ROWS], center[ROWS];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) variance[r] = center[r] = 0.0f;
    for (u32 column = threadIdx.x; column < INS; column += THREADS) {
        float total[ROWS];
        spread_of(rows, squares, means, column, total);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            variance[r] += rows[r][column] * total[r];
            center[r] += rows[r][column] * means[column];
        }
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const float found = block_sum(variance[r], scratch), of_row = block_sum(center[r], scratch);
        const u32 row = first + r;
        if (threadIdx.x != 0 || row >= OUTS) continue;
        // Rounding may leave less than nothing. NaN stays NaN.
        keep(row, of_row, at_least(0.0f, found) * ALL, saved, running_mean, running_var);
        scales[r] = saved[OUTS + row] * factor_of(factor, row);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < ROWS * INS; i += THREADS) {
        const u32 row = first + i / INS;
        if (row < OUTS) narrow(scales[i / INS] * rows[i / INS][i % INS], &scaled[row * (u64)(INS) + i % INS]);
    }
    // What the block has written it reads again.
    __syncthreads();
    const u32 own = threadIdx.x / 32, row = first + own;
    if (own >= ROWS || row >= OUTS) return;
    const float of_row = mean_of(scaled + row * (u64)(INS), means);
    if (threadIdx.x % 32 == 0) narrow(summand_of(summand, row, of_row), &added[row]);
}

// `statistics` are `saved` with KEPT, else running variances; `means` those of x, else running means.
KERNEL(__launch_bounds__(256) normalized_weight_known)
(const real *__restrict__ weight, const Norm *factor, const Norm *summand, const float *statistics, const float *means, real *scaled,
 real *added) {
    const u32 row = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= OUTS) return;
    const float scale = deviation(statistics, row) * factor_of(factor, row);
    for (u32 c = lane; c < INS; c += 32) narrow(scale * widen(weight[row * (u64)(INS) + c]), &scaled[row * (u64)(INS) + c]);
    // A lane reads what it has written.
#ifdef KEPT
    const float mean = mean_of(scaled + row * (u64)(INS), means);
#else
    const float mean = scale * means[row];
#endif
    if (lane == 0) narrow(summand_of(summand, row, mean), &added[row]);
}

KERNEL(__launch_bounds__(256) normalized_gradients)
(const real *__restrict__ weight, const Norm *factor, const float *saved, const float *__restrict__ mean,
 const float *__restrict__ squares, const float *__restrict__ sums, float *products, real *scaled, real *dweight, Norm *dfactor,
 Norm *dsummand) {
    __shared__ float rows[ROWS][INS];
    __shared__ float scratch[32];
    const u32 first = blockIdx.x * ROWS;
    load_rows(weight, first, rows);
    float turned[ROWS], scale[ROWS];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const u32 row = first + r < OUTS ? first + r : OUTS - 1;
        float along = 0.0f;
        for (u32 c = threadIdx.x; c < INS; c += THREADS)
            along += rows[r][c] * (products[row * (u64)(INS) + c] - sums[row] * mean[c]);
        const float rstd = saved[OUTS + row], product = block_sum(along, scratch);
        turned[r] = product * rstd * rstd;
        scale[r] = rstd * factor_of(factor, row);
        if (threadIdx.x == 0 && first + r < OUTS) parameters(row, rstd, sums[row], product, dfactor, dsummand);
    }
    for (u32 column = threadIdx.x; column < INS; column += THREADS) {
        float total[ROWS];
        spread_of(rows, squares, mean, column, total);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            const u32 row = first + r;
            if (row >= OUTS) continue;
            const u64 at = row * (u64)(INS) + column;
            const float gradient = products[at] - sums[row] * mean[column] - turned[r] * total[r];
            if (dweight != nullptr) narrow((ADD ? widen(dweight[at]) : 0.0f) + scale[r] * gradient, &dweight[at]);
            products[at] = -scale[r] * turned[r] / ALL * rows[r][column];
            narrow(scale[r] * rows[r][column], &scaled[at]);
        }
    }
}

KERNEL(__launch_bounds__(256) normalized_matrix)
(const real *__restrict__ weight, const real *__restrict__ scaled, const float *__restrict__ mean, const float *__restrict__ sums,
 const float *__restrict__ products, real *matrix, real *added) {
    __shared__ float scratch[32];
    const u32 first = blockIdx.x * ROWS;
    float along[ROWS], of_sums[ROWS];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) along[r] = of_sums[r] = 0.0f;
    for (u32 column = threadIdx.x; column < INS; column += THREADS) {
        float total[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) total[r] = 0.0f;
#pragma unroll 4
        for (u32 o = 0; o < OUTS; o++) {
            const float factor = products[o * (u64)(INS) + column];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
                if (first + r < INS) total[r] += widen(weight[o * (u64)(INS) + first + r]) * factor;
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            if (first + r >= INS) continue;
            real rounded;
            narrow(total[r], &rounded);
            matrix[(first + r) * (u64)(INS) + column] = rounded;
            along[r] += widen(rounded) * mean[column];
        }
    }
    for (u32 o = threadIdx.x; o < OUTS; o += THREADS)
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
            if (first + r < INS) of_sums[r] += widen(scaled[o * (u64)(INS) + first + r]) * sums[o];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const float found = block_sum(of_sums[r] / ALL + along[r], scratch);
        if (threadIdx.x == 0 && first + r < INS) narrow(-found, &added[first + r]);
    }
}
