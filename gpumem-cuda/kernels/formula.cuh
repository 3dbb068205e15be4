// What formulas of users call beside the functions of C++: gpumem_core::program::formula.
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ float sign_of(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }

// NaN where one of them is, unlike fminf and fmaxf.
static __device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }
static __device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

// Also where exp(-a) is infinite: a small result is a quotient of small numbers.
static __device__ __forceinline__ float sigmoid(float a) {
    const float small = expf(-fabsf(a));
    return (a < 0.0f ? small : 1.0f) / (1.0f + small);
}

static __device__ __forceinline__ float softplus(float a) { return larger(a, 0.0f) + log1pf(expf(-fabsf(a))); }
