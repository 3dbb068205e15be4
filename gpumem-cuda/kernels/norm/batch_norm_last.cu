// Batch normalisation of feature maps with channels last: it computes what batch_norm.cu does, with the same entry points.
//
// BATCH, CHANNELS  B samples of C channels
// AREA             H * W, pixels of a sample
// PARTS            parts of the B H W pixels, none of them empty
// PACK             channels that a thread works on: C is a multiple of it
// WIDE, ROWS       adjacent packs of channels of a block, and the pixels that it processes at a time
// WITHIN           given if x are the first channels of a map with this many: a multiple of PACK, too
// NORM_REAL, AFFINE, EPS, MOMENTUM, RESIDUAL, RECTIFIER, MASKED, SLOPE, EVAL, AGAIN, ADD, ADD_WEIGHT, ADD_BIAS, RANKS, PITCH  as in
//                  batch_norm.cu
// TOGETHER         1 if the grid has a barrier and all its blocks run at once, else undefined
//
// x, y, residual, dy, masked, dx, again [B, H W, C]; partial [2, PARTS, C] in f32; state [words]; all others as in batch_norm.cu.
//
// Grid: a block for WIDE packs of channels (x) and a part of the pixels (y). A thread keeps its channels and goes from pixel to pixel. The results
// of a block's rows are joined in shared memory. With one part, each pass is one launch. With several parts, a block writes its results to
// `partial`, and each block joins the parts of its channels: in the next launch, or with TOGETHER after the grid barrier. Results are joined in the
// same order in every run.
#include "base.cuh"
#include "real.cuh"
#include "rectify.cuh"
#include "batch_norm.cuh"
#include "pack.cuh"
#include "grid_barrier.cuh"

constexpr u32 PACKS = (u32)(CHANNELS / PACK), COLUMNS = WIDE * PACK, THREADS = WIDE * ROWS;
constexpr Index PORTION = (COUNT + PARTS - 1) / PARTS;

// Packs from one pixel of a thread to its next one.
constexpr u64 STEP = (u64)ROWS * PACKS;

// Return the first pixel of a part and the one after its last.
static __device__ __forceinline__ Index begin(Index part) { return part * PORTION; }
static __device__ __forceinline__ Index end(Index part) { return part + 1 < PARTS ? (part + 1) * PORTION : COUNT; }

// The packs of a thread, one in each of its pixels.
struct Walk {
    u64 first;
    u32 count;
};

static __device__ __forceinline__ Walk walk() {
    const u32 pack = blockIdx.x * WIDE + threadIdx.x % WIDE, row = threadIdx.x / WIDE;
    const Index first = begin(blockIdx.y) + row, last = end(blockIdx.y);
    const bool works = pack < PACKS && row < ROWS && first < last;
    return {(u64)first * PACKS + pack, works ? (u32)((last - first + ROWS - 1) / ROWS) : 0};
}

// Loads U packs before waiting for any, or `count` packs if not WHOLE. Missing ones are left unchanged.
template <bool WHOLE, int U> static __device__ __forceinline__ void load(const real *from, u64 at, u32 count, Pack (&to)[U]) {
#pragma unroll
    for (int u = 0; u < U; u++)
        if (WHOLE || u < count) to[u] = ((const Pack *)from)[at + u * STEP];
}

// Loads packs of x, which may be part of a larger map.
template <bool WHOLE, int U> static __device__ __forceinline__ void load_x(const real *x, u64 at, u32 count, Pack (&to)[U]) {
#ifdef WITHIN
    constexpr u64 packs = WITHIN / PACK;
    const u64 first = at / PACKS * packs + at % PACKS;
#pragma unroll
    for (int u = 0; u < U; u++)
        if (WHOLE || u < count) to[u] = ((const Pack *)x)[first + u * (ROWS * packs)];
#else
    load<WHOLE>(x, at, count, to);
#endif
}

// Two numbers for each channel of a thread, over `count` elements: mean, and squares around it; or two sums.
struct Found {
    float count, first[PACK], second[PACK];
};

// Joins mean and squares of `count` elements with those of others.
static __device__ __forceinline__ void
join_moments(float count, float share, float mean, float squares, float *to_mean, float *to_squares) {
    const float distance = mean - *to_mean;
    *to_mean += distance * share;
    *to_squares += squares + distance * distance * count * share;
}

// Returns the share of new elements in all of them.
static __device__ __forceinline__ float share_of(float count, float others) {
    return others > 0.0f ? others / (count + others) : 0.0f;
}

