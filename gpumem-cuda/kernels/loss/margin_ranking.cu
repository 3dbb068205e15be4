// Margin ranking loss of two values x and y, of which the target says which should be larger, and its gradients, which may overwrite them.
//
// COUNT    elements of a value
// NUMBER   the margin: by how much the one must be larger
// GRADIENT_X, GRADIENT_Y  1 if a gradient is wanted
// ADD_X, ADD_Y  1 if it is added to its tensor (+=), which is not that of the value; 0 if it overwrites it
// DIVISOR, WEIGHT  divisor of the sum of terms; factor of loss and gradients
//
// max(0, NUMBER - t (x - y)), in partial sums of all blocks
//
// The loss scale of the state multiplies the gradients, not the loss. Partial sums are written to the workspace.
#include "base.cuh"
#include "real.cuh"
#include "loss.cuh"

KERNEL(margin_ranking)
(const real *x, const real *y, const float *target, const u32 *state, real *dx, real *dy WEIGHTS_PARAMETERS, float *partial) {
    __shared__ float scratch[32];
    constexpr float margin = (float)(NUMBER);
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x) {
        const float t = target[i], term = margin - t * (widen(x[i]) - widen(y[i])), of_term = OF_TERM(i);
        // A term that is not below 0 may be NaN. At 0 the slope is 1, as in PyTorch's clamp.
        const bool is_active = !(term < 0.0f);
        sum += is_active ? of_term * term : 0.0f;
#if GRADIENT_X || GRADIENT_Y
        const float slope = is_active ? t * of_term * factor(state) / DIVIDED_BY : 0.0f;
#if GRADIENT_X
        give<ADD_X>(-slope, &dx[i]);
#endif
#if GRADIENT_Y
        give<ADD_Y>(slope, &dy[i]);
#endif
#endif
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
