// Functions that formulas call besides those of C++: formulas of users, gpumem_core::program::formula, and formulas of functions of one number,
// gpumem_core::program::functions.
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ float sign_of(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }

// Unlike fminf and fmaxf, the result is NaN if one of the numbers is.
static __device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }
static __device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

// A NaN stays NaN.
static __device__ __forceinline__ float clamp(float a, float least, float most) {
    return a < least ? least : a > most ? most : a;
}

// Returns a if it is NaN, else the other number.
static __device__ __forceinline__ float nan_or(float a, float other) { return a == a ? other : a; }

// Rounds a number as memory stores it.
static __device__ __forceinline__ float stored(float a) {
    real rounded;
    narrow(a, &rounded);
    return widen(rounded);
}

// Correct even if exp(-a) is infinite: a small result is a quotient of small numbers.
static __device__ __forceinline__ float sigmoid(float a) {
    const float small = expf(-fabsf(a));
    return (a < 0.0f ? small : 1.0f) / (1.0f + small);
}

// log(1 + exp(a)), without large intermediate numbers. NaN stays NaN.
static __device__ __forceinline__ float softplus(float a) {
    return (a < 0.0f ? 0.0f : a) + log1pf(expf(-fabsf(a)));
}

// The distribution function of the normal distribution. 1 + erff(..) is not used, because it has no digits left if erff is near -1.
static __device__ __forceinline__ float normal_cdf(float a) { return 0.5f * erfcf(a * -0.70710678118654752f); }

static __device__ __forceinline__ float gelu(float a) { return a * normal_cdf(a); }
static __device__ __forceinline__ float gelu_slope(float a) {
    return normal_cdf(a) + a * 0.39894228040143268f * expf(-0.5f * a * a);
}
