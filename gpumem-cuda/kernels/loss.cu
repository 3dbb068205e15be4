// Losses, and the gradient that they start from, which may overwrite the logits.
//
// ROWS     positions: samples times positions of a sample
// CLASSES  classes, or 1
// INNER    positions after the class axis; logits are [ROWS / INNER, CLASSES, INNER]
// PITCH, GRADIENT_PITCH  elements from one row of logits, and of their gradient, to the next; CLASSES where there are no gaps
// COUNT    elements of the output
// GRADIENT whether there is a gradient
// ADD      whether the gradient is added to what is there, which is not where the logits are
// DIVISOR  what the sum of the terms is divided by
// WEIGHT   what loss and gradient are multiplied with
// SUM      whether the loss is added to what is there: the losses before this one
//
// The loss scale of the state multiplies the gradient, not the loss.
//
// cross_entropy: loss = mean over rows of log(sum(exp(x))) - x[target]; dx = (softmax(x) - onehot(target)) / ROWS
// mse:           loss = mean of (x - t)^2;                              dx = 2 (x - t) / COUNT
// mean:          loss = mean of x;                                      dx = 1 / COUNT
// dot:           loss = sum of x t;                                     dx = t
//
// The terms go to the workspace and are added up by one block, in the same order in every run.
#include "base.cuh"
#include "real.cuh"

// What every gradient is multiplied with.
static __device__ __forceinline__ float factor(const u32 *state) {
    return from_bits(state[STATE_LOSS_SCALE]) * (float)(WEIGHT);
}

static __device__ __forceinline__ void put(float gradient, real *dx) {
#if ADD
    gradient += widen(*dx);
#endif
    narrow(gradient, dx);
}

// Elements of 16 bytes, if all rows begin at a multiple of that and lie in one piece.
constexpr int WIDE = 16 / sizeof(real), PACK = INNER == 1 && PITCH % WIDE == 0 && GRADIENT_PITCH % WIDE == 0 ? WIDE : 1;
// Classes in whole packs.
constexpr u64 WHOLE = CLASSES / PACK * PACK;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// The largest number that a thread has seen, and the sum of exp(x - largest) over all of them: of -INFINITY alone it is 0, and NaN stays.
struct Sum {
    float largest, sum;

    __device__ __forceinline__ static float below(float x, float largest) {
        return expf(x - (largest == -__int_as_float(0x7f800000) ? 0.0f : largest));
    }
    // MANY numbers, after which the sum refers to the largest so far.
    template <int MANY> __device__ __forceinline__ void add(const real *from) {
        float most = largest;
#pragma unroll
        for (int k = 0; k < MANY; k++) most = fmaxf(most, widen(from[k]));
        sum *= below(largest, most);
#pragma unroll
        for (int k = 0; k < MANY; k++) sum += below(widen(from[k]), most);
        largest = most;
    }
};

// A block for each row: rows of thousands of classes are read by all its threads together, twice.
KERNEL(cross_entropy_rows)(const real *x, const u32 *target, const u32 *state, real *dx, float *row_loss) {
    __shared__ float scratch[32];
    const u64 row = blockIdx.x;
    const real *logits = x + row / INNER * (u64)(INNER == 1 ? PITCH : CLASSES * INNER) + row % INNER;
    Sum own = {-__int_as_float(0x7f800000), 0.0f};
    for (u64 c = threadIdx.x * PACK; c < WHOLE; c += blockDim.x * PACK) {
        const Pack pack = *(const Pack *)(logits + c * INNER);
        own.add<PACK>(pack.at);
    }
    if (PACK > 1 && WHOLE + threadIdx.x < CLASSES) own.add<1>(logits + WHOLE + threadIdx.x);
    const float largest = block_max(own.largest, scratch);
    const float sum = block_sum(own.sum * Sum::below(own.largest, largest), scratch);
    const u64 label = target[row];
    // Read before the gradient takes its place.
    const float right = widen(logits[label * INNER]);
    __syncthreads();
#if GRADIENT
    const float scale = factor(state) / (float)ROWS;
    real *gradient = dx + row / INNER * (u64)(INNER == 1 ? GRADIENT_PITCH : CLASSES * INNER) + row % INNER;
    // That of class c, where the logit x was and `to` is.
    const auto give = [&](u64 c, real x, real *to) {
        const float p = expf(widen(x) - largest) / sum;
        put((p - (c == label ? 1.0f : 0.0f)) * scale, to);
    };
    for (u64 c = threadIdx.x * PACK; c < WHOLE; c += blockDim.x * PACK) {
        const Pack pack = *(const Pack *)(logits + c * INNER);
        Pack out = pack;
#if ADD
        out = *(const Pack *)(gradient + c * INNER);
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) give(c + k, pack.at[k], &out.at[k]);
        *(Pack *)(gradient + c * INNER) = out;
    }
    if (PACK > 1 && WHOLE + threadIdx.x < CLASSES) {
        const u64 c = WHOLE + threadIdx.x;
        give(c, logits[c], &gradient[c]);
    }
#endif
    if (threadIdx.x == 0) row_loss[row] = logf(sum) + largest - right;
}

// Partial sums of 256 blocks, each over elements a stride of 256 blocks apart.
KERNEL(mse_partial)(const real *x, const real *target, const u32 *state, real *dx, float *partial) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x) {
        const float difference = widen(x[i]) - widen(target[i]);
        sum += difference * difference;
#if GRADIENT
        put(2.0f * difference * factor(state) / (float)COUNT, &dx[i]);
#endif
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// There is no target.
KERNEL(mean_partial)(const real *x, const real *, const u32 *state, real *dx, float *partial) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x) {
        sum += widen(x[i]);
#if GRADIENT
        put(factor(state) / (float)COUNT, &dx[i]);
#endif
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL(dot_partial)(const real *x, const real *target, const u32 *state, real *dx, float *partial) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x) {
        const float t = widen(target[i]);
        sum += widen(x[i]) * t;
#if GRADIENT
        put(t * factor(state), &dx[i]);
#endif
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block: the sum of ROWS terms over DIVISOR, times WEIGHT.
KERNEL(loss_total)(const float *terms, float *loss) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < ROWS; i += blockDim.x) sum += terms[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x != 0) return;
    const float term = sum / (float)(DIVISOR) * (float)(WEIGHT);
#if SUM
    loss[0] += term;
#else
    loss[0] = term;
#endif
}
