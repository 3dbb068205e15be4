// What may follow in the same pass: RECTIFIER is 0 for nothing, 1 for Relu, 2 for Relu6. As in activation.cu, NaN stays NaN.
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ float rectify(float x) {
#if RECTIFIER == 1
    return x < 0.0f ? 0.0f : x;
#elif RECTIFIER == 2
    return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
#else
    return x;
#endif
}

// Its derivative, from what it was given.
static __device__ __forceinline__ float rectifier_slope(float x) {
#if RECTIFIER == 1
    return x > 0.0f ? 1.0f : x == x ? 0.0f : x;
#elif RECTIFIER == 2
    return x > 0.0f && x < 6.0f ? 1.0f : x == x ? 0.0f : x;
#else
    return 1.0f;
#endif
}
