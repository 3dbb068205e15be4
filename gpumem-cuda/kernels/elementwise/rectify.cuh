// The elementwise function that is fused into a pass. RECTIFIER is a function of pointwise.cuh without parameters whose slope can be computed from
// its input, or with SLOPE LeakyRelu of that slope. If a kernel has only its output, it is Identity, Relu or Relu6. No include guard: the tests
// include it once for each kernel they compile.
#include "pointwise.cuh"

static __device__ __forceinline__ Arguments rectifier_arguments() {
#ifdef SLOPE
    return {{SLOPE}};
#else
    return Arguments();
#endif
}

static __device__ __forceinline__ float rectify(float x) { return RECTIFIER::value(x, rectifier_arguments()); }

// Returns its derivative from its input. For Identity, Relu and Relu6 the output gives the same.
static __device__ __forceinline__ float rectifier_slope(float x) { return RECTIFIER::slope(x, rectifier_arguments()); }