// Joins the results of a block's rows; row 0 then has the result of all of them.
template <bool MOMENTS> static __device__ __forceinline__ void join_rows(Found &own) {
    constexpr u32 HALF = ROWS > 256 ? 256 : ROWS > 128 ? 128 : ROWS > 64 ? 64 : ROWS > 32 ? 32 : ROWS > 16 ? 16 : ROWS > 8 ? 8
                       : ROWS > 4 ? 4 : ROWS > 2 ? 2 : 1;
    __shared__ float scratch[2 * PACK + 1][HALF * WIDE];
    const u32 row = threadIdx.x / WIDE;
    for (u32 half = HALF; half > 0; half /= 2) {
        if (row >= half && row < 2 * half && row < ROWS) {
            const u32 place = threadIdx.x - half * WIDE;
            scratch[2 * PACK][place] = own.count;
#pragma unroll
            for (int k = 0; k < PACK; k++) {
                scratch[k][place] = own.first[k];
                scratch[PACK + k][place] = own.second[k];
            }
        }
        __syncthreads();
        if (row < half && row + half < ROWS) {
            const float others = scratch[2 * PACK][threadIdx.x], share = share_of(own.count, others);
#pragma unroll
            for (int k = 0; k < PACK; k++) {
                const float first = scratch[k][threadIdx.x], second = scratch[PACK + k][threadIdx.x];
                if (MOMENTS) {
                    join_moments(own.count, share, first, second, &own.first[k], &own.second[k]);
                } else {
                    own.first[k] += first;
                    own.second[k] += second;
                }
            }
            own.count += others;
        }
        __syncthreads();
    }
}

// Returns the first channel of a thread, within its block.
static __device__ __forceinline__ u32 own_column() { return threadIdx.x % WIDE * PACK; }

// Stores the results of a block, if there are several parts.
static __device__ __forceinline__ void store_part(const Found &own, float *partial) {
    const u64 c = blockIdx.x * COLUMNS + own_column(), part = blockIdx.y;
    if (threadIdx.x >= WIDE || c >= CHANNELS) return;
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        partial[part * CHANNELS + c + k] = own.first[k];
        partial[(PARTS + part) * CHANNELS + c + k] = own.second[k];
    }
}

// Shares the results of the only part with all threads of its block.
static __device__ __forceinline__ void share_part(const Found &own, float (&found)[2][COLUMNS]) {
    if (threadIdx.x < WIDE) {
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            found[0][own_column() + k] = own.first[k];
            found[1][own_column() + k] = own.second[k];
        }
    }
    __syncthreads();
}

#if PARTS > 1

// Joins the results of all parts for all threads of a block: slices of its threads take parts in turns.
template <bool MOMENTS> static __device__ __forceinline__ void join_parts(const float *partial, float (&found)[2][COLUMNS]) {
    constexpr u32 SLICES = THREADS / COLUMNS;
    __shared__ float scratch[3][SLICES * COLUMNS];
    const u32 column = threadIdx.x % COLUMNS, slice = threadIdx.x / COLUMNS;
    const u64 c = (u64)blockIdx.x * COLUMNS + column;
    float count = 0.0f, first = 0.0f, second = 0.0f;
    const auto join = [&](float others, float more, float further) {
        if (MOMENTS) {
            join_moments(count, share_of(count, others), more, further, &first, &second);
            count += others;
        } else {
            first += more;
            second += further;
        }
    };
    if (slice < SLICES) {
        if (c < CHANNELS) {
#pragma unroll 4
            for (u32 part = slice; part < PARTS; part += SLICES)
                join((float)(end(part) - begin(part)), partial[part * CHANNELS + c], partial[(PARTS + part) * CHANNELS + c]);
        }
        scratch[0][threadIdx.x] = count;
        scratch[1][threadIdx.x] = first;
        scratch[2][threadIdx.x] = second;
    }
    __syncthreads();
    if (slice == 0) {
#pragma unroll
        for (u32 at = column + COLUMNS; at < SLICES * COLUMNS; at += COLUMNS) join(scratch[0][at], scratch[1][at], scratch[2][at]);
        found[0][column] = first;
        found[1][column] = second;
    }
    __syncthreads();
}

#endif

// Calls `what` with each channel of the block and its index in the block, each from one thread. All threads then see what it wrote.
template <class What> static __device__ __forceinline__ void each_channel(What what) {
    for (u32 column = threadIdx.x; column < COLUMNS; column += blockDim.x) {
        const Index c = blockIdx.x * COLUMNS + column;
        if (c < CHANNELS) what(c, column);
    }
    __syncthreads();
}

