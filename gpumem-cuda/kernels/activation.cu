// Functions of one number: Relu, Relu6, LeakyRelu, Gelu, Silu, Sigmoid and Tanh, and their gradients.
//
// COUNT    elements
// FUNCTION which one (below)
// SLOPE    slope of LeakyRelu below 0
// ADD      whether the gradient is added to what is there
//
// forward:  y = f(x), where y may be x
// backward: dx = dy * f'(x), where dx may be dy. The derivative is computed from the kept tensor: the output of Relu, Relu6,
//           LeakyRelu, Sigmoid and Tanh, the input of Gelu and Silu.
#include "base.cuh"
#include "real.cuh"

#define RELU 0
#define RELU6 1
#define LEAKY_RELU 2
#define GELU 3
#define GELU_TANH 4
#define SILU 5
#define SIGMOID 6
#define TANH 7

static __device__ __forceinline__ float value(float x) {
#if FUNCTION == RELU
    // Not fmaxf: NaN must stay NaN.
    return x < 0.0f ? 0.0f : x;
#elif FUNCTION == RELU6
    return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
#elif FUNCTION == LEAKY_RELU
    return x < 0.0f ? (float)(SLOPE)*x : x;
#elif FUNCTION == GELU
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
#elif FUNCTION == GELU_TANH
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
#elif FUNCTION == SILU
    return x / (1.0f + expf(-x));
#elif FUNCTION == SIGMOID
    return 1.0f / (1.0f + expf(-x));
#else
    return tanhf(x);
#endif
}

// The derivative, from the kept tensor.
static __device__ __forceinline__ float slope(float k) {
#if FUNCTION == RELU
    return k > 0.0f ? 1.0f : k == k ? 0.0f : k;
#elif FUNCTION == RELU6
    return k > 0.0f && k < 6.0f ? 1.0f : k == k ? 0.0f : k;
#elif FUNCTION == LEAKY_RELU
    return k > 0.0f ? 1.0f : k == k ? (float)(SLOPE) : k;
#elif FUNCTION == GELU
    return 0.5f * (1.0f + erff(k * 0.70710678118654752f)) + k * 0.39894228040143268f * expf(-0.5f * k * k);
#elif FUNCTION == GELU_TANH
    const float t = tanhf(0.79788456080286536f * (k + 0.044715f * k * k * k));
    return 0.5f * (1.0f + t) + 0.5f * k * (1.0f - t * t) * 0.79788456080286536f * (1.0f + 0.134145f * k * k);
#elif FUNCTION == SILU
    const float s = 1.0f / (1.0f + expf(-k));
    return s * (1.0f + k * (1.0f - s));
#elif FUNCTION == SIGMOID
    return k * (1.0f - k);
#else
    return 1.0f - k * k;
#endif
}

KERNEL(activation_forward)(const real *x, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) narrow(value(widen(x[i])), &y[i]);
}

KERNEL(activation_backward)(const real *dy, const real *kept, real *dx) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const float gradient = widen(dy[i]) * slope(widen(kept[i]));
#if ADD
    narrow(widen(dx[i]) + gradient, &dx[i]);
#else
    narrow(gradient, &dx[i]);
#endif
}
