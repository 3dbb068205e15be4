// Functions of two numbers, named as in gpumem_core::program::ops::BinaryFunction: each a struct with its value, and its derivative
// for input 0 or 1.
//
// No include guard: the tests include it once for each kernel they compile.

struct Add {
    static __device__ __forceinline__ float value(float a, float b) { return a + b; }
    static __device__ __forceinline__ float slope(int, float, float) { return 1.0f; }
    // True if the slope for input `input` reads input `of`.
    static __device__ constexpr bool reads(int input, int of) { return false; }
};

struct Subtract {
    static __device__ __forceinline__ float value(float a, float b) { return a - b; }
    static __device__ __forceinline__ float slope(int input, float, float) { return input == 0 ? 1.0f : -1.0f; }
    static __device__ constexpr bool reads(int input, int of) { return false; }
};

struct Multiply {
    static __device__ __forceinline__ float value(float a, float b) { return a * b; }
    static __device__ __forceinline__ float slope(int input, float a, float b) { return input == 0 ? b : a; }
    static __device__ constexpr bool reads(int input, int of) { return input != of; }
};

struct Divide {
    static __device__ __forceinline__ float value(float a, float b) { return a / b; }
    static __device__ __forceinline__ float slope(int input, float a, float b) {
        return input == 0 ? 1.0f / b : -(a / b) / b;
    }
    static __device__ constexpr bool reads(int input, int of) { return input == 1 || of == 1; }
};

// Returns the first input's share of the gradient of a maximum: all if it is larger, half if both are equal. NaN has all of it, too.
static __device__ __forceinline__ float share_of(float a, float b) { return a < b ? 0.0f : a == b ? 0.5f : 1.0f; }

// Returns the larger input. NaN stays NaN.
struct Maximum {
    static __device__ __forceinline__ float value(float a, float b) { return a > b || a != a ? a : b; }
    static __device__ __forceinline__ float slope(int input, float a, float b) { return input == 0 ? share_of(a, b) : share_of(b, a); }
    static __device__ constexpr bool reads(int input, int of) { return true; }
};

struct Minimum {
    static __device__ __forceinline__ float value(float a, float b) { return a < b || a != a ? a : b; }
    static __device__ __forceinline__ float slope(int input, float a, float b) { return input == 0 ? share_of(b, a) : share_of(a, b); }
    static __device__ constexpr bool reads(int input, int of) { return true; }
};

// a if that is above 0, else a b.
struct Rectify {
    static __device__ __forceinline__ float value(float a, float b) { return a > 0.0f ? a : a * b; }
    static __device__ __forceinline__ float slope(int input, float a, float b) {
        return input == 0 ? (a > 0.0f ? 1.0f : b) : (a > 0.0f ? 0.0f : a);
    }
    static __device__ constexpr bool reads(int input, int of) { return input == 0 || of == 0; }
};
