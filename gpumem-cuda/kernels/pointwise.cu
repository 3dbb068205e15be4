// Functions of one number, and their gradients.
//
// COUNT     elements
// FUNCTION  which one: a struct of pointwise.cuh
// ARGUMENTS the numbers that it has beside its input
// ADD       whether the gradient is added to what is there
//
// pointwise:          y = f(x), where y may be x
// pointwise_backward: dx = dy * f', where dx may be dy. The derivative is computed from the kept tensor, null where the
//                     function keeps nothing.
#include "base.cuh"
#include "real.cuh"
#include "pointwise.cuh"

KERNEL(pointwise)(const real *x, real *y) {
    const Arguments arguments = ARGUMENTS;
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) narrow(FUNCTION::value(widen(x[i]), arguments), &y[i]);
}

KERNEL(pointwise_backward)(const real *dy, const real *kept, real *dx) {
    const Arguments arguments = ARGUMENTS;
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const float gradient = widen(dy[i]) * FUNCTION::slope(kept == nullptr ? 0.0f : widen(kept[i]), arguments);
#if ADD
    narrow(widen(dx[i]) + gradient, &dx[i]);
#else
    narrow(gradient, &dx[i]);
#endif
}