// Joins elements to the moments. Each channel's packs are reduced by themselves first. Nothing cancels, however far from 0 a channel is.
template <bool WHOLE, int U> static __device__ __forceinline__ void observe(const real *x, u64 at, u32 count, Found &own) {
    Pack packs[U];
    load_x<WHOLE>(x, at, count, packs);
    const float others = WHOLE ? (float)U : (float)count, share = others / (own.count + others), each = 1.0f / others;
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (WHOLE || u < count) sum += element(packs[u], k);
        const float center = sum * each;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (WHOLE || u < count) squares += (element(packs[u], k) - center) * (element(packs[u], k) - center);
        join_moments(own.count, share, center, squares, &own.first[k], &own.second[k]);
    }
    own.count += others;
}

// Returns the means of a block's pixels and the squares around them, in row 0.
static __device__ __forceinline__ Found moments(const real *x) {
    constexpr int U = 4;
    const Walk own = walk();
    Found found = {};
    u32 i = 0;
    for (; i + U <= own.count; i += U) observe<true, U>(x, own.first + i * STEP, U, found);
    if (i < own.count) observe<false, U>(x, own.first + i * STEP, own.count - i, found);
    join_rows<true>(found);
    return found;
}

// Writes some packs of the output.
template <bool WHOLE, int U>
static __device__ __forceinline__ void
apply(u64 at, u32 count, const Rule (&how)[PACK], const real *x, const real *residual, real *y) {
    Pack packs[U];
    load_x<WHOLE>(x, at, count, packs);
#if RESIDUAL
    Pack others[U];
    load<WHOLE>(residual, at, count, others);
#endif
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (!WHOLE && u >= count) continue;
        Pack to;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            float value = normalise(element(packs[u], k), how[k]);
#if RESIDUAL
            value += element(others[u], k);
#endif
            put(rectify(value), to, k);
        }
        ((Pack *)y)[at + u * STEP] = to;
    }
}

// Writes a block's pixels of the output. Backwards, because the elements read last for the sums are still in the cache.
static __device__ __forceinline__ void
apply_part(const Rule (&rules)[COLUMNS], const real *x, const real *residual, real *y) {
    constexpr int U = RESIDUAL ? 2 : 4;
    const Walk own = walk();
    Rule how[PACK];
#pragma unroll
    for (int k = 0; k < PACK; k++) how[k] = rules[own_column() + k];
    u32 left = own.count;
    for (; left >= U; left -= U) apply<true, U>(own.first + (left - U) * STEP, U, how, x, residual, y);
    if (left > 0) apply<false, U>(own.first, left, how, x, residual, y);
}

// Normalises with known statistics: in inference, in training with EVAL, and to recompute the output. Then mean and variance both point to the
// saved statistics.
KERNEL(__launch_bounds__(384, 2) batch_norm_apply)
(const real *x, const Norm *weight, const Norm *bias, const float *mean, const float *variance, const real *residual, real *y
#ifdef EVAL
 , float *saved
#endif
) {
    __shared__ Rule rules[COLUMNS];
    each_channel([&](Index c, u32 column) {
        rules[column] = rule(mean[c], deviation(variance, c), weight, bias, c);
#ifdef EVAL
        if (blockIdx.y == 0) keep(c, mean, variance, saved);
#endif
    });
    apply_part(rules, x, residual, y);
}

// Writes the output of training, from mean and squares of each channel.
static __device__ __forceinline__ void
finish(const float (&found)[2][COLUMNS], const real *x, const Norm *weight, const Norm *bias, const real *residual, float *saved,
       float *running_mean, float *running_var, real *y) {
    __shared__ Rule rules[COLUMNS];
    each_channel([&](Index c, u32 column) {
        const float mean = found[0][column], squares = found[1][column];
        if (blockIdx.y == 0) keep(c, mean, squares, saved, running_mean, running_var);
        rules[column] = rule(mean, inverse_root(squares / (float)ALL_RANKS), weight, bias, c);
    });
    apply_part(rules, x, residual, y);
}

#if PARTS == 1

// All of x has been read for the statistics, so y may overwrite it.
KERNEL(__launch_bounds__(768, 1) batch_norm_forward)
(const real *x, const Norm *weight, const Norm *bias, const real *residual, float *saved, float *running_mean, float *running_var,
 real *y) {
    __shared__ float found[2][COLUMNS];
    share_part(moments(x), found);
    finish(found, x, weight, bias, residual, saved, running_mean, running_var, y);
}

#elif defined(TOGETHER)

KERNEL(__launch_bounds__(384, 2) batch_norm_forward_parts)
(const real *x, const Norm *weight, const Norm *bias, const real *residual, float *partial, u32 *state, float *saved,
 float *running_mean, float *running_var, real *y) {
    __shared__ float found[2][COLUMNS];
    store_part(moments(x), partial);
    wait_for_grid(state);
    join_parts<true>(partial, found);
    finish(found, x, weight, bias, residual, saved, running_mean, running_var, y);
}

