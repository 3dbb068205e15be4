// Batch normalisation of feature maps with channels first.
//
// BATCH, CHANNELS  B samples of C channels
// AREA             H * W, elements of a plane
// PARTS            parts of a channel's B H W elements, at most 32, none of them empty
// PACK             elements that are read at a time: planes are whole packs
// NORM_REAL        number format of weight, bias and their gradients: a type, as REAL is
// AFFINE           1 if there are weight and bias
// EPS, MOMENTUM    as in PyTorch
// WITHIN           given if x are the first channels of a map with this many, such as a concatenation that begins with x
// EVAL             given if training normalises by the running statistics, which do not change: they are constants to gradients
// KEPT             given if mean and 1 / deviation of each channel are the values that training saved
// RESIDUAL         1 if another map is added to the normalised one, in the forward pass
// RECTIFIER        the function after that, through which the gradient passes: see rectify.cuh
// MASKED           1 if in the backward pass the gradient after the rectifier is also written to `masked`, because other operations need it.
//                  RECTIFIER then follows a sum, and its output y is read
// SLOPE            given if the backward pass has y instead of x: RECTIFIER is then LeakyRelu, and this its slope, more than 0
// AGAIN            given if the backward pass writes y as well, to `again`
// HEIGHT, WIDTH, X_STRIDES, Y_STRIDES, D_STRIDES  given if maps are not dense: strides of x, of y, dy and again, and of dx: see layout.cuh.
//                  PACK is 1
// ADD, ADD_WEIGHT, ADD_BIAS  1 if dx, dweight and dbias are added to their tensors (+=), 0 if they overwrite them
// RANKS, PITCH     given if ranks share statistics and sums: their number, and the numbers from one row of `rows` to the next. Each pass is two
//                  operations, with an exchange between them
// THRESHOLD, SCALE  given if dropout comes after all that: an element is dropped if its random word is below THRESHOLD, else multiplied by SCALE.
//                  Maps are dense
//
// x, y, residual, dy, masked, dx, again [B, C, H W]; weight, bias, dweight, dbias [C]; saved [2, C] in f32: the means, then
// 1 / sqrt(variance + EPS); running_mean, running_var [C] in f32; partial [2, C, PARTS] in f32; rows [RANKS, PITCH] in f32: each begins with a
// rank's means, then its biased variances, this rank's at `start`; sums [2, C] in f32: of dy, then of dy n.
//
// statistics: mean and biased variance over B, H and W; with N = B H W,
//             running_mean = (1 - MOMENTUM) running_mean + MOMENTUM mean
//             running_var  = (1 - MOMENTUM) running_var  + MOMENTUM variance N / (N - 1)
// forward:    y = rectify((x - mean) rstd weight + bias + residual), where y may be x or residual. With dropout, z is its result, and
//             y may be absent. Both are overwritten
// backward:   with n = (x - mean) rstd, dy after the rectifier, and means over B, H and W:
//             dbias = sum(dy), dweight = sum(dy n), dx = weight rstd (dy - mean(dy) - n mean(dy n)), where dx may be dy.
//             dweight, dbias and dx may each be absent. masked may be dy. With dropout, dy first goes through it
//             With EVAL, dx = weight rstd dy; x is read only for dweight or for a function after the norm, bias only for the latter
// of ranks:   statistics and means are those of the samples of all ranks, N = RANKS B H W. dbias and dweight are sums over the rank's own samples
//
// Grid: a block for each channel (x) and part of it (y). With one part, each pass is one launch; inference has a thread for each pack. With several
// parts, a block writes its results to `partial`, and each block of the next launch joins the parts of its channel, always in the same order.
#include "base.cuh"
#include "real.cuh"
#include "layout.cuh"
#include "rectify.cuh"
#include "batch_norm.cuh"

