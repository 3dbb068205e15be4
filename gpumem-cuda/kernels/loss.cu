// Losses, and the gradient that they start from, which may overwrite the logits.
//
// ROWS     positions: samples times positions of a sample
// CLASSES  classes, or 1
// INNER    positions after the class axis; logits are [ROWS / INNER, CLASSES, INNER]
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

// A block for each row: rows of thousands of classes are read by all its threads together.
KERNEL(cross_entropy_rows)(const real *x, const u32 *target, const u32 *state, real *dx, float *row_loss) {
    __shared__ float scratch[32];
    const u64 row = blockIdx.x;
    const u64 base = row / INNER * (u64)CLASSES * INNER + row % INNER;
    float largest = -__int_as_float(0x7f800000);
    for (u64 c = threadIdx.x; c < CLASSES; c += blockDim.x) largest = fmaxf(largest, widen(x[base + c * INNER]));
    largest = block_max(largest, scratch);
    float sum = 0.0f;
    for (u64 c = threadIdx.x; c < CLASSES; c += blockDim.x) sum += expf(widen(x[base + c * INNER]) - largest);
    sum = block_sum(sum, scratch);
    const u64 label = target[row];
    // Read before the gradient takes its place.
    const float right = widen(x[base + label * INNER]);
    __syncthreads();
#if GRADIENT
    const float scale = factor(state) / (float)ROWS;
    for (u64 c = threadIdx.x; c < CLASSES; c += blockDim.x) {
        const float p = expf(widen(x[base + c * INNER]) - largest) / sum;
        put((p - (c == label ? 1.0f : 0.0f)) * scale, &dx[base + c * INNER]);
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