#else

KERNEL(__launch_bounds__(384, 2) batch_norm_statistics)(const real *x, float *partial) { store_part(moments(x), partial); }

// The output, after batch_norm_statistics.
KERNEL(__launch_bounds__(384, 2) batch_norm_apply_parts)
(const real *x, const float *partial, const Norm *weight, const Norm *bias, const real *residual, float *saved,
 float *running_mean, float *running_var, real *y) {
    __shared__ float found[2][COLUMNS];
    join_parts<true>(partial, found);
    finish(found, x, weight, bias, residual, saved, running_mean, running_var, y);
}

#endif

// Makes the compiler read shared memory again after this. Otherwise it would use more registers than there are.
static __device__ __forceinline__ void read_again() { asm volatile("" ::: "memory"); }

// Adds some packs to the sums.
template <int U>
static __device__ __forceinline__ void add_up(u64 at, const Rule *how, const real *dy, const real *x,
                                              const real *y, real *masked, Found &own) {
    read_again();
    Pack gradients[U], inputs[U];
    load<true>(dy, at, U, gradients);
    load_x<true>(x, at, U, inputs);
#if MASKED
    Pack outputs[U];
    load<true>(y, at, U, outputs);
#pragma unroll
    for (int u = 0; u < U; u++) {
        Pack to;
#pragma unroll
        for (int k = 0; k < PACK; k++) put(element(gradients[u], k) * rectifier_slope(element(outputs[u], k)), to, k);
        ((Pack *)masked)[at + u * STEP] = gradients[u] = to;
    }
#endif
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        // Some elements are summed by themselves: chains of additions are shorter, and their errors smaller.
        float first = 0.0f, second = 0.0f;
#pragma unroll
        for (int u = 0; u < U; u++) {
                const float input = element(inputs[u], k), gradient = through(element(gradients[u], k), input, how[k]);
            first += gradient;
            second += gradient * centered(input, how[k]);
        }
        own.first[k] += first;
        own.second[k] += second;
    }
}

// Returns the sums of a block's pixels, in row 0: of dy, and of dy (x - mean).
static __device__ __forceinline__ Found
sums(const Rule (&rules)[COLUMNS], const real *dy, const real *x, const real *y, real *masked) {
    constexpr int U = 2;
    const Walk own = walk();
    const Rule *how = rules + own_column();
    Found found = {};
    u32 i = 0;
    for (; i + U <= own.count; i += U) add_up<U>(own.first + i * STEP, how, dy, x, y, masked, found);
    if (i < own.count) add_up<1>(own.first + i * STEP, how, dy, x, y, masked, found);
    join_rows<false>(found);
    return found;
}

// Writes some packs of the gradient of the input.
template <int U>
static __device__ __forceinline__ void
differentiate(u64 at, const Rule *how, const Means *means, const real *dy, const real *x, real *dx, real *again) {
    read_again();
    Pack gradients[U], inputs[U];
    load<true>(dy, at, U, gradients);
    load_x<true>(x, at, U, inputs);
#if ADD
    Pack before[U];
    load<true>(dx, at, U, before);
#endif
#pragma unroll
    for (int u = 0; u < U; u++) {
        Pack to;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float input = element(inputs[u], k), gradient = through(element(gradients[u], k), input, how[k]);
#ifdef EVAL
            float value = how[k].scale * gradient;
#else
            float value = how[k].scale * (gradient - means[k].sum - centered(input, how[k]) * means[k].product);
#endif
#if ADD
            value += element(before[u], k);
#endif
            put(value, to, k);
        }
        ((Pack *)dx)[at + u * STEP] = to;
#ifdef AGAIN
#pragma unroll
        for (int k = 0; k < PACK; k++) put(rectify(normalise(element(inputs[u], k), how[k])), to, k);
        ((Pack *)again)[at + u * STEP] = to;
#endif
    }
}

// Computes the gradient of a block's pixels of the input. Backwards, because the elements read last are still in the cache. Nothing reads dy for the
// sums any more, so dx may overwrite it.
static __device__ __forceinline__ void
input_part(const Rule (&rules)[COLUMNS], const Means (&means)[COLUMNS], const real *dy, const real *x, real *dx, real *again) {
    constexpr int U = 2;
    const Walk own = walk();
    const Rule *how = rules + own_column();
    const Means *less = means + own_column();
    u32 left = own.count;
    for (; left >= U; left -= U) differentiate<U>(own.first + (left - U) * STEP, how, less, dy, x, dx, again);
    if (left > 0) differentiate<1>(own.first, how, less, dy, x, dx, again);
}