// Packs of a channel and of a part; the last part may have fewer.
constexpr Index PACKS = COUNT / PACK, PORTION = (PACKS + PARTS - 1) / PARTS;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Returns the place of pack i of channel c, counting planes one after the other.
static __device__ __forceinline__ Index place(Index i, Index c) {
    constexpr Index packs = (Index)(AREA / PACK);
    return (i / packs * (Index)CHANNELS + c) * packs + i % packs;
}

// Return the place of a pack, given its place in a dense map.
#ifdef X_STRIDES
static __device__ __forceinline__ u64 of_x(Index at) { return in_order(Strides X_STRIDES, CHANNELS, HEIGHT, WIDTH, at); }
static __device__ __forceinline__ u64 of_y(Index at) { return in_order(Strides Y_STRIDES, CHANNELS, HEIGHT, WIDTH, at); }
static __device__ __forceinline__ u64 of_dx(Index at) { return in_order(Strides D_STRIDES, CHANNELS, HEIGHT, WIDTH, at); }
#else
#ifdef WITHIN
static __device__ __forceinline__ u64 of_x(Index at) {
    constexpr Index sample = (Index)(CHANNELS * (AREA / PACK));
    return at + at / sample * ((WITHIN - CHANNELS) * (AREA / PACK));
}
#else
static __device__ __forceinline__ Index of_x(Index at) { return at; }
#endif
static __device__ __forceinline__ Index of_y(Index at) { return at; }
static __device__ __forceinline__ Index of_dx(Index at) { return at; }
#endif

#ifdef THRESHOLD
#include "mask.cuh"
#include "part.cuh"

// Applies dropout to a pack. A draw decides about four elements.
static __device__ __forceinline__ Pack drop(Pack pack, Index at, const Draws &draws) {
    const u64 first = (u64)at * PACK;
    u32 words[4];
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        if (k % 4 == 0) drop_words(draws, (first + k) / 4, words);
        const u32 word = words[(PACK < 4 ? first : 0) + k & 3];
        narrow(drop(word, THRESHOLD, widen(pack.at[k]), (float)(SCALE)), &pack.at[k]);
    }
    return pack;
}

#endif

// Loads a pack of the incoming gradient, with dropout applied if there are draws.
static __device__ __forceinline__ Pack incoming(const real *dy, Index at, const Draws *draws) {
    const Pack gradients = ((const Pack *)dy)[of_y(at)];
#ifdef THRESHOLD
    if (draws != nullptr) return drop(gradients, at, *draws);
#endif
    return gradients;
}

// Return the first pack of a part and the one after its last.
static __device__ __forceinline__ Index begin(Index part) { return part * PORTION; }
static __device__ __forceinline__ Index end(Index part) { return part + 1 < PARTS ? (part + 1) * PORTION : PACKS; }

// Computes the mean of a part of a channel and the sum of squares around it, in every thread.
static __device__ __forceinline__ void
statistics_of_part(Index c, Index part, const real *x, float *scratch, float *mean_of_part, float *squares_of_part) {
    // Count, mean, and squares around that mean, of the elements that this thread has read. Nothing cancels, however far from 0 the channel is.
    // Each pack is reduced by itself and then joined to the rest.
    float count = 0.0f, mean = 0.0f, squares = 0.0f;
#pragma unroll 4
    for (Index i = begin(part) + threadIdx.x; i < end(part); i += blockDim.x) {
        const Pack pack = ((const Pack *)x)[of_x(place(i, c))];
        float sum = 0.0f, own = 0.0f;
#pragma unroll
        for (int k = 0; k < PACK; k++) sum += widen(pack.at[k]);
        const float center = sum / PACK;
#pragma unroll
        for (int k = 0; k < PACK; k++) own += (widen(pack.at[k]) - center) * (widen(pack.at[k]) - center);
        const float before = count, distance = center - mean;
        count += PACK;
        const float share = PACK / count;
        mean += distance * share;
        squares += own + distance * distance * before * share;
    }
    const float total = block_sum(count * mean, scratch) / (float)((end(part) - begin(part)) * PACK);
    *squares_of_part = block_sum(squares + count * (mean - total) * (mean - total), scratch);
    *mean_of_part = total;
}

