// A conv norm as one linear map of each pixel: a 1x1 convolution and the batch normalisation after it are y = V x + c, with the gradient dx = V^T
// dy + M x + k. These kernels compute V, c, M and k. The maps themselves are computed by convolution.cu or a library.
//
// INS          C, channels of x
// ADD          1 if the gradient of the weight, or with MAP that of x, is added to its tensor (+=), 0 if it overwrites it
// RECTIFIER, MASKED  Identity and 0, except for the gradients with TOGETHER: see conv_norm_grid.cuh
// BATCH, CHANNELS, AREA, NORM_REAL, AFFINE, EPS, MOMENTUM, ADD_WEIGHT, ADD_BIAS  as in batch_norm.cuh, for y with its scale (factor) and shift
//              (summand): O is CHANNELS, and N samples times pixels
// KEPT         given if statistics are the ones that training saved, as in batch_norm.cuh
// MAP          given if normalized_map_gradient is compiled
// X_STRIDES, Y_STRIDES, WIDTH  given for the three kernels of direct channels: see normalized_direct.cuh
// ADDEND, FOLLOWS  given for normalized_direct_output: 1 if it adds another map, and the function after that
// OWN_PARAMETERS, D_STRIDES  given for normalized_direct_parameters, and for normalized_direct_gradient
// TOGETHER     1 if the grid has a barrier: sums over pixels are computed in the same launch, for maps with channels last in 16 bits. See
//              conv_norm_grid.cuh for the constants given then
//
// weight [O, C], factor, summand [O], saved [2, O] with mean and 1 / sqrt(variance + EPS), running_mean, running_var [O] in f32; totals [C],
// squares [C, C] and, in the backward pass, products [O, C] in f32, the sums of x, of x x^T and of dy x^T; sums [O], of dy. scaled [O, C] is V,
// matrix [C, C] M, added c or k. x, dx [N, C] and dy [N, O].
//
// normalized_weight:       V = factor / deviation * weight, c = summand - V totals / N. Grid: a block for ROWS rows
// normalized_weight_known: V and c from the saved statistics, with KEPT. Grid: a warp for each row
// normalized_direct_output: overwrites y of the direct channels, and computes their statistics. Like the next two, it does nothing
//                          if there are none
// normalized_direct_parameters: gradients of weight, factor and summand of these channels
// normalized_direct_gradient: adds their share to dx (+=)
// normalized_gradients:    gradients of weight, factor and summand, each of which may be absent; recomputes V; products become those from which M is
//                          computed, -factor * dfactor / (N * variance) * weight; a block for ROWS rows
// normalized_matrix:       M = weight^T products, k = -(V^T sums + M totals) / N; a block for ROWS rows of M
// normalized_forward_together, normalized_backward_together: with TOGETHER, everything before the maps
// normalized_map_gradient: dx = V^T dy + M x + k, of maps as with TOGETHER, with the constants of matrices.cuh: the rows of its result are
//                          pixels, and the columns channels of x
#include "base.cuh"
#include "real.cuh"
#include "rectify.cuh"
#include "batch_norm.cuh"

#ifdef MAP
#include "matrices.cuh"

// Adds the products of pixels, which have `depth` channels, and a matrix.
template <class Rows>
static __device__ __forceinline__ void
multiply_pixels(const real *map, u32 depth, const Rows &matrix, const Corner &corner, Tiles &tiles, Sums &sums) {
    const Matrix<true> pixels = {map, depth, (u32)COUNT, depth};
    Vectors<TILE_M, true, Matrix<true>> a(pixels, corner.m);
    Vectors<TILE_N, SAME<Rows, Matrix<true>>, Rows> b(matrix, corner.n);
    multiply(a, b, 0, depth, tiles, sums);
}

KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) normalized_map_gradient)
(const real *__restrict__ dy, const real *__restrict__ x, const real *__restrict__ scaled, const real *__restrict__ matrix,
 const real *__restrict__ added, real *dx) {
    __shared__ Tiles tiles;
    const Corner corner = corner_of(blockIdx.x);
    Sums sums;
    clear(sums);
    multiply_pixels(dy, CHANNELS, Matrix<false>{scaled, INS, INS, CHANNELS}, corner, tiles, sums);
    multiply_pixels(x, INS, Matrix<true>{matrix, INS, INS, INS}, corner, tiles, sums);
    store<true>(Result{dx, added}, corner.m, corner.n, tiles, sums);
}