// Computes the gradients from the channels' sums: of weight and bias, and with dx those of a block's pixels of the input.
static __device__ __forceinline__ void
differentiate_part(const float (&found)[2][COLUMNS], const Rule (&rules)[COLUMNS], const float *saved, const real *dy,
                   const real *x, real *dx, Norm *dweight, Norm *dbias, real *again) {
    __shared__ Means means[COLUMNS];
    each_channel([&](Index c, u32 column) {
        const float rstd = saved[CHANNELS + c], sum = found[0][column], product = found[1][column];
        if (blockIdx.y == 0) parameters(c, rstd, sum, product, dweight, dbias);
        means[column] = means_of(sum, product, rstd);
    });
    if (dx != nullptr) input_part(rules, means, dy, x, dx, again);
}

// Computes the rules of a block's channels, as in the forward pass.
static __device__ __forceinline__ void
find_rules(const float *saved, const Norm *weight, const Norm *bias, Rule (&rules)[COLUMNS]) {
    each_channel([&](Index c, u32 column) { rules[column] = rule(saved[c], saved[CHANNELS + c], weight, bias, c); });
}

#ifdef EVAL

// Writes some packs of the gradient of the input, if no other gradient is wanted.
template <bool WHOLE, int U>
static __device__ __forceinline__ void scale(u64 at, u32 count, const float *by, const real *dy, real *dx) {
    Pack gradients[U];
    load<WHOLE>(dy, at, count, gradients);
#if ADD
    Pack before[U];
    load<WHOLE>(dx, at, count, before);
#endif
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (!WHOLE && u >= count) continue;
        Pack to;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            float value = by[k] * element(gradients[u], k);
#if ADD
            value += element(before[u], k);
#endif
            put(value, to, k);
        }
        ((Pack *)dx)[at + u * STEP] = to;
    }
}

KERNEL(__launch_bounds__(384, 2) batch_norm_scale)(const real *dy, const Norm *weight, const float *saved, real *dx) {
    constexpr int U = 4;
    __shared__ float factors[COLUMNS];
    each_channel([&](Index c, u32 column) { factors[column] = factor(saved[CHANNELS + c], weight, c); });
    const Walk own = walk();
    const float *by = factors + own_column();
    u32 i = 0;
    for (; i + U <= own.count; i += U) scale<true, U>(own.first + i * STEP, U, by, dy, dx);
    if (i < own.count) scale<false, U>(own.first + i * STEP, own.count - i, by, dy, dx);
}

#endif

#if PARTS == 1

KERNEL(__launch_bounds__(768, 1) batch_norm_backward)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked, real *dx,
 Norm *dweight, Norm *dbias, real *again) {
    __shared__ Rule rules[COLUMNS];
    __shared__ float found[2][COLUMNS];
    find_rules(saved, weight, bias, rules);
    share_part(sums(rules, dy, x, y, masked), found);
    differentiate_part(found, rules, saved, MASKED ? masked : dy, x, dx, dweight, dbias, again);
}

#elif defined(TOGETHER)

KERNEL(__launch_bounds__(384, 2) batch_norm_backward_parts)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked,
 float *partial, u32 *state, real *dx, Norm *dweight, Norm *dbias, real *again) {
    __shared__ Rule rules[COLUMNS];
    __shared__ float found[2][COLUMNS];
    find_rules(saved, weight, bias, rules);
    store_part(sums(rules, dy, x, y, masked), partial);
    wait_for_grid(state);
    join_parts<false>(partial, found);
    differentiate_part(found, rules, saved, MASKED ? masked : dy, x, dx, dweight, dbias, again);
}

#else

KERNEL(__launch_bounds__(384, 2) batch_norm_sums)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked,
 float *partial) {
    __shared__ Rule rules[COLUMNS];
    find_rules(saved, weight, bias, rules);
    store_part(sums(rules, dy, x, y, masked), partial);
}

// Gradients, after the sums. dy is `masked` there, if it was written. Without dx, one part is enough.
KERNEL(__launch_bounds__(384, 2) batch_norm_input)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const float *partial, real *dx,
 Norm *dweight, Norm *dbias, real *again) {
    __shared__ Rule rules[COLUMNS];
    __shared__ float found[2][COLUMNS];
    find_rules(saved, weight, bias, rules);
    join_parts<false>(partial, found);
    differentiate_part(found, rules, saved, dy, x, dx, dweight, dbias, again);
}

#endif

#ifdef RANKS
#include "batch_norm_last_ranks.cuh"
#endif