// Returns one pack of the output.
static __device__ __forceinline__ Pack
output(Index at, const Rule &rule, const real *x, const real *residual) {
    Pack pack = ((const Pack *)x)[of_x(at)];
#if RESIDUAL
    const Pack other = ((const Pack *)residual)[of_y(at)];
#endif
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float value = normalise(widen(pack.at[k]), rule);
#if RESIDUAL
        value += widen(other.at[k]);
#endif
        narrow(rectify(value), &pack.at[k]);
    }
    return pack;
}

static __device__ __forceinline__ void
apply(Index at, const Rule &rule, const real *x, const real *residual, real *y) {
    ((Pack *)y)[of_y(at)] = output(at, rule, x, residual);
}

// Normalises with known statistics. Grid: a thread for each pack. Used in inference, in training with EVAL, and to recompute the output: then mean
// and variance both point to the saved statistics.
KERNEL(__launch_bounds__(1024) batch_norm_apply)
(const real *x, const Norm *weight, const Norm *bias, const float *mean, const float *variance, const real *residual, real *y
#ifdef EVAL
 , float *saved
#endif
) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)CHANNELS * PACKS) return;
    const Index c = (Index)i / (Index)(AREA / PACK) % (Index)CHANNELS;
#ifdef EVAL
    // The first pack of each plane of the first sample.
    if (i < CHANNELS * (AREA / PACK) && i % (AREA / PACK) == 0) keep(c, mean, variance, saved);
#endif
    apply((Index)i, rule(mean[c], deviation(variance, c), weight, bias, c), x, residual, y);
}

#if PARTS == 1

// Computes the statistics of a channel in training, and the rule that normalises its elements.
static __device__ __forceinline__ Rule
observe(Index c, const real *x, const Norm *weight, const Norm *bias, float *saved, float *running_mean, float *running_var) {
    __shared__ float scratch[32];
    float mean, squares;
    statistics_of_part(c, 0, x, scratch, &mean, &squares);
    if (threadIdx.x == 0) keep(c, mean, squares, saved, running_mean, running_var);
    return rule(mean, inverse_root(squares / (float)COUNT), weight, bias, c);
}

// Statistics, then the output, in training. Grid: a block for each channel.
KERNEL(__launch_bounds__(1024) batch_norm_forward)
(const real *x, const Norm *weight, const Norm *bias, const real *residual, float *saved, float *running_mean, float *running_var,
 real *y) {
    const Index c = blockIdx.x;
    const Rule how = observe(c, x, weight, bias, saved, running_mean, running_var);
    // Backwards, because the elements read last are still in the cache. All of x has been read for the sums, so y may overwrite it.
    for (Index i = threadIdx.x; i < PACKS; i += blockDim.x) apply(place(PACKS - 1 - i, c), how, x, residual, y);
}

#ifdef THRESHOLD

KERNEL(__launch_bounds__(1024) batch_norm_forward_drop)
(const real *x, const Norm *weight, const Norm *bias, const real *residual, const u32 *state, float *saved, float *running_mean,
 float *running_var, real *y, real *z, u32 row) {
    const Index c = blockIdx.x;
    const Rule how = observe(c, x, weight, bias, saved, running_mean, running_var);
    for (Index i = threadIdx.x; i < PACKS; i += blockDim.x) {
        const Index at = place(PACKS - 1 - i, c);
        const Pack pack = output(at, how, x, residual);
        if (y != nullptr) ((Pack *)y)[at] = pack;
        ((Pack *)z)[at] = drop(pack, at, draws_of(state, row));
    }
}

#endif
#endif

#if PARTS > 1

// Returns the sum of a channel's parts, in every lane of a warp.
static __device__ __forceinline__ float join(const float *parts) {
    const u32 lane = threadIdx.x & 31;
    return warp_sum(lane < PARTS ? parts[lane] : 0.0f);
}

