// Formulas of one number that the user wrote, and their derivatives.
//
// COUNT elements
// TERMS, VALUE  the terms of the formula, `t[0]=x;t[1]=expf(t[0]);`, of which the last is its value
// SLOPES, SLOPE the same for its derivative, of x and y
// ADD   whether the gradient is added to what is there
//
// formula:          y = f(x), where y may be x
// formula_backward: dx = dy * f'(x, y), where dx may be dy; x and y are null where the derivative does not read them
#include "base.cuh"
#include "real.cuh"

static __device__ __forceinline__ float sign_of(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }

// NaN where one of them is, unlike fminf and fmaxf.
static __device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }
static __device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

static __device__ __forceinline__ float sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }

static __device__ __forceinline__ float softplus(float a) { return larger(a, 0.0f) + log1pf(expf(-fabsf(a))); }

static __device__ __forceinline__ float value_of(float x) {
    float t[TERMS];
    VALUE;
    return t[TERMS - 1];
}

static __device__ __forceinline__ float slope_of(float x, float y) {
    float t[SLOPES];
    SLOPE;
    return t[SLOPES - 1];
}

KERNEL(formula)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) narrow(value_of(widen(x[i])), &y[i]);
}

KERNEL(formula_backward)(const real *dy, const real *x, const real *y, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const float slope = slope_of(x == nullptr ? 0.0f : widen(x[i]), y == nullptr ? 0.0f : widen(y[i]));
    const float gradient = widen(dy[i]) * slope;
#if ADD
    narrow(widen(dx[i]) + gradient, &dx[i]);
#else
    narrow(gradient, &dx[i]);
#endif
}
