// Losses, and the gradient that they start from, which may overwrite the logits.
//
// ROWS     positions: samples times positions of a sample
// CLASSES  classes, or 1
// INNER    positions after the class axis; logits are [ROWS / INNER, CLASSES, INNER]
// COUNT    elements of the output
// GRADIENT whether there is a gradient
// DIVISOR  what the sum of the terms is divided by
//
// The loss scale of the state multiplies the gradient, not the loss.
//
// cross_entropy: loss = mean over rows of log(sum(exp(x))) - x[target]; dx = (softmax(x) - onehot(target)) / ROWS
// mse:           loss = mean of (x - t)^2;                              dx = 2 (x - t) / COUNT
// dot:           loss = sum of x t;                                     dx = t
//
// The terms go to the workspace and are added up by one block, in the same order in every run.
#include "base.cuh"
#include "real.cuh"

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
    const float scale = from_bits(state[STATE_LOSS_SCALE]) / (float)ROWS;
    for (u64 c = threadIdx.x; c < CLASSES; c += blockDim.x) {
        const float p = expf(widen(x[base + c * INNER]) - largest) / sum;
        narrow((p - (c == label ? 1.0f : 0.0f)) * scale, &dx[base + c * INNER]);
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
        narrow(2.0f * difference * from_bits(state[STATE_LOSS_SCALE]) / (float)COUNT, &dx[i]);
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
        narrow(t * from_bits(state[STATE_LOSS_SCALE]), &dx[i]);
#endif
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block: the sum of ROWS terms over DIVISOR.
KERNEL(loss_total)(const float *terms, float *loss) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < ROWS; i += blockDim.x) sum += terms[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) loss[0] = sum / (float)(DIVISOR);
}
