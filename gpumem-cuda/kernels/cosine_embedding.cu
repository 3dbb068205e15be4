// How far two vectors x and y point apart, and the gradients of that, which may overwrite them. A block for each pair.
//
// LENGTH   elements of a vector
// MARGIN   the cosine below which vectors that do not belong together have no loss
// GRADIENT_X, GRADIENT_Y  whether there is a gradient
// ADD_X, ADD_Y  whether it is added to what is there, which is not where the vector is
// DIVISOR  what the sum of the terms is divided by
// WEIGHT   what loss and gradients are multiplied with
//
// c = x y / sqrt(m(x) m(y)), m(x) = x x + 1e-12
// target 1: 1 - c; target -1: max(0, c - MARGIN); any other: 0
//
// The loss scale of the state multiplies the gradients, not the loss. Terms go to the workspace.
#include "base.cuh"
#include "real.cuh"
#include "loss.cuh"

KERNEL(cosine_embedding)(const real *x, const real *y, const float *target, const u32 *state, real *dx, real *dy WEIGHTS_PARAMETERS, float *terms) {
    __shared__ float scratch[32];
    const u64 first = (u64)blockIdx.x * LENGTH;
    float product = 0.0f, own = 0.0f, other = 0.0f;
    for (u64 i = threadIdx.x; i < LENGTH; i += blockDim.x) {
        const float a = widen(x[first + i]), b = widen(y[first + i]);
        product += a * b;
        own += a * a;
        other += b * b;
    }
    product = block_sum(product, scratch);
    own = block_sum(own, scratch) + 1e-12f;
    other = block_sum(other, scratch) + 1e-12f;
    // Each root for itself: the product of two small squares would vanish.
    const float lengths = sqrtf(own) * sqrtf(other), cosine = product / lengths, t = target[blockIdx.x];
    constexpr float margin = (float)(MARGIN);
    // What is not below the margin may be NaN. At the margin the slope is 1, as PyTorch's clamp has it.
    const bool is_apart = t == -1.0f && !(cosine < margin);
    const float of_term = OF_TERM(blockIdx.x);
    if (threadIdx.x == 0) terms[blockIdx.x] = of_term * (t == 1.0f ? 1.0f - cosine : is_apart ? cosine - margin : 0.0f);
#if GRADIENT_X || GRADIENT_Y
    const float slope = t == 1.0f ? -1.0f : is_apart ? 1.0f : 0.0f;
    const float scale = slope * of_term * factor(state) / DIVIDED_BY;
    for (u64 i = threadIdx.x; i < LENGTH; i += blockDim.x) {
        const float a = widen(x[first + i]), b = widen(y[first + i]);
#if GRADIENT_X
        give<ADD_X>(slope == 0.0f ? 0.0f : scale * (b / lengths - cosine * a / own), &dx[first + i]);
#endif
#if GRADIENT_Y
        give<ADD_Y>(slope == 0.0f ? 0.0f : scale * (a / lengths - cosine * b / other), &dy[first + i]);
#endif
    }
#endif
}
