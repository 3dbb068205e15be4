// Cosine embedding loss of two vectors x and y, and its gradients, which may overwrite them. Grid: a block for each pair.
//
// LENGTH   elements of a vector
// NUMBER   the margin: the cosine below which a pair with target -1 has no loss
// GRADIENT_X, GRADIENT_Y  1 if a gradient is wanted
// ADD_X, ADD_Y  1 if it is added to its tensor (+=), which is not that of the vector; 0 if it overwrites it
// DIVISOR  divisor of the sum of terms
// WEIGHT   factor of loss and gradients
//
// c = x y / sqrt(m(x) m(y)), m(x) = x x + 1e-12
// target 1: 1 - c; target -1: max(0, c - NUMBER); any other: 0
//
// The loss scale of the state multiplies the gradients, not the loss. Terms are written to the workspace.
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
    // Separate roots, because the product of two small squares would underflow.
    const float lengths = sqrtf(own) * sqrtf(other), cosine = product / lengths, t = target[blockIdx.x];
    constexpr float margin = (float)(NUMBER);
    // A cosine that is not below the margin may be NaN. At the margin the slope is 1, as in PyTorch's clamp.
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
