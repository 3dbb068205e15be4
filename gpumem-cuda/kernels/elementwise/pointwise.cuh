// Elementwise functions of one number. Each is a struct with its value, and its derivative from the saved element: output, input or nothing. If nothing
// is saved, the element is 0. functions.cuh is generated from the formulas of gpumem_core::program::functions.
//
// No include guard: the tests include it once for each kernel they compile.
#include "formula.cuh"

// Parameters of a function, in the order of its row.
struct Arguments {
    double at[2];
};

struct Identity {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x; }
    static __device__ __forceinline__ float slope(float, const Arguments &) { return 1.0f; }
};

#include "functions.cuh"