#else
#include "normalized_rows.cuh"

#ifdef TOGETHER
#include "conv_norm_grid.cuh"
#if FORWARD

KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) normalized_forward_together)
(const real *x, const real *weight, const Norm *factor, const Norm *summand, float *partial, u32 *state, float *squares, float *totals,
 float *saved, real *scaled, real *added, float *running_mean, float *running_var) {
    __shared__ Shared shared;
    const auto rows = [&](u32 m, u32, u32 last) { return Vectors<TILE_M, false, Channels>(channels(x, INS, last), m); };
    const auto columns = [&](u32, u32 n, u32 last) { return Columns(channels(x, INS, last), n); };
    sum_parts(rows, columns, partial, shared.tiles);
    wait_for_grid(state);
    constexpr u32 FOURS = PART / 4, PRODUCTS = INS * INS / 4;
    for (u32 first = blockIdx.x * 32; first < FOURS; first += gridDim.x * 32) {
        join_parts(partial, first, FOURS - first < 32 ? FOURS - first : 32, shared.rows, [&](u32 i, const float4 &four) {
            const u32 at = first + i;
            *((float4 *)(at < PRODUCTS ? squares : totals) + (at < PRODUCTS ? at : at - PRODUCTS)) = four;
        });
    }
    wait_for_grid(state);
    const Forward all = {weight, factor, summand, squares, totals, saved, running_mean, running_var, scaled, added};
    for (u32 first = blockIdx.x * ROWS; first < OUTS; first += gridDim.x * ROWS) weight_of_rows(first, all, shared.rows);
}

#else

// Without `matrix` there is no gradient of x. `input` and the `before_` arguments are used only with AGAIN.
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) normalized_backward_together)
(const real *dy, const real *x, const real *y, const real *weight, const Norm *factor, const float *saved, const float *totals,
 const float *squares, const real *input, const float *before_saved, const Norm *before_factor, const Norm *before_summand, real *again,
 real *masked, float *partial, u32 *state, float *sums, float *products, real *scaled, real *dweight, Norm *dfactor, Norm *dsummand,
 real *matrix, real *added) {
    __shared__ Shared shared;
#if MASKED
    const auto carry = [&](u32 m, u32 n, u32 last) { return Through(dy, y, n == 0 ? masked : nullptr, m, last); };
#else
    const auto carry = [&](u32 m, u32, u32 last) { return Vectors<TILE_M, false, Channels>(channels(dy, OUTS, last), m); };
#endif
#ifdef AGAIN
    __shared__ Rules rules;
    const Before before = {input, before_saved, before_factor, before_summand, again};
    const auto columns = [&](u32 m, u32 n, u32 last) {
        rules.load(before, n);
        return Again(before, rules, m == 0, n, last);
    };
#else
    const auto columns = [&](u32, u32 n, u32 last) { return Columns(channels(x, INS, last), n); };
#endif
    sum_parts(carry, columns, partial, shared.tiles);
    wait_for_grid(state);
    Rows &rows = shared.rows;
    for (u32 first = blockIdx.x * ROWS; first < OUTS; first += gridDim.x * ROWS) {
        join_parts(partial, first * (INS / 4), INS, rows, [&](u32 i, const float4 &four) { *(float4 *)&rows.products[4 * i] = four; });
        static_assert(ROWS == 4, "the sums of some rows are a four");
        join_parts(partial, OUTS * (INS / 4) + first / 4, 1, rows, [&](u32, const float4 &four) {
            *(float4 *)(sums + first) = four;
            rows.sums[0] = four.x, rows.sums[1] = four.y, rows.sums[2] = four.z, rows.sums[3] = four.w;
        });
        gradients_of_rows(first, {weight, factor, saved, totals, squares, products, scaled, dweight, dfactor, dsummand}, rows);
    }
    if (matrix == nullptr) return;
    wait_for_grid(state);
    for (u32 first = blockIdx.x * ROWS; first < INS; first += gridDim.x * ROWS)
        matrix_of_rows(first, {weight, scaled, totals, sums, products, matrix, added}, rows);
}

#endif
#else

// One block per multiprocessor is enough for the kernels below. Without that bound ptxas may spill registers to make more of them resident.