// Statistics of parts. Grid: a block for each channel and part.
KERNEL(__launch_bounds__(1024) batch_norm_statistics)(const real *x, float *partial) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x, part = blockIdx.y;
    float mean, squares;
    statistics_of_part(c, part, x, scratch, &mean, &squares);
    if (threadIdx.x != 0) return;
    partial[c * PARTS + part] = mean;
    partial[(CHANNELS + c) * PARTS + part] = squares;
}

// Joins the statistics of a channel's parts, in every lane of a warp: their mean, and the sum of squares around it.
static __device__ __forceinline__ void join_statistics(Index c, const float *partial, float *mean, float *squares) {
    const u32 lane = threadIdx.x & 31;
    // Means relative to that of the first part, so that nothing cancels here either.
    const float base = partial[c * PARTS];
    float count = 0.0f, distance = 0.0f, own = 0.0f;
    if (lane < PARTS) {
        count = (float)((end(lane) - begin(lane)) * PACK);
        distance = partial[c * PARTS + lane] - base;
        own = partial[(CHANNELS + c) * PARTS + lane];
    }
    const float shift = warp_sum(count * distance) / (float)COUNT;
    *squares = warp_sum(own + count * (distance - shift) * (distance - shift));
    *mean = base + shift;
}

// The output, after batch_norm_statistics. Grid: a block for each channel and part.
KERNEL(__launch_bounds__(1024) batch_norm_apply_parts)
(const real *x, const float *partial, const Norm *weight, const Norm *bias, const real *residual, float *saved,
 float *running_mean, float *running_var, real *y) {
    const Index c = blockIdx.x, part = blockIdx.y;
    float mean, squares;
    join_statistics(c, partial, &mean, &squares);
    if (part == 0 && threadIdx.x == 0) keep(c, mean, squares, saved, running_mean, running_var);
    const Rule how = rule(mean, inverse_root(squares / (float)COUNT), weight, bias, c);
    for (Index i = begin(part) + threadIdx.x; i < end(part); i += blockDim.x) apply(place(i, c), how, x, residual, y);
}

#endif

#ifdef RANKS

#if PARTS == 1

// Statistics of the rank's own samples. Grid: a block for each channel.
KERNEL(__launch_bounds__(1024) batch_norm_rank_statistics)(const real *x, float *rows, u32 start) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x;
    float mean, squares;
    statistics_of_part(c, 0, x, scratch, &mean, &squares);
    if (threadIdx.x == 0) send_statistics(c, mean, squares, rows + start);
}

#else

// Statistics of the rank's own samples, after batch_norm_statistics. Grid: a warp for each channel.
KERNEL(batch_norm_rank_join)(const float *partial, float *rows, u32 start) {
    const Index c = blockIdx.x;
    float mean, squares;
    join_statistics(c, partial, &mean, &squares);
    if (threadIdx.x == 0) send_statistics(c, mean, squares, rows + start);
}

#endif

// The output, from the statistics of all ranks. Grid: a block for each channel and part. y may overwrite x or residual.
KERNEL(__launch_bounds__(1024) batch_norm_apply_ranks)
(const real *x, const float *rows, const Norm *weight, const Norm *bias, const real *residual, float *saved, float *running_mean,
 float *running_var, real *y) {
    __shared__ float found[2];
    const Index c = blockIdx.x, part = blockIdx.y;
    if (threadIdx.x == 0) combine(c, rows, &found[0], &found[1]);
    __syncthreads();
    const float mean = found[0], squares = found[1];
    if (part == 0 && threadIdx.x == 0) keep(c, mean, squares, saved, running_mean, running_var);
    const Rule how = rule(mean, inverse_root(squares / (float)ALL_RANKS), weight, bias, c);
    for (Index i = begin(part) + threadIdx.x; i < end(part); i += blockDim.x) apply(place(i, c), how, x, residual, y);
}

#endif

