// Batch normalisation of feature maps.
//
// BATCH, CHANNELS  B samples of C channels
// AREA             H * W, elements of a plane
// NORM_REAL        what weight, bias and their gradients are made of, numbered as REAL is
// AFFINE           whether there are weight and bias
// EPS, MOMENTUM    as PyTorch means them
// TRAINING         whether the statistics are the batch's or the running ones
// ADD, ADD_WEIGHT, ADD_BIAS  whether dx, dweight and dbias are added to what is there
//
// x, y, dy, dx [B, C, H W]; weight, bias, dweight, dbias [C]; saved [2, C] in f32: the means, then 1 / sqrt(variance + EPS);
// running_mean, running_var [C] in f32.
//
// statistics: mean and biased variance over B, H and W; with N = B H W,
//             running_mean = (1 - MOMENTUM) running_mean + MOMENTUM mean
//             running_var  = (1 - MOMENTUM) running_var  + MOMENTUM variance N / (N - 1)
// apply:      y = (x - mean) rstd weight + bias, where y may be x
// backward:   with n = (x - mean) rstd and means over B, H and W:
//             dbias = sum(dy), dweight = sum(dy n), dx = weight rstd (dy - mean(dy) - n mean(dy n)), where dx may be dy.
//             dweight, dbias and dx may each be absent.
//
// A channel is reduced by one block, so that nothing but its result leaves the chip and the order of the sum is fixed. Each
// of its threads takes 16 bytes at a time where the area allows.
#include "base.cuh"
#include "real.cuh"

#if NORM_REAL == 0
typedef float Norm;
#elif NORM_REAL == 1
typedef Bf16 Norm;
#else
typedef F16 Norm;
#endif

#if REAL == 0
#define WIDE 4
#else
#define WIDE 8
#endif
#if AREA % WIDE == 0
#define PACK WIDE
#else
#define PACK 1
#endif

// Division by a constant is several times faster in 32 bits.
#if BATCH * CHANNELS * AREA < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

#define COUNT (BATCH * AREA)

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Pack i of channel c, planes one after the other.
static __device__ __forceinline__ Index place(Index i, Index c) {
    const Index packs = (Index)(AREA / PACK);
    return (i / packs * (Index)CHANNELS + c) * packs + i % packs;
}

static __device__ __forceinline__ float inverse_root(float variance) { return 1.0f / sqrtf(variance + (float)(EPS)); }

// A block for each channel.
KERNEL(batch_norm2d_statistics)(const real *x, float *saved, float *running_mean, float *running_var) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x;
    // Count, mean, and squares around that mean, of what this thread has read: nothing cancels, however far from 0 the
    // channel lies. Each pack is reduced by itself and then joined to the rest.
    float count = 0.0f, mean = 0.0f, squares = 0.0f;
#pragma unroll 4
    for (Index i = threadIdx.x; i < (Index)(COUNT / PACK); i += blockDim.x) {
        const Pack pack = ((const Pack *)x)[place(i, c)];
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
    const float all = (float)COUNT;
    const float total = block_sum(count * mean, scratch) / all;
    squares = block_sum(squares + count * (mean - total) * (mean - total), scratch);
    if (threadIdx.x != 0) return;
    saved[c] = total;
    saved[CHANNELS + c] = inverse_root(squares / all);
    if (running_mean == nullptr) return;
    // A single element has no unbiased variance; its biased one, 0, is taken.
    const float unbiased = squares / (COUNT > 1 ? all - 1.0f : 1.0f);
    const float momentum = (float)(MOMENTUM), rest = (float)(1.0 - (MOMENTUM));
    running_mean[c] = rest * running_mean[c] + momentum * total;
    running_var[c] = rest * running_var[c] + momentum * unbiased;
}

// A thread for each pack. `mean` is followed by 1 / std in training, and `variance` is read otherwise.
KERNEL(batch_norm2d_apply)
(const real *x, const Norm *weight, const Norm *bias, const float *mean, const float *variance, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= CHANNELS * COUNT / PACK) return;
    const Index c = (Index)i / (Index)(AREA / PACK) % (Index)CHANNELS;
    const float center = mean[c];
#if TRAINING
    float scale = mean[CHANNELS + c];
#else
    float scale = inverse_root(variance[c]);
#endif
#if AFFINE
    scale *= widen(weight[c]);
    const float shift = widen(bias[c]);
#else
    const float shift = 0.0f;
#endif
    Pack pack = ((const Pack *)x)[i];
#pragma unroll
    for (int k = 0; k < PACK; k++) narrow((widen(pack.at[k]) - center) * scale + shift, &pack.at[k]);
    ((Pack *)y)[i] = pack;
}

// A block for each channel.
KERNEL(batch_norm2d_backward)
(const real *dy, const real *x, const Norm *weight, const float *saved, real *dx, Norm *dweight, Norm *dbias) {
    __shared__ float scratch[32];
    const Index c = blockIdx.x, packs = (Index)(COUNT / PACK);
    const float mean = saved[c], rstd = saved[CHANNELS + c];
    float sum = 0.0f, product = 0.0f;
#pragma unroll 4
    for (Index i = threadIdx.x; i < packs; i += blockDim.x) {
        const Index at = place(i, c);
        const Pack gradients = ((const Pack *)dy)[at], inputs = ((const Pack *)x)[at];
        // A pack is summed by itself: the chains of additions are shorter, and so are their errors.
        float first = 0.0f, second = 0.0f;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            first += widen(gradients.at[k]);
            second += widen(gradients.at[k]) * (widen(inputs.at[k]) - mean);
        }
        sum += first;
        product += second;
    }
    sum = block_sum(sum, scratch);
    product = block_sum(product, scratch) * rstd;
    if (threadIdx.x == 0) {
        if (dweight != nullptr) narrow(ADD_WEIGHT ? widen(dweight[c]) + product : product, &dweight[c]);
        if (dbias != nullptr) narrow(ADD_BIAS ? widen(dbias[c]) + sum : sum, &dbias[c]);
    }
    if (dx == nullptr) return;
    float scale = rstd;
#if AFFINE
    scale *= widen(weight[c]);
#endif
    const float mean_sum = sum / (float)COUNT, mean_product = product / (float)COUNT * rstd;
    // Backwards: what was read last is still in the cache. Nobody reads dy for the sums any more, so dx may take its place.
    for (Index j = threadIdx.x; j < packs; j += blockDim.x) {
        const Index at = place(packs - 1 - j, c);
        const Pack gradients = ((const Pack *)dy)[at], inputs = ((const Pack *)x)[at];
#if ADD
        Pack to = ((const Pack *)dx)[at];
#else
        Pack to = gradients;
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float centered = widen(inputs.at[k]) - mean;
            const float value = scale * (widen(gradients.at[k]) - mean_sum - centered * mean_product);
            narrow(ADD ? widen(to.at[k]) + value : value, &to.at[k]);
        }
        ((Pack *)dx)[at] = to;
    }
}
#undef WIDE
#undef PACK
#undef COUNT