KERNEL(__launch_bounds__(256, 1) normalized_weight)
(const real *weight, const Norm *factor, const Norm *summand, const float *squares, const float *totals, float *saved, real *scaled,
 real *added, float *running_mean, float *running_var) {
    __shared__ Rows rows;
    weight_of_rows(blockIdx.x * ROWS, {weight, factor, summand, squares, totals, saved, running_mean, running_var, scaled, added}, rows);
}

#ifdef KEPT

KERNEL(__launch_bounds__(256, 1) normalized_weight_known)
(const real *__restrict__ weight, const Norm *factor, const Norm *summand, const float *saved, const float *totals, real *scaled,
 real *added) {
    const u32 row = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= OUTS) return;
    // The row of a direct channel is 0.
    const float scale = at_least(0.0f, deviation(saved, row)) * factor_of(factor, row);
    for (u32 c = lane; c < INS; c += 32) narrow(scale * widen(weight[row * (u64)(INS) + c]), &scaled[row * (u64)(INS) + c]);
    // A lane reads elements that it has written itself.
    const float mean = mean_of(scaled + row * (u64)(INS), totals);
    if (lane == 0) narrow(summand_of(summand, row, mean), &added[row]);
}

#endif

KERNEL(__launch_bounds__(256, 1) normalized_gradients)
(const real *weight, const Norm *factor, const float *saved, const float *totals, const float *squares, const float *sums,
 float *products, real *scaled, real *dweight, Norm *dfactor, Norm *dsummand) {
    __shared__ Rows rows;
    const u32 first = blockIdx.x * ROWS;
    for (u32 i = threadIdx.x; i < ROWS * INS; i += THREADS) {
        const u32 row = first + i / INS;
        rows.products[i] = row < OUTS ? products[row * (u64)(INS) + i % INS] : 0.0f;
    }
    if (threadIdx.x < ROWS) rows.sums[threadIdx.x] = first + threadIdx.x < OUTS ? sums[first + threadIdx.x] : 0.0f;
    __syncthreads();
    gradients_of_rows(first, {weight, factor, saved, totals, squares, products, scaled, dweight, dfactor, dsummand}, rows);
}

KERNEL(__launch_bounds__(256, 1) normalized_matrix)
(const real *weight, const real *scaled, const float *totals, const float *sums, const float *products, real *matrix, real *added) {
    __shared__ Rows rows;
    matrix_of_rows(blockIdx.x * ROWS, {weight, scaled, totals, sums, products, matrix, added}, rows);
}

#ifdef FOLLOWS

// Grid: a block for each channel. Without KEPT it computes the statistics first.
KERNEL(__launch_bounds__(256, 1) normalized_direct_output)
(const real *x, const real *weight, const Norm *factor, const Norm *summand, float *saved, const float *totals, const float *squares,
 float *running_mean, float *running_var, const real *addend, real *y) {
    __shared__ float scratch[32], centers[INS];
    const u32 row = blockIdx.x;
    if (!is_direct(saved, row)) return;
    find_centers(totals, squares, centers);
#ifndef KEPT
    float before = 0.0f, mean, variance;
    for (u32 c = threadIdx.x; c < INS; c += THREADS) before += widen(weight[row * (u64)(INS) + c]) * centers[c];
    before = block_sum(before, scratch);
    direct_statistics(weight, x, centers, row, scratch, &mean, &variance);
    if (threadIdx.x == 0) {
        keep(row, before + mean, at_least(0.0f, variance) * ALL, saved, running_mean, running_var);
        saved[row] = mean, saved[OUTS + row] = -saved[OUTS + row];
    }
    __syncthreads();
#endif
    const float center = saved[row], scale = fabsf(saved[OUTS + row]) * factor_of(factor, row), rest = summand_of(summand, row, 0.0f);
    const Strides strides = Y_STRIDES;
#pragma unroll 1
    for (u32 pixel = threadIdx.x; pixel < COUNT; pixel += THREADS) {
        float value = (y_of_pixel(weight, x, centers, pixel, row) - center) * scale + rest;
#if ADDEND
        value += element_of(addend, strides, pixel, row);
#endif
        narrow(FOLLOWS::value(value, Arguments()), &y[place_of(strides, pixel) + row * strides.channel]);
    }
}

#endif
#ifdef OWN_PARAMETERS