// Computes the sums of a part, in every thread: of dy, and of dy (x - mean).
static __device__ __forceinline__ void sum_part(Index c, Index part, const Rule &how, const real *dy, const Draws *draws,
                                                const real *x, const real *y, real *masked, float *scratch, float *sum,
                                                float *product) {
    *sum = *product = 0.0f;
#pragma unroll 4
    for (Index i = begin(part) + threadIdx.x; i < end(part); i += blockDim.x) {
        const Index at = place(i, c);
        Pack gradients = incoming(dy, at, draws);
        const Pack inputs = ((const Pack *)x)[of_x(at)];
#if MASKED
        const Pack outputs = ((const Pack *)y)[of_y(at)];
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            narrow(widen(gradients.at[k]) * rectifier_slope(widen(outputs.at[k])), &gradients.at[k]);
        }
        ((Pack *)masked)[of_y(at)] = gradients;
#endif
        // A pack is summed by itself: chains of additions are shorter, and their errors smaller.
        float first = 0.0f, second = 0.0f;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float input = widen(inputs.at[k]), gradient = through(widen(gradients.at[k]), input, how);
            first += gradient;
            second += gradient * centered(input, how);
        }
        *sum += first;
        *product += second;
    }
    *sum = block_sum(*sum, scratch);
    *product = block_sum(*product, scratch);
}

// Computes the gradient of a part of the input, from the means of the channel, which EVAL does not read.
static __device__ __forceinline__ void input_part(Index c, Index part, const Rule &how, const Means &means, const real *dy,
                                                  const Draws *draws, const real *x, real *dx, real *again) {
    // Backwards, because the elements read last are still in the cache. Nothing reads dy for the sums any more, so dx may overwrite it.
    const Index last = begin(part) + end(part) - 1;
    for (Index j = begin(part) + threadIdx.x; j < end(part); j += blockDim.x) {
        const Index at = place(last - j, c);
        const Pack gradients = incoming(dy, at, draws), inputs = ((const Pack *)x)[of_x(at)];
#if ADD
        Pack to = ((const Pack *)dx)[of_dx(at)];
#else
        Pack to = gradients;
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float input = widen(inputs.at[k]), gradient = through(widen(gradients.at[k]), input, how);
#ifdef EVAL
            const float value = how.scale * gradient;
#else
            const float value = how.scale * (gradient - means.sum - centered(input, how) * means.product);
#endif
            narrow(ADD ? widen(to.at[k]) + value : value, &to.at[k]);
        }
        ((Pack *)dx)[of_dx(at)] = to;
#ifdef AGAIN
#pragma unroll
        for (int k = 0; k < PACK; k++) narrow(rectify(normalise(widen(inputs.at[k]), how)), &to.at[k]);
        ((Pack *)again)[of_y(at)] = to;
#endif
    }
}

#ifdef EVAL

// The gradient of the input, if no other gradient is wanted. Grid: a thread for each pack.
KERNEL(__launch_bounds__(1024) batch_norm_scale)(const real *dy, const Norm *weight, const float *saved, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)CHANNELS * PACKS) return;
    const Index at = (Index)i, c = at / (Index)(AREA / PACK) % (Index)CHANNELS;
    const float scale = factor(saved[CHANNELS + c], weight, c);
    const Pack gradients = ((const Pack *)dy)[of_y(at)];
#if ADD
    Pack to = ((const Pack *)dx)[of_dx(at)];
#else
    Pack to = gradients;
#endif
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        const float value = scale * widen(gradients.at[k]);
        narrow(ADD ? widen(to.at[k]) + value : value, &to.at[k]);
    }
    ((Pack *)dx)[of_dx(at)] = to;
}

#endif

#if PARTS == 1

KERNEL(__launch_bounds__(1024) batch_norm_backward)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked, real *dx,
 Norm *dweight, Norm *dbias, real *again) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x;
    const float rstd = saved[CHANNELS + c];
    const Rule how = rule(saved[c], rstd, weight, bias, c);
    float sum, product;
    sum_part(c, 0, how, dy, nullptr, x, y, masked, scratch, &sum, &product);
    if (threadIdx.x == 0) parameters(c, rstd, sum, product, dweight, dbias);
    if (dx != nullptr) input_part(c, 0, how, means_of(sum, product, rstd), MASKED ? masked : dy, nullptr, x, dx, again);
}

