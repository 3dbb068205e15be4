// Functions that users' formulas call besides those of C++: gpumem_core::program::formula.
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ float sign_of(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }

// Unlike fminf and fmaxf, the result is NaN if one of the numbers is.
static __device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }
static __device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

// Correct even if exp(-a) is infinite: a small result is a quotient of small numbers.
static __device__ __forceinline__ float sigmoid(float a) {
    const float small = expf(-fabsf(a));
    return (a < 0.0f ? small : 1.0f) / (1.0f + small);
}

static __device__ __forceinline__ float softplus(float a) { return larger(a, 0.0f) + log1pf(expf(-fabsf(a))); }
