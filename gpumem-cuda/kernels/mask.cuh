// What becomes of an element by its random word.
//
// No include guard: the tests include it once for each kernel they compile.

// Not a product with 0: what is dropped is 0 even if it was NaN.
static __device__ __forceinline__ float drop(u32 word, u32 threshold, float x, float scale) {
    return word < threshold ? 0.0f : x * scale;
}
