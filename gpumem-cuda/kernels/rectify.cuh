// What may follow in the same pass: RECTIFIER is a function of pointwise.cuh without arguments whose slope its input says, or with SLOPE
// LeakyRelu of that slope. Where kernels have its output alone, it is Identity, Relu or Relu6.
// No include guard: the tests include it once for each kernel they compile.
#include "pointwise.cuh"

static __device__ __forceinline__ Arguments rectifier_arguments() {
#ifdef SLOPE
    return {{SLOPE}};
#else
    return Arguments();
#endif
}

static __device__ __forceinline__ float rectify(float x) { return RECTIFIER::value(x, rectifier_arguments()); }

// Its derivative, from what it was given: for those three the same as from what it gives.
static __device__ __forceinline__ float rectifier_slope(float x) { return RECTIFIER::slope(x, rectifier_arguments()); }