#ifdef THRESHOLD

// The backward pass if dy is the gradient of dropout's result.
KERNEL(__launch_bounds__(1024) batch_norm_backward_drop)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const u32 *state, real *dx, Norm *dweight,
 Norm *dbias, u32 row) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x;
    const float rstd = saved[CHANNELS + c];
    const Rule how = rule(saved[c], rstd, weight, bias, c);
    const Draws draws = draws_of(state, row);
    float sum, product;
    sum_part(c, 0, how, dy, &draws, x, nullptr, nullptr, scratch, &sum, &product);
    if (threadIdx.x == 0) parameters(c, rstd, sum, product, dweight, dbias);
    if (dx != nullptr) input_part(c, 0, how, means_of(sum, product, rstd), dy, &draws, x, dx, nullptr);
}

#endif

#else

KERNEL(__launch_bounds__(1024) batch_norm_sums)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked,
 float *partial) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x, part = blockIdx.y;
    float sum, product;
    const Rule how = rule(saved[c], saved[CHANNELS + c], weight, bias, c);
    sum_part(c, part, how, dy, nullptr, x, y, masked, scratch, &sum, &product);
    if (threadIdx.x != 0) return;
    partial[c * PARTS + part] = sum;
    partial[(CHANNELS + c) * PARTS + part] = product;
}

// Gradients, after the sums. dy is `masked` there, if it was written. Without dx, one part is enough.
KERNEL(__launch_bounds__(1024) batch_norm_input)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const float *partial, real *dx,
 Norm *dweight, Norm *dbias, real *again) {
    const Index c = blockIdx.x, part = blockIdx.y;
    const float rstd = saved[CHANNELS + c];
    const float sum = join(partial + c * PARTS), product = join(partial + (CHANNELS + c) * PARTS);
    if (part == 0 && threadIdx.x == 0) parameters(c, rstd, sum, product, dweight, dbias);
    if (dx == nullptr) return;
    input_part(c, part, rule(saved[c], rstd, weight, bias, c), means_of(sum, product, rstd), dy, nullptr, x, dx, again);
}

#endif

#ifdef RANKS

#if PARTS == 1

// Gradients of weight and bias, and the sums of the rank's own samples. Grid: a block for each channel.
KERNEL(__launch_bounds__(1024) batch_norm_rank_sums)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked, Norm *dweight,
 Norm *dbias, float *sums) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x;
    const float rstd = saved[CHANNELS + c];
    float sum, product;
    sum_part(c, 0, rule(saved[c], rstd, weight, bias, c), dy, nullptr, x, y, masked, scratch, &sum, &product);
    if (threadIdx.x != 0) return;
    parameters(c, rstd, sum, product, dweight, dbias);
    send_sums(c, rstd, sum, product, sums);
}

#else

// Gradients of weight and bias, and the sums of the rank's own samples, after batch_norm_sums. Grid: a warp for each channel.
KERNEL(batch_norm_rank_join_sums)(const float *saved, const float *partial, Norm *dweight, Norm *dbias, float *sums) {
    const Index c = blockIdx.x;
    const float rstd = saved[CHANNELS + c];
    const float sum = join(partial + c * PARTS), product = join(partial + (CHANNELS + c) * PARTS);
    if (threadIdx.x != 0) return;
    parameters(c, rstd, sum, product, dweight, dbias);
    send_sums(c, rstd, sum, product, sums);
}

#endif

// The gradient of the input, from the sums of all ranks. Grid: a block for each channel and part.
KERNEL(__launch_bounds__(1024) batch_norm_input_ranks)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const float *sums, real *dx) {
    const Index c = blockIdx.x;
    const float rstd = saved[CHANNELS + c];
    const Rule how = rule(saved[c], rstd, weight, bias, c);
    input_part(c, blockIdx.y, how, means_of_ranks(c, rstd, sums), dy, nullptr, x, dx, nullptr);
}

#endif
