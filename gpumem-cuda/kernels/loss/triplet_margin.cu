// Triplet margin loss of an anchor a, a positive p and a negative n, and its gradients, which may overwrite them. Grid: a block for each triple.
//
// LENGTH   elements of a vector
// NUMBER   the margin: by how much the negative must be farther away than the positive
// SECOND   degree of the norm of a difference
// SWAP     1 if the distance of p from n counts if it is less than that of a from n
// GRADIENT_X, GRADIENT_Y, GRADIENT_Z  1 if the gradient of each vector is wanted
// ADD_X, ADD_Y, ADD_Z  1 if it is added to its tensor (+=), which is not that of the vector; 0 if it overwrites it
// DIVISOR, WEIGHT      divisor of the sum of terms; factor of loss and gradients
//
// max(0, NUMBER + |a - p| - |a - n|), |d| = (sum of |d + 1e-6|^SECOND)^(1 / SECOND)
//
// The loss scale of the state multiplies the gradients, not the loss. Terms are written to the workspace.
#include "base.cuh"
#include "real.cuh"
#include "loss.cuh"

static __device__ __forceinline__ float raised(float x) {
    constexpr float degree = (float)(SECOND);
    return degree == 2.0f ? x * x : degree == 1.0f ? x : powf(x, degree);
}

static __device__ __forceinline__ float difference(real x, real y) { return widen(x) - widen(y) + 1e-6f; }

// Returns the norm of a difference, in all threads of a block.
static __device__ __forceinline__ float norm(const real *x, const real *y, float *scratch) {
    constexpr float degree = (float)(SECOND);
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < LENGTH; i += blockDim.x) sum += raised(fabsf(difference(x[i], y[i])));
    sum = block_sum(sum, scratch);
    return degree == 2.0f ? sqrtf(sum) : degree == 1.0f ? sum : powf(sum, 1.0f / degree);
}

// Returns the slope of a norm along the difference of two elements.
static __device__ __forceinline__ float slope(real x, real y, float norm) {
    constexpr float degree = (float)(SECOND);
    const float d = difference(x, y);
    if (norm == 0.0f || d == 0.0f) return 0.0f;
    const float share = degree == 2.0f ? fabsf(d) / norm : degree == 1.0f ? 1.0f : powf(fabsf(d) / norm, degree - 1.0f);
    return d < 0.0f ? -share : share;
}

KERNEL(triplet_margin)
(const real *a, const real *p, const real *n, const u32 *state, real *da, real *dp, real *dn WEIGHTS_PARAMETERS, float *terms) {
    __shared__ float scratch[32];
    const u64 first = (u64)blockIdx.x * LENGTH;
    constexpr float margin = (float)(NUMBER);
    const float near = norm(a + first, p + first, scratch), far = norm(a + first, n + first, scratch);
    // The share of |p - n| in the distance of the negative: half if both distances are equal.
    float across = 1.0f, swapped = 0.0f;
    if (SWAP) {
        across = norm(p + first, n + first, scratch);
        swapped = across < far ? 1.0f : across == far ? 0.5f : 0.0f;
    }
    const float term = margin + near - (swapped > 0.0f ? across : far), of_term = OF_TERM(blockIdx.x);
    // A term that is not below 0 may be NaN. At 0 the slope is 1, as in PyTorch's clamp.
    const bool is_active = !(term < 0.0f);
    if (threadIdx.x == 0) terms[blockIdx.x] = is_active ? of_term * term : 0.0f;
#if GRADIENT_X || GRADIENT_Y || GRADIENT_Z
    const float scale = of_term * factor(state) / DIVIDED_BY;
    for (u64 i = first + threadIdx.x; i < first + LENGTH; i += blockDim.x) {
        const real anchor = a[i], positive = p[i], negative = n[i];
        float pull = 0.0f, push = 0.0f, apart = 0.0f;
        if (is_active) {
            pull = scale * slope(anchor, positive, near);
            if (swapped < 1.0f) push = scale * (1.0f - swapped) * slope(anchor, negative, far);
            if (swapped > 0.0f) apart = scale * swapped * slope(positive, negative, across);
        }
#if GRADIENT_X
        give<ADD_X>(pull - push, &da[i]);
#endif
#if GRADIENT_Y
        give<ADD_Y>(-pull - apart, &dp[i]);
#endif
#if GRADIENT_Z
        give<ADD_Z>(push + apart, &dn[i]);
#endif
    }
#endif
}