// Grid: a block for each channel. Stores the factor of y, which is then subtracted from dy, in the place of the channel's products.
KERNEL(__launch_bounds__(256, 1) normalized_direct_parameters)
(const real *dy, const real *x, const real *weight, const Norm *factor, const float *saved, const float *totals, const float *squares,
 const float *sums, float *products, real *dweight, Norm *dfactor, Norm *dsummand) {
    __shared__ float scratch[32], centers[INS], tile[THREADS], found[INS];
    const u32 row = blockIdx.x;
    if (!is_direct(saved, row)) return;
    const float rstd = fabsf(saved[OUTS + row]), sum = sums[row];
    find_centers(totals, squares, centers);
    Direct own = {sum / ALL, saved[row], rstd * factor_of(factor, row), 0.0f};
    const float product = direct_product(own, weight, x, dy, centers, row, scratch);
    own.share = product * rstd * rstd / ALL;
    if (threadIdx.x == 0) {
        parameters(row, rstd, sum, product, dfactor, dsummand);
        products[row * (u64)(INS)] = own.share;
    }
    if (dweight == nullptr) return;
    direct_weight(own, weight, x, dy, centers, row, tile, found);
    for (u32 c = threadIdx.x; c < INS; c += THREADS) {
        const u64 at = row * (u64)(INS) + c;
        narrow((ADD ? widen(dweight[at]) : 0.0f) + found[c], &dweight[at]);
    }
}

#endif
#ifdef D_STRIDES

// Channels of y, and pixels, whose gradients a block has at a time: those of x fit into its shared memory.
constexpr u32 HELD = 32, PIXELS = INS <= 256 ? 32 : 16;

KERNEL(__launch_bounds__(256, 1) normalized_direct_gradient)
(const real *dy, const real *x, const real *weight, const Norm *factor, const float *saved, const float *totals, const float *squares,
 const float *sums, const float *products, real *dx) {
    __shared__ float scratch[32], centers[INS], held[HELD][PIXELS], found[PIXELS * INS];
    // Counts the direct channels, for all threads of a block.
    float count = 0.0f;
    for (u32 row = threadIdx.x; row < OUTS; row += THREADS) count += is_direct(saved, row) ? 1.0f : 0.0f;
    if (block_sum(count, scratch) == 0.0f) return;
    find_centers(totals, squares, centers);
    const Strides strides = D_STRIDES;
#pragma unroll 1
    for (u32 first = blockIdx.x * PIXELS; first < COUNT; first += gridDim.x * PIXELS) {
        // A thread has the same elements in all loops over them. The loop is not fully unrolled: the elements would not fit into registers.
#pragma unroll 4
        for (u32 at = threadIdx.x; at < PIXELS * INS; at += THREADS) found[at] = 0.0f;
#pragma unroll 1
        for (u32 rows = 0; rows < OUTS; rows += HELD) {
            bool any = false;
#pragma unroll 4
            for (u32 row = rows; row < rows + HELD && row < OUTS; row++) any = any || is_direct(saved, row);
            if (!any) continue;
            __syncthreads();
#pragma unroll 1
            for (u32 i = threadIdx.x; i < HELD * PIXELS; i += THREADS) {
                const u32 row = rows + i / PIXELS, pixel = first + i % PIXELS;
                float gradient = 0.0f;
                if (row < OUTS && pixel < COUNT && is_direct(saved, row)) {
                    const float rstd = fabsf(saved[OUTS + row]), scale = rstd * factor_of(factor, row);
                    const Direct own = {sums[row] / ALL, saved[row], scale, products[row * (u64)(INS)]};
                    gradient = direct_gradient(own, weight, x, dy, centers, pixel, row);
                }
                held[i / PIXELS][i % PIXELS] = gradient;
            }
            __syncthreads();
#pragma unroll 1
            for (u32 row = rows; row < rows + HELD && row < OUTS; row++) {
                if (!is_direct(saved, row)) continue;
#pragma unroll 4
                for (u32 at = threadIdx.x; at < PIXELS * INS; at += THREADS)
                    found[at] = fmaf(held[row - rows][at / INS], widen(weight[row * (u64)(INS) + at % INS]), found[at]);
            }
        }
#pragma unroll 1
        for (u32 at = threadIdx.x; at < PIXELS * INS; at += THREADS) {
            const u32 pixel = first + at / INS;
            if (pixel >= COUNT) continue;
            real *to = &dx[place_of(strides, pixel) + at % INS * strides.channel];
            narrow(widen(*to) + found[at], to);
        }
    }
}

#endif
#endif
#endif
