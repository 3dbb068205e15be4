// Dropout of one element by its random word.
//
// No include guard: the tests include it once for each kernel they compile.

// Returns the element, scaled or dropped. It is not multiplied by 0, so that a dropped NaN is 0.
static __device__ __forceinline__ float drop(u32 word, u32 threshold, float x, float scale) {
    return word < threshold ? 0.0f : x * scale;
}
